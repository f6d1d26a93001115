"""Storms of a real llama-server that serves the gauge: it is not blamed; a proxy in front of it
that mixes up, cuts or replays answers is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "servers"))

from between import SPOILT, Spoiling, between

SIZES = ("--max-length", "1200", "--load", "4", "--minutes", "5", "--quiet")
EVERY = 15  # answers, one of which is spoilt: one in 200 takes many minutes


def test_a_sound_server_is_not_blamed(gauge_server, needlemap):
    limit = ("--limit-tokens", "60k")
    asked = ("storm", "--base-url", gauge_server.base_url, *SIZES, *limit, "--json", "-o", "s")
    found = json.loads(needlemap(*asked, code=4).stdout)
    assert found["counts"]["right"] == found["requests"] > 0


@pytest.mark.parametrize("name", SPOILT)
def test_a_proxy_that_spoils_answers_is_found(gauge_server, needlemap, name):
    with between(gauge_server.root, replied=Spoiling(name, EVERY)) as root:
        named = ("--model", "openai/gauge", "--base-url", f"{root}/v1")
        shown = needlemap("storm", *named, *SIZES, "-o", "p", code=1).stdout
    assert ("the gauge answers all prompts right" if name == "cut" else "\nforeign: ") in shown
