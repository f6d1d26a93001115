"""How settings reach a task: its own options, the settings it names, and those it would not
heed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.settings.reading import configure
from needlemap.trials.build import Experiment, prepare

SMALL: dict[str, Any] = {"lengths": [900], "depths": [0, 50, 100], "max_answer_tokens": 64}


def made(named: str | None = None, **given: Any) -> Experiment:
    return prepare(configure(named, SMALL | given))


def test_a_tasks_options_come_from_preset_and_flags_key_by_key():
    experiment = made("ruler-niah-multikey-1", task_options={"keys": 7})
    assert experiment.settings.task_options == {
        "haystack": "prose",
        "key": "word",
        "value": "number",
        "keys": 7,
    }
    assert {len(trial.item.needles) for trial in experiment.trials} == {7}


def test_the_settings_that_a_task_names_reach_it():
    (trial, *_) = made(task="magic", language="chinese").trials
    assert trial.item.question.startswith("文中说")
    (trial, *_) = made(task="single", needle="Ann eats figs.", question="What does Ann eat?").trials
    assert (trial.item.needles[0].text, trial.item.question) == (
        "Ann eats figs.",
        "What does Ann eat?",
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"task": "kv", "needle": "x"},
            "Nothing reads --needle here: it needs task",
        ),
        ({"task": "passkey", "keywords": ["x"]}, "Nothing reads --keywords here"),
        ({"task": "magic", "question": "x"}, "Nothing reads --question here"),
        (
            {"task": "passkey", "task_options": {"noise": "Hum."}},
            "Unknown option 'noise' of Passkey",
        ),
        (
            {"task": "magic", "task_options": {"haystak": "repeat"}},
            r"'haystak' of Magic. Did you mean 'haystack'\?",
        ),
        (
            {"task": "magic", "task_options": {"keys": "many"}},
            "'keys' of Magic must be a whole number, got 'many'",
        ),
        (
            {"task": "kv", "haystack": "folder", "haystack_path": "."},
            "it needs a task without a haystack of its own",
        ),
        ({"task": "passkey", "order": "listed"}, "it needs a task without a haystack of its own"),
        (
            {"task": "kv", "placement": "token"},
            "it needs a task whose needles stand between sentences",
        ),
    ],
)
def test_what_a_task_would_not_heed_is_refused(given, words):
    with pytest.raises(SettingsError, match=words):
        made(**given)


def test_an_option_that_changes_a_prompt_or_not_changes_every_key():
    plain, other = made(task="kv"), made(task="kv", task_options={"digits": 8})
    assert [trial.prompt.sha256 for trial in plain.trials] == [
        trial.prompt.sha256 for trial in other.trials
    ]
    assert not {trial.key for trial in plain.trials} & {trial.key for trial in other.trials}


def test_a_tasks_haystack_is_named_in_the_run_and_noise_is_read_once_for_all_repeats():
    assert made(task="kv", repeats=2).haystacks[0][0] == "json"
    noise = made(task="passkey", repeats=2)
    assert noise.haystacks[0] == noise.haystacks[1]
    texts = {max(trial.prompt.context_spans, key=len).text for trial in noise.trials}
    assert len(texts) == 1


def test_drawing_once_a_repeat_lets_bins_share_beyond_the_needle():
    """Needles of a chain are one text then: what stands behind them is computed once too."""
    from needlemap.plan.summary import WalkedTrials, summarise

    grid = {"lengths": "2k:16k:8", "depths": "0:100:8", "mode": "bins"}
    factors = [
        summarise(
            WalkedTrials.of(made(task="magic", task_options={"fresh": fresh}, **grid), 1)
        ).factor
        for fresh in ("trial", "repeat")
    ]
    assert factors[1] > 1.8 * factors[0] > 1.8


def test_on_the_command_line(typed):
    flags = (
        "--lengths",
        "900",
        "--depths",
        "50",
        "--max-answer-tokens",
        "64",
        "--model",
        "baseline/bm25",
    )
    done = typed(
        "prompts",
        "--task",
        "kv",
        "--task-options",
        "shots=1",
        "--task-options",
        "uuid_digits=8",
        *flags,
    )
    assert "\\n}\\nWhich value does the JSON object hold" in done.stdout
    wrong = typed("prompts", "--task", "kv", "--task-options", "shot=1", *flags, code=2)
    assert "Unknown option 'shot' of KeyValue. Did you mean 'shots'?" in wrong.stderr


def test_answers_made_elsewhere_are_scored_with_all_that_the_task_knows(typed):
    flags = (
        "--task",
        "multikey",
        "--lengths",
        "900",
        "--depths",
        "0,50",
        "--max-answer-tokens",
        "64",
    )
    typed("prompts", *flags, "--model", "baseline/bm25", "-o", "prompts.jsonl")
    rows = [json.loads(line) for line in (typed.folder / "prompts.jsonl").read_text().splitlines()]
    said = [row | {"answer": f"{row['keywords'][0]} or {row['decoys'][0]}"} for row in rows]
    (typed.folder / "answers.jsonl").write_text("\n".join(map(json.dumps, said)))
    scored = [
        json.loads(line)
        for line in typed("score", "answers.jsonl", "--scorer", "f1").stdout.splitlines()
    ]
    assert [row["why"]["wrong"] for row in scored] == [row["decoys"][:1] for row in rows]
    assert {round(row["score"], 1) for row in scored} == {66.7}
