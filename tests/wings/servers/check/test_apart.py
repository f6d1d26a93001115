"""Haystacks of a check share no text: what a cache holds of one is nothing of another."""

from __future__ import annotations

from itertools import pairwise

import pytest

from needlemap.servers.apart import drawn_apart
from needlemap.servers.check import families
from needlemap.servers.check.families import make_asker
from needlemap.servers.check.haystack import Options

SHORT = Options(max_length=2_000, few=True)
HEAD = 200  # characters of a template and a first line, of prompts of 5,000 and more


def test_the_first_prompt_of_each_size_is_cold_though_shorter_ones_were_asked_before(tmp_path):
    """A server that is wrong where nothing of a long prompt is cached was passed: the prompts of a
    size began as those of the size below, which its cache held."""
    asker = make_asker({"model": "baseline/bm25"}, Options(max_length=2_000), 7, tmp_path)
    first = [next(h for h in asker.schedule.first_round if h.size == size) for size in sizes(asker)]
    texts = [text_of(asker, haystack.cold) for haystack in first]
    assert all(one[:HEAD] != other[:HEAD] for one, other in pairwise(texts))


def test_no_secret_stands_in_two_haystacks(tmp_path):
    """One that stands in a longer haystack too was no foreign one there."""
    asker = make_asker({"model": "baseline/bm25"}, Options(max_length=2_000), 7, tmp_path)
    haystacks = {h.cold.haystack: h.cold for h in asker.schedule.first_round}
    secrets = [secret for ask in haystacks.values() for secret in asker.secrets(ask)]
    assert len(secrets) == len(set(secrets)) > 100


def test_a_fact_starts_at_the_token_that_its_reply_names(tmp_path):
    """Places were counted in tokens of the haystack, without those of the facts before."""
    flags = {"model": "baseline/bm25", "tokenizer": "o200k_base"}
    asker = make_asker(flags, Options(max_length=2_000), 7, tmp_path)
    haystacks = [h for h in asker.schedule.first_round if not h.is_short][:12]
    asks = [ask for haystack in haystacks for ask in haystack.questions if ask.fact < ask.facts - 1]
    off = [start_of(asker, ask) - true_start(asker, ask) for ask in asks]
    assert off.count(0) > 0.8 * len(off)  # where text joins across a seam, it is off
    assert len(off) > 40


def test_a_haystack_is_made_once_though_its_crowd_stands_between(tmp_path, monkeypatch):
    """What is asked beside a first prompt has haystacks of its own, behind which the first one's
    was made again."""
    served = {"model": "openai/x", "base_url": "http://h/v1", "tokenizer": "o200k_base"}
    asker = make_asker(served, SHORT, 7, tmp_path)
    made = families.Repeat.of.__func__
    counted = []

    def count(cls, *args):
        counted.append(args)
        return made(cls, *args)

    monkeypatch.setattr(families.Repeat, "of", classmethod(count))
    crowded = next(
        each for each in asker.schedule.first_round if each.is_crowded and not each.is_short
    )
    asks = [ask for batch in crowded.batches for ask in batch.asks]
    assert any(ask.way == "crowd" for ask in asks)
    for ask in asks:
        asker.experiment([ask])
    assert len(counted) == len({ask.haystack for ask in asks})


@pytest.mark.parametrize("count", [1, 2])
def test_a_number_in_which_the_gauge_loses_its_place_is_drawn_again(count):
    """One of 50,000 numbers holds six digits twice; the gauge, which never misses, missed them."""
    numbers = ["347474747824", "271828182845", "555555512345"]
    choices = {"city": [f"Town {number}" for number in range(20)], "number": numbers}
    for repeat in range(40):
        rows = drawn_apart(choices, repeat, seed=7, count=count, question="Where is {city}?")
        assert [row["number"] for row in rows] == ["271828182845"] * count


def test_a_number_that_the_user_wants_is_taken_though_its_digits_stand_twice():
    [row] = drawn_apart({"number": ["000000000000"]}, 0, seed=7, count=1, question="Which?")
    assert row == {"number": "000000000000"}


def start_of(asker, ask):
    prompt = asker.experiment([ask])[ask.key].prompt
    texts = [needle.text for needle in asker.experiment([ask])[ask.key].item.needles]
    return asker.start(prompt.positions, texts)


def true_start(asker, ask):
    text, secret = text_of(asker, ask), asker.secrets(ask)[ask.fact]
    needle = asker.experiment([ask])[ask.key].item.needles[0].text.strip()
    assert secret in needle
    stops = asker.base.tokenizer.index(text.encode()).offsets[1:]
    before = len(text[: text.index(needle)].encode())
    return sum(stop <= before for stop in stops)


def sizes(asker):
    return asker.schedule.sizes


def text_of(asker, ask):
    messages = asker.experiment([ask])[ask.key].prompt.messages
    return "".join(message.content for message in messages)
