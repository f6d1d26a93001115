"""Published sets from files that users bring. The files here are ours, in the sets' formats."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from needlemap.errors import SettingsError
from needlemap.haystacks.generated import Generated
from needlemap.plan import ordered, shared
from needlemap.settings.reading import configure
from needlemap.tokenizers import load
from needlemap.trials import Trial
from needlemap.trials.build import Experiment, prepare

PROSE = " ".join(document.text for document in islice(Generated(seed=3).documents(), 40)).replace(
    "\n", " "
)
SENTENCES = PROSE.split(". ")
PLACES = ["kitchen", "garden", "office", "hallway"]


def prose(random: Random, count: int) -> list[str]:
    start = random.randrange(len(SENTENCES) - count)
    return SENTENCES[start : start + count]


def ruler(count: int, sentences: int) -> list[dict[str, Any]]:
    random, rows = Random(1), []
    for number in range(count):
        value, told = str(random.randrange(10**6, 10**7)), prose(random, sentences)
        place = round(number / (count - 1) * sentences)
        told.insert(place, f"One of the hidden counts for amber-{number} is: {value}")
        question = f"What is the hidden count for amber-{number} in that text?"
        row = {
            "index": number,
            "input": f"{'. '.join(told)}.\n{question}",
            "outputs": [value],
            "length": 900,
        }
        rows.append(row | {"answer_prefix": f" The hidden count for amber-{number} is"})
    return rows


def mrcr(count: int) -> list[dict[str, Any]]:
    random, rows = Random(2), []
    turns: list[dict[str, str]] = []
    for number in range(8):
        turns += [
            {"role": "user", "content": f"Write a poem about {('tapirs', 'rocks')[number % 2]}"}
        ]
        turns += [{"role": "assistant", "content": ". ".join(prose(random, 6))}]
    for number in range(count):
        code, place = "".join(random.choices("abcXYZ123", k=10)), 4 * (number % 4)
        asked = {
            "role": "user",
            "content": f"Prepend {code} to the {number % 4 + 1}. (1 indexed) poem about tapirs.",
        }
        row = {"prompt": json.dumps([*turns, asked]), "answer": code + turns[place + 1]["content"]}
        rows.append(
            row | {"random_string_to_prepend": code, "n_needles": 4, "desired_msg_index": place + 1}
        )
    return rows


def mrcr2(count: int) -> list[dict[str, Any]]:
    rows = []
    for row in mrcr(count):
        *turns, _ = json.loads(row["prompt"])
        code = f"{row['random_string_to_prepend']}xy"
        told = "\n".join(f"{turn['role'].title()}: {turn['content']}" for turn in turns)
        text = f"{told}\nUser: Prepend {code} to that poem about tapirs."
        rows.append({"queries": text, "answer": code + row["answer"][10:], "context_len": 2048})
    return rows


def babilong(count: int) -> list[dict[str, Any]]:
    random = Random(3)
    return [
        {
            "input": f"{'. '.join([*prose(random, 30), f'Mary went to the {place}', *prose(random, 10)])}.",  # noqa: E501
            "question": "Where is Mary? ",
            "target": place,
        }
        for place in (PLACES * count)[:count]
    ]


def longbench(count: int) -> list[dict[str, Any]]:
    choices = {
        f"choice_{letter}": word
        for letter, word in zip("ABCD", ["red", "green", "blue", "grey"], strict=True)
    }
    random = Random(4)
    return [
        {"_id": f"x{number}", "question": "Which colour?", "answer": "ABCD"[number % 4], **choices}
        | {
            "context": ". ".join(prose(random, 40)),
            "difficulty": "easy",
            "length": "short",
            "domain": "x",
        }
        for number in range(count)
    ]


def graphwalks(count: int) -> list[dict[str, Any]]:
    """Every other row has an empty answer, as some of the set's have."""
    random, rows = Random(5), []
    for number in range(count):
        names = [f"{random.getrandbits(40):010x}" for _ in range(60)]
        edges = "\n".join(f"{start} -> {end}" for start, end in pairwise(names))
        rows.append(
            {
                "prompt": f"The graph has these edges:\n{edges}\n\nOperation:\n"
                f"Find the parents of node {names[number % 2]}.\n",
                "answer_nodes": names[:1] if number % 2 else [],
                "prompt_chars": 1500,
                "problem_type": "parents",
            }
        )
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


