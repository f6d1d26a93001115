"""`needlemap run suite:...` as a user meets it: several families, one plan, one report, one
budget."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from needlemap.records.folder import RunFolder
from needlemap.stats.effective import PUBLISHED

SMALL = (
    "# Three of mine.\nsettings: {lengths: [900, 1200], depths: [0, 50, 100], max_answer_tokens: "
    "40}\n"
)
FAMILIES = "families:\n  key: {task: passkey}\n  one: {task: magic}\n  all: {task: multivalue}\n"


@pytest.fixture
def suite(typed) -> str:
    (typed.folder / "mine.yaml").write_text(SMALL + FAMILIES)
    return "suite:mine.yaml"


def asked(folder: Path) -> int:
    """Records of all families, scored or not."""
    return sum(
        len(list(RunFolder(path).every_record())) for path in folder.iterdir() if path.is_dir()
    )


def rows(out: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}


def test_a_run_has_a_folder_a_family_and_one_table(typed, suite):
    ended = typed("run", suite, "--repeats", 2, "-o", "s")
    assert "suite mine: 3 families, 36 trials" in ended.stderr
    assert "report: needlemap report s -o report.html" in ended.stderr
    table = rows(ended.stdout)
    assert table["family"] == ["900", "1.2k", "all", "n"]
    assert table["key"] == table["one"] == ["100.0", "100.0", "100.0", "12"]
    assert table["all"] == ["25.0", "25.0", "25.0", "12"]
    assert table["mean"] == ["75.0", "75.0", "75.0", "-"]
    assert f"the largest whose mean exceeds {100 * PUBLISHED:g}: <900" in ended.stdout
    folder = typed.folder / "s"
    assert sorted(path.name for path in folder.iterdir()) == ["all", "key", "one", "suite.json"]
    assert json.loads((folder / "suite.json").read_text())["families"] == ["key", "one", "all"]
    assert typed("report", "s/one").stdout.startswith(
        "baseline/bm25 · magic"
    )  # a run like any other


def test_the_same_command_again_asks_nothing_and_more_repeats_ask_what_is_new(typed, suite):
    typed("run", suite, "-o", "s")
    before = asked(typed.folder / "s")
    again = typed("run", suite, "-o", "s")
    assert "18 trials" in again.stderr
    assert "18 already scored" in again.stderr
    assert asked(typed.folder / "s") == before == 18
    typed("run", suite, "-o", "s", "--repeats", 2, "--quiet")
    assert asked(typed.folder / "s") == 36


def test_one_budget_holds_over_all_families_and_all_starts(typed, suite):
    """18 prompts of about 1,010 tokens; each also sets 40 aside for its answer."""
    ended = typed("run", suite, "-o", "s", "--limit-tokens", "9k", "--concurrency", 1, code=3)
    assert "stopped by the budget" in ended.stderr
    assert "-o s" in ended.stderr
    spent = sum(
        record.prompt_tokens
        for path in (typed.folder / "s").iterdir()
        if path.is_dir()
        for record in RunFolder(path).every_record()
        if record.prompt_tokens
    )
    assert 7_000 < spent <= 9_000
    told = re.search(r"spent over all starts: ([\d,]+) tokens", ended.stderr)
    assert spent <= int(told[1].replace(",", "")) <= 9_000
    assert rows(ended.stdout)["all"] == ["-", "-", "-", "not", "started"]
    assert "no mean over families yet" in ended.stdout
    first = asked(typed.folder / "s")
    typed("run", suite, "-o", "s", "--limit-tokens", "9k", "--quiet", code=3)
    assert (
        sum(
            record.scored
            for path in (typed.folder / "s").iterdir()
            if path.is_dir()
            for record in RunFolder(path).every_record()
        )
        <= first
    )
    typed("run", suite, "-o", "s", "--quiet")
    assert rows(typed("report", "s").stdout)["all"][-1] == "6"


def test_a_plan_adds_the_families_up(typed, suite):
    assert list(rows(typed("plan", suite).stdout)) == [
        "suite",
        "family",
        "key",
        "one",
        "all",
        "total",
        "times",
    ]
    plan = json.loads(typed("plan", suite, "--json").stdout)
    families = plan["families"].values()
    for name in ("prompts", "asked", "computed", "cached"):
        assert plan["total"][name] == sum(row[name] for row in families) > 0
    assert plan["total"]["prompts"] == 18
    one = json.loads(
        typed(
            "plan",
            "--task",
            "magic",
            "--lengths",
            "900,1200",
            "--depths",
            "0,50,100",
            "--max-answer-tokens",
            40,
            "--json",
        ).stdout
    )
    exact = next(mode for mode in one["modes"] if mode["mode"] == "exact")
    assert {name: plan["families"]["one"][name] for name in ("asked", "computed")} == {
        name: exact[name] for name in ("asked", "computed")
    }


def test_prompts_say_their_family_and_are_those_that_a_run_asks(typed, suite):
    typed("prompts", suite, "-o", "p.jsonl")
    typed("run", suite, "-o", "s", "--quiet")
    lines = [json.loads(line) for line in (typed.folder / "p.jsonl").read_text().splitlines()]
    for family in ("key", "one", "all"):
        records = {record.key for record in RunFolder(typed.folder / "s" / family).records()}
        assert {line["key"] for line in lines if line["family"] == family} == records


def test_a_report_is_a_table_or_a_page_of_all_families_side_by_side(typed, suite):
    typed("run", suite, "-o", "s", "--repeats", 5, "--quiet")
    shown = typed("report", "s", "--rules", "absolute:70").stdout
    assert "mean over families, 95 %: 900 [" in shown
    assert "effective length of the mean: absolute:70 >=1.2k" in shown
    typed("report", "s", "-o", "s.html")
    page = (typed.folder / "s.html").read_text()
    assert "suite" in page.partition("<title>")[2].partition("</title>")[0]
    typed("report", "s", "-o", "s.csv")
    assert len((typed.folder / "s.csv").read_text().splitlines()) == 1 + 3 * 6


def test_a_table_and_a_page_have_the_interval_of_the_mean_over_families(typed, suite):
    """JSON and `list runs` had it, and the two did not."""
    typed("run", suite, "-o", "s", "--repeats", 5, "--quiet")
    overall = json.loads(typed("report", "s", "--json").stdout)["runs"][0]["overall"]
    interval = f"[{overall['low']:.1f}, {overall['high']:.1f}]"
    (line,) = (line for line in typed("report", "s").stdout.splitlines() if "95 %" in line)
    assert line.endswith(f" · all {interval}")
    typed("report", "s", "-o", "s.html")
    page = (typed.folder / "s.html").read_text()
    assert f"Mean over 3 families: {overall['score']:.1f} % {interval}." in page


def test_a_figure_does_not_compare_the_two_families_of_a_suite(typed, tmp_path):
    """It advised to score one family by the rule of the other."""
    (tmp_path / "two.yaml").write_text(
        "settings: {lengths: [900], depths: [0]}\n"
        "families: {one: {task: single}, all: {task: multiquery}}\n"
    )
    typed("run", "suite:two.yaml", "--model", "baseline/bm25", "-o", "two", "--quiet")
    assert typed("report", "two", "-o", "two.svg").stderr == "two.svg\n"


def test_another_suites_folder_and_a_runs_folder_are_refused(typed, suite):
    typed("run", suite, "-o", "s", "--quiet")
    ended = typed("run", "suite:smoke", "-o", "s", "--quiet", code=2)
    assert "'s' holds suite 'mine' (key, one, all), not 'smoke'" in ended.stderr
    typed(
        "run", "passkey", "--lengths", "900", "--depths", "0", "--repeats", 1, "-o", "r", "--quiet"
    )
    ended = typed("run", suite, "-o", "r", "--quiet", code=2)
    assert "'r' holds a run, not a suite" in ended.stderr


def test_a_strangers_suite_names_no_folder_outside_of_its_own(typed):
    (typed.folder / "s").mkdir()
    (typed.folder / "s" / "suite.json").write_text(
        '{"schema_version": 1, "suite": "x", "families": ["../../etc"]}'
    )
    assert "families outside of its folder" in typed("report", "s", code=2).stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--prompts-of", "r"), "--prompts-of is for one run, no suite"),
        (("--task", "kv"), "leave --task out"),
    ],
)
def test_what_a_suite_cannot_do_is_said(typed, flags, said):
    assert said in typed("run", "suite:smoke", *flags, code=2).stderr


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_family_that_cannot_be_made_is_named_and_can_be_left_out(typed, command):
    """Of a suite at a short length, one family's prompts may have no room for a haystack."""
    (typed.folder / "short.yaml").write_text(
        f"settings: {{lengths: [300], depths: [50], max_answer_tokens: 40}}\n{FAMILIES}"
        "  many: {task: passkey, max_answer_tokens: 280}\n"
    )
    line = (command, "suite:short.yaml", *(("-o", "s") if command == "run" else ()))
    refused = typed(*line, code=2).stderr
    assert "Family 'many': Length 300 leaves no room" in refused
    assert "Or leave it out: --skip many" in refused
    assert not (typed.folder / "s" / "key").exists()
    assert "many" not in typed(*line, "--skip", "many").stdout


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("suite:mine.yaml", "--skip", "onee"), "has no family 'onee'. Families: key, one, all."),
        (("suite:mine.yaml", "--skip", "key", "--skip", "one", "--skip", "all"), "Name fewer."),
        (("bm25", "--skip", "key"), "--skip leaves out families of a suite"),
    ],
)
def test_what_cannot_be_left_out_is_refused(typed, line, said):
    assert said in typed("run", *line, code=2).stderr


