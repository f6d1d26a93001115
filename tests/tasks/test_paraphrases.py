"""The question in other words: haystack and needle stay, so that a difference is the wording's."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import needlemap
from needlemap.errors import SettingsError
from needlemap.plan import ordered
from needlemap.plan.tree import shared_tokens
from needlemap.records.loaded import load_run
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.text import to_text
from needlemap.reports.run_report import run_report
from needlemap.settings.reading import configure
from needlemap.trials import share_prompts
from needlemap.trials.build import Experiment, prepare

OTHER = ["Which digits open the locker in {city}?", "How does one get in there?"]
TINY = {"lengths": "600,1k", "depths": "0,50,100", "repeats": 2, "model": "baseline/bm25"}


def built(**more) -> Experiment:
    return prepare(configure(None, {**TINY, "paraphrases": OTHER, **more}))


def matching_words(messages):
    """A model that finds the fact only by the needle's own words."""
    question = messages[-1]["content"].rsplit("\n", 1)[-1]
    text = messages[-1]["content"]
    number = text.split("The locker code for ")[1].split(" is ")[1][:5]
    return number if "locker code" in question else "It does not say."


@pytest.mark.parametrize("language", ["english", "chinese"])
@pytest.mark.parametrize("placement", ["sentence", "token"])
def test_haystack_and_needles_stand_where_they_stood_and_lengths_are_exact(language, placement):
    wordings = ["储物柜用哪几个数字打开？"] if language == "chinese" else OTHER
    made = built(language=language, placement=placement, paraphrases=wordings, distractors=0)
    literal = {(trial.repeat, trial.cell): trial for trial in made.trials}
    assert len(made.reworded) == len(wordings) * len(made.trials)
    for trial in made.reworded:
        own, prompt = literal[trial.repeat, trial.cell].prompt, trial.prompt
        assert prompt.question != own.question
        assert prompt.off_by == own.off_by == 0
        assert trial.item.needles == literal[trial.repeat, trial.cell].item.needles
        if trial.cell.depth < 1:
            assert prompt.positions == own.positions
        context, other = own.context_text, prompt.context_text
        same = next(
            (at for at, (a, b) in enumerate(zip(context, other, strict=False)) if a != b),
            min(len(context), len(other)),
        )
        assert same > 0.9 * len(context) or trial.cell.depth == 1


def test_prompts_of_the_question_itself_are_as_without_them():
    keys = [trial.key for trial in built().trials]
    assert keys == [trial.key for trial in built(paraphrases=[]).trials]


def test_near_misses_and_several_needles_go_with_them():
    made = built(
        task="multi",
        needles=["{name} lives in {city}.", "The code for {city} is {number}."],
        question="What is the code for the city of {name}?",
        keywords=["{number}"],
        draw={"name": ["Ann", "Bob", "Eve"], "city": ["Oslo", "Rome", "Bonn"], "number": "10:99"},
        distractors=2,
        paraphrases=["Where {name} is at home, which number is used?"],
    )
    assert {len(trial.prompt.needles) for trial in made.reworded} == {6}


def test_the_report_tells_what_the_wording_does(tmp_path):
    file = tmp_path / "other.txt"
    file.write_text("\n".join(OTHER), "utf-8")
    run = needlemap.run(
        model=matching_words,
        paraphrases=str(file),
        lengths="600,1k",
        depths="0,50",
        repeats=6,
        out=tmp_path / "run",
        quiet=True,
    )
    assert len(run.records()) == 24  # of the question itself
    assert run.map().overall == 1.0
    report = run_report(load_run(tmp_path / "run"))
    lines = to_text(report).splitlines()
    at = lines.index("finding by wording: as asked 100.0 (n=24)")
    assert lines[at + 1].startswith("'Which digits open the locker in {city}?': 0.0 [0.0, ")
    assert "-100.0 [-100.0, " in lines[at + 1]
    assert "(n=24 pairs, 2 of 6 words shared)" in lines[at + 1]
    assert lines[at + 3].startswith("all in other words: 0.0 [")
    first, second, both = to_json(report)["wordings"]
    assert (first["wording"], second["wording"], both["n"]) == (*OTHER, 24)
    assert (first["as_asked"], first["change"], first["words_shared"]) == (100.0, -100.0, 2)


def test_they_are_added_to_a_run_that_is_finished_and_asked_once(tmp_path):
    asked = []

    def model(messages):
        asked.append(messages[-1]["content"])
        return "none"

    given = {**TINY, "model": model, "out": tmp_path / "run", "quiet": True}
    needlemap.run(**given)
    before = len(asked)
    records = [each.key for each in needlemap.load(tmp_path / "run").records()]
    needlemap.run(**given, paraphrases=OTHER)
    assert len(asked) == 3 * before
    needlemap.run(**given, paraphrases=OTHER)
    assert len(asked) == 3 * before
    assert [each.key for each in needlemap.load(tmp_path / "run").records()] == records
    (file,) = (tmp_path / "run").glob("records-*.jsonl")
    assert "wording" not in json.loads(file.read_text("utf-8").splitlines()[0])
    reworded = Path(tmp_path, "run", "reworded.jsonl").read_text("utf-8").splitlines()
    assert {json.loads(line)["wording"] for line in reworded} == {*OTHER}


def test_each_is_asked_behind_the_prompt_whose_haystack_it_shares():
    made = built(lengths="1k", depths="0,50")
    walk = ordered([*made.trials, *made.reworded], "exact")
    shared = [shared_tokens(a.prompt, b.prompt) for a, b in pairwise(walk)]
    assert sum(size > 0.8 * 700 for size in shared) >= 2 * len(made.trials)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"paraphrases": ["What is the locker code for {city}?"]}, "is the question itself"),
        ({"paraphrases": ["What of {town}?"]}, "unknown placeholder {town}"),
        ({"paraphrases": ["Is it {number}?"]}, "holds the answer already"),
        ({"paraphrases": ["What opens it?"], "distractors": 2}, "lacks {city} of the question"),
        ({"seek": 85, "repeats": 1}, "leave --seek and --until out"),
        ({"task": "kv"}, "Task 'kv' has words of its own"),
        ({"paraphrases": "3"}, "there is no file '3'"),
        ({"paraphrases": ["A?", "A?"]}, "empty or stands there twice"),
    ],
)
def test_what_would_tell_nothing_is_refused_in_words(changed, said):
    with pytest.raises(SettingsError, match=said.replace("{", r"\{")):
        built(**changed)


def test_cells_that_share_a_prompt_share_its_rewordings():
    made = built(lengths="450", depths="40,41,42")
    assert len(made.reworded) == len(OTHER) * len(made.trials)
    assert share_prompts(made.reworded) == [replace(each) for each in made.reworded]
