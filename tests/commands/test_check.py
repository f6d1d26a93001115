"""`needlemap check`: a sound model passes, a weak one is undecided, and what was found is shown
again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from needlemap.records.families import families_of
from needlemap.reports.page.sheets import Cast, Subject, make_sheets
from needlemap.reports.summary import read_families

SMALL = (
    "--model",
    "demo/retriever",
    "--max-length",
    "256",
    "--max-answer-tokens",
    "24",
    "--quiet",
    "-o",
    "c",
)
PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text("utf-8")
TYPED, PLANNED = (line.split()[1:] for line in re.findall(r"^```sh\n(.*)$", PAGE, re.MULTILINE))
(PRINTED,) = re.findall(r"^```text\n(probe .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROBES = ["comb", "edges", "cache", "nats", "same", "mates", "cut", "distance", "stop"]


def found_by(command: Any, *flags: str, code: int = 0) -> dict[str, Any]:
    """What a check of the model in the box found."""
    found: dict[str, Any] = json.loads(command("check", *SMALL, "--json", *flags, code=code).stdout)
    return found


@dataclass(frozen=True)
class Checked:
    """The check that the page on it shows, with every probe. shown: what it printed; found: its
    JSON."""

    command: Any
    shown: str
    found: dict[str, Any]

    def records(self, family: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.command.records(f"sound/{family}")
        return rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, command_in: Any) -> Checked:
    command = command_in(tmp_path_factory.mktemp("checked"))
    shown = command(*TYPED).stdout
    asked = command.records("sound/grid-160"), command.records("sound/rewarm-256")
    found = json.loads(command(*TYPED, "--json").stdout)
    assert asked == (command.records("sound/grid-160"), command.records("sound/rewarm-256")), (
        "asked twice"
    )
    return Checked(command, shown, found)


def test_a_sound_model_passes_every_probe(whole):
    assert [each["probe"] for each in whole.found["probes"] if each["state"] == "pass"] == PROBES


def test_the_page_shows_what_is_printed(whole):
    lines = iter(whole.shown.splitlines())
    for shown in PRINTED.splitlines():
        start = shown.partition("...")[0].rstrip()
        assert any(line.startswith(start) for line in lines), shown


def test_each_size_has_prompts_that_are_met_cold_and_warm_then(whole):
    (nats,) = [each for each in whole.found["probes"] if each["probe"] == "nats"]
    assert nats["n"] == 24
    for length in (160, 202, 256):
        cold = {row["prompt"]["sha256"]: row for row in whole.records(f"empty-{length}")}
        for name in ("warm", "rewarm"):
            warm = [
                row for row in whole.records(f"{name}-{length}") if row["length_tokens"] == length
            ]
            assert {row["prompt"]["sha256"] for row in warm} == set(cold)
            for row in warm:
                met = cold[row["prompt"]["sha256"]]["cached_tokens"], row["cached_tokens"]
                assert met[0] < 16 < 0.4 * row["prompt_tokens"] < met[1]


def test_needles_stand_at_the_end_of_a_block_and_around_it(whole):
    for length, block in ((160, 64), (256, 16)):
        rows = whole.records(f"edges-{length}")
        starts = sorted({row["prompt"]["positions"][0] for row in rows if row["repeat"] == 0})
        assert len(starts) == 16
        assert starts[-1] - starts[0] == 15
        assert any(start % block == 0 for start in starts[1:-1]), (
            "nothing stands before the haystack"
        )


def test_a_limit_that_may_end_a_check_leaves_its_order_as_it_is(needlemap):
    limits = ("--minutes", "10", "--limit-tokens", "1M")
    (nats,) = found_by(needlemap, "--probe", "nats", *limits)["probes"]
    assert nats["state"] == "pass"
    warm = [row for row in needlemap.records("c/warm-160") if row["length_tokens"] == 160]
    assert min(row["cached_tokens"] for row in warm) > 60


def test_no_probe_passes_on_a_few_answers(needlemap):
    """A limit ends the check after its first four prompts."""
    found = found_by(needlemap, "--probe", "mates", "--limit-tokens", "700", code=4)
    (mates,) = found["probes"]
    assert mates["state"] == "undecided"
    assert mates["said"].endswith("are too few to tell, 6 are the least")


def test_the_plan_counts_prompts_and_tokens_and_asks_nothing(needlemap):
    assert needlemap(*PLANNED).stdout
    said = json.loads(needlemap("check", *SMALL, "--probe", "cut", "--plan", "--json").stdout)
    assert said["total"]["prompts"] == sum(row["prompts"] for row in said["ways"])
    assert 0 < said["total"]["computed"] < said["total"]["sent"]
    assert not (needlemap.folder / "c").exists()


def test_a_model_that_finds_nothing_is_undecided_never_a_fault_of_its_server(needlemap, wire):
    wire.schedule("say:I do not know.", cycle=True)
    flags = (
        "--tokenizer",
        "cl100k_base",
        "--max-length",
        "400",
        "--max-answer-tokens",
        "24",
        "--json",
    )
    model = (
        "--model",
        "openai/m",
        "--base-url",
        wire.base_url,
        "--probe",
        "cut",
        "--probe",
        "distance",
    )
    said = json.loads(needlemap("check", *model, *flags, "-o", "c", code=4).stdout)
    assert {each["state"] for each in said["probes"]} == {"undecided"}


def test_a_server_that_fails_ends_in_words_with_what_is_known(needlemap, wire):
    wire.schedule("500", cycle=True)
    flags = (
        "--tokenizer",
        "cl100k_base",
        "--max-length",
        "400",
        "--max-answer-tokens",
        "24",
        "--retries",
        "0",
    )
    ended = needlemap(
        "check",
        "--model",
        "openai/m",
        "--base-url",
        wire.base_url,
        *flags,
        "-o",
        "c",
        code=4,
    )
    assert "not all was asked" in ended.stderr
    assert "left untested:\n  160 tokens: cache, comb, cut, distance, " in ended.stderr
    assert "\n  400 tokens: " in ended.stderr
    assert "undecided" in ended.stdout


def test_an_address_is_enough_lengths_are_then_another_vocabularys(needlemap, wire):
    away = ("--model", "openai/m", "--base-url", wire.base_url, "--max-length", "400")
    ended = needlemap("check", *away, "--max-answer-tokens", "24", "--probe", "cut", "-o", "c")
    assert (
        "note: the model's vocabulary is not known here: lengths count o200k_base's tokens"
        in ended.stderr
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--probe", "combs"), "Did you mean 'comb'"),
        (("--max-length", "100"), "leaves no room for a check: use"),
        (("--max-length", "many"), "is not a number"),
    ],
)
def test_wrong_flags_say_what_to_type(needlemap, flags, said):
    ended = needlemap(
        "check", "--model", "demo/retriever", "--max-answer-tokens", "24", *flags, code=2
    )
    assert said in ended.stderr


def test_replaying_wants_a_cell_or_a_probe_that_found_something(whole):
    for words, said in (
        (("sound", "--probe", "stop", "--worst"), "found nothing"),
        (("sound", "--probe", "stopp", "--worst"), "has no probe 'stopp'"),
        (("sound/grid-160",), "--probe NAME --worst"),
    ):
        assert said in whole.command("replay", *words, code=2).stderr


def test_its_page_opens_with_the_probes(whole):
    families = families_of(whole.command.folder / "sound")
    cast = Cast.of([Subject(families, read_families(families))])
    (sheet, *_) = make_sheets(cast, [], ("absolute:85",))
    rows = {row["cells"][0]: row["cells"] for row in sheet["table"]["rows"]}
    assert sorted(rows) == sorted(PROBES)
    assert sheet["says"] == f"{len(PROBES)} pass"
    _, state, n, effect, tokens, (said, *_) = rows["stop"]
    assert state[0] == "pass"
    assert effect[0].startswith("+0 [-")
    assert tokens[0].endswith("k")
    assert said == f"0 of {n[0]} answers never ended, 0 of 72 behind the shortest prompts"


def test_each_probe_has_an_effect_with_its_interval_and_tokens_and_time(whole):
    for each in whole.found["probes"]:
        effect = each["effect"]
        assert effect["low"] <= effect["value"] <= effect["high"], each["probe"]
        assert each["tokens"] > 0
        assert each["seconds"] > 0