def test_without_a_folder_the_table_is_all_there_is(typed, suite):
    ended = typed("run", suite, "--no-save")
    assert rows(ended.stdout)["mean"] == ["75.0", "75.0", "75.0", "-"]
    assert "report:" not in ended.stderr
    assert [file.name for file in typed.folder.iterdir()] == ["mine.yaml"]


def test_a_new_label_is_kept_of_families_with_nothing_left_to_ask(typed, suite):
    typed("run", suite, "-o", "s", "--quiet")
    ended = typed("run", suite, "-o", "s", "--quiet", "--label", "mine")
    assert ended.stdout.startswith("suite mine · mine\n")


def test_the_total_of_a_plan_is_as_much_faster_as_its_families_one_behind_the_other(typed, suite):
    plan = json.loads(typed("plan", suite, "--workers", 3, "--json").stdout)
    families, total = plan["families"].values(), plan["total"]
    alone = [row["computed"] - row["cut_loss"] for row in families]
    longest = sum(one / row["speed_up"] for one, row in zip(alone, families, strict=True))
    assert total["speed_up"] == pytest.approx(sum(alone) / longest)
    assert len({row["speed_up"] for row in families}) > 1
    assert total["useful"] == min(row["useful"] for row in families)


def test_a_run_with_one_family_is_not_asked_into_the_folder_of_several(typed, suite):
    typed("run", suite, "-o", "s", "--quiet")
    ended = typed("run", "passkey", "--lengths", "900", "-o", "s", code=2)
    assert "'s' holds suite 'mine' (key, one, all), not a run with one family" in ended.stderr


