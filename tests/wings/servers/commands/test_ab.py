"""`needlemap ab`: two arms get the same prompts, and the verdict is an exit code."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from tests.models.test_likelihood import Box

from needlemap import load
from needlemap.models.demo import DATA
from needlemap.records.families import families_of
from needlemap.reports.page.sheets import PageRuns, Subject, make_sheets
from needlemap.reports.summary import read_families
from needlemap.servers.ab.campaign import Ab, AbOptions, first_open
from needlemap.servers.ab.file import Arm
from needlemap.settings.suites import choose_each
from needlemap.stats.effective import RULES

WIRE = Path(__file__).parents[3] / "servers" / "wire.py"
FLAGS = (
    "--tokenizer",
    "cl100k_base",
    "--lengths",
    "300,400",
    "--depths",
    "20,70",
    "--quiet",
    "-o",
    "ab",
)


@pytest.fixture
def ab(needlemap: Any) -> Any:
    """ab(reference, other, flags, code): an ab of pass keys, as JSON."""

    def run(reference: str, other: str, *flags: str, code: int) -> dict[str, Any]:
        arms = ("--arm", f"ref={reference}", "--arm", f"new={other}")
        said = needlemap("ab", "passkey", *arms, *FLAGS, "--json", *flags, code=code).stdout
        found: dict[str, Any] = json.loads(said or "{}")
        return found

    return run


def test_a_worse_arm_ends_it_with_1_and_the_rest_is_saved(ab, needlemap):
    found = ab("baseline/bm25", "baseline/random", "--until", "decided", code=1)
    assert found["result"]["word"] == "FAIL"
    assert found["asked"] + found["saved"] == 20_000
    assert found["lost"] > found["gained"] == 0
    assert len(found["worst"]) == 10
    assert len(needlemap.records("ab/ref-passkey")) == len(needlemap.records("ab/new-passkey"))


def test_an_equal_arm_is_no_worse_and_ends_with_0(ab):
    found = ab("baseline/bm25", "baseline/bm25", "--until", "decided", "--margin", "20", code=0)
    assert (found["result"]["word"], found["margin"], found["worst"]) == ("PASS", 20, [])


def test_too_few_pairs_are_undecided_with_4_unless_that_passes(ab, needlemap):
    found = ab("baseline/bm25", "baseline/bm25", "--until", "8", code=4)
    assert (found["asked"], found["saved"]) == (8, 0)
    assert found["result"]["word"] == "NOT ENOUGH DATA"
    asked = needlemap.records("ab/again-passkey")
    passed = ab("baseline/bm25", "baseline/bm25", "--until", "8", "--on-undecided", "pass", code=0)
    assert (passed["result"], passed["exit_code"]) == (found["result"], 0)
    assert needlemap.records("ab/again-passkey") == asked  # a second start asks nothing twice


def test_no_place_makes_a_mean_of_its_arms(ab, needlemap):
    """The arms were taken for families, and the reference, asked again, counted twice."""
    ab("baseline/bm25", "baseline/random", "--until", "16", code=1)
    row = needlemap("list", "runs", ".").stdout.splitlines()[1]
    assert re.split(r"\s{2,}", row)[3] == "FAIL"
    run = json.loads(needlemap("report", "ab", "--json").stdout)["runs"][0]
    assert (run["overall"], run["lengths"], run["effective_lengths"]) == (None, [], [])
    folder = Path(needlemap.folder) / "ab"
    assert (load(folder).means(), load(folder).effective()) == ({}, None)
    assert str(load(folder)).rstrip().splitlines()[-1].startswith("FAIL ab: ")

    shutil.copytree(folder, folder.with_name("ab2"))
    table = needlemap("report", "ab", "ab2").stdout.splitlines()
    assert [line.split()[-2:] for line in table[:2]] == [["all", "verdict"], ["-", "FAIL"]]
    subjects = [
        Subject(families, read_families(families))
        for families in map(families_of, (folder, folder.with_name("ab2")))
    ]
    sheet, *_ = make_sheets(PageRuns.of(subjects), [], rules=RULES)
    _, mean, word, *_ = sheet["table"]["rows"][0]["cells"]
    assert (mean[0], word[0]) == ("-", "FAIL")


def test_both_arms_and_the_second_asking_get_the_same_prompts_once_each(ab, needlemap):
    ab("baseline/bm25", "baseline/random", "--until", "16", code=1)
    hashes = [
        sorted(each["prompt"]["sha256"] for each in needlemap.records(f"ab/{arm}-passkey"))
        for arm in ("ref", "new", "again")
    ]
    assert hashes[0] == hashes[1] == hashes[2]
    assert len(set(hashes[0])) == len(hashes[0])


def test_one_stopped_by_a_limit_goes_on_to_what_one_start_finds(ab, needlemap):
    ended = ab("baseline/bm25", "baseline/random", "--until", "16", "--limit-tokens", "5k", code=5)
    assert 0 < ended["asked"] < 16
    gone_on = ab("baseline/bm25", "baseline/random", "--until", "16", code=1)
    seed = json.loads((needlemap.folder / "ab" / "ab.json").read_text())["seed"]
    whole = ab(
        "baseline/bm25", "baseline/random", "--until", "16", "--seed", str(seed), "-o", "w", code=1
    )
    # The scope of the result names the minutes, which may differ.
    own = dict.fromkeys(("ab", "replay", "measured", "result"))
    assert {**gone_on, **own} == {**whole, **own}
    for name in ("word", "claim", "evidence"):
        assert gone_on["result"][name] == whole["result"][name]


def test_a_start_goes_on_behind_whole_haystacks_also_where_depths_come_to_one_prompt(needlemap):
    typed = ("--arm", "ref=baseline/bm25", "--arm", "new=baseline/bm25", "--depths", "50,50.01")
    needlemap("ab", "demo", *FLAGS, *typed, "--until", "8", code=4)
    assert len(needlemap.records("ab/new-single")) == 4
    arms = Arm("ref", "baseline/bm25"), Arm("new", "baseline/bm25")
    flags = {"tokenizer": "cl100k_base", "lengths": "300,400", "depths": "50,50.01"}
    asked = AbOptions(arms, flags, partial(choose_each, "demo"), pairs=12)
    assert first_open(Ab.of(asked, needlemap.folder / "ab")) == 4


def test_more_pairs_go_on_where_an_earlier_start_ended(ab):
    first = ab("baseline/bm25", "baseline/random", "--until", "8", code=5)
    more = ab("baseline/bm25", "baseline/random", "--until", "16", code=1)
    assert (first["asked"], more["asked"]) == (8, 16)


def test_the_same_command_goes_on_also_with_a_seed_and_another_seed_is_refused(ab):
    ab("baseline/bm25", "baseline/random", "--until", "8", "--seed", "7", code=5)
    ab("baseline/bm25", "baseline/random", "--until", "16", "--seed", "7", code=1)
    arms = ("baseline/bm25", "baseline/random", "--until", "16")
    ab(*arms, "--seed", "8", code=2)


def served(needlemap: Any, reference: str, other: str, code: int) -> Any:
    arms = (
        "--arm",
        f"ref={reference}",
        "--arm",
        f"new={other}",
        "--model",
        "openai/m",
        "--retries",
        "0",
    )
    return needlemap("ab", "passkey", *arms, *FLAGS, "--until", "16", code=code)


def test_arms_are_asked_in_turn_in_random_order_each_under_a_salt_of_its_own(needlemap, wire):
    arms = ("--arm", f"ref={wire.base_url}", "--arm", f"new={wire.base_url}", "--model", "openai/m")
    flags = (
        "--request",
        "cache_salt=x",
        "--until",
        "24",
        "--concurrency",
        "2",
        "--on-undecided",
        "pass",
    )
    needlemap("ab", "passkey", *arms, *FLAGS, *flags)
    salts = [each["body"]["cache_salt"] for each in wire.log()]
    blocks = [salts[at] for at in range(0, len(salts), 2)]
    turns = [tuple(blocks[at : at + 3]) for at in range(0, len(blocks), 3)]
    assert all(sorted(turn) == ["x-again", "x-new", "x-ref"] for turn in turns)
    assert len(set(turns)) > 2


def test_what_a_server_reports_of_itself_is_noted_once_for_all_arms_and_blocks(needlemap, wires):
    """A llama-server of one slot was named for each arm of each block, three times at least."""
    first, second = (wires("--owner", "llamacpp", "--slots", "1") for _ in range(2))
    arms = ("--arm", f"ref={first.base_url}", "--arm", f"new={second.base_url}")
    flags = [flag for flag in FLAGS if flag != "--quiet"]
    flags += ["--model", "openai/m", "--until", "16", "--on-undecided", "pass"]
    ended = needlemap("ab", "passkey", *arms, *flags)
    assert ended.stderr.count("note: the server has 1 slot, ") == 1


@pytest.fixture
def dead(wires: Any) -> str:
    """The address of a server that is there and answers nothing."""
    wire = wires()
    wire.schedule("500", cycle=True)
    return str(wire.base_url)


def test_an_arm_that_does_not_answer_does_not_pass_and_its_end_is_told(needlemap, wire, dead):
    ended = served(needlemap, wire.base_url, dead, 5)
    assert "'new' answers no more" in ended.stderr
    assert "new failed to answer" in ended.stdout
    last = ended.stdout.splitlines()[-1]
    assert "new did not answer 4 prompts that ref answered" in last
    assert last.startswith("SUSPECT ab: no pair with both scores was judged")


FLAKY = """
import re
from collections import Counter

