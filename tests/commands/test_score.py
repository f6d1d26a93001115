"""`needlemap score`: answers made elsewhere, by every scorer."""

from __future__ import annotations

import json

import pytest

from needlemap.registry import find
from needlemap.scorers import rule_of

LINES = [
    {
        "answer": "Eat a sandwich.",
        "reference": "Eat a sandwich.",
        "keywords": ["sandwich"],
        "id": 7,
    },
    {"prediction": "I do not know.", "needle": "Eat a sandwich.", "keyword": "sandwich"},
    {"response": "eat a SANDWICH", "reference": "Eat a sandwich.", "keywords": "sandwich"},
]


@pytest.fixture
def scored(typed):
    """Scores the lines above with some flags: (rows, what was said beside them)."""

    def score(*flags, code=0):
        text = "\n".join(json.dumps(line) for line in LINES) + "\n\n"
        (typed.folder / "answers.jsonl").write_text(text)
        ended = typed("score", "answers.jsonl", *flags, code=code)
        return [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr

    return score


@pytest.mark.parametrize(
    ("flags", "scores", "mean"),
    [
        (
            ["--scorer", "substring"],
            [100, 0, 100],
            "mean 66.67 (n=3, 0 not scored), scorer substring\n",
        ),
        (["--scorer", "exact"], [100, 0, 0], "mean 33.33 (n=3, 0 not scored), scorer exact\n"),
        (["--scorer", "keyword"], [100, None, None], None),
        (["--scorer", "levenshtein"], [100, None, None], None),
        (["--scorer", "levenshtein", "--scorer-options", "trim=true"], [100, None, None], None),
    ],
)
def test_lines_come_back_with_their_scores(scored, flags, scores, mean):
    rows, said = scored(*flags)
    assert [row["scorer"] for row in rows] == [flags[1]] * 3
    assert [row["rule"] for row in rows] == [rule_of(find("scorers", flags[1])())] * 3
    for row, score, line in zip(rows, scores, LINES, strict=True):
        assert line.items() <= row.items()
        assert 0 <= row["score"] <= 100
        assert score in (None, row["score"])
        assert "native" in row
        assert row["why"]
    assert mean in (None, said)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("85309", 100),
        ("<think>maybe 11111, or 22222</think>85309", 100),
        ("<think>\nmaybe 11111\n</think>\n\n85309", 100),
        ("maybe 11111</think>85309", 100),  # a template had opened it in the prompt
        ("[THINK]maybe 11111[/THINK]85309", 100),
        ("<think>surely 85309</think>11111", 0),
        ("<think>85309, surely", 0),  # never closed: no answer
    ],
)
def test_thinking_is_no_part_of_an_answer_as_in_a_run(typed, answer, score):
    line = json.dumps({"answer": answer, "reference": "85309", "keywords": ["85309"]})
    (typed.folder / "answers.jsonl").write_text(line)
    for scorer in ("first", "substring", "exact"):
        row = json.loads(typed("score", "answers.jsonl", "--scorer", scorer).stdout)
        assert (row["score"], row["answer"]) == (score, answer)


def test_a_judge_scores_and_is_asked_again_when_its_server_stumbles(scored, wire):
    wire.schedule("503", "say:Score: 10", "say:Score: 1", "say:no idea", "say:none", "say:well")
    flags = ["--scorer-options", "model=openai/judge"]
    flags += ["--scorer-options", f"judge_options={{base_url: '{wire.base_url}'}}"]
    rows, said = scored("--scorer", "judge", *flags, code=3)
    assert [row["score"] for row in rows] == [100, 0, None]
    assert rows[2]["failure"] == "judge unreadable"
    why, mean = said.splitlines()
    assert why.startswith("not scored: judge unreadable: Asked 3 times. Judge 'openai/judge'")
    assert mean == "mean 50.00 (n=2, 1 not scored), scorer judge"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"answer": "a", "reference": "b"}\nnot json\n', "answers.jsonl, line 2: not JSON ("),
        (
            '{"anwser": "a", "reference": "b"}',
            "line 1: no text in field 'answer'. Did you mean 'anwser'?",
        ),
        (
            '{"answer": "a", "reference": 5}',
            "answers.jsonl, line 1: field 'reference' holds no text.",
        ),
        ("[1]", "answers.jsonl, line 1: no text in field 'answer'."),
        (
            '{"answer": "a", "reference": "b", "keywords": [5]}',
            "line 1: field 'keywords' must be a list of texts.",
        ),
        (
            '{"answer": "a", "reference": "b", "decoys": 5}',
            "line 1: field 'decoys' must be a list of texts.",
        ),
    ],
)
def test_a_broken_line_is_named(typed, text, said):
    (typed.folder / "answers.jsonl").write_text(text)
    ended = typed("score", "answers.jsonl", "--scorer", "exact", "-o", "out.jsonl", code=2)
    assert ended.stderr.startswith("needlemap: answers.jsonl, line ")
    assert said in ended.stderr
    assert not (typed.folder / "out.jsonl").exists()