def test_commands_of_one_run_say_which_take_suites(typed):
    ended = typed("run", "suite:ruler-nia", code=2)
    assert "Unknown suite 'ruler-nia'. Did you mean 'ruler-niah'?" in ended.stderr
    listed = typed("list", "suites").stdout
    assert ["suite:ruler-niah", "RULER's", "eight"] in [
        line.split()[:3] for line in listed.splitlines()
    ]


def test_what_stops_one_family_stops_the_others(needlemap):
    """Nobody answers there: the second family's canary would only wait as long again."""
    (needlemap.folder / "mine.yaml").write_text(SMALL + FAMILIES)
    flags = (
        "--model",
        "openai/m",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--tokenizer",
        "cl100k_base",
    )
    ended = needlemap("run", "suite:mine.yaml", *flags, "--retries", 0, "-o", "s", code=2)
    assert ended.stderr.count("No connection to") == 1


def test_a_server_is_asked_all_families(needlemap, wire):
    (needlemap.folder / "mine.yaml").write_text(SMALL + FAMILIES)
    flags = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    needlemap("run", "suite:mine.yaml", *flags, "-o", "s", "--quiet")
    assert len(wire.log()) == 18


OWN = (
    "settings: {task: single, haystack: folder, lengths: [300, 600], depths: [0, 50], repeats: 4}\n"
    "families:\n"
    "  first: {needle: Oslo is 4711., question: 'What is Oslo?', keywords: ['4711'], "
    "haystack_path: %s}\n"
    "  then: {needle: Lima is 8255., question: 'What is Lima?', keywords: ['8255'], haystack_path: "
    "%s}\n"
    "  last: {needle: Riga is 9013., question: 'What is Riga?', keywords: ['9013'], haystack_path: "
    "%s}\n"
)


def texts(folder: Path, name: str, documents: int, words: dict[int, str] | None = None) -> str:
    """A folder of texts of about 90 tokens each. words: what some of them also say, by number."""
    (folder / name).mkdir()
    for number in range(documents):
        lines = [
            f"On day {number} of page {line} the harbour was quiet again." for line in range(6)
        ]
        (folder / name / f"{number:02d}.txt").write_text(
            " ".join([*lines, (words or {}).get(number, "")])
        )
    return name


