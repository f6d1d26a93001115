"""The `hf` back end: one prompt after another from one cache, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

from needlemap.asking.session import Session, make_model
from needlemap.errors import Failure, NeedlemapError, SettingsError, Unmeasured
from needlemap.models import Answer, Decoding
from needlemap.plan.summary import WalkedTrials, summarise
from needlemap.prompts import Prompt
from needlemap.records.loaded import load_run
from needlemap.reports.live import LiveView
from needlemap.settings.reading import configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare

torch = pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
pytest.importorskip("transformers", reason="needs transformers: python3 -m pip install '.[hf]'")

from needlemap.models.hf import HuggingFaceModel  # noqa: E402

Folders = Callable[..., Path]
Trials = Callable[..., list[Trial]]
SHORT = Decoding(max_answer_tokens=6)


async def _ask(model: HuggingFaceModel, questions: list[tuple[Prompt, Decoding]]) -> list[Answer]:
    try:
        return await asyncio.gather(*(model.answer(*question) for question in questions))
    finally:
        await model.close()


def ask(
    folder: Path, asked: list[Trial] | list[Prompt], decoding: Decoding = SHORT, **options: Any
) -> list[Answer]:
    prompts = [each.prompt if isinstance(each, Trial) else each for each in asked]
    questions = [(prompt, decoding) for prompt in prompts]
    return asyncio.run(_ask(HuggingFaceModel(str(folder), **options), questions))


def failure(folder: Path, prompt: Prompt, decoding: Decoding = SHORT, **options: Any) -> Unmeasured:
    with pytest.raises(Unmeasured) as caught:
        ask(folder, [prompt], decoding, **options)
    return caught.value


@pytest.fixture
def folder(folders: Folders) -> Path:
    return folders("llama")


@pytest.fixture
def asked(trials: Trials, folder: Path) -> list[Trial]:
    return trials(folder, "exact")[:6]


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The model's folder, to be spoilt."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_answers_come_with_counts_that_add_up(folder: Path, asked: list[Trial]) -> None:
    answers = ask(folder, asked)
    assert [answer.prompt_tokens for answer in answers] == [trial.prompt.tokens for trial in asked]
    assert answers[0].cached_tokens == 0
    assert all((answer.cached_tokens or 0) > 100 for answer in answers[1:])
    assert all(answer.finish in ("stop", "length") and answer.latency_s > 0 for answer in answers)
    assert answers[0].model == str(folder)


def test_a_record_holds_both_counts_where_another_vocabulary_counts_lengths(
    folder: Path, tmp_path: Path
) -> None:
    given = {"model": f"hf/{folder}", "tokenizer": "gpt-4", "lengths": "200", "depths": "0,50,100"}
    settings = configure(None, {**given, "max_answer_tokens": 8})
    session = Session.open(prepare(settings), tmp_path / "run")
    asyncio.run(session.run(make_model(settings), LiveView()))
    records = list(session.folder.records())
    assert [record.prompt.tokens for record in records if record.prompt] == [192] * 3
    fed = [record.prompt.fed_tokens for record in records if record.prompt]
    assert fed == [record.prompt_tokens for record in records] != [192] * 3
    assert all(record.cached_tokens == record.shared_tokens for record in records)


def test_answers_asked_at_once_are_those_asked_alone(folder: Path, asked: list[Trial]) -> None:
    together = [answer.text for answer in ask(folder, asked)]
    assert together == [ask(folder, [trial])[0].text for trial in asked]
    assert len(set(together)) > 1


def test_prompts_are_rendered_as_transformers_does(folder: Path) -> None:
    from transformers import AutoTokenizer

    from needlemap.models.chat import Chat
    from needlemap.models.model_files import ModelFiles

    rows = [("system", "Be brief."), ("user", "Where is the code?"), ("assistant", "It is")]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = [{"role": role, "content": said} for role, said in rows]
    whole = Chat.of(ModelFiles(str(folder))).row_ids
    options = {"tokenize": True, "return_dict": False}
    theirs = tokenizer.apply_chat_template(messages[:2], add_generation_prompt=True, **options)
    assert whole(rows[:2]).tolist() == list(theirs)
    theirs = tokenizer.apply_chat_template(messages, continue_final_message=True, **options)
    assert whole(rows).tolist() == list(theirs)


@pytest.mark.parametrize("add", [True, False])
def test_a_base_text_begins_as_transformers_begins_it(copy: Path, add: bool) -> None:
    from transformers import AutoTokenizer

    from needlemap.models.chat import Chat
    from needlemap.models.model_files import ModelFiles

    tokenizer = Tokenizer.from_file(str(copy / "tokenizer.json"))
    if add:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    tokenizer.save(str(copy / "tokenizer.json"))
    theirs = AutoTokenizer.from_pretrained(copy)("Where is the code?")["input_ids"]
    ours = (
        Chat.of(ModelFiles(str(copy)), base=True).row_ids([("text", "Where is the code?")]).tolist()
    )
    assert (ours[0] == 1) is add
    assert ours == theirs


def test_base_models_get_one_plain_text(folders: Folders) -> None:
    folder = folders("gpt_neox", chat=False)
    settings = configure(
        None, {"model": f"hf/{folder}", "lengths": "200", "depths": "50", "max_answer_tokens": 6}
    )
    prompt = prepare(settings).trials[0].prompt
    assert prompt.messages[0].content.endswith("Answer:")
    assert not prompt.chat
    assert ask(folder, [prompt])[0].prompt_tokens == prompt.tokens == 194


def test_special_tokens_in_a_haystack_stay_plain_text(folder: Path) -> None:
    needle = "The code is 12345, says <|im_end|> here."
    settings = configure(
        None,
        {
            "model": f"hf/{folder}",
            "lengths": "300",
            "depths": "50",
            "needle": needle,
            "question": "Code?",
        },
    )
    prompt = prepare(settings.model_copy(update={"max_answer_tokens": 6})).trials[0].prompt
    assert needle in prompt.context_text
    ends = int(np.count_nonzero(prompt.ids == 4))
    assert ends == 2  # the template's own, of the system and the user turn


def test_texts_that_nobody_tokenised_are_tokenised_here(folder: Path) -> None:
    judge = Prompt.plain([("system", "You grade."), ("user", "Grade this.")])
    answer = ask(folder, [judge])[0]
    assert answer.prompt_tokens is not None
    assert answer.prompt_tokens > 10


def test_what_is_sampled_hangs_on_what_is_asked_and_not_on_how_it_is_scored(
    folder: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "model": f"hf/{folder}",
        "lengths": "300",
        "depths": "0,50,100",
        "repeats": 2,
        "max_answer_tokens": 8,
        "temperature": 1.5,
        "needle": "The code is 42.",
        "question": "What is the code?",
    }
    said = []
    for number, scoring in enumerate(
        (
            {"scorer": "exact"},
            {"scorer": "levenshtein", "scorer_options": {"trim": True}},
            {"keywords": ["42"]},
            {"seed": 1},
        )
    ):
        settings = configure(None, given | scoring)
        session = Session.open(prepare(settings), tmp_path / str(number))
        asyncio.run(session.run(make_model(settings), LiveView()))
        records = list(session.folder.records())
        said.append({(record.repeat, record.depth): record.answer for record in records})
    assert len(set(said[0].values())) > 1  # drawn, each for itself
    assert said[0] == said[1] == said[2]
    assert said[0] != said[3]


def test_sampling_is_the_same_for_the_same_seed_and_another_for_another(
    folder: Path, asked: list[Trial]
) -> None:
    hot = Decoding(max_answer_tokens=6, temperature=1.5, seed=1)
    first, again, other = (
        [answer.text for answer in ask(folder, asked[:2], replace(hot, seed=seed))]
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert first != [answer.text for answer in ask(folder, asked[:2])]


def test_a_prompt_beyond_the_positions_is_refused_before_it_is_computed(
    copy: Path, asked: list[Trial]
) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 200}))
    error = failure(copy, asked[0].prompt)
    assert error.failure is Failure.TOO_LONG
    assert "more than the 200 positions" in str(error)
    assert "--model-options allow_beyond=true" in str(error)
    assert ask(copy, asked[:1], allow_beyond=True)[0].prompt_tokens == asked[0].prompt.tokens


def test_a_positions_limit_counts_the_answer_too(copy: Path, asked: list[Trial]) -> None:
    limit = asked[0].prompt.tokens + 6
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "max_position_embeddings": limit}))
    assert ask(copy, asked[:1])
    assert failure(copy, asked[0].prompt, Decoding(max_answer_tokens=7)).failure is Failure.TOO_LONG


def test_out_of_memory_is_a_failure_with_its_length_and_the_next_prompt_is_answered(
    folder: Path, asked: list[Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    short, long = asked[0].prompt, asked[-1].prompt
    assert short.tokens < long.tokens
    forward = LlamaForCausalLM.forward

    def starved(self: Any, input_ids: Any, past_key_values: Any = None, **rest: Any) -> Any:
        held = past_key_values.get_seq_length() if past_key_values is not None else 0
        if held + input_ids.shape[1] > short.tokens + 6:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")
        return forward(self, input_ids, past_key_values=past_key_values, **rest)

    expected = ask(folder, [short])[0].text
    monkeypatch.setattr(LlamaForCausalLM, "forward", starved)
    model = HuggingFaceModel(str(folder))
    outcome = asyncio.run(one_by_one(model, [short, long, short]))
    assert outcome[0] == outcome[2] == expected
    assert isinstance(outcome[1], Unmeasured)
    assert outcome[1].failure is Failure.MEMORY
    assert f"Out of memory at {long.tokens:,} tokens" in str(outcome[1])


async def one_by_one(model: HuggingFaceModel, prompts: list[Prompt]) -> list[str | Unmeasured]:
    outcome: list[str | Unmeasured] = []
    for prompt in prompts:
        try:
            outcome.append((await model.answer(prompt, SHORT)).text)
        except Unmeasured as error:
            outcome.append(error)
    await model.close()
    return outcome


def test_too_slow_is_a_time_out_and_is_not_asked_again(folder: Path, asked: list[Trial]) -> None:
    error = failure(folder, asked[0].prompt, Decoding(max_answer_tokens=6, timeout_s=1e-6))
    assert (error.failure, error.transient) == (Failure.TIMED_OUT, False)


def test_an_answer_ends_where_transformers_own_stop_strings_end_it(
    folder: Path, asked: list[Trial]
) -> None:
    from transformers import AutoTokenizer

    from needlemap.models.model_files import Loading, load_model

    long = Decoding(max_answer_tokens=24)
    tokenizer, theirs = (
        AutoTokenizer.from_pretrained(folder),
        load_model(str(folder), Loading(device="cpu")),
    )
    cases = [
        (trial.prompt, answer.text, answer.text[start : start + size])
        for trial, answer in zip(asked, ask(folder, asked, long), strict=True)
        for start in (3, 9, 20)
        for size in (1, 3, 7)
    ]
    cases = [(prompt, said, stop) for prompt, said, stop in cases if stop and "\ufffd" not in stop]
    assert len(cases) > 20
    ended = [
        (prompt, replace(long, request={"stop": [stop, "never said"]})) for prompt, _, stop in cases
    ]
    answers = asyncio.run(_ask(HuggingFaceModel(str(folder)), ended))
    for (prompt, said, stop), ours in zip(cases, answers, strict=True):
        ids = torch.from_numpy(prompt.ids.astype(np.int64))[None]
        made = theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=24,
            do_sample=False,
            pad_token_id=0,
            stop_strings=[stop],
            tokenizer=tokenizer,
        )[0, ids.shape[1] :].tolist()
        assert ours.completion_tokens == len(made)
        assert (ours.text, ours.finish) == (said[: said.index(stop)], "stop")


def test_a_stop_string_may_be_a_special_token(folder: Path) -> None:
    """OpenCompass's end_str '<eoa>' is one: text without special tokens never holds it."""
    from needlemap.models.decoding import Stops

    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json"))
    stops = Stops(("<|im_start|>",), vocabulary)
    answer = [*vocabulary.encode("It is 42.", add_special_tokens=False).ids, 2, 3, 300]
    assert stops.is_reached(answer[:-1])
    assert not stops.is_reached(answer[:-2])
    assert stops.text(answer) == "It is 42."