Maker = Callable[[int], list[dict[str, Any]]]
SETS: dict[str, tuple[str, Maker]] = {
    "ruler": ("a.jsonl", lambda count: ruler(count, 40)),
    "mrcr": ("a.parquet", mrcr),
    "mrcr2": ("a.csv", mrcr2),
    "babilong": ("a.json", babilong),
    "longbench": ("a.json", longbench),
    "graphwalks": ("a.parquet", graphwalks),
}
every_set = pytest.mark.parametrize("name", SETS)


def made(name: str, folder: Path, **given: Any) -> Experiment:
    file, maker = SETS[name]
    path = write(folder / file, maker(8))
    small = {
        "lengths": [700, 1400],
        "depths": "0:100:5",
        "max_answer_tokens": 40,
        "task": "published",
    }
    return prepare(configure(None, small | {"task_options": {"path": str(path)}} | given))


def score(experiment: Experiment, trial: Trial, answer: str) -> float:
    return asyncio.run(experiment.scorer.score(answer, trial.item.reference)).share


@every_set
def test_each_format_is_told_by_its_fields_and_has_the_scorer_that_fits(name, tmp_path):
    experiment = made(name, tmp_path)
    scorers = {"ruler": "recall", "babilong": "label", "longbench": "choice", "graphwalks": "set"}
    assert experiment.scorer.name == scorers.get(name, "verbatim")
    assert len(experiment.trials) == 8
    for trial in experiment.trials:
        right = trial.item.reference.answer
        assert (
            score(
                experiment,
                trial,
                f"The correct answer is ({right})." if name == "longbench" else right,
            )
            == 1
        )
        assert score(experiment, trial, "") == 0
        assert score(experiment, trial, trial.item.question) == 0


@pytest.mark.parametrize("outputs", ["1234567", ["1234567"], 1234567])
def test_an_output_that_stands_alone_is_one_answer(outputs, tmp_path):
    """A text was once taken apart into its letters, each of them an answer."""
    path = write(tmp_path / "a.jsonl", [row | {"outputs": outputs} for row in ruler(2, 20)])
    experiment = prepare(
        configure(
            None, {"lengths": [700], "task": "published", "task_options": {"path": str(path)}}
        )
    )
    trial = experiment.trials[0]
    assert trial.item.reference.keywords == ("1234567",)
    assert [score(experiment, trial, answer) for answer in ("It is 1234567.", "1 2 3 4 5 6 7")] == [
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        (
            "ruler",
            {"outputs": "['1', '2']"},
            r"row 2: .*outputs are a text, \['1', '2'\], not a list",
        ),
        ("ruler", {"outputs": {"1": 2}}, "row 2: .*outputs are no list of texts"),
        ("ruler", {"outputs": None}, "row 2: .*outputs are no list of texts"),
        ("ruler", {"outputs": []}, "row 2: .*outputs are empty"),
        (
            "mrcr",
            {"desired_msg_index": 99},
            "row 2: .*desired_msg_index is 99, but there are 17 messages",
        ),
        ("mrcr", {"desired_msg_index": -1}, "row 2: .*desired_msg_index is -1"),
    ],
)
def test_a_row_that_says_something_impossible_is_refused_with_its_number(
    name, change, why, tmp_path
):
    file, maker = SETS[name]
    rows = maker(3)
    path = write(tmp_path / file.replace("parquet", "jsonl"), [rows[0], rows[1] | change, rows[2]])
    with pytest.raises(SettingsError, match=why):
        prepare(
            configure(
                None, {"lengths": [700], "task": "published", "task_options": {"path": str(path)}}
            )
        )


def test_each_sets_own_rule_is_in_force_whether_or_not_its_preset_is_named(tmp_path):
    """OpenAI's MRCR wants its code bare; RULER finds a number in a longer one. So without a
    preset."""
    mrcr_set, ruler_set = made("mrcr", tmp_path), made("ruler", tmp_path)
    assert mrcr_set.scorer.options == {"bare": True}
    assert ruler_set.scorer.options == {"rule": "ruler"}
    trial = mrcr_set.trials[0]
    code, wanted = trial.item.reference.answer[:10], trial.item.reference.keywords[0]
    assert score(mrcr_set, trial, f"{code} {wanted}") == 1
    assert score(mrcr_set, trial, f"**{code}** {wanted}") == 0
    own = made("ruler", tmp_path, scorer_options={"rule": "words"})
    number = own.trials[0].item.reference.answer
    assert [score(each, each.trials[0], f"9{number}") for each in (ruler_set, own)] == [1, 0]
    assert made("mrcr", tmp_path, scorer="levenshtein").scorer.options == {"trim": False}


