"""`needlemap check`: a sound model passes, a weak one is suspect, and what was found is shown
again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from needlemap.records.families import families_of
from needlemap.reports.page.sheets import PageRuns, Subject, make_sheets
from needlemap.reports.summary import read_families
from needlemap.servers.check import probes

pytestmark = pytest.mark.timeout(900)  # the whole check of the page, on a busy machine
BOX = ("--model", "demo/retriever", "--max-length", "256", "--max-answer-tokens", "24", "--quiet")
AWAY = ("--tokenizer", "cl100k_base", "--max-length", "400", "--max-answer-tokens", "24")
PAGE = (Path(__file__).parents[4] / "docs" / "check.md").read_text("utf-8")
TYPED, PLANNED = (line.split()[1:] for line in re.findall(r"^```sh\n(.*)$", PAGE, re.MULTILINE))
(PRINTED,) = re.findall(r"^```text\n(probe .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROBES = ("length", "pattern", "cache", "ways", "onset", "mates", "replies", "same", "cut")


def away(wire: Any) -> tuple[str, ...]:
    """Where a server is, and how its tokens are counted here."""
    return "--base-url", wire.base_url, "--tokenizer", "cl100k_base", "--max-answer-tokens", "24"


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
    asked = command.records("sound/cold-160"), command.records("sound/ask-256")
    found = json.loads(command(*TYPED, "--json").stdout)
    again = command.records("sound/cold-160"), command.records("sound/ask-256")
    assert asked == again, "asked twice"
    return Checked(command, shown, found)


@pytest.mark.long
def test_a_sound_model_passes_every_probe_up_to_its_longest_prompts(whole):
    assert (whole.found["result"]["word"], whole.found["exit_code"]) == ("PASS", 0)
    states = {each["probe"]: each["state"] for each in whole.found["probes"] if each["decides"]}
    assert {name: states[name] for name in (*PROBES, "stop")} == dict.fromkeys(
        (*PROBES, "stop"), "PASS"
    )
    for each in whole.found["probes"]:
        if each["decides"] and each["sizes"]:
            assert each["passes_to"] == 256, each["probe"]
            assert each["tokens"] > 0


@pytest.mark.long
def test_the_page_shows_what_is_printed(whole):
    lines = iter(whole.shown.splitlines())
    for shown in PRINTED.splitlines():
        start = shown.partition("...")[0].rstrip()
        assert any(line.startswith(start) for line in lines), shown


@pytest.mark.long
def test_the_last_line_says_what_is_found_at_each_length(whole):
    line = r"PASS check: .* found 160 \d+ of \d+, 202 \d+ of \d+, 256 \d+ of \d+; .*"
    assert re.fullmatch(line, whole.shown.splitlines()[-1])
    assert whole.found["result"]["line"] == whole.shown.splitlines()[-1]
    assert whole.found["not_asked"] == []


@pytest.mark.long
def test_a_paired_probe_says_which_loss_it_excludes_at_each_size(whole):
    (cache,) = [each for each in whole.found["probes"] if each["probe"] == "cache"]
    for row in cache["sizes"]:
        assert row["n"] >= 24
        assert 0 < row["upper"] < 25


@pytest.mark.long
def test_cold_prompts_meet_an_empty_cache_and_all_others_a_full_one(whole):
    for length in (160, 202, 256):
        cold = {row["prompt"]["sha256"]: row for row in whole.records(f"cold-{length}")}
        warm = {row["prompt"]["sha256"]: row for row in whole.records(f"warm-{length}")}
        assert set(cold) == set(warm)
        assert max(row["cached_tokens"] for row in cold.values()) < 16
        assert median(row["cached_tokens"] for row in warm.values()) > 0.3 * length


@pytest.mark.long
def test_haystacks_of_all_sizes_are_asked_in_turn(whole):
    """A check that is stopped early knows a little of the longest prompts."""
    times = {
        length: [row["finished_at"] for row in whole.records(f"cold-{length}")]
        for length in (160, 256)
    }
    assert min(times[256]) < sorted(times[160])[4]


def test_a_check_that_is_stopped_says_what_was_not_asked(needlemap):
    ended = needlemap("check", *BOX, "--limit-tokens", "12k", "--json", "-o", "c", code=4)
    found = json.loads(ended.stdout)
    assert "found 160 " in found["result"]["evidence"]
    assert {row["n"] > 0 for row in found["probes"][0]["sizes"]} == {True}, "all sizes"
    assert "not all was asked" in ended.stderr
    assert needlemap("check", *BOX, "--limit-tokens", "12k", "--on-undecided", "pass", "-o", "c")


def test_prompts_of_the_usual_length_are_sent(needlemap, wire):
    """The bound on what a task draws took the tokens of a haystack for such a number, so that each
    check beyond 10,000 tokens was refused, with the length that is usual."""
    limited = ("--probe", "length", "--limit-tokens", "1.5M", "--quiet", "-o", "c")
    needlemap("check", *away(wire), *limited, "--exit-zero", code=0)
    asked = needlemap.records("c/ask-128000")
    assert {row["score"] for row in asked} == {1.0}
    assert max(row["length_tokens"] for row in asked) > 127_000


@pytest.mark.long
def test_the_shortest_command_asks_every_probe_at_the_usual_length(needlemap, wire):
    """Other tests of long checks replay one, or plan one."""
    typed = ("check", *away(wire), "--minutes", "1", "--exit-zero", "--json", "--quiet", "-o", "c")
    said = json.loads(needlemap(*typed).stdout)
    assert said["sizes"] == [8_000, 32_000, 128_000]
    tried = {row["probe"]: row for row in said["probes"] if row["sizes"]}
    assert set(tried) >= {*PROBES} - {"ways"}, "it needs log-probabilities"
    assert {row["state"] for row in tried.values()} <= {"PASS", "NOT ENOUGH DATA"}
    assert all(row["sizes"][-1]["size"] == 128_000 for row in tried.values())
    assert all(row["sizes"][-1]["n"] > 0 for row in tried.values())


def test_the_plan_counts_prompts_and_tokens_and_asks_nothing(needlemap):
    assert needlemap(*PLANNED).stdout
    typed = ("--plan", "--json", "--tokens-per-second", "1000", "-o", "c")
    said = json.loads(needlemap("check", *BOX, *typed).stdout)
    whole, most = said["plan"]
    assert 0 < whole["computed"] < whole["sent"]
    assert whole["computed"] < most["computed"]
    assert whole["minutes"] == pytest.approx(whole["computed"] / 60_000, abs=0.1)
    assert not (needlemap.folder / "c").exists()


def test_a_plan_stays_within_the_context_of_the_server_that_lists_its_model(needlemap, wires):
    """It priced prompts of 128k for a server whose context is 4k."""
    wire = wires("--models", "m", "--lists", "4000")
    typed = ("check", *away(wire), "--plan", "--json")
    listed = needlemap(*typed)
    assert "the server's context is 4,000 tokens" in listed.stderr
    assert max(json.loads(listed.stdout)["sizes"]) <= 4_000
    assert wire.log() == []
    wire.stop()
    named = needlemap(*typed, "--model", "openai/m")
    assert "planned to 128,000 tokens, as the context is not known" in named.stderr
    assert max(json.loads(named.stdout)["sizes"]) == 128_000


def test_a_model_that_misses_its_first_prompts_gets_one_line_with_what_to_try(needlemap, wire):
    wire.schedule("say:I do not know.", cycle=True)
    model = ("--model", "openai/m", "--base-url", wire.base_url)
    ended = needlemap("check", *model, *AWAY, "-o", "c", code=5)
    (said,) = [line for line in ended.stderr.splitlines() if "were all missed" in line]
    for flag in ("--needle", "--question", "--draw"):
        assert flag in said
    (last,) = ended.stdout.splitlines()
    assert last.startswith("SUSPECT check: the first prompts were all missed")
    assert "--minutes" not in last, "more time would not help"


def test_a_server_that_fails_ends_in_words(needlemap, wire):
    wire.schedule("500", cycle=True)
    model = ("--model", "openai/m", "--base-url", wire.base_url)
    ended = needlemap("check", *model, *AWAY, "--retries", "0", "-o", "c", code=2)
    assert "No answer ever came: " in ended.stderr


def test_without_a_model_and_an_address_nothing_is_checked(needlemap):
    ended = needlemap("check", code=2)
    assert "--base-url" in ended.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--probe", "patern"), "Did you mean 'pattern'"),
        (("--max-length", "100"), "leaves no room for a check: use"),
        (("--max-length", "many"), "is not a number"),
        (("--require", "9k"), "--require 9k: no size and no probe"),
        (("--accept", "length"), "give PROBE@SIZE"),
    ],
)
def test_wrong_flags_say_what_to_type(needlemap, flags, said):
    """--require and --accept were read when all was asked."""
    small = ("--max-length", "256") if flags[0] != "--max-length" else ()
    typed = ("--model", "demo/retriever", "--max-answer-tokens", "24", *small, *flags)
    assert said in needlemap("check", *typed, "-o", "c", code=2).stderr
    assert not (needlemap.folder / "c").exists()


@pytest.mark.long
def test_replaying_wants_a_cell_or_a_probe_that_found_something(whole):
    for words, said in (
        (("sound", "--probe", "stop", "--worst"), "found nothing"),
        (("sound", "--probe", "stopp", "--worst"), "has no probe 'stopp'"),
        (("sound/cold-160",), "--length and --depth of a cell"),
    ):
        assert said in whole.command("replay", *words, code=2).stderr


@pytest.mark.long
def test_every_prompt_can_be_rebuilt(whole):
    for family in ("ask-256", "edges-256", "tail-160", "short-112"):
        row = whole.records(family)[0]
        cell = ("--length", str(row["length_tokens"]), "--depth", f"{100 * row['depth']:.10g}")
        typed = (f"sound/{family}", *cell, "--repeat", str(row["repeat"]))
        assert "the same bytes as recorded" in whole.command("replay", *typed).stderr


@pytest.mark.long
def test_its_page_opens_with_the_answer_and_what_was_found_by_length(whole):
    """It opened with "9 pass", and what was not tried was nowhere in it."""
    families = families_of(whole.command.folder / "sound")
    cast = PageRuns.of([Subject(families, read_families(families))])
    (sheet, *_) = make_sheets(cast, [], ("absolute:85",))
    rows = {row["cells"][0]: row["cells"] for row in sheet["table"]["rows"]}
    assert set(PROBES) <= set(rows)
    # `usage` cannot fail, so it does not count.
    passes = sum(row[1][0] == "PASS" for name, row in rows.items() if name != "usage")
    assert sheet["answer"].startswith(f"PASS check: {passes} probes pass at 160, 202, 256")
    assert sheet["answer"].endswith("not tested: load, reference, window.")
    assert [head for head, *_ in sheet["readings"]][:2] == ["Found at 160", "Found at 202"]
    # There is no finding, so no curve.
    assert sheet["chart"] == ""
    assert any(line.startswith("not tried: reference needs ") for line in sheet["lines"])
    assert any(line.startswith("not seen without --reference: ") for line in sheet["lines"])
    assert set(cast.groups()) >= {"160 tokens", "202 tokens", "256 tokens"}


@pytest.mark.long
def test_its_report_says_the_last_line_on_the_terminal_and_in_markdown(whole):
    *_, last = whole.shown.splitlines()
    assert whole.command("report", "sound").stdout.splitlines()[-1] == last
    assert last.startswith("PASS check: ")
    whole.command("report", "sound", "-o", "check.md")
    text = (whole.command.folder / "check.md").read_text("utf-8")
    assert text.startswith("**PASS check\\: ")
    assert "check, demo/retriever" in text
    assert "| same | PASS | 256 |" in text


def test_the_page_lists_the_probes_as_their_classes_say_it():
    for probe in probes().values():
        row = f"| `{probe.name}` | {probe.asked} | {probe.sees} | {probe.cannot} |"
        assert row in PAGE, probe.name
