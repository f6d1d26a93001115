"""`report --cite` prints what an author pastes, and `replay --verify` builds its prompts anew."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import needlemap as package

TINY = ("--model", "baseline/bm25", "--lengths", "600,1k", "--depths", "0,50", "--quiet")
ESSAY = "".join(f"On day {day} nothing happened to Ann. " for day in range(600))


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def sha256_in(text: str) -> str:
    return re.search("sha256 ([0-9a-f]{16})", text)[1]


def test_a_run_is_cited_in_three_lines(needlemap):
    needlemap("run", *TINY, "--repeats", "2", "--distractors", "2", "-o", "r")
    items, task, score = needlemap("report", "r", "--cite").stdout.splitlines()
    assert re.fullmatch(
        r"items: 8 prompts, sha256 [0-9a-f]{16}, 600–1k tokens of cl100k_base "
        r"\([0-9a-f]{16}\), seed 0",
        items,
    )
    assert task == (
        "task: single (distractors=2) in generated/english, scorer substring rule 3, "
        f"needlemap {package.__version__}"
    )
    assert re.fullmatch(r"score: baseline/bm25 \d+\.\d % \[[\d., ]+\] \(n=8, 2 haystacks\)", score)


def test_the_items_are_the_same_for_every_model_and_others_for_every_seed(needlemap):
    both = ("--model", "baseline/random")
    needlemap("run", *TINY, *both, "-o", "two")
    needlemap("run", *TINY, "--seed", "1", "-o", "other")
    cited = needlemap("report", "two", "--cite").stdout.splitlines()
    assert len(cited) == 3  # one hash, both scores
    assert "baseline/bm25 " in cited[2]
    assert "; baseline/random " in cited[2]
    other = needlemap("report", "other", "--cite").stdout
    assert sha256_in(other) != sha256_in(cited[0])
    assert "seed 1" in other
    assert len(needlemap("report", "two", "other", "--cite").stdout.splitlines()) == 6


def test_of_a_suite_each_family_names_its_variant_and_rule(needlemap):
    Path("s.yaml").write_text(
        "families:\n  near: {task: multikey, task_options: {keys: 2}}\n"
        "  own: {needle: 'Ann eats figs.', question: 'What?', keywords: [figs]}\n",
        "utf-8",
    )
    needlemap("run", "suite:s.yaml", *TINY, "-o", "s")
    lines = needlemap("report", "s", "--cite").stdout.splitlines()
    assert lines[0].startswith("items: 8 prompts, ")
    assert "near: multikey (task_options=keys=2) in generated/english, scorer recall" in lines[1]
    assert "own: single (a needle of its own) in generated/english, scorer substring" in lines[1]
    assert "the mean of 2 families" in lines[2]
    verified = needlemap("replay", "s", "--verify").stdout.splitlines()
    assert verified[0] == "s/near: 4 of 4 prompts the same bytes as recorded"
    assert sha256_in(verified[2]) == sha256_in(lines[0])


def test_of_a_suite_with_weighted_scores_these_are_cited_too(needlemap):
    Path("s.yaml").write_text(
        "families:\n  near: {task: multikey}\n  own: {task: passkey}\n"
        "scores:\n  most: {near: 3, own: 1}\n  both: [near, own]\n",
        "utf-8",
    )
    needlemap("run", "suite:s.yaml", *TINY, "--repeats", "5", "-o", "s")
    score = needlemap("report", "s", "--cite").stdout.splitlines()[2]
    assert re.search(r"the score both of 2 families\), most \d+\.\d % \[", score)


def test_a_run_of_several_starts_is_verified_whole(needlemap):
    flags = ("run", "--model", "baseline/bm25", "--quiet", "-o", "r", "--depths")
    needlemap(*flags, "0,25,50", "--lengths", "600")
    needlemap(*flags, "0", "--lengths", "1k", "--first-repeat", "2")
    verified = needlemap("replay", "r", "--verify").stdout
    assert "r: 4 of 4 prompts the same bytes as recorded" in verified
    assert sha256_in(verified) == sha256_in(needlemap("report", "r", "--cite").stdout)


def test_a_run_that_sought_is_verified_too(needlemap):
    needlemap(
        *("run", "--model", "baseline/random", "--lengths", "600,2k", "--seek", "85", "-o", "r"),
        "--quiet",
    )
    verified = needlemap("replay", "r", "--verify").stdout
    assert re.search("r: (\\d+) of \\1 prompts the same bytes", verified)


def test_another_text_is_named_as_the_reason(needlemap):
    Path("essays").mkdir()
    Path("essays/a.txt").write_text(ESSAY, "utf-8")
    needlemap("run", *TINY, "--haystack-path", "essays", "-o", "r")
    Path("essays/a.txt").write_text(ESSAY.replace("Ann", "Bob"), "utf-8")
    said = needlemap("replay", "r", "--verify", code=1).stdout
    assert "r: 0 of 4 prompts the same bytes as recorded" in said
    assert "these differ: length 600, depth 0, repeat 0; length 600, depth 50" in said
    assert "likeliest reason: another haystack: 'folder/essays' had the sha256 " in said
    Path("essays/a.txt").unlink()
    assert "essays" in needlemap("replay", "r", "--verify", code=2).stderr


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"needlemap": "0.0.1"}, "another needlemap: 0.0.1 built them"),
        ({"packages": {"numpy": "0.1"}}, "another numpy: 0.1 then, "),
        ({"tokenizer": {"name": "old", "fingerprint": "x:1"}}, "another tokenizer: 'old' had"),
        ({}, "a template, a plug-in or the records changed"),
    ],
)
def test_versions_and_tokenizers_are_named_as_the_reason(needlemap, changed, said):
    needlemap("run", *TINY, "-o", "r")
    (file,) = Path("r").glob("records-*.jsonl")
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    rows[0]["prompt"]["sha256"] = "0" * 64
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    about = json.loads(Path("r/run.json").read_text("utf-8"))
    Path("r/run.json").write_text(json.dumps({**about, **changed}), "utf-8")
    out = needlemap("replay", "r", "--verify", code=1).stdout
    assert "r: 3 of 4 prompts the same bytes as recorded" in out
    assert said in out


def test_a_changed_answer_key_differs_too(needlemap):
    needlemap("run", *TINY, "-o", "r")
    (file,) = Path("r").glob("records-*.jsonl")
    row, *others = file.read_text("utf-8").splitlines(keepends=True)
    digest = json.loads(row)["reference_sha256"]
    file.write_text("".join([row.replace(digest, "0" * 64), *others]), "utf-8")
    assert "r: 3 of 4 prompts" in needlemap("replay", "r", "--verify", code=1).stdout


def test_what_cannot_be_cited_or_verified_says_so(needlemap):
    needlemap("run", *TINY, "-o", "r")
    assert "prints its lines alone" in needlemap("report", "r", "--cite", "--json", code=2).stderr
    alone = needlemap("replay", "r", "--verify", "--length", "1k", code=2).stderr
    assert "--verify is of all prompts" in alone
    assert needlemap("report", "nothing", "--cite", code=2).stderr.startswith("needlemap: ")
    assert "holds no run" in needlemap("replay", "nothing", "--verify", code=2).stderr