EVIL = {
    "answer": "a" * 40 + "!",
    "reference": "aaaa",
    "keywords": ["b"],
    "question": "x?",
    "like": "(a|a)*$|(a+)+$",
}


@pytest.mark.parametrize("scorer", ["first", "f1"])
@pytest.mark.parametrize("like", [EVIL["like"], "a+$", "(?<![0-9a-z])(?:(?:a|a)*|b)(?![0-9a-z])"])
def test_a_pattern_that_no_task_makes_is_refused_in_a_file(typed, scorer, like):
    """A stranger's tried for ever, deaf to --limit-time."""
    (typed.folder / "answers.jsonl").write_text(json.dumps(EVIL | {"like": like}))
    ended = typed("score", "answers.jsonl", "--scorer", scorer, code=2)
    assert "line 1: field 'like' is a pattern that none of needlemap's tasks makes" in ended.stderr


def test_the_time_limit_cuts_off_a_scorer_that_never_waits(needlemap):
    """One's own pattern may try for ever too."""
    easy = {"answer": "aaaa", "reference": "aaaa", "question": "x?"}
    hard = {name: value for name, value in EVIL.items() if name != "like"}
    lines = "".join(json.dumps(row) + "\n" for row in (easy, hard, easy))
    (needlemap.folder / "answers.jsonl").write_text(lines)
    flags = ("--scorer", "first", "--scorer-options", "pattern=(a|a)*$", "--limit-time", "2s")
    ended = needlemap("score", "answers.jsonl", *flags, code=3)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["score"] for row in rows] == [100, None, None]
    assert [row.get("failure") for row in rows] == [None, "skipped by budget", "skipped by budget"]


@pytest.mark.parametrize("field", ["keywords", "decoys", "choices", "owners"])
def test_more_texts_than_a_scorer_looks_for_are_refused(typed, field):
    line = {"answer": "a", "reference": "b", field: ["c"] * 10_001}
    (typed.folder / "answers.jsonl").write_text(json.dumps(line))
    ended = typed("score", "answers.jsonl", "--scorer", "f1", code=2)
    assert f"line 1: field '{field}' holds 10,001 texts, and at most 10,000" in ended.stderr


def test_half_a_character_is_written_as_the_sign_for_one(typed):
    """JSON's escapes allow what UTF-8 has no bytes for."""
    (typed.folder / "answers.jsonl").write_text('{"answer": "\\ud800 a", "reference": "a"}')
    typed("score", "answers.jsonl", "--scorer", "exact", "-o", "out.jsonl")
    assert json.loads((typed.folder / "out.jsonl").read_text("utf-8"))["answer"] == "\ufffd a"


def test_an_unknown_scorer_is_named_with_the_nearest(scored):
    _, said = scored("--scorer", "substrng", code=2)
    assert said.startswith("needlemap: Unknown scorer 'substrng'. Did you mean 'substring'?")


def test_it_is_a_command(needlemap):
    (needlemap.folder / "answers.jsonl").write_text(json.dumps(LINES[0]))
    ended = needlemap("score", "answers.jsonl", "--scorer", "exact", "-o", "scored.jsonl")
    assert ended.stdout == ""
    assert json.loads((needlemap.folder / "scored.jsonl").read_text())["score"] == 100


def test_why_answers_are_missing_is_said(typed):
    (typed.folder / "mine.py").write_text("def f(answer, reference):\n    return 1 / 0\n")
    (typed.folder / "answers.jsonl").write_text('{"answer": "a", "reference": "a"}\n')
    said = typed("score", "answers.jsonl", "--scorer", "python/mine:f", code=None).stderr
    assert "ZeroDivisionError: division by zero (mine.py, line 2)" in said