@pytest.mark.parametrize("wrong", [5, [""], "", ["a", 1], {"a": 1}])
def test_stop_strings_that_are_no_texts_are_refused_before_anything_is_loaded(
    folder: Path, wrong: Any
) -> None:
    with pytest.raises(SettingsError, match="takes a text or a list of texts"):
        prepare(
            configure(None, {"model": f"hf/{folder}", "lengths": "300", "request": {"stop": wrong}})
        )


def test_a_request_field_that_is_not_heeded_is_refused_before_anything_is_loaded(
    folder: Path,
) -> None:
    with pytest.raises(SettingsError, match=r"does not heed --request top_p.*stop"):
        prepare(
            configure(None, {"model": f"hf/{folder}", "lengths": "300", "request": {"top_p": 0.5}})
        )


def test_request_fields_are_refused(folder: Path, asked: list[Trial]) -> None:
    error = failure(folder, asked[0].prompt, Decoding(request={"top_p": 0.5}))
    assert (error.failure, "top_p" in str(error)) == (Failure.REJECTED, True)


def test_a_cache_that_cannot_be_shared_is_announced(folders: Folders) -> None:
    recurrent = HuggingFaceModel(str(folders("mamba")))
    assert "every prompt is computed in full" in recurrent.notes[0]
    assert HuggingFaceModel(str(folders("mistral"))).notes == ()
    assert HuggingFaceModel(str(folders("llama"))).notes == ()


