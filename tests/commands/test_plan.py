"""`needlemap plan` as a user meets it: the real command, which asks nobody and needs no key."""

from __future__ import annotations

import json
import re

import pytest

GRID = ("--lengths", "400:1200:4", "--depths", "0:100:5", "--tokenizer", "cl100k_base")
SMALL = (*GRID, "--max-answer-tokens", "20")
MODES = ["single", "exact", "bins"]
KEYS = {
    "mode",
    "cells",
    "prompts",
    "asked",
    "computed",
    "cached",
    "lanes",
    "cut_loss",
    "idle",
    "speed_up",
    "useful",
    "usd_plain",
    "usd_cached",
    "usd_judge",
    "flops",
    "seconds",
    "held_tokens",
    "any_order",
    "factor",
    "gain",
}
LLAMA = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "hidden_act": "silu",
}


def table(out: str) -> dict[str, list[str]]:
    """The table's rows by their first word."""
    lines = out.split("\n\n")[1].splitlines()
    return {line.split()[0]: re.split(r"\s{2,}", line.strip())[1:] for line in lines}


@pytest.fixture
def plan(needlemap):
    """plan(*flags): its JSON, modes by name."""

    def plan(*flags):
        found = json.loads(needlemap("plan", *SMALL, *flags, "--json").stdout)
        return found | {"modes": {mode["mode"]: mode for mode in found["modes"]}}

    return plan


def test_without_arguments_it_plans_what_run_would_ask(needlemap):
    ended = needlemap("plan")
    assert list(table(ended.stdout)) == ["mode", *MODES]
    assert ended.stderr == ""
    assert list(needlemap.folder.iterdir()) == []
    announced = needlemap(
        "run", "--lengths", "100,128", "--depths", "0", "--repeats", "1", "-o", "r"
    ).stderr
    planned = needlemap(
        "plan", "--lengths", "100,128", "--depths", "0", "--repeats", "1", "--json"
    ).stdout
    assert f"{json.loads(planned)['modes'][0]['asked']:,} prompt tokens" in announced


def test_a_table_of_all_modes_side_by_side(needlemap):
    out = needlemap("plan", *SMALL).stdout
    title, _, notes = out.split("\n\n")
    assert title == (
        "baseline/bm25 · single · 4 lengths x 5 depths x 1 · tokenizer cl100k_base · lanes: 4"
    )
    rows = table(out)
    assert rows["mode"] == [
        "cells",
        "calls",
        "asked",
        "computed",
        "cached",
        "times fewer",
        "vs caching",
    ]
    assert rows["single"][:3] == ["20", "20", "15.6k"]
    assert float(rows["single"][-2]) > 1.2
    assert float(rows["single"][-1]) <= float(rows["exact"][-1]) <= 1
    assert rows["exact"][0] == rows["bins"][0] == "*" or "exact *" in out
    assert float(rows["bins"][-1]) > float(rows["single"][-1])
    assert "* this run's mode. Mode bins computes " in notes
    assert (
        "vs caching: compared with a server with prefix caching and room for all prompts, which"
        in notes
    )
    assert "with 4 requests at a time" in notes
    assert "dollars" not in notes


def test_json_says_the_same_and_more(plan):
    found = plan()
    assert (found["model"], found["mode"], found["repeats"]) == ("baseline/bm25", "exact", 1)
    assert list(found["modes"]) == MODES
    for mode in found["modes"].values():
        assert set(mode) == KEYS
        assert mode["computed"] + mode["cached"] == mode["asked"]
    single, exact = found["modes"]["single"], found["modes"]["exact"]
    assert exact["computed"] < single["computed"] < single["asked"] == 15_600
    assert any("which finds" in note for note in found["notes"])
    assert 0 < found["bins_lower_bound"] < found["modes"]["bins"]["computed"]


def test_a_bound_that_needles_outside_their_bins_undercut_is_not_printed(needlemap):
    """Two depths of half a percent share one prompt: bins computed 700 tokens of 1.29k."""
    out = needlemap("plan", "bm25", "--lengths", "1k", "--depths", "0,0.5").stdout
    assert "vs caching: compared with" in out
    assert "No positions inside" not in out