def own(needlemap, *sources: str) -> tuple[str, ...]:
    """A suite of three families with texts of their own, as arguments."""
    (needlemap.folder / "own.yaml").write_text(OWN % sources)
    small = ("--tokenizer", "cl100k_base", "--max-answer-tokens", "20", "--no-canary")
    return "suite:own.yaml", *small, "-o", "s"


def test_what_only_a_familys_prompts_show_is_told_in_its_turn_and_stops_no_other(needlemap, wire):
    """Document 2 of `odd` comes early in the second repeat; it was the first that was looked at
    before."""
    plain = texts(needlemap.folder, "plain", 30)
    odd = texts(needlemap.folder, "odd", 30, {2: "Nobody was told that it is 8255 after all."})
    chosen = own(needlemap, plain, odd, plain)
    ended = needlemap("run", *chosen, "--model", "openai/m", "--base-url", wire.base_url, code=3)
    assert "suite own: 3 families, 48 trials\n" in ended.stderr
    assert re.search(r"family 'then' is left out: .*'8255'", ended.stderr)
    assert len(wire.log()) == 32
    assert rows(ended.stdout)["then"][-2:] == ["not", "started"]
    assert rows(ended.stdout)["last"][-1] == "16"


def test_what_can_be_seen_beforehand_stops_a_suite_before_anything_is_asked(needlemap, wire):
    plain, short = texts(needlemap.folder, "plain", 30), texts(needlemap.folder, "short", 4)
    early = texts(needlemap.folder, "early", 30, dict.fromkeys(range(30), "It is 9013 here."))
    asked = ("--model", "openai/m", "--base-url", wire.base_url)
    for last, flags, said in [
        (short, asked, "Family 'last': Haystack 'folder/short' has 336 tokens"),
        (early, asked, "'9013'"),
        ("nowhere", asked, "nowhere"),
        (
            plain,
            (*asked, "--limit-usd", 1),
            "No price is known for 'openai/m', so --limit-usd cannot hold",
        ),
        (plain, ("--model", "openai/m"), "OPENAI_API_KEY"),
    ]:
        assert said in needlemap("run", *own(needlemap, plain, plain, last), *flags, code=2).stderr
    assert not wire.log()
    assert not (needlemap.folder / "s" / "first").exists()


def test_a_family_whose_texts_changed_since_stops_a_resume_before_anything_is_asked(
    needlemap, wire
):
    plain, changing = texts(needlemap.folder, "plain", 30), texts(needlemap.folder, "changing", 30)
    chosen = (
        *own(needlemap, plain, plain, changing),
        "--model",
        "openai/m",
        "--base-url",
        wire.base_url,
    )
    needlemap("run", *chosen, "--repeats", 1)
    before = len(wire.log())
    for file in (needlemap.folder / "changing").iterdir():
        file.write_text(file.read_text().replace("harbour", "station"))
    ended = needlemap("run", *chosen, "--repeats", 2, code=2)
    assert re.search(r"'s.last' holds answers to other prompts", ended.stderr)
    ended = needlemap("run", *chosen, "--repeats", 2, "--temperature", 1, code=2)
    assert re.search(r"'s.first' holds a run with other settings: temperature", ended.stderr)
    assert len(wire.log()) == before


def test_modes_that_choose_their_places_are_counted_as_far_as_is_known(typed, suite):
    bins = typed("run", suite, "-o", "b", "--mode", "bins").stderr
    assert "suite mine: 3 families, 18 trials\n" in bins
    assert (
        "suite mine: 3 families, 18 trials, 18 already"
        in typed("run", suite, "-o", "b", "--mode", "bins").stderr
    )


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("families: {b: {task: passkey, seed: x}}", "family 'b' of suite 's'"),
        ("settings: {seed: x}\nfamilies: {b: {task: passkey}}", "suite 's'"),
    ],
)
def test_a_wrong_value_is_said_to_stand_where_it_stands(typed, text, where):
    """It was said to stand in the command line."""
    (typed.folder / "s.yaml").write_text(text)
    ended = typed("run", "suite:s.yaml", "--model", "baseline/bm25", "-o", "r", code=2)
    assert f"Setting 'seed' in {where}: must be an integer, got 'x'." in ended.stderr