def planned(folder: Path, **options: Any) -> int:
    """Prompt tokens that a plan says its cache will hold."""
    grid = {"lengths": "300:500:3", "depths": "0:100:3", "max_answer_tokens": 4}
    experiment = prepare(
        configure(None, {"model": f"hf/{folder}", "model_options": options, **grid})
    )
    return summarise(WalkedTrials.of(experiment, 1)).cached


def test_a_plan_promises_what_the_cache_can_do(folder: Path, copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 400}
    (copy / "config.json").write_text(json.dumps({**config, "rope_parameters": rope}))
    assert planned(folder) > planned(copy) > planned(folder, share=False) == 0


@pytest.mark.parametrize("architecture", ["llama", "mamba"])
def test_a_plan_promises_nothing_where_a_kind_s_cache_does_not_go_on(
    folders: Folders, architecture: str
) -> None:
    serves = HuggingFaceModel(str(folders(architecture))).side is None
    assert serves == (planned(folders(architecture)) > 0) == (architecture == "llama")
    traits = HuggingFaceModel.traits(str(folders(architecture)), {})
    assert [f"of a {architecture} model does not go on" in note for note in traits.notes] == [
        True
    ] * (not serves)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "bamba"])
def test_a_run_caches_what_its_plan_promised(
    folders: Folders, tmp_path: Path, architecture: str
) -> None:
    grid = {"lengths": "300:500:3", "depths": "0:100:3", "max_answer_tokens": 4}
    settings = configure(None, {"model": f"hf/{folders(architecture)}", **grid})
    session = Session.open(prepare(settings), tmp_path / "run")
    asyncio.run(session.run(make_model(settings), LiveView()))
    records = list(session.folder.records())
    assert sum(record.shared_tokens or 0 for record in records) > 1000
    assert [record.cached_tokens for record in records] == [
        record.shared_tokens for record in records
    ]


