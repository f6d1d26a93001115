"""A public fault, made anew in the model in the box, is found by the probe that is meant for it.

Here each fault begins at one size, in turn; in `benchmarks/check.py` at all three, beside clean
runs.
"""

from __future__ import annotations

import asyncio
import re
import runpy
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "storm"))

from boxed_engine import FAULTS
from mutants import BOX, LONGEST, MUTANTS, SEED, SIZES, begins_at, examined
from reported_faults import REPORTED
from threads import THREADS

from gauge_faults import begun
from needlemap.servers.check import KnownIssue, Options, probes
from needlemap.servers.check.asking import Check, CheckOptions, ProbesOnSchedule
from needlemap.servers.check.effects import ALPHA
from needlemap.stats.exact import lost_by_chance

STORMS = {fault.name: fault.thread for fault in FAULTS.values()}
STORMS |= {name: fault.thread for name, (fault, _) in REPORTED.items()}
SURE = [mutant for mutant in MUTANTS if mutant.sure]
SHORT = "last-block-of-a-hit"  # five seconds; the others are long proofs


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutant", "size"),
    [
        pytest.param(
            mutant,
            SIZES[at % len(SIZES)],
            marks=() if mutant.name == SHORT else pytest.mark.long,
            id=f"{mutant.name}-{SIZES[at % len(SIZES)]}",
        )
        for at, mutant in enumerate(SURE)
    ],
)
def test_a_fault_is_found_by_its_own_probe_at_the_size_at_which_it_begins(tmp_path, mutant, size):
    """All injected faults began below the shortest size, so that a number that pooled the sizes
    saw them, and hid what was broken at long prompts alone."""
    (found,) = examined(mutant, tmp_path / "c", (mutant.probe,), size)
    assert (found.probe, found.state) == (mutant.probe, "FAIL"), found.said
    assert begins_at(found) == found.sizes[SIZES.index(size)].size, found.said
    assert found.worst is not None
    assert all(
        isinstance(each, KnownIssue) and each.link.startswith("https://") for each in found.known
    )


@pytest.mark.long
def test_a_server_that_answers_beyond_the_context_that_it_tells_is_named(tmp_path):
    """The model in the box refuses no length: said to take 256 tokens, it is caught at 257."""
    options = Options(LONGEST, probes=("window", "length"), context=LONGEST)
    told = CheckOptions({"max_answer_tokens": 24, **BOX}, options)
    asking = ProbesOnSchedule(Check.of(told, tmp_path / "c", SEED))
    (found,) = [each for each in asyncio.run(asking.run()).findings if each.probe == "window"]
    assert (found.probe, found.state, found.worst.length_tokens) == (
        "window",
        "FAIL",
        LONGEST + 24 + 1,
    )
    assert "257 of its tokens were counted" in found.said


def test_every_mutant_is_meant_for_a_probe_that_there_is():
    assert {mutant.probe for mutant in MUTANTS} <= set(probes())
    assert len(MUTANTS) >= 16


@pytest.mark.long
def test_a_fault_is_found_in_the_gauge_too(tmp_path):
    """The model in the box holds to 256 tokens; the gauge shows a fault that begins beyond."""
    (mutant,) = [each for each in MUTANTS if each.name == "last-tokens-only"]
    verdict = asyncio.run(mutant.asking_gauge(tmp_path / "c", 512, 512, ("reference",)).run())
    (found,) = verdict.findings
    assert (found.state, begins_at(found)) == ("FAIL", 512), found.said


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        SHORT,
        "cut-and-told",
        "cut-and-not-told",
        "off-by-one-after-a-hit",
        "one-long-extend",
    ],
)
def test_a_fault_that_begins_at_the_shortest_size_of_8k_is_found_in_the_gauge(tmp_path, name):
    """Behind the last of eight facts stood 22 tokens, as each might have been longer: a cache's
    last block of 16 held none of it. A cut that the usage hides was 'the model or the server',
    though this model loses nothing. No hit ended within a fact, so that positions that are off
    behind one moved no answer. Half of a prompt had no room for its facts."""
    (mutant,) = [each for each in MUTANTS if each.name == name]
    found = begun(mutant, 8_000, 0, tmp_path)
    assert found.state == "found", found.said


def test_the_page_is_what_the_tool_writes_of_its_cells():
    root = Path(__file__).parents[4]
    page = (root / "docs" / "gallery.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\w-]+) \| .+\) \| `\w+` \| (.*) \|$", page, re.MULTILINE)
    cells = {name: [cell.strip() for cell in row.split("|")] for name, row in rows}
    assert cells.keys() == {mutant.name for mutant in MUTANTS}
    assert runpy.run_path(str(root / "tools" / "gallery.py"))["page"](cells) == page


def test_each_of_thirty_threads_has_a_fault_of_its_kind():
    assert len(THREADS) == 30
    assert {thread.fault for thread in THREADS} - {""} <= {mutant.name for mutant in MUTANTS}
    assert {thread.probe for thread in THREADS} - {""} <= set(probes())
    for thread in THREADS:
        assert bool(thread.probe and thread.fault) != bool(thread.storm)


def test_each_fault_of_storm_that_stands_for_a_thread_was_made_after_it():
    for thread in THREADS:
        if thread.storm:
            numbers = re.findall(r"#\d+", thread.where)
            assert any(number in STORMS[thread.storm] for number in numbers), thread


def test_all_probes_and_all_looks_that_there_may_ever_be_share_one_alpha():
    spent = sum(
        sum(probe.level(look, 3) for look in range(1, 20_000)) * 3 for probe in probes().values()
    )
    assert spent <= ALPHA


def test_another_probe_changes_no_level():
    """Each has a share of its own, and a tenth of all is left to plug-ins."""
    assert sum(probe.share for probe in probes().values()) == pytest.approx(0.9)


def test_all_of_24_pairs_lost_is_a_fail_at_each_of_the_first_20_looks():
    for name in ("cache", "load", "onset", "reference", "cut"):
        level = probes()[name].level(20, 3)
        assert lost_by_chance(24, 0) <= (level / 2 if name == "reference" else level), name