times = Counter()

def answer(messages, failures):
    said = messages[-1]["content"]
    times[said] += 1
    if list(times).index(said) % 5 == 1 and times[said] <= failures:
        raise RuntimeError("timed out")
    return re.search(r"Write it down: (\\d+)", said)[1]

def once(messages):
    return answer(messages, 1)

def never(messages):
    return answer(messages, 99)
"""
ONE_IN_FIVE = "list(times).index(said) % 5 == 1"


@pytest.mark.parametrize(("kind", "tries", "scored"), [("once", 2, True), ("never", 4, False)])
def test_what_an_arm_lost_is_asked_again_three_times(ab, needlemap, kind, tries, scored):
    """Time-outs of one engine in a hundred made two equal engines differ; what answers when it is
    asked again is a pair like all others, and what never does is not asked for ever."""
    (needlemap.folder / "flaky.py").write_text(FLAKY)
    flags = ("--until", "20", "--margin", "60", "--retries", "0", "--seed", "7")
    found = ab("baseline/bm25", f"python/flaky:{kind}", *flags, code=0)
    failed = 0 if scored else 4
    assert (found["result"]["word"], found["failed"]) == ("PASS", {"new": failed, "ref": 0})
    # The table counted what failed as wrong, next to a loss of 0 of what both answered.
    (row,) = found["families"]
    assert (found["pairs"], found["lost"]) == (row["pairs"], row["lost"]) == (20 - failed, 0)
    assert (row["missing"], row["reference"], row["other"]) == (failed, 100.0, 100.0)
    assert sum(cell["missing"] for cell in found["map"]) == failed
    assert {cell["loss"] for cell in found["map"]} == {0.0}
    kept = Counter(each["key"] for each in needlemap.records("ab/new-passkey"))
    assert sorted(kept.values()) == [1] * 16 + [tries] * 4
    last = {each["key"]: each for each in needlemap.records("ab/new-passkey")}
    assert [each["score"] is not None for each in last.values()].count(False) == 4 * (not scored)


def test_a_lost_answer_counts_also_where_a_later_haystack_comes_to_its_prompt(ab, needlemap):
    """Haystacks 0 and 8 of this seed hide the same key: asked for again in 8, the lost answer stood
    there, where the reference has none, and was no pair."""
    (needlemap.folder / "flaky.py").write_text(FLAKY.replace(ONE_IN_FIVE, '"88624" in said'))
    flags = ("--until", "20", "--margin", "60", "--retries", "0", "--seed", "790211206")
    found = ab("baseline/bm25", "python/flaky:never", *flags, code=0)
    assert (found["asked"], found["pairs"], found["missing"]["b"]) == (19, 18, 1)
    lost = [each for each in needlemap.records("ab/new-passkey") if each["score"] is None]
    assert [each["repeat"] for each in lost] == [0] * 4


SHORT_SIGHTED = """
import re

