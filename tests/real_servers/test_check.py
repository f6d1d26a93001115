"""`needlemap check` of real servers: honest ones pass, and what was set wrong on purpose is named."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.timeout(900)
SMALL = ("--max-length", "256", "--load", "4", "--json", "-o", "c")


def verdicts(asking, served, *flags, code=0):
    ended = asking("check", served, "--tokenizer", asking.checkpoint, *SMALL, *flags, code=code)
    return {each["probe"]: each for each in json.loads(ended.stdout)["probes"]}


def states(found):
    return {name: each["state"] for name, each in found.items()}


@pytest.mark.parametrize("slots", [1, 4])
def test_an_honest_server_passes_every_probe(llama, asking, slots):
    found = verdicts(asking, llama(slots))
    assert set(states(found).values()) == {"pass"}, found