@pytest.mark.parametrize("mode", [*MODES, "cold"])
def test_the_runs_own_mode_is_marked(needlemap, mode):
    out = needlemap("plan", *SMALL, "--mode", mode).stdout
    marked = re.findall(r"^(\w+) \*", out, re.MULTILINE)
    assert marked == ([] if mode == "cold" else [mode])
    assert ("Mode cold computes all that single asks." in out) == (mode == "cold")


def test_no_key_is_needed_and_listed_prices_are_shown(needlemap):
    flags = ("--model", "openai/gpt-4o", "--concurrency", "1")
    rows = table(needlemap("plan", *SMALL, *flags, "--lengths", "2k,4k").stdout)
    assert rows["mode"][-2:] == ["dollars", "if cached"]
    plain, cached = map(float, rows["exact"][-2:])
    assert 0 < cached < plain
    assert "genai-prices" in needlemap("plan", *SMALL, *flags).stdout


def test_own_prices_count(plan):
    prices = ("--prices", "input=1", "--prices", "cached_input=0", "--prices", "output=100")
    found = plan("--model", "openai/mine", "--base-url", "http://127.0.0.1:9/v1", *prices)
    assert found["prices"] == "your own (--prices)"
    assert found["modes"]["single"]["usd_plain"] == pytest.approx(
        15_600 / 1e6 + 20 * 20 * 100 / 1e6
    )


def test_an_unknown_price_is_no_price(plan, needlemap):
    flags = ("--model", "openai/mine", "--base-url", "http://127.0.0.1:9/v1")
    assert plan(*flags)["modes"]["exact"]["usd_plain"] is None
    assert "dollars" not in needlemap("plan", *SMALL, *flags).stdout


def test_workers_are_lanes(plan):
    alone, three = (
        plan("--workers", "1")["modes"]["exact"],
        plan("--workers", "3")["modes"]["exact"],
    )
    assert (alone["lanes"], alone["cut_loss"], alone["idle"]) == (1, 0, 0)
    assert three["lanes"] == 3
    assert three["computed"] == alone["computed"] + three["cut_loss"]
    assert plan("--concurrency", "2")["modes"]["exact"]["lanes"] == 2


def test_too_many_workers_are_told_what_they_are_worth(plan, needlemap):
    many = plan("--workers", "16")["modes"]["exact"]
    alone = plan("--workers", "1")["modes"]["exact"]
    longest = many["computed"] * (1 / many["lanes"]) / (1 - many["idle"])
    assert many["speed_up"] == pytest.approx(alone["computed"] / longest)
    assert 1 <= many["useful"] < 16
    out = " ".join(needlemap("plan", *SMALL, "--workers", "16").stdout.split())
    assert f"{many['speed_up']:.1f} times as fast as one" in out
    assert f"up to {many['useful']} keep 90%, see needlemap help scaling)" in out
    few = needlemap("plan", *SMALL, "--workers", str(many["useful"])).stdout
    assert "keep 90%" not in few


def test_time_at_a_given_speed(plan, needlemap):
    found = plan("--tokens-per-second", "10", "--workers", "1")["modes"]["exact"]
    assert found["seconds"] == found["computed"] / 10
    out = needlemap("plan", *SMALL, "--tokens-per-second", "10", "--workers", "1").stdout
    assert table(out)["mode"][-1] == "time"
    assert (
        table(out)["single"][-1]
        == f"{plan('--workers', '1')['modes']['single']['computed'] / 600:.1f} min"
    )


def test_operations_of_a_given_model(plan, needlemap):
    config = needlemap.folder / "config.json"
    config.write_text(json.dumps(LLAMA))
    modes = plan("--model-config", config)["modes"]
    assert modes["bins"]["flops"] < modes["single"]["flops"]
    weights = 2 * (4 * 64 * 64 + 3 * 64 * 96)
    assert modes["single"]["flops"] > 2 * weights * 15_600
    assert table(needlemap("plan", *SMALL, "--model-config", config).stdout)["mode"][-1] == "PFLOP"
    speed = ("--tokens-per-second", "10", "--workers", "1")
    flat, grown = (
        plan(*speed, *more)["modes"]["exact"] for more in ((), ("--model-config", config))
    )
    assert flat["seconds"] < grown["seconds"] < 5 * flat["seconds"]  # attention on top