@pytest.mark.parametrize("name", ["ruler", "mrcr", "mrcr2", "graphwalks"])
def test_whole_prompts_are_asked_byte_for_byte(name, tmp_path):
    rows = SETS[name][1](8)
    for row, trial in zip(rows, made(name, tmp_path).trials, strict=True):
        said = [(message.role, message.content) for message in trial.prompt.messages]
        if name == "mrcr":
            assert said == [(turn["role"], turn["content"]) for turn in json.loads(row["prompt"])]
        else:
            field = {"ruler": "input", "mrcr2": "queries", "graphwalks": "prompt"}[name]
            assert said == [("user", row[field])]


@pytest.mark.parametrize("name", ["babilong", "longbench"])
def test_parts_are_put_together_with_all_of_them_once(name, tmp_path):
    for row, trial in zip(SETS[name][1](8), made(name, tmp_path).trials, strict=True):
        (message,) = trial.prompt.messages
        text = row["input" if name == "babilong" else "context"].strip()
        assert message.content.count(text) == message.content.count(row["question"].strip()) == 1
        for letter in "ABCD" if name == "longbench" else "":
            assert f"({letter}) {row[f'choice_{letter}']}" in message.content


@every_set
def test_a_prompt_stands_at_the_length_nearest_to_its_own(name, tmp_path):
    experiment = made(name, tmp_path)
    for trial in experiment.trials:
        counted = sum(load("cl100k_base").count(message.data) for message in trial.prompt.messages)
        assert trial.prompt.tokens == counted
        with_answer, length = counted + 40, trial.cell.length_tokens
        assert abs(with_answer / length - 1) < 0.5
        assert length == (700 if with_answer < (700 * 1400) ** 0.5 else 1400)


def test_depth_is_that_of_the_answer_where_the_set_tells(tmp_path):
    depths = [trial.cell.depth for trial in made("ruler", tmp_path, lengths=[900]).trials]
    assert depths == sorted(depths)
    assert set(depths) == {0, 0.25, 0.5, 0.75, 1}
    conversations = made("mrcr", tmp_path, lengths=[1400]).trials
    assert [trial.cell.depth for trial in conversations[:2]] == [0, 0.25]
    unknown = made("babilong", tmp_path)
    assert {trial.cell.depth for trial in unknown.trials} == {0}
    assert "does not tell where answers stand" in unknown.notes[0]


def test_an_answer_of_mrcr_knows_which_of_the_poems_it_took(tmp_path):
    experiment = made("mrcr", tmp_path)
    trial = experiment.trials[2]  # the third poem about tapirs
    reference = trial.item.reference
    assert len(reference.choices) == 4
    wrong = reference.answer[:10] + reference.choices[0]
    why = asyncio.run(experiment.scorer.score(wrong, reference)).why
    assert (why["asked"], why["picked"]) == (3, 1)
    assert score(experiment, trial, reference.answer[10:]) == 0  # without its code
    assert score(experiment, trial, reference.answer[:-30]) == pytest.approx(0.95, abs=0.05)


def test_prompts_of_one_transcript_share_its_beginning(tmp_path):
    walk = ordered(made("mrcr", tmp_path, mode="exact").trials, "exact")
    assert sum(shared(walk, "exact")) > 0.8 * sum(trial.prompt.tokens for trial in walk[1:])


def test_every_prompt_is_a_repeat_of_its_own_and_keys_tell_them_apart(tmp_path):
    first, again = made("ruler", tmp_path), made("ruler", tmp_path)
    assert [trial.repeat for trial in first.trials] == list(range(8))
    assert len({trial.key for trial in first.trials}) == 8
    assert [trial.key for trial in first.trials] == [trial.key for trial in again.trials]
    assert {trial.key for trial in made("ruler", tmp_path, seed=1).trials}.isdisjoint(
        trial.key for trial in first.trials
    )


