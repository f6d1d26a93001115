"""Each reported fault does what its thread reports once its sequence is there, and a sound engine
answers the same sequence right."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from boxed_engine import Engine
from reported_faults import REPORTED, make_engine

Turns = list[tuple[str, str]]


def conversation(seed: str, words: int) -> tuple[Turns, str, str]:
    """A prompt of so many words that asks for the first of two codes, that code, and the name
    behind the other one."""
    random = Random(seed)
    code = "".join(random.choices("0123456789", k=12))
    fact = f"The locker code for Ada is {code}. The locker code for Bea is {code[::-1]}."
    filler = " ".join(random.choices(["sea", "sun", "oak", "tin", "owl"], k=words))
    return [("user", f"{seed} {fact} {filler} What is the locker code for Ada?")], code, code[::-1]


async def count_wrong(engine: Engine, name: str) -> int:
    """How many of the answers to the sequence of a fault are wrong."""
    wrong = 0

    async def ask(turns: Turns, code: str) -> str:
        nonlocal wrong
        text, *_ = await engine.answer(turns, 60)
        wrong += code not in text
        return text

    for number in range(60 if REPORTED[name][0].rate == 1 else 300):
        size = (1_500 if name == "poisoned" else 300) + number % 16
        turns, code, other = conversation(f"Story {number}.", size)
        if name == "full-cache":
            pair = conversation(f"Tale {number}.", size)
            await asyncio.gather(ask(turns, code), ask(pair[0], pair[1]))
            continue
        text = await ask(turns, code)
        asked = ("user", "What is the locker code for Bea?")
        if name == "third-tier":
            for each in range(25):
                await engine.answer(conversation(f"Flood {number} {each}.", 150)[0], 60)
        if name in ("repeat", "third-tier", "poisoned"):
            await ask(turns, code)
        elif name == "reuse-chunks":
            late = f"{turns[0][1]} {'so ' * 20} The locker code for Cy is {other}. {'so ' * 30}"
            await ask([("user", late + "What is the locker code for Cy?")], other)
        elif name != "handover":
            await ask([*turns, ("assistant", text), asked], other)
        if wrong > 2:
            break
    return wrong


def test_a_page_that_is_copied_is_not_evicted_first():
    """A storm of a sound engine found that: at a full cache the page that was to be copied was the
    one that was freed for the copy, so the question was lost."""

    async def ask_twice(words: int) -> bool:
        turns, code, _ = conversation("Story.", words)
        engine = Engine(host=0)
        await engine.answer(turns, 60)
        engine.free.clear()  # other requests hold them
        return (await engine.answer(turns, 60))[0] == f"{code}."

    assert all(asyncio.run(ask_twice(words)) for words in range(300, 316))


@pytest.mark.parametrize("name", REPORTED)
def test_a_reported_fault_acts_on_its_sequence(name: str) -> None:
    pages = 160
    assert asyncio.run(count_wrong(Engine(pages=pages), name)) == 0
    assert asyncio.run(count_wrong(make_engine(name, pages=pages), name)) > 0