def test_a_cache_that_is_too_small_is_warned_of(plan, needlemap):
    small = ("--cache-tokens", "512", "--concurrency", "4")
    found = plan(*small)["modes"]["exact"]
    assert found["held_tokens"] < 0.9 * found["cached"]
    out = needlemap("plan", *SMALL, *small).stdout
    assert "warning: a cache of 512 tokens serves" in out
    assert "--concurrency" in out
    assert table(out)["mode"][-1] == "server cache"


def test_a_cache_with_room_is_not_warned_of(plan, needlemap):
    large = ("--cache-tokens", "1000000", "--cache-block", "1", "--concurrency", "1")
    found = plan(*large)["modes"]["exact"]
    assert found["held_tokens"] == found["cached"]
    assert "warning" not in needlemap("plan", *SMALL, *large).stdout


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--workers", "0"), "--workers must be above 0, got 0"),
        (("--tokens-per-second", "-5"), "--tokens-per-second must be above 0, got -5"),
        (("--cache-tokens", "0"), "--cache-tokens must be above 0"),
        (("--cache-tokens", "100", "--cache-block", "0"), "--cache-block must be above 0"),
        (("--model-config", "none.json"), "'none.json' is no model configuration"),
        (("--lengths", "50"), "leaves no room"),
        (("--mode", "bin"), "bin"),
        (("--model", "opena/x"), "opena"),
    ],
)
def test_wrong_input_says_what_is_allowed(needlemap, flags, said):
    ended = needlemap("plan", *SMALL, *flags, code=2)
    assert said in ended.stderr
    assert ended.stdout == ""


def test_a_preset_and_chinese_text(needlemap):
    out = needlemap("plan", "bm25", *SMALL, "--language", "chinese").stdout
    assert "x 2 · tokenizer" in out  # the preset's repeats
    assert list(table(out)) == ["mode", *MODES]


def test_what_is_told_beside_the_table_stands_in_the_json_too(plan, needlemap):
    folder = needlemap.folder / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("The harbour was quiet. " * 400)
    found = plan("--haystack-path", folder)
    said = needlemap("plan", *SMALL, "--haystack-path", folder)
    told = [
        line.removeprefix("note: ")
        for line in said.stdout.splitlines()
        if line.startswith("note: ")
    ]
    assert told
    assert all(note in found["notes"] for note in told)
    assert all(
        line.removeprefix("* this run's mode. ") in found["notes"]
        for line in said.stdout.split("\n\n")[-1].splitlines()
    )


def test_depths_that_look_like_shares_are_told_to_be_percents(needlemap):
    said = "note: depths are percents: the deepest is 1 %. Half of the haystack is 50"
    assert said in needlemap("plan", "bm25", "--lengths", "1k", "--depths", "0,0.5,1").stdout
    assert (
        "percents"
        not in needlemap("plan", "bm25", "--lengths", "1k", "--depths", "0,0.5,50").stdout
    )


@pytest.mark.parametrize(
    "lines", [["and so on " * 90_000], [f"Sentence {n} is long. {'x ' * 400}" for n in range(900)]]
)
def test_sentences_that_no_length_holds_are_refused_at_once(typed, lines):
    """Each possible length was tried, from the asked one on: a prompt of 270,000 tokens each."""
    (typed.folder / "near.txt").write_text("\n".join(lines))
    asked = ("--lengths", "2k", "--depths", "0,50", "--tokenizer", "cl100k_base")
    ended = typed("plan", "--distractors", "near.txt", *asked, code=2)
    assert "Length 2,000 leaves no room for a haystack" in ended.stderr
    (least,) = re.findall(r"Use lengths of (\d+) or more", ended.stderr)
    typed("plan", "--distractors", "near.txt", "--lengths", least, *asked[2:])