def test_the_answers_beginning_is_given_where_it_is_asked_for(tmp_path):
    begun = made("ruler", tmp_path, answer_prefix="{task}")
    assert begun.trials[3].prompt.messages[-1].content == " The hidden count for amber-3 is"
    assert made("ruler", tmp_path).trials[3].prompt.answer_prefix == ""
    base = made(
        "ruler",
        tmp_path,
        answer_prefix="{task}",
        model="openai/x",
        tokenizer="cl100k_base",
        model_options={"api": "completions"},
    )
    (message,) = base.trials[3].prompt.messages
    assert message.content.endswith("that text? The hidden count for amber-3 is")


def test_a_model_fed_with_ids_gets_the_same_text(tmp_path):
    fed = made("ruler", tmp_path, model="demo/retriever", lengths=[1000, 2000])
    plain = made("ruler", tmp_path, lengths=[1000, 2000])
    for one, other in zip(fed.trials, plain.trials, strict=False):
        assert one.prompt.messages[0].content == other.prompt.messages[0].content
        assert (one.prompt.ids >= 0).all()
        assert len(one.prompt.ids) == one.prompt.tokens


def test_a_baseline_reads_the_context_and_not_the_question(tmp_path, monkeypatch):
    from needlemap import run

    monkeypatch.chdir(tmp_path)
    for name, expected in {"ruler": 1.0, "babilong": 1.0, "mrcr": 0.0, "longbench": 0.0}.items():
        file, maker = SETS[name]
        write(tmp_path / file, maker(8))
        small = {"lengths": [700, 1400], "max_answer_tokens": 40, "quiet": True}
        done = run(f"published-{name}", out=f"r-{name}", task_options={"path": file}, **small)
        assert done.map().overall == expected
        assert done.map().missing == 0


def test_a_resume_at_other_lengths_is_refused_as_prompts_would_move(typed):
    write(typed.folder / "a.jsonl", ruler(6, 40))
    given = ("published-ruler", "--task-options", "path=a.jsonl", "-o", "r", "--quiet")
    typed("run", *given, "--lengths", "900")
    typed("run", *given, "--lengths", "900")
    ended = typed("run", *given, "--lengths", "800,1000", code=2)
    assert "other settings: lengths" in ended.stderr


def test_a_prompt_is_rebuilt_and_answers_are_scored_anew(typed):
    write(typed.folder / "a.jsonl", ruler(6, 40))
    typed(
        "run",
        "published-ruler",
        "--task-options",
        "path=a.jsonl",
        "--lengths",
        1000,
        "-o",
        "r",
        "--quiet",
    )
    cells = json.loads((typed.folder / "r" / "run.json").read_text())["cells"]
    depth = 100 * next(share for _, share, repeats in cells if 1 in repeats)
    shown = typed("replay", "r", "--length", 1000, "--depth", depth, "--repeat", 1)
    assert shown.stdout.strip() == f"[user]\n{ruler(6, 40)[1]['input']}"
    assert "the same bytes as recorded" in shown.stderr
    typed("score", "r", "--scorer", "first")
    assert "scorer first" in typed("report", "r").stdout


def test_reports_say_where_depth_is_unknown(typed):
    said = "depth is unknown: the set does not tell where answers stand"
    for name, maker in (("told", ruler), ("untold", lambda count, _: babilong(count))):
        write(typed.folder / f"{name}.jsonl", maker(8, 40))
        task = (
            "--task",
            "published",
            "--task-options",
            f"path={name}.jsonl",
            "--model",
            "baseline/bm25",
        )
        typed(
            "run", *task, "--lengths", "700,1400", "--max-answer-tokens", 40, "-o", name, "--quiet"
        )
        assert (said in typed("report", name).stdout) == (name == "untold")
        page = typed.folder / f"{name}.html"
        typed("report", name, "-o", page)
        assert (said in page.read_text()) == (name == "untold")