def test_what_a_model_told_stands_in_run_json(folders: Folders, tmp_path: Path) -> None:
    settings = configure(
        None,
        {
            "model": f"hf/{folders('mamba')}",
            "lengths": "300",
            "depths": "0,50",
            "max_answer_tokens": 4,
        },
    )
    session = Session.open(prepare(settings), tmp_path / "run")
    asyncio.run(session.run(make_model(settings), LiveView()))
    assert [record.shared_tokens for record in session.folder.records()] == [0, 0]
    note, *_ = json.loads((tmp_path / "run" / "run.json").read_text())["model_notes"]
    assert "every prompt is computed in full" in note


def test_sharing_can_be_left_off_as_the_reference_of_every_mode(
    folder: Path, asked: list[Trial]
) -> None:
    shared, alone = ask(folder, asked), ask(folder, asked, share=False)
    assert [answer.text for answer in alone] == [answer.text for answer in shared]
    assert [answer.cached_tokens for answer in alone] == [0] * len(asked)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("tokenizer.json", r"No tokenizer\.json in"),
        ("config.json", "it has no config.json"),
        ("model.safetensors", "cannot be loaded by transformers"),
    ],
)
def test_a_folder_that_lacks_a_part_says_which(copy: Path, missing: str, message: str) -> None:
    (copy / missing).unlink()
    with pytest.raises(NeedlemapError, match=message):
        HuggingFaceModel(str(copy))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devise": "cpu"}, "Did you mean 'device'"),
        ({"dtype": "float8"}, "Option 'dtype'"),
        ({"chunk_tokens": 0}, "at least 1"),
        ({"device": "abacus"}, "cannot be loaded"),
    ],
)
def test_a_wrong_option_is_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        HuggingFaceModel(str(folder), **options)


