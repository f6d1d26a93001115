"""From settings to trials: every prompt of a run, the same bytes in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import needlemap
from needlemap.errors import HaystackError, SettingsError, TooShort
from needlemap.grid import Cell
from needlemap.interop.needlehaystack import context
from needlemap.interop.opencompass import load as load_opencompass
from needlemap.records.loaded import load_run
from needlemap.settings.reading import configure
from needlemap.shelves import PRESETS
from needlemap.trials.build import Experiment, prepare

SMALL: dict[str, Any] = {"lengths": [500, 800], "depths": [0, 50, 100]}
HASHES = """
import hashlib
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare
whole = hashlib.sha256()
bins = {"mode": "bins", "lengths": "300:2k:9", "depths": "0:100:9", "max_answer_tokens": 20}
for given in ({"repeats": 2}, {"language": "chinese", "guide": True}, {"mode": "cold"}, bins):
    for trial in prepare(configure(None, {"lengths": [500, 900], "depths": [0, 30, 100]} | given)).trials:
        whole.update((trial.key + trial.prompt.sha256).encode())
print(whole.hexdigest())
"""  # noqa: E501


def made(**given: Any) -> Experiment:
    return prepare(configure(None, SMALL | given))


@pytest.fixture
def essays(tmp_path: Path) -> Path:
    """Text files whose whole is shorter than the longest prompts below."""
    for number, name in enumerate(("b", "a", "c")):
        text = (
            f"Essay {name} is about number {number}. It says so twice! Does it? It does, at 3.5 to "
            f"1.\n" * 40
        )
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    return tmp_path


def test_every_cell_and_repeat_has_a_trial_of_exactly_its_length():
    experiment = made(repeats=2, first_repeat=3, reserve_tokens=20)
    asked = [(t.repeat, t.cell.length_tokens, t.cell.depth) for t in experiment.trials]
    assert asked == [(r, n, d) for r in (3, 4) for n in (500, 800) for d in (0, 0.5, 1)]
    for trial in experiment.trials:
        whole = sum(experiment.tokenizer.count(m.content.encode()) for m in trial.prompt.messages)
        assert whole + 20 == trial.cell.length_tokens
        assert trial.prompt.question == trial.item.question
    assert experiment.tokens_asked == sum(n - 20 for _, n, _ in asked)
    assert len(experiment.haystacks) == 2


def test_shuffled_repeats_have_other_documents_and_other_values():
    one, other = (trial for trial in made(repeats=2, lengths=500, depths=0).trials)
    assert one.item.needles != other.item.needles
    assert one.prompt.context_text[-200:] != other.prompt.context_text[-200:]


def test_listed_repeats_share_one_haystack():
    experiment = made(repeats=2, order="listed")
    assert len(set(experiment.haystacks)) == 1


def test_every_process_makes_the_same_prompts_and_keys():
    runs = [
        subprocess.run(
            [sys.executable, "-c", HASHES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, folder in (("1", "/"), ("2", Path.cwd()))
    ]
    assert runs[0] == runs[1]


def test_cold_prompts_share_no_beginning():
    texts = [trial.prompt.messages[0].content[:25] for trial in made(mode="cold", repeats=2).trials]
    assert len(set(texts)) == len(texts) == 12
    assert all(text.startswith("Document ") for text in texts)


def test_a_text_template_makes_one_text():
    prompt = made(template="text-en", answer_prefix=" It is").trials[0].prompt
    assert not prompt.chat
    assert prompt.messages[0].content.endswith("Answer: It is")


def test_the_question_may_stand_at_the_start():
    trial = made(question_position="start").trials[0]
    text = trial.prompt.messages[-1].content
    assert 0 < text.index(trial.item.question) < text.index(trial.prompt.context_text[:50])


def test_a_haystack_that_is_repeated_is_marked_from_there_on(essays):
    own = {
        "haystack": "folder",
        "haystack_path": str(essays),
        "order": "listed",
        "haystack_repeat": True,
    }
    trials = made(
        **own, lengths=[1000, 9000], depths=[50], needle="Ann eats figs.", question="Who?"
    ).trials
    assert [trial.haystack_repeated for trial in trials] == [False, True]
    with pytest.raises(HaystackError, match="or allow repeating it with --haystack-repeat"):
        made(
            **own | {"haystack_repeat": False},
            lengths=[9000],
            needle="Ann eats figs.",
            question="Who?",
        )


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"needle": "it SAYS so twice!", "question": "Who?"}, "it SAYS so twice!"),
        (
            {"needle": "Ann? About number 1.", "question": "Who?", "keywords": ["about NUMBER 1"]},
            "about NUMBER 1",
        ),
        ({"needle": "Ann.", "question": "Who?", "answer": "it does"}, "it does"),
    ],
)
def test_what_the_haystack_already_holds_is_an_error_or_is_recorded(essays, given, word):
    own = {"haystack": "folder", "haystack_path": str(essays), "order": "listed"} | given
    with pytest.raises(
        HaystackError, match=rf"already holds '{word}' \(byte \d+\).*--collisions warn"
    ):
        made(**own)
    for trial in made(**own, collisions="warn").trials:
        assert trial.collisions == (word,)


def test_a_word_counts_only_for_the_prompts_that_hold_it(tmp_path):
    text = "Grey is the sea. " * 150 + "Figs! " + "Green is the land. " * 500
    (tmp_path / "a.txt").write_text("İ" * 9 + text, encoding="utf-8")
    own = {"haystack": "folder", "haystack_path": str(tmp_path), "order": "listed"}
    item = {"needle": "Ann eats figs.", "question": "Who?", "keywords": ["figs"]}
    trials = made(**own, **item, lengths=[700, 2000], depths=[50], collisions="warn").trials
    assert [trial.collisions for trial in trials] == [(), ("figs",)]
    assert made(**own, **item, lengths=[700]).trials  # nothing that is asked holds it


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"lengths": [200]}, TooShort, r"Use lengths of \d+ or more"),
        ({"depths": [101]}, SettingsError, "outside 0..100"),
        ({"model": "gpt-4"}, SettingsError, "is not BACKEND/NAME"),
        ({"model": "opena/gpt-4"}, SettingsError, r"Did you mean 'openai'\?"),
        ({"task": "mult"}, SettingsError, r"Unknown task 'mult'. Did you mean 'multi'\?"),
        ({"task": "mult", "collisions": "warn"}, SettingsError, r"Unknown task 'mult'."),
        ({"task": "multi"}, SettingsError, "needs --needles"),
        ({"scorer": "levenstein"}, SettingsError, r"Did you mean 'levenshtein'\?"),
        ({"scorer_options": {"x": 1}}, SettingsError, "Unknown option 'x'"),
        ({"haystack": "foldr"}, SettingsError, r"Did you mean 'folder'\?"),
        ({"haystack": "folder"}, SettingsError, "Haystack 'folder' needs --haystack-path"),
        ({"template": "chat-fr"}, SettingsError, "Unknown template 'chat-fr'"),
        ({"needle": "{x}", "question": "?"}, SettingsError, r"unknown placeholder \{x\}"),
        (
            {
                "task": "multi",
                "needles": ["A", "B"],
                "question": "?",
                "answer": "A",
                "spread": "chain-as-coded",
            },
            SettingsError,
            "give --placement token too",
        ),
        (
            {"needle": "The code is 42.", "question": "?", "keywords": ["zebra"]},
            SettingsError,
            "Key word 'zebra' stands in neither the needle nor the answer.*--keywords, or with "
            "--answer",
        ),
        (
            {"needle": "Heron-42 is at the lake.", "question": "?", "keywords": ["heron-42,lake"]},
            SettingsError,
            "'heron-42,lake' stands in neither.*as several: --keywords heron-42 --keywords lake",
        ),
        (
            {
                "needle": "It is 42.",
                "question": "?",
                "scorer": "substring",
                "scorer_options": {"words": ["43"]},
            },
            SettingsError,
            "Key word '43' stands in neither",
        ),
        (
            {
                "task": "multi",
                "needles": ["A fig.", "A plum."],
                "question": "?",
                "keywords": ["fig", "pear"],
            },
            SettingsError,
            "Key word 'pear' stands in neither",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_asked_is_said_before_anything_is(given, error, words):
    with pytest.raises(error, match=words) as caught:
        made(**given)
    assert "\n" not in str(caught.value)


OWN = {"lengths": [700], "depths": [50], "question": "Which?"}


@pytest.mark.parametrize(
    ("given", "scorer"),
    [
        ({"needle": "The code is heron-42.", "keywords": ["heron-42"]}, "substring"),
        ({"needle": "The code is heron-42.", "answer": "heron-42"}, "substring"),
        (
            {
                "needle": "The code of {a} is {b}.",
                "answer": "{b}",
                "draw": {"a": ["x"], "b": ["y1"]},
            },
            "substring",
        ),
        ({"needle": "The code is heron-42."}, "levenshtein"),
        ({"needle": "The code is heron-42.", "answer": "The code is heron-42"}, "levenshtein"),
        ({"needle": "The code is heron-42.", "answer": "A bird and a number."}, "levenshtein"),
        (
            {"task": "multi", "needles": ["A red kite.", "A fig."], "keywords": ["red kite"]},
            "recall",
        ),
        ({"task": "multi", "needles": ["A red kite.", "A fig."], "answer": "fig"}, "substring"),
        ({"task": "multi", "needles": ["A red kite.", "A fig."]}, "levenshtein"),
    ],
)
def test_a_users_own_needle_is_scored_by_what_the_answer_must_hold_or_the_run_says_by_what(
    given, scorer
):
    found = made(**OWN, **given)
    assert found.scorer.name == scorer
    assert [note[:17] for note in found.notes] == ["scored by wording"] * (scorer == "levenshtein")
    if scorer == "levenshtein":
        assert "--keywords WORD, or --answer with a piece of the needle" in found.notes[0]


def test_who_chooses_wording_is_not_told_of_it():
    assert made(**OWN, needle="The code is heron-42.", scorer="levenshtein").notes == ()


def test_a_judge_reads_no_key_words_so_none_is_refused():
    judged = {"scorer": "judge", "needle": "It is heron-42.", "keywords": ["zebra"]}
    assert made(**OWN, **judged).trials


# Presets


def smaller(name: str, essays: Path, shared: Path) -> dict[str, Any]:
    """What lets a preset be prepared here: small, on data at hand."""
    small: dict[str, Any] = {"lengths": [3000, 4000], "depths": [0, 50, 100], "repeats": 2}
    small["max_answer_tokens"] = 64
    if name in ("ruler-cwe", "ruler-fwe"):
        return small | {"depths": [50], "repeats": 6}
    if name.startswith("needlehaystack"):
        return small | {"haystack_path": str(essays), "scorer": "substring"}
    if name.startswith("cdme") or name == "multi-2-zh-8k":  # the data set is on the hub
        path = shared / "vectors" / "opencompass" / "input"
        return small | {"haystack": "jsonl", "haystack_path": str(path)}
    return small


# those of published sets need the user's file
@pytest.mark.parametrize(
    "name", [name for name in PRESETS.texts if not name.startswith("published")]
)
def test_every_preset_makes_its_prompts(name, essays, shared):
    experiment = prepare(configure(name, smaller(name, essays, shared)))
    assert sum(len(trial.places) for trial in experiment.trials) == 12


def test_needlehaystacks_contexts_are_the_originals(essays):
    settings = configure(
        "needlehaystack-substring",
        {
            "haystack_path": str(essays),
            "lengths": "1000:6000:4",
            "depths": [0, 13, 29, 50, 58, 97, 100],
        },
    )
    for trial in prepare(settings).trials:
        wanted = context(
            essays,
            trial.cell.length_tokens,
            round(trial.cell.depth * 100),
            settings.needle,
            tokenizer="gpt-4",
        )
        assert trial.prompt.context_text == wanted


@pytest.fixture
def short_file(tmp_path):
    """Settings of cdme-8k over a file of 840 tokens."""
    lines = [{"text": f"{n}: a report on ships and the weather of a year. "} for n in range(60)]
    (tmp_path / "zh_finance.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    path = {"haystack": "jsonl", "haystack_path": str(tmp_path)}
    return {**path, "lengths": [400, 1000, 2000], "depths": [0, 50, 100], "repeats": 2}


@pytest.mark.parametrize("mode", ["exact", "bins", "single"])
def test_a_short_cdme_file_makes_shorter_prompts_and_says_so(short_file, mode):
    """It was an error, where OpenCompass asks what there is, without a word."""
    found = prepare(configure("cdme-8k", short_file | {"mode": mode}))
    assert len(found.trials) == 18
    for trial in found.trials:
        wanted = trial.cell.length_tokens - 200
        context = found.tokenizer.count(trial.prompt.context_text.encode())
        assert abs(context - wanted - trial.prompt.off_by) <= 2  # tokens merge at seams
        assert (trial.prompt.off_by < 0) == (wanted > 840)
        assert trial.prompt.haystack_tokens <= 840
    assert [note for note in found.notes if "ended" in note] == [
        "haystack 'jsonl/" + Path(short_file["haystack_path"]).name + "' ended after 840 tokens: "
        "prompts of 2,000 and more hold all of it and are shorter than their length, as "
        "OpenCompass makes them (each record has its own length: prompt.tokens). "
        "--haystack-repeat fills them"
    ]


def test_a_short_cdme_file_that_is_repeated_or_long_enough_gets_no_note(short_file):
    for more in ({"haystack_repeat": True}, {"lengths": [400, 1050]}):  # 850 less the needle
        found = prepare(configure("cdme-8k", short_file | more))
        assert not any("ended" in note for note in found.notes)
        assert not any(trial.prompt.off_by for trial in found.trials)


def test_elsewhere_a_short_file_stays_an_error(short_file):
    for more in ({"placement": "sentence"}, {"placement": "period"}, {"joined": "text"}):
        with pytest.raises(HaystackError, match="the longest prompt needs 1,800"):
            prepare(configure("cdme-8k", short_file | more))


def test_the_report_says_that_prompts_are_shorter_than_their_length(short_file, tmp_path):
    """Else its row of 2,000 tokens would be one of 994, and the effective length 2,000."""
    settings = {**short_file, "model": "baseline/bm25", "quiet": True}
    run = needlemap.run("cdme-8k", **settings, out=tmp_path / "run")
    assert {record.prompt.off_by for record in run.records()} == {0, -931}
    assert load_run(run.path).notes == (
        "the haystack ended: 6 prompts from length 2,000 on are shorter than their length, the "
        "longest has 994 tokens: no effective length is taken from there",
    )
    assert run.effective("absolute:85").longest == 1_000


@pytest.mark.parametrize("file", ["zh_finance.jsonl", "zh_tech.jsonl"])  # the second is short
@pytest.mark.parametrize("name", ["cdme-8k", "multi-2-zh-8k", "cdme-multi-3-8k"])
def test_cdmes_contexts_are_the_originals(name, file, shared):
    path = shared / "vectors" / "opencompass" / "input"
    depths = [0, 15, 29, 57, 84, 100]
    given = {
        "haystack": "jsonl",
        "haystack_path": str(path),
        "file_list": [file],
        "lengths": [1000, 3000],
        "depths": depths,
    }
    settings = configure(name, given)
    hidden: dict[str, Any] = {"needle": settings.needle}
    if settings.needles:
        hidden = {"needles": settings.needles, "diff": settings.diff, "answer": "A", "keyword": "K"}
    trials = prepare(settings).trials
    assert sum(len(trial.places) for trial in trials) == 10 * 2 * 6
    for length in (1000, 3000):
        for depth in depths:
            rows = load_opencompass(
                path,
                length,
                depth,
                "gpt-4",
                settings.file_list,
                10,
                200,
                False,
                "Chinese",
                retrieval_question="?",
                template={"prompt": "{context}\0{question}"},
                **hidden,
            )
            ours = {
                repeat: trial.prompt.context_text
                for trial in trials
                for repeat, cell in trial.places
                if cell == Cell(length, depth / 100)
            }
            assert [ours[repeat] for repeat in range(10)] == [
                row["prompt"].split("\0")[0] for row in rows
            ]


def test_cdmes_prompts_with_the_originals_words_are_the_originals(shared, tmp_path):
    path = shared / "vectors" / "opencompass"
    words = json.loads((path / "templates.json").read_text(encoding="utf-8"))["cdme|Chinese"]
    ours = words.replace("{context}", "{haystack}")
    guide = {"guide": "先想一想。", "guide_marker": "请按照"}
    data = {"messages": [{"role": "user", "text": ours}], **guide}
    (tmp_path / "mine.yaml").write_text(json.dumps(data), encoding="utf-8")
    given = {
        "haystack": "jsonl",
        "haystack_path": str(path / "input"),
        "lengths": 2000,
        "depths": 29,
    }
    settings = configure("cdme-8k", given | {"template": str(tmp_path / "mine.yaml")})
    rows = load_opencompass(
        path / "input",
        2000,
        29,
        "gpt-4",
        settings.file_list,
        10,
        200,
        True,
        "Chinese",
        settings.needle,
        settings.question,
        template={"prompt": words, **guide},
    )
    trials = prepare(settings).trials
    assert [trial.prompt.messages[0].content for trial in trials] == [row["prompt"] for row in rows]
    assert {trial.item.reference.answer for trial in trials} == {row["answer"] for row in rows}


def test_words_that_only_the_scorer_looks_for_must_not_stand_in_the_haystack_either():
    with pytest.raises(HaystackError, match="already holds 'the'"):
        made(scorer="substring", scorer_options={"words": ["the"]})


def test_several_needles_keep_their_distances_where_a_plan_chooses_the_first_ones_place():
    """They once lay glued together, as the later ones stayed at their own depth: another task."""
    item = {"task": "multi", "needles": ["Ann lives in Oslo.", "Her dog is Rex."], "answer": "Rex"}
    grid = {"lengths": [2000, 4000, 8000], "depths": [0, 50, 90], "mode": "bins", "diff": 10}
    for trial in made(**item, **grid, question="Who is Ann's dog?", keywords=["Rex"]).trials:
        first, second = trial.prompt.needles
        assert (
            second.realised - first.realised == pytest.approx(0.1, abs=0.03)
            or second.realised > 0.97
        )