def test_a_plan_shows_the_modes_that_ask_them_as_they_are(typed):
    write(typed.folder / "a.jsonl", mrcr(6))
    given = (
        "published-mrcr",
        "--task-options",
        "path=a.jsonl",
        "--max-answer-tokens",
        60,
        "--lengths",
        "1k,2k",
    )
    plan = json.loads(typed("plan", *given, "--workers", 1, "--json").stdout)
    assert [mode["mode"] for mode in plan["modes"]] == ["single", "exact"]
    assert plan["modes"][1]["factor"] > 3
    assert plan["bins_lower_bound"] is None
    assert "bins" not in typed("plan", *given).stdout


def test_prompts_far_from_every_asked_length_are_left_out_and_counted(tmp_path):
    rows = [*ruler(3, 40), *ruler(2, 160)]
    path = str(write(tmp_path / "two.jsonl", rows))
    given = {"task": "published", "task_options": {"path": path}, "max_answer_tokens": 40}
    found = prepare(configure(None, given | {"lengths": [900]}))
    assert len(found.trials) == 3
    assert found.notes == ("2 prompts are near no asked length and are left out",)
    with pytest.raises(
        SettingsError, match=r"they have [\d,]+ to [\d,]+ tokens.*Type: --lengths \d+:\d+:3:log"
    ):
        prepare(configure(None, given | {"lengths": [100_000]}))
    assert len(prepare(configure(None, given | {"lengths": "900:3600:3:log"})).trials) == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "bins"}, "mode 'bins' would change them"),
        ({"mode": "cold"}, "mode 'cold' would change them"),
        ({"repeats": 2}, "leave --repeats out"),
        ({"template": "chat-zh"}, "leave --template out"),
        ({"order": "listed"}, "leave --order out"),
        ({"needle": "x"}, "Nothing reads --needle here"),
        ({"task_options": {}}, "needs a file: --task-options path=FILE.jsonl"),
        ({"task_options": {"path": "no.jsonl"}}, r"No file at 'no\.jsonl'"),
        ({"task_options": {"path": "no.txt"}}, r"must end in \.jsonl"),
    ],
)
def test_settings_that_would_not_be_heeded_are_refused(tmp_path, given, said):
    with pytest.raises(SettingsError, match=said):
        made("ruler", tmp_path, **given)


def test_a_conversation_is_not_for_a_model_that_takes_one_text(tmp_path):
    with pytest.raises(SettingsError, match="Use a chat model"):
        made("mrcr", tmp_path, model="demo/retriever", lengths=[1000, 2000, 4000])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"input": "a", "outputs": []}', "row 1: not of the format 'ruler' .outputs are empty"),
        ('{"input": 3, "outputs": ["a"]}', "'input' is no text"),
        ('{"some": 3}', "Fields some are of no known set. Known: ruler: input, outputs"),
        ("[1]", "row 1: not a mapping"),
        ("{", "line 1: not JSON"),
        ("", "holds no rows"),
        (
            '{"queries": "a", "answer": "012345678901 b"}',
            "the prompt does not ask for the 12 characters",
        ),
        (
            '{"prompt": "[", "answer": "b", "random_string_to_prepend": "a"}',
            "not of the format 'mrcr'",
        ),
        (
            '{"prompt": "[]", "answer": "b", "random_string_to_prepend": "a"}',
            "does not begin with random_string",
        ),
        ('{"input": "a", "question": "b", "target": "c"}', "all rows of the file have the same"),
    ],
)
def test_a_file_that_is_none_says_what_is_wrong_and_where(tmp_path, text, said):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(SettingsError, match=said):
        prepare(configure(None, {"task": "published", "task_options": {"path": str(path)}}))


@pytest.mark.parametrize("suffix", [".json", ".csv", ".parquet", ".jsonl"])
def test_a_file_of_garbage_is_an_error_and_no_traceback(tmp_path, suffix):
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(b"\xff\xfe\x00garbage\x00\xd8")
    with pytest.raises(SettingsError, match="bad"):
        prepare(configure(None, {"task": "published", "task_options": {"path": str(path)}}))


def test_a_limit_asks_the_first_rows(tmp_path):
    path = str(write(tmp_path / "a.jsonl", ruler(8, 40)))
    given = {
        "task": "published",
        "task_options": {"path": path, "limit": 3},
        "lengths": [900],
        "max_answer_tokens": 40,
    }
    assert [trial.repeat for trial in prepare(configure(None, given)).trials] == [0, 1, 2]