def test_planning_imports_neither_torch_nor_transformers(folder: Path) -> None:
    code = (
        "import sys; from needlemap.settings.reading import configure; "
        "from needlemap.trials.build import prepare; "
        f"prepare(configure(None, {{'model': 'hf/{folder}', 'lengths': '800'}})); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_run_scored_by_logprob_records_probabilities_and_no_answer(
    folder: Path, tmp_path: Path
) -> None:
    given = {
        "lengths": "300,600",
        "depths": "0,50,100",
        "max_answer_tokens": 6,
        "scorer": "logprob",
    }
    settings = configure(None, {"model": f"hf/{folder}", **given})
    session = Session.open(prepare(settings), tmp_path / "run")
    model = make_model(settings)
    outcome = asyncio.run(session.run(model, LiveView()))
    assert (outcome.scored, outcome.failures) == (6, {})
    records = list(session.folder.records())
    assert len(records) == 6
    for record in records:
        assert record.scorer is not None
        assert record.scorer.native is not None
        assert record.score == pytest.approx(np.exp(record.scorer.native))
        assert record.scorer.why["tokens"] > 5
        assert record.answer is None
        assert record.completion_tokens == 0
        assert record.logprobs is not None
        assert record.logprobs.way == "walk"
        assert record.logprobs.mean == pytest.approx(record.scorer.native, abs=1e-5)
    assert load_run(tmp_path / "run").map.cells


def test_log_probabilities_are_those_of_an_uncached_pass_and_change_no_answer(
    folder: Path, asked: list[Trial]
) -> None:
    """The stop token is among them, where one ended the answer."""
    from needlemap.models.model_files import Loading, load_model
    from needlemap.models.walk import likelihoods

    model = load_model(str(folder), Loading(device="cpu", dtype="float32"))
    plain = ask(folder, asked)
    for trial, without, answer in zip(
        asked, plain, ask(folder, asked, replace(SHORT, logprobs=True)), strict=True
    ):
        told, ids = answer.logprobs, trial.prompt.ids
        assert (without.logprobs, answer.text, answer.finish) == (
            None,
            without.text,
            without.finish,
        )
        assert told is not None
        assert (told.way, told.start) == ("generated", len(ids))
        assert len(told.tokens) == answer.completion_tokens + (answer.finish == "stop")
        chosen = model.generate(
            torch.tensor(ids[None].astype(np.int64)), max_new_tokens=6, do_sample=False
        )
        rows = model(chosen).logits[0, len(ids) - 1 : -1].detach().numpy()
        expected = likelihoods(rows, chosen[0, len(ids) :].numpy())
        assert told.nats == pytest.approx([row[1] for row in expected], abs=1e-4)
        assert told.other_nats == pytest.approx([row[3] for row in expected], abs=1e-4)
