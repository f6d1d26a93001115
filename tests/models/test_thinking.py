"""Reasoning models: what they thought is kept apart from what they answered, wherever a server puts
it."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from typing import Any

import pytest

from needlemap.models import Answer, Decoding
from needlemap.models.thinking import ends_in_thought, parted, split_thinking
from needlemap.prompts import Prompt

THOUGHT = "Let me see. The question asks for a code; the text holds one."
NEEDLE = "The locker code for Turin is 51328."
GRID = ("--lengths", "200", "--depths", "50", "--thinking-tokens", "60")
STYLES = ("reasoning", "reasoning-openrouter", "reasoning-parts", "think-inline", "think-template")


@pytest.mark.parametrize(("opening", "closing"), [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
def test_thoughts_end_where_their_mark_says(opening, closing):
    for text in (
        f"{opening}\nHm.\n{closing}\n\n42",
        f"  {opening}Hm.{closing}42",
        f"Hm.\n{closing}42",
    ):
        assert parted(text) == ("Hm.", "42")
    assert parted(f"{opening}Hm. 42") == parted(f"{opening} Hm. 42 ")
    assert parted(f"{opening}Hm. 42") == ("Hm. 42", "")


def test_a_mark_inside_an_answer_is_part_of_it():
    assert parted("Write <think> to begin.").answer == "Write <think> to begin."


def test_a_template_that_opens_the_thoughts_is_seen_at_the_prompts_end():
    ends = ("<|im_start|>assistant\n<think>\n", "<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert [ends_in_thought(Prompt.plain([("text", end)])) for end in ends] == [True, False]
    cut = Answer("Hm. The code is 42, I think", "length")
    assert split_thinking(cut, Decoding(), opened=True).text == ""
    assert split_thinking(cut, Decoding()).text == cut.text


def test_a_cut_off_text_longer_than_an_answer_may_be_is_a_thought_that_the_template_opened():
    """Scored as an answer, a thought that quotes the needle would be a hit."""
    cut = Answer("The text says 51328. Let me check", "length", completion_tokens=100)
    assert split_thinking(cut, Decoding(40, thinking_tokens=60)).thinking == cut.text
    assert split_thinking(cut, Decoding(100)).thinking is None


def asked(needlemap: Any, wire: Any, fault: str, *flags: str) -> dict[str, Any]:
    """The only record of a run whose model behaves so."""
    wire.schedule(fault)
    needlemap.run(wire, *GRID, "--no-canary", *flags, code=0)
    (record,) = needlemap.records()
    return record


@pytest.mark.parametrize("style", STYLES)
def test_thinking_and_answer_are_told_apart_in_every_dialect(needlemap, wire, style):
    record = asked(needlemap, wire, style)
    assert (record["thinking"], record["answer"], record["score"]) == (THOUGHT, NEEDLE, 1.0)
    assert record["outcome"] == "scored"
    assert record["completion_tokens"] == 13 + 7
    told = style.startswith("reasoning")
    assert record["thinking_tokens"] == (13 if told else None)


@pytest.mark.parametrize("style", STYLES)
def test_a_thinking_budget_that_is_spent_leaves_no_answer_and_says_so(needlemap, wire, style):
    record = asked(needlemap, wire, f"{style}-spent")
    assert (record["answer"], record["score"], record["outcome"]) == (
        "",
        0.0,
        "thinking budget spent",
    )
    assert record["finish"] == "length"
    assert record["thinking"].startswith("Hm. Hm.")


def test_anthropic_is_asked_to_think_within_its_budget(needlemap, wire):
    flags = ("--model", "anthropic/claude-x", "--thinking-tokens", "2048", "--temperature", "none")
    record = asked(needlemap, wire, "reasoning", *flags)
    assert (record["thinking"], record["answer"], record["thinking_tokens"]) == (
        THOUGHT,
        NEEDLE,
        13,
    )
    body = wire.log()[0]["body"]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert body["max_tokens"] == 2048 + 40
    assert "temperature" not in body


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ("--thinking-tokens", "2048"),
            "takes no temperature with thinking: add --temperature none",
        ),
        (("--thinking-tokens", "100", "--temperature", "none"), "is at least 1024 tokens, got 100"),
    ],
)
def test_what_anthropic_would_refuse_is_said_before_it_is_sent(needlemap, wire, flags, says):
    ended = needlemap.run(wire, *GRID, "--model", "anthropic/claude-x", *flags, code=2)
    assert says in ended.stderr
    assert wire.log() == []


def test_both_budgets_are_asked_for_together(needlemap, wire):
    asked(needlemap, wire, "ok")
    assert wire.log()[0]["body"]["max_tokens"] == 60 + 40


def test_the_field_of_the_budget_is_learned_from_one_refusal(needlemap, wire):
    wire.schedule("wants:max_completion_tokens", cycle=True)
    needlemap.run(wire, "--lengths", "200,300", "--depths", "0,50,100")
    assert len(wire.log()) == 6 + 1
    assert ["max_tokens" in request["body"] for request in wire.log()] == [True] + [False] * 6
    assert {record["attempts"] for record in needlemap.records()} == {1}


def test_a_field_that_the_user_named_is_kept(needlemap, wire):
    wire.schedule("wants:max_completion_tokens", cycle=True)
    flags = ("--model-options", "max_tokens_field=max_tokens")
    ended = needlemap.run(wire, *GRID, *flags, code=2)
    assert "Use 'max_completion_tokens' instead" in ended.stderr
    assert len(wire.log()) == 1


def test_a_long_thought_is_kept_with_its_beginning_and_its_end(needlemap):
    (needlemap.folder / "mine.py").write_text(
        "from needlemap.models import Answer\n"
        "def f(messages):\n    return Answer('42', thinking='a' * 30_000 + 'z')\n"
    )
    flags = ("--model", "python/mine:f", "--lengths", "1k", "--depths", "0", "-o", "r")
    needlemap("run", *flags)
    thinking = needlemap.records()[0]["thinking"]
    assert len(thinking) == 20_000
    assert thinking.startswith("aaa")
    assert thinking.endswith("z")
    assert "\n[...]\n" in thinking


def test_the_share_of_answers_that_were_cut_off_is_reported(needlemap, wire):
    wire.schedule("ok", "reasoning-spent", "ok", "say:" + "word " * 50)
    ended = needlemap.run(wire, "--lengths", "200", "--depths", "0:100:4", "--concurrency", "1")
    assert "outcomes: 2 scored · 1 answer budget spent · 1 thinking budget spent" in ended.stderr
    assert "cut off: 2/4 = 50.0 % [13.8, 86.2] of the answers" in needlemap("report", "r").stdout


def test_a_spent_thinking_budget_is_drawn_apart_from_a_wrong_answer(needlemap, wire):
    """Both were a zero like any other: on the map nobody saw that a larger budget would mend it."""
    wire.schedule("ok", "reasoning-spent", "say:I do not know.", "ok")
    depths = ("--depths", "0,30,60,90", "--concurrency", "1", "--no-canary")
    ended = needlemap.run(wire, "--lengths", "200", *depths, "--map")
    rows = [line.split()[:2] for line in ended.stdout.splitlines() if "%" in line[:9]]
    assert ["30%", "0…"] in rows or any("0…" in line for line in ended.stdout.splitlines())
    assert sum("…" in line for line in ended.stdout.splitlines()) == 1
    assert "(1 thinking budget spent)" in needlemap("report", "r").stdout
    needlemap("report", "r", "-o", "map.svg")
    figure = (needlemap.folder / "map.svg").read_text("utf-8")
    assert figure.count("1 thinking budget spent") == 1  # the cell's words
    assert ">thinking budget spent<" in figure  # the legend
    needlemap("report", "r", "-o", "page.html")
    page = (needlemap.folder / "page.html").read_text("utf-8")
    (data,) = re.findall(r'id="summary">([\w+/=]+)</script>', page)
    (run,) = json.loads(gzip.decompress(b64decode(data)))["runs"]
    assert run["chart"].count(">thinking budget spent<") == 1
    assert "thinking budget spent" in [name for name, *_ in run["facts"]]


def test_a_map_without_thinking_has_no_such_mark(needlemap, wire):
    wire.schedule("ok", "say:I do not know.")
    grid = ("--lengths", "200", "--depths", "0,50", "--concurrency", "1", "--no-canary")
    assert "…" not in needlemap.run(wire, *grid, "--map").stdout
    needlemap("report", "r", "-o", "map.svg")
    assert "thinking budget" not in (needlemap.folder / "map.svg").read_text("utf-8")