def answer(messages):
    said = messages[-1]["content"]
    return "none" if len(said) > 3_000 else re.search(r"Write it down: (\\d+)", said)[1]
"""
DECIDED = ("--lengths", "300,400,900", "--until", "decided", "--seed", "7")


def test_a_length_that_is_lost_decides_at_a_margin_that_allows_it(ab, needlemap):
    """It ended at 20,000 pairs, undecided, with '222 of 222 lost, which is sure'."""
    (needlemap.folder / "short.py").write_text(SHORT_SIGHTED)
    arms = "baseline/bm25", "python/short:answer"
    found = ab(*arms, *DECIDED, "--margin", "40", code=1)
    assert found["result"]["word"] == "FAIL"
    assert found["asked"] < 120
    at = found["lost_lengths"][0]
    assert (at["lengths"], at["lost"] == at["n"], at["sure"]) == ([900], True, True)
    assert "length 900: 13 of 13 lost, surely some" in found["result"]["evidence"]


def test_a_length_that_the_reference_gets_wrong_is_not_sent_further(ab, needlemap):
    (needlemap.folder / "short.py").write_text(SHORT_SIGHTED)
    flags = (*DECIDED, "--margin", "5", "--concurrency", "1")
    found = ab("python/short:answer", "python/short:answer", *flags, code=0)
    (group,) = found["not_tested"]
    assert (group["lengths"], group["right"]) == ([900], 0)
    assert 20 <= group["n"] <= 24
    said = "not tested: passkey at length 900 (the reference scores 0.0, n="
    assert found["result"]["evidence"].startswith(said)
    for arm in ("ref", "new"):
        lengths = Counter(each["length_tokens"] for each in needlemap.records(f"ab/{arm}-passkey"))
        assert lengths[900] == group["n"]
    again = ab("python/short:answer", "python/short:answer", *flags, code=0)
    assert again["asked"] == found["asked"]  # a second start sends nothing more


def test_a_reference_that_is_mostly_wrong_ends_it(ab, needlemap):
    flags = (*DECIDED, "--concurrency", "1")
    found = ab("baseline/random", "baseline/random", *flags, code=4)
    assert 20 <= len(needlemap.records("ab/ref-passkey")) <= 22
    assert found["result"]["evidence"].startswith("not tested: passkey (the reference scores ")


def test_a_haystack_has_one_prompt_if_a_verdict_ends_the_asking(ab, needlemap):
    ab("baseline/bm25", "baseline/bm25", *DECIDED, "--margin", "20", code=0)
    places = [
        (each["repeat"], each["length_tokens"], each["depth"])
        for each in needlemap.records("ab/new-passkey")
    ]
    assert len({repeat for repeat, *_ in places}) == len(places)
    assert len({place[1:] for place in places}) == 6  # lengths and depths in turn
    ab("baseline/bm25", "baseline/bm25", "--until", "8", "-o", "few", code=4)
    assert len({each["repeat"] for each in needlemap.records("few/new-passkey")}) == 4


def test_a_reference_that_does_not_answer_proves_nothing(needlemap, wire, dead):
    ended = served(needlemap, dead, wire.base_url, 4)
    assert "'ref' answers no more" in ended.stderr


def test_two_arms_that_do_not_answer_end_in_words(needlemap, dead):
    (line,) = [
        row for row in served(needlemap, dead, dead, 2).stderr.splitlines() if "No arm" in row
    ]
    assert line.startswith("needlemap: No arm answers. ref and new: ")
    assert line.count("answered 500") == 1


def begun(needlemap: Any, *commands: str, code: int) -> Any:
    """An ab of servers that it starts itself."""
    arms = [part for each in commands for part in ("--arm-command", each)]
    flags = ("--model", "openai/m", "--until", "8", "--on-undecided", "pass")
    return needlemap("ab", "passkey", *arms, *FLAGS, *flags, code=code)


def test_servers_are_started_by_command_and_ended_and_asked_nothing_twice(needlemap):
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(WIRE))} --port {{port}}"
    begun(needlemap, f"ref={command}", f"new={command}", code=0)
    kept = json.loads((needlemap.folder / "ab" / "ab.json").read_text())
    ports = [urlsplit(each["base_url"]).port for each in kept["arms"]]
    for port in ports:
        with socket.socket() as line:
            assert line.connect_ex(("127.0.0.1", port)) != 0  # it was ended
    texts = [file.read_text() for file in (needlemap.folder / "ab").rglob("*.json*")]
    assert not any("wire.py" in text for text in texts)  # no folder can have anything started
    asked = needlemap.records("ab/new-passkey")
    begun(needlemap, f"ref={command}", f"new={command}", code=0)
    assert needlemap.records("ab/new-passkey") == asked
    again = needlemap("replay", "ab", "--worst", "--arm", "new", code=None).stderr
    assert "wire.py" not in again


def test_a_command_that_ends_is_told_with_what_it_said(needlemap):
    dies = f"{shlex.quote(sys.executable)} -c 'print(\"no weights at {{port}}\")'"
    ended = begun(needlemap, f"ref={dies}", f"new={dies}", code=2)
    assert "Arm 'ref' ended before it answered. It said: no weights at" in ended.stderr


@pytest.mark.parametrize("command", ["ref=serve --port 8000", "ref"])
def test_a_command_says_where_its_port_goes(needlemap, command):
    assert "--arm-command wants" in begun(needlemap, command, code=2).stderr


def test_a_command_that_cannot_be_read_or_started_is_told(needlemap):
    other = "new=true {port}"
    assert "is no command" in begun(needlemap, "ref=serve '{port}", other, code=2).stderr
    assert (
        "cannot be started" in begun(needlemap, "ref=no-such-program {port}", other, code=2).stderr
    )


def test_a_servers_own_name_of_its_model_will_do(needlemap, wire):
    arms = (
        "--arm",
        f"ref={wire.base_url}",
        "--arm",
        f"new={wire.base_url}",
        "--on-undecided",
        "pass",
    )
    needlemap("ab", "passkey", *arms, *FLAGS, "--until", "4")
    assert (
        len({each["body"]["model"] for each in wire.log() if "model" in (each["body"] or {})}) == 1
    )


@pytest.mark.parametrize(
    ("other", "flags", "tag"),
    [("random", ("--until", "decided"), "failure"), ("bm25", ("--until", "8"), "error")],
)
def test_the_verdict_goes_into_a_junit_file(ab, needlemap, other, flags, tag):
    ab(
        "baseline/bm25",
        f"baseline/{other}",
        "--junit",
        "v.xml",
        *flags,
        code=1 if tag == "failure" else 4,
    )
    (case,) = ElementTree.parse(needlemap.folder / "v.xml").iter("testcase")
    assert (case.get("name"), case[0].tag) == ("new against ref", tag)


def test_the_worst_prompt_is_shown_again_of_either_arm(ab, needlemap):
    worst = ab("baseline/bm25", "baseline/random", "--until", "8", code=5)["worst"][0]
    for arm, hit in (("ref", "100"), ("new", "0")):
        said = needlemap("replay", "ab", "--worst", "--arm", arm).stderr
        assert "the same bytes as recorded" in said
        assert f"(score {hit}" in said
    where = (needlemap.folder / "ab" / "new-passkey" / "run.json").is_file(), worst["family"]
    assert where == (True, "passkey")
    assert (
        "Did you mean 'new'" in needlemap("replay", "ab", "--worst", "--arm", "news", code=2).stderr
    )


@pytest.mark.parametrize("way", ["echo", "steps"])
def test_the_references_answers_are_weighed_by_whatever_a_server_offers(needlemap, way):
    box, settings = Box(way), ("--max-answer-tokens", "24", "--lengths", "96")
    arms = ("--arm", f"ref={box.base_url}", "--arm", f"new={box.base_url}", "--model", "openai/box")
    asked = (
        "--model-options",
        "api=completions",
        "--tokenizer",
        str(DATA / "tokenizer.json"),
        "--quiet",
    )
    said = needlemap(
        "ab", "demo", *arms, *asked, *settings, "--until", "4", "--weigh", "--json", code=4
    )
    box.close()
    told = json.loads(said.stdout)["log_probabilities"]
    assert told is not None
    assert (told["ways"], told["n"], told["tripped"]) == ([way], told["again_n"], False)


def test_its_page_opens_with_the_verdict_and_leads_to_the_other_arm(ab, needlemap):
    found = ab("baseline/bm25", "baseline/random", "--until", "8", code=5)
    families = families_of(needlemap.folder / "ab")
    read = read_families(families)
    (sheet,) = make_sheets(PageRuns.of([Subject(families, read)]), [], ("absolute:85",))
    assert sheet["says"] == f"! {found['result']['word']}" == "! SUSPECT"
    assert sheet["answer"] == found["result"]["line"]
    assert all(f">{name}</text>" in sheet["chart"] for name in ("ref", "new"))
    whole, cells, worst = (
        [[row["cells"][0], *(text for text, *_ in row["cells"][1:])] for row in table["rows"]]
        for table in (sheet["table"], *sheet["more"])
    )
    assert (worst, sheet["more"][1]["folded"]) == ([], "The worst prompts")
    assert [row[:2] for row in whole] == [["passkey", "8"]]
    assert whole[0][6] == str(found["lost"])
    assert [row[1:3] for row in cells] == [
        ["300", "20"],
        ["300", "70"],
        ["400", "20"],
        ["400", "70"],
    ]
    assert {row["to"][1] for row in sheet["table"]["rows"]} == {[*read].index("new-passkey")}
    assert f"{found['lost']} lost" in needlemap("report", "ab").stdout
    needlemap("report", "ab", "-o", "ab.html")
    page = (needlemap.folder / "ab.html").read_text()
    assert "<title>SUSPECT: ab · ref, new</title>" in page
    assert "depth 20, repeat" in page


def test_the_plan_says_what_it_costs_at_most_and_asks_nothing(needlemap):
    arms = ("--arm", "a=baseline/bm25", "--arm", "b=baseline/bm25", "--tokenizer", "cl100k_base")
    said = json.loads(needlemap("ab", *arms, "--lengths", "2k,4k", "--plan", "--json").stdout)
    assert said["families"] == ["keys", "trace", "order", "edges"]
    assert said["tokens"] == 3 * said["haystacks"] * 2 * 3_000
    assert not any(needlemap.folder.iterdir())


def test_haystacks_are_asked_whole_and_no_more_pairs_than_were_told(ab):
    found = ab("baseline/bm25", "baseline/bm25", "--depths", "10,50,90", "--until", "4", code=4)
    assert found["asked"] == 6


def test_many_depths_of_a_haystack_are_told_to_be_dear(needlemap):
    arms = (
        "--arm",
        "a=baseline/bm25",
        "--arm",
        "b=baseline/bm25",
        "--tokenizer",
        "cl100k_base",
        "--plan",
    )
    said = [
        needlemap("ab", "passkey", *arms, "--depths", depths).stdout
        for depths in ("10,60", "0:100:11")
    ]
    assert ["asked at 11 depths" in each for each in said] == [False, True]


def test_each_family_and_haystack_has_a_text_of_its_own(needlemap):
    (needlemap.folder / "two.yaml").write_text(
        "settings: {lengths: [300], depths: [50]}\nfamilies:\n"
        "  one: {preset: passkey}\n  two: {preset: passkey}\n"
    )
    arms = (
        "--arm",
        "a=baseline/bm25",
        "--arm",
        "b=baseline/bm25",
        "--tokenizer",
        "cl100k_base",
        "--quiet",
    )
    needlemap("ab", "suite:two.yaml", *arms, "--until", "8", "-o", "s", code=4)
    prompts = [
        record["prompt"]["sha256"]
        for name in ("one", "two")
        for record in needlemap.records(f"s/a-{name}")
    ]
    assert len(prompts) == len(set(prompts)) == 8


def test_documents_as_listed_are_one_haystack_and_refused(needlemap):
    arms = ("--arm", "a=baseline/bm25", "--arm", "b=baseline/bm25", "--tokenizer", "cl100k_base")
    (needlemap.folder / "l.yaml").write_text("task: single\norder: listed\nlengths: [300]\n")
    assert "order: shuffled" in needlemap("ab", "l.yaml", *arms, code=2).stderr


def test_a_margin_is_fixed_beforehand(ab, needlemap):
    ab("baseline/bm25", "baseline/random", "--until", "8", code=5)
    arms = ("--arm", "ref=baseline/bm25", "--arm", "new=baseline/random")
    ended = needlemap("ab", "passkey", *arms, *FLAGS, "--margin", "5", code=2)
    assert "has a margin of 2 points, fixed beforehand" in ended.stderr
    for flags in (("--lengths", "300"), ("--seed", "7")):
        assert (
            "other lengths, depths or seed"
            in needlemap("ab", "passkey", *arms, *FLAGS, *flags, code=2).stderr
        )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--arm", "a=demo/retriever"), "ab has two arms, the reference first"),
        (("--arm", "a=demo/retriever", "--arm", "a=demo/retriever"), "Both arms are named 'a'"),
        (("--arm", "again=demo/retriever", "--arm", "b=demo/retriever"), "names no arm"),
        (
            ("--arm", "a=http://127.0.0.1:9/v1", "--arm", "b=demo/retriever"),
            "Arm 'a': No connection to http://127.0.0.1:9/v1",
        ),
        (
            ("--arm", "a=demo/retriever", "--arm", "b=demo/retriever", "--until", "soon"),
            "give 'decided', or",
        ),
        (
            ("--arm", "a=demo/retriever", "--arm", "b=demo/retriever", "--margin", "0"),
            "a loss in points",
        ),
        (
            ("--arm", "a=demo/retriever", "--arm", "b=baseline/bm25", "--lengths", "300"),
            "would get other prompts",
        ),
    ],
)
def test_wrong_flags_say_what_to_type(needlemap, flags, said):
    assert said in needlemap("ab", "passkey", *flags, code=2).stderr


def test_the_verdict_is_the_last_thing_on_the_screen_and_the_worst_prompts_are_folded(typed):
    """The last line was the page's, and ten prompts of one kind stood there one by one."""
    arms = ("--arm", "old=baseline/bm25", "--arm", "new=baseline/random")
    grid = ("--lengths", "500", "--depths", "0,100", "--until", "12", "--margin", "20")
    ended = typed("ab", "passkey", *arms, *grid, "-o", "ab", code=None)
    assert "page: needlemap report ab -o ab.html" in ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[-1].startswith("FAIL ab: new loses ")
    worst = lines[lines.index("the worst prompts, of those that changed:") + 1 :]
    assert sum("500 tokens, depth" in line for line in worst) == 1
    assert any(re.fullmatch(r"  \d more of the worst: passkey at 500 tokens", row) for row in worst)
    found = json.loads(typed("ab", "passkey", *arms, *grid, "-o", "ab", "--json", code=None).stdout)
    assert len(found["worst"]) > 1
