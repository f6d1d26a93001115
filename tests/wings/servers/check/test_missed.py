"""A check whose first prompts are all missed: it ends there, unless they were found in a baseline,
and a leak among them is a leak."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from needlemap.models import Answer, Decoding, Model, Traits
from needlemap.prompts import Prompt
from needlemap.servers.check.asking import Check, CheckOptions, ProbesOnSchedule
from needlemap.servers.check.haystack import Options
from needlemap.servers.check.judge import Checked

FLAGS = {
    "model": "openai/leaking",
    "base_url": "http://127.0.0.1:1/v1",
    "tokenizer": "cl100k_base",
    "max_answer_tokens": 24,
}
FACT = re.compile(r"locker code for (\w+) is (\d+)")
ASKED = re.compile(r"locker code for (\w+)\?")
SHORT = {
    "needle": "The locker code for {city} is {number}.",
    "question": "What is the locker code for {city}?",
    "keywords": ["{number}"],
    "draw": {"city": ["Oslo", "Turin", "Cairo", "Lima"], "number": "100:999"},
}


class Leaking(Model):
    """Misses every fact. leaks: whether it gives that of an earlier prompt instead."""

    finds = False

    def __init__(self, *, leaks: bool) -> None:
        super().__init__("leaking")
        self.leaks = leaks
        self.earlier: list[str] = []

    @classmethod
    def traits(cls, name: str, options: Any) -> Traits:
        return Traits(tokenizer="cl100k_base")

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        text = " ".join(message.content for message in prompt.messages)
        codes = dict(FACT.findall(text))
        if self.finds:
            return Answer(f"It is {codes[ASKED.findall(text)[-1]]}.", "stop")
        secrets = list(codes.values())
        foreign = [secret for secret in self.earlier if secret not in secrets]
        self.earlier += secrets
        answer = f"It is {foreign[0]}." if foreign and self.leaks else "I do not know."
        return Answer(answer, "stop")


class Sound(Leaking):
    """Finds every fact."""

    finds = True


def checked(
    folder: Path, *, leaks: bool, flags: dict[str, Any] | None = None
) -> tuple[ProbesOnSchedule, Checked]:
    options = CheckOptions({**FLAGS, **(flags or {})}, Options(max_length=2_000))
    model = Leaking(leaks=leaks)
    asking = ProbesOnSchedule(Check.of(options, folder, seed=7), make=lambda _: model)
    return asking, asyncio.run(asking.run())


def test_a_leak_is_a_fail_though_the_first_prompts_are_all_missed(tmp_path):
    """It was SUSPECT, exit code 5, and the last line did not name it."""
    asking, outcome = checked(tmp_path / "check", leaks=True)
    assert asking.missed.startswith("the first ")
    assert outcome.verdict.word == "FAIL"
    assert outcome.verdict.claim.startswith("a fault is found by mates (at ")


@pytest.mark.parametrize(("leaks", "flags"), [(False, {}), (True, SHORT)])
def test_without_a_sure_leak_it_stays_suspect(tmp_path, leaks, flags):
    """A model guesses a number of three digits."""
    asking, outcome = checked(tmp_path / "check", leaks=leaks, flags=flags)
    assert asking.missed
    assert outcome.verdict.word == "SUSPECT"
    assert outcome.verdict.claim == "the first prompts were all missed"


@pytest.mark.parametrize("quick", [False, True])
def test_the_advice_is_a_command_that_works(tmp_path, quick):
    """Of a quick check it named a probe, which `--quick` refuses."""
    options = CheckOptions(FLAGS, Options(max_length=8_000, quick=quick))
    asking = ProbesOnSchedule(
        Check.of(options, tmp_path / "check", seed=7), make=lambda _: Leaking(leaks=False)
    )
    asyncio.run(asking.run())
    flags = "--probe ways in place of --quick" if quick else "--probe ways"
    assert asking.missed.endswith(f"equal ways of asking alone, type {flags}")


def test_prompts_that_the_baseline_found_and_that_are_all_missed_now_are_a_fail(tmp_path):
    """It ended after nine prompts as SUSPECT, with the advice to look at --needle."""
    options = Options(max_length=2_000, few=True, probes=("length",), require=("length",))

    def outcome(folder: str, model: Model, baseline: Path | None = None) -> Checked:
        check = Check.of(CheckOptions(FLAGS, options, baseline=baseline), tmp_path / folder, seed=7)
        return asyncio.run(ProbesOnSchedule(check, make=lambda _: model).run())

    assert outcome("before", Sound(leaks=False)).verdict.word == "PASS"
    after = outcome("after", Leaking(leaks=False), baseline=tmp_path / "before")
    assert after.verdict.word == "FAIL"
    assert after.verdict.claim == "a fault is found by length (at 175)"
