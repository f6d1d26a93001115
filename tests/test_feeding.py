"""Prompts as the token ids that a model sees: those of the whole text, whoever counts lengths."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from needlemap.errors import SettingsError
from needlemap.haystacks.generated import Generated
from needlemap.models.chat import Chat
from needlemap.models.model_files import ModelFiles
from needlemap.prompts import feeding, seams
from needlemap.prompts.feeding import Feed, Feeder
from needlemap.settings import PromptSource
from needlemap.settings.reading import configure
from needlemap.tokenizers import load
from needlemap.trials.build import Experiment, prepare

SPECIAL = ["<s>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = "[INST] {{ messages[-1]['content'] | trim }} [/INST]"  # nothing special around the text
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
    r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
TEXTS = [
    document.text
    for language in ("english", "chinese")
    for document in islice(Generated(language=language, seed=3).documents(), 12)
]


def trained(
    tokenizer: Tokenizer, kind: Any, *, alphabet: bool = False, **options: Any
) -> Tokenizer:
    letters = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    trainer = kind(
        vocab_size=2400,
        special_tokens=["<unk>", *SPECIAL],
        initial_alphabet=letters,
        show_progress=False,
        **options,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def byte_level(*splits: Any, normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if splits:
        steps = [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, trainers.BpeTrainer, alphabet=True)


def llama_3() -> Tokenizer:
    return byte_level(
        pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), normalizer=normalizers.NFC()
    )


def superwords() -> Tokenizer:
    """Merges across blanks, as SuperBPE does: no cut between words is safe."""
    return byte_level(pre_tokenizers.Split(Regex(r"[.。]"), "merged_with_previous"))


def llama_2() -> Tokenizer:
    """As SentencePiece's BPE comes out of a conversion: a blank before every text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), "merged_with_next")
    trained(tokenizer, trainers.BpeTrainer)
    made = json.loads(tokenizer.to_str()) | {"pre_tokenizer": None}
    return Tokenizer.from_str(json.dumps(made))


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return trained(tokenizer, trainers.UnigramTrainer, unk_token="<unk>")


def chunks() -> Tokenizer:
    """Counts from a text's start on: in a window all its tokens would be others."""
    return byte_level(pre_tokenizers.Split(Regex(r"[\s\S]{1,7}"), "isolated"))


def lowercase() -> Tokenizer:
    """Its tokens are not the text's own bytes."""
    return byte_level(normalizer=normalizers.Lowercase())


def words() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return trained(tokenizer, trainers.WordPieceTrainer)


MAKERS: dict[str, Callable[[], Tokenizer]] = {
    maker.__name__: maker
    for maker in (byte_level, llama_3, superwords, llama_2, unigram, chunks, lowercase, words)
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    made: dict[tuple[str, str], Path] = {}
    vocabulary = cache(lambda kind: MAKERS[kind]())

    def make(kind: str, template: str = CHATML) -> Path:
        if (kind, template) not in made:
            folder = made[kind, template] = tmp_path_factory.mktemp(kind)
            vocabulary(kind).save(str(folder / "tokenizer.json"))
            (folder / "chat_template.jinja").write_text(template)
            (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 1_000_000}))
        return made[kind, template]

    return make


Folders = Callable[..., Path]


def experiment(folder: Path, **given: Any) -> Experiment:
    small = {
        "tokenizer": "gpt-4",
        "lengths": "300,900",
        "depths": "0:100:5",
        "max_answer_tokens": 8,
    }
    return prepare(configure(None, {"model": f"hf/{folder}", **small, **given}))


def feeder(folder: Path) -> Feeder:
    files = ModelFiles(str(folder))
    return Feeder(
        load(str(files.tokenizer)), Chat.of(files, base=False, template_options={}).render
    )


def whole(folder: Path, made: Experiment) -> list[list[int]]:
    """The ids of each prompt, tokenised as one text."""
    rows = [
        tuple((message.role, message.content) for message in trial.prompt.messages)
        for trial in made.trials
    ]
    spans = map(feeder(folder).whole, rows)
    return [[int(number) for span in each for number in span.ids] for each in spans]


@pytest.mark.parametrize(("template", "language"), [(CHATML, "english"), (PLAIN, "chinese")])
@pytest.mark.parametrize("kind", MAKERS)
def test_the_ids_are_those_of_the_whole_text(
    folders: Folders, kind: str, language: str, template: str
) -> None:
    folder = folders(kind, template)
    made = experiment(folder, language=language)
    assert [trial.prompt.ids.tolist() for trial in made.trials] == whole(folder, made)
    assert all(trial.prompt.fed for trial in made.trials)


def served(folder: Path, **given: Any) -> Experiment:
    """The same of a server of the same weights."""
    small = {
        "tokenizer": str(folder),
        "lengths": "300,900",
        "depths": "0:100:5",
        "max_answer_tokens": 8,
    }
    return prepare(configure(None, {"model": "openai/m", **small, **given}))


def framing(folder: Path, made: Experiment) -> int:
    """What the chat template adds to most prompts, as a run tells it by the server's counts."""
    added = zip(whole(folder, made), made.trials, strict=True)
    return Counter(len(ids) - trial.prompt.tokens for ids, trial in added).most_common(1)[0][0]


# the others: test_so_they_are_in_every_mode
@pytest.mark.parametrize("mode", ["exact", "bins"])
@pytest.mark.parametrize("kind", ["byte_level", "llama_3", "llama_2"])
def test_a_model_here_and_a_server_of_it_are_asked_the_same(
    folders: Folders, kind: str, mode: str
) -> None:
    """Lengths of one were sums of spans, those of the other counts of texts, a word or two
    apart."""
    folder = folders(kind)
    template = {"template": str(folder / "user.yaml"), "mode": mode, "repeats": 2}
    (folder / "user.yaml").write_text(
        'messages: [{role: user, text: "{haystack}\\n\\n{question}"}]'
    )
    here = experiment(folder, **template, tokenizer="auto")
    there = served(folder, **template, framing_tokens=framing(folder, served(folder, **template)))
    prompts = [[trial.prompt for trial in each.trials] for each in (here, there)]
    assert [prompt.sha256 for prompt in prompts[0]] == [prompt.sha256 for prompt in prompts[1]]
    assert [prompt.ids_sha256 for prompt in prompts[0]] == [
        prompt.ids_sha256 for prompt in prompts[1]
    ]
    assert all(prompt.ids_sha256 for prompt in prompts[0])
    assert [prompt.ids.tolist() for prompt in prompts[0]] == whole(folder, here)
    assert [prompt.tokens for prompt in prompts[0]] == [len(prompt.ids) for prompt in prompts[0]]
    assert {
        trial.cell.length_tokens - 8 + trial.prompt.off_by - trial.prompt.tokens
        for trial in here.trials
    } == {0}


def test_so_they_are_as_one_text(folders: Folders) -> None:
    folder = folders("llama_3")
    here = experiment(folder, tokenizer="auto", model_options={"base": True})
    there = served(folder, model_options={"api": "completions"})
    assert [trial.prompt.ids_sha256 for trial in here.trials] == [
        trial.prompt.ids_sha256 for trial in there.trials
    ]
    assert all(trial.prompt.ids_sha256 for trial in here.trials)


def test_the_hash_of_what_is_seen_is_that_of_the_ids(folders: Folders) -> None:
    prompt = experiment(folders("llama_3")).trials[0].prompt
    assert prompt.ids_sha256 == sha256(prompt.ids.astype("<i4").tobytes()).hexdigest()


@pytest.mark.parametrize(
    "given",
    [
        {"tokenizer": "gpt-4"},
        {"model": "anthropic/m"},
        {"model_options": {"system_role": "user"}},
        {"request": {"add_special_tokens": False}},
        {"answer_prefix": "It is"},
        {"needle": "It says <|im_end|> here.", "question": "What does it say?"},
    ],
)
def test_what_a_server_may_see_otherwise_is_not_claimed(
    folders: Folders, given: dict[str, Any]
) -> None:
    made = served(folders("llama_3"), **given)
    assert {trial.prompt.ids_sha256 for trial in made.trials} == {""}


def test_nor_is_it_where_the_haystack_spells_special_tokens(
    folders: Folders, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("<|im_end|> " + " ".join(TEXTS[:12]))
    given = {"haystack": "folder", "haystack_path": str(tmp_path)}
    assert {trial.prompt.ids_sha256 for trial in served(folders("llama_3"), **given).trials} == {""}


def test_a_servers_template_variables_are_heeded(folders: Folders) -> None:
    folder = folders("llama_3", "{% if brief %}Briefly.{% endif %}" + CHATML)
    hashes = [
        served(folder, request=request).trials[0].prompt.ids_sha256
        for request in ({}, {"chat_template_kwargs": {"brief": True}})
    ]
    assert all(hashes)
    assert hashes[0] != hashes[1]


def test_the_keys_of_a_server_do_not_hang_on_what_is_seen(folders: Folders) -> None:
    keys = [
        [trial.key for trial in served(folders("llama_3", template)).trials]
        for template in (CHATML, PLAIN)
    ]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("asker", ["hf", "lmdeploy", "openai"])
def test_prompts_that_a_server_was_asked_are_fed_as_they_are(folders: Folders, asker: str) -> None:
    folder = folders("llama_3")
    theirs = served(folder, repeats=2)
    lender = PromptSource(run="r", model="openai/m", tokenizer=str(folder))
    model = f"{asker}/{folder}" if asker != "openai" else "openai/another"
    ours = prepare(theirs.settings.model_copy(update={"model": model, "prompts_of": lender}))
    hashes = [[trial.prompt.sha256 for trial in made.trials] for made in (theirs, ours)]
    assert hashes[0] == hashes[1]
    assert not {trial.key for trial in theirs.trials} & {trial.key for trial in ours.trials}
    if asker == "openai":
        assert {trial.prompt.ids_sha256 for trial in ours.trials} == {""}, (
            "nobody said whose template it has"
        )
    else:
        assert [trial.prompt.ids.tolist() for trial in ours.trials] == whole(folder, ours)
        assert [trial.prompt.tokens for trial in ours.trials] == [
            trial.prompt.tokens for trial in theirs.trials
        ]


@pytest.mark.parametrize("kind", ["byte_level", "llama_3", "llama_2"])
def test_so_they_are_where_a_haystack_spells_special_tokens(
    folders: Folders, tmp_path: Path, kind: str
) -> None:
    """A window's plain text was tokenised apart from what stood around a spelling."""
    folder, documents = folders(kind), Generated(seed=3).documents()
    text = " ".join(document.text for document in islice(documents, 8))
    (tmp_path / "a.txt").write_text(
        "".join(
            word + (SPECIAL[place % 3] if place % 4 == 0 else " ")
            for place, word in enumerate(text.split())
        )
    )
    given = {"haystack": "folder", "haystack_path": str(tmp_path)}
    made = experiment(
        folder, **given, needle="It says <|im_end|> here.", question="What does <s> say?"
    )
    assert [trial.prompt.ids.tolist() for trial in made.trials] == whole(folder, made)
    ends = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<|im_end|>")
    assert {trial.prompt.ids.tolist().count(ends) for trial in made.trials} == {
        2
    }  # the template's own


@pytest.mark.parametrize("mode", ["exact", "bins", "single", "cold"])
def test_so_they_are_in_every_mode(folders: Folders, mode: str) -> None:
    folder = folders("llama_3")
    made = experiment(folder, mode=mode, repeats=2)
    assert [trial.prompt.ids.tolist() for trial in made.trials] == whole(folder, made)


@pytest.mark.parametrize("kind", ["llama_3", "llama_2"])
def test_so_they_are_where_characters_are_split_as_opencompass_does(
    folders: Folders, kind: str
) -> None:
    folder = folders(kind)
    given = {
        "placement": "token",
        "counts": "context",
        "lengths": "300:330:11",
        "depths": "0:100:7",
    }
    made = experiment(folder, language="chinese", **given)
    assert any("\ufffd" in trial.prompt.context_text for trial in made.trials)
    assert [trial.prompt.ids.tolist() for trial in made.trials] == whole(folder, made)


@pytest.mark.parametrize(
    ("kind", "windowed"),
    [
        ("byte_level", True),
        ("llama_3", True),
        ("llama_2", True),
        ("chunks", False),
        ("lowercase", False),
    ],
)
def test_whole_prompts_are_tokenised_where_windows_cannot_be_trusted(
    folders: Folders, kind: str, windowed: bool
) -> None:
    text = load("cl100k_base").index("\n\n".join(TEXTS[:12]).encode())
    assert Feed(feeder(folders(kind)), text).windowed is windowed


def test_lengths_stay_those_of_the_counting_vocabulary(folders: Folders) -> None:
    """The same prompts, byte for byte, as a server that is sent text would get."""
    ours = experiment(folders("llama_3"))
    theirs = prepare(ours.settings.model_copy(update={"model": "openai/gpt-4"}))
    assert [trial.prompt.sha256 for trial in ours.trials] == [
        trial.prompt.sha256 for trial in theirs.trials
    ]
    assert [trial.prompt.tokens for trial in ours.trials] == [
        trial.prompt.tokens for trial in theirs.trials
    ]
    assert ours.tokenizer.name == "gpt-4" or "cl100k" in ours.tokenizer.name


def test_opencompass_prompts_are_theirs_whatever_the_model(folders: Folders, shared: Path) -> None:
    """cdme-8k was refused for hf models, since it counts gpt-4's tokens."""
    given = {
        "haystack": "jsonl",
        "haystack_path": str(shared / "vectors/opencompass/input"),
        "repeats": 2,
    }
    given |= {"lengths": "1000,2000", "haystack_repeat": True}
    made = [
        prepare(configure("cdme-8k", {**given, "model": model}))
        for model in ("openai/gpt-4", f"hf/{folders('llama_3')}", f"lmdeploy/{folders('llama_2')}")
    ]
    prompts = [[trial.prompt.sha256 for trial in each.trials] for each in made]
    assert prompts[0] == prompts[1] == prompts[2]
    assert [trial.prompt.ids.tolist() for trial in made[1].trials] == whole(
        folders("llama_3"), made[1]
    )


def test_prompts_of_a_published_set_are_fed_as_a_whole(folders: Folders, tmp_path: Path) -> None:
    rows = [{"input": f"{TEXTS[place]}\nWho is {place}?", "outputs": ["x"]} for place in range(3)]
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = [load("cl100k_base").count(row["input"].encode()) for row in rows]
    given = {"task_options": {"path": str(tmp_path / "set.jsonl")}, "tokenizer": "gpt-4"}
    folder = folders("llama_3")
    given |= {
        "model": f"hf/{folder}",
        "lengths": f"{min(sizes)}:{max(sizes) + 200}:3",
        "depths": "0:100:2",
    }
    made = prepare(configure("published-ruler", given))
    assert len(made.trials) == 3
    assert [trial.prompt.ids.tolist() for trial in made.trials] == whole(folder, made)
    assert made.tokens_fed != made.tokens_asked


def test_both_counts_are_known_before_anything_is_asked(folders: Folders) -> None:
    made = experiment(folders("llama_3"))
    assert made.tokens_fed == sum(len(trial.prompt.ids) for trial in made.trials)
    assert made.tokens_fed != made.tokens_asked == sum(trial.prompt.tokens for trial in made.trials)


def test_the_same_vocabulary_by_another_name_is_the_models_own(folders: Folders) -> None:
    folder = folders("llama_3")
    assert experiment(folder, tokenizer=str(folder)).tokens_fed is None


def test_keys_hang_on_the_models_own_vocabulary_and_template(folders: Folders) -> None:
    keys = [
        {trial.key for trial in experiment(folders(kind, template)).trials}
        for kind, template in (("llama_3", CHATML), ("llama_3", PLAIN), ("byte_level", CHATML))
    ]
    assert not keys[0] & keys[1]
    assert not keys[0] & keys[2]


def test_a_long_haystack_is_tokenised_once(folders: Folders) -> None:
    """A grid of 25 prompts took 25 times as long as one when each was tokenised as a whole."""
    folder, text = folders("llama_3"), load("cl100k_base")
    made = experiment(folder, lengths="10k:20k:5", depths="0:100:5")
    start = time.process_time()
    whole(folder, made)
    each = time.process_time() - start
    haystack = made.trials[-1].prompt.context_spans[0].text
    start = time.process_time()
    feed = Feed(Feeder(load(str(folder / "tokenizer.json")), feeder(folder).render), haystack)
    fed = [feed.fed(trial.prompt) for trial in made.trials]
    assert time.process_time() - start < each / 4
    assert [prompt.ids.tolist() for prompt in fed] == [
        trial.prompt.ids.tolist() for trial in made.trials
    ]
    assert len(fed[0].fed) <= 6
    assert text.additive


@pytest.mark.parametrize("tokenizer", ["auto", "o200k_base"])
def test_whether_counts_add_up_is_tried_once_for_each_vocabulary(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, tokenizer: str
) -> None:
    """Lengths and ids tried the same haystack with the same vocabulary, a third of what it takes
    to build a prompt."""
    tried = list[object]()

    def count(vocabulary: object, *others: Any) -> bool:
        tried.append(vocabulary)
        return adds_up(vocabulary, *others)

    adds_up = seams.adds_up
    monkeypatch.setattr(seams, "adds_up", count)
    monkeypatch.setattr(feeding, "adds_up", count)
    made = experiment(folders("byte_level"), tokenizer=tokenizer)
    assert all(trial.prompt.ids_sha256 for trial in made.trials)
    assert len(tried) == len(set(map(id, tried))) == 1 + (tokenizer != "auto")


def test_a_template_that_drops_the_text_is_refused(folders: Folders) -> None:
    folder = folders("superwords", "{{ messages[0]['role'] }}")
    with pytest.raises(SettingsError, match="does not keep a message's text"):
        experiment(folder)


def test_lengths_beyond_the_positions_are_told_before_anything_is_loaded(short: Path) -> None:
    made = experiment(short)
    assert len(made.notes) == 1
    assert "has 1,000 positions" in made.notes[0]
    assert "Use --lengths up to 300" in made.notes[0]
    assert "allow_beyond=true" in made.notes[0]
    with pytest.raises(SettingsError, match="Use shorter --lengths"):
        experiment(short, lengths="900")
    assert experiment(short, lengths="900", model_options={"allow_beyond": True}).notes == ()


# --- what a run would refuse is seen before


@pytest.fixture
def short(folders: Folders, tmp_path: Path) -> Path:
    """A model with 1,000 positions."""
    folder = tmp_path / "short"
    folder.mkdir()
    for file in folders("llama_3").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 1000}))
    return folder


def test_a_plan_and_a_rehearsal_tell_of_lengths_beyond_the_positions(
    typed: Any, short: Path
) -> None:
    given = (
        "--tokenizer",
        "gpt-4",
        "--lengths",
        "300,900",
        "--depths",
        "0,50",
        "--max-answer-tokens",
        "8",
    )
    told = ("has 1,000 positions", "Use --lengths up to 300")
    plan = typed("plan", "--model", f"hf/{short}", *given)
    shown = " ".join(plan.stdout.split())
    assert all(words in shown for words in (*told, "allow_beyond=true"))
    assert "the model's own" in plan.stdout
    for model, workers in (
        (f"lmdeploy/{short}", ("--slurm", "-p", "x")),
        (f"hf/{short}", ("--workers", "2")),
    ):
        dry = typed("run", "--model", model, *given, *workers, "--dry-run", "-o", "r")
        assert all(words in dry.stderr for words in told)
        assert "r/" in dry.stdout
        assert not (typed.folder / "r").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--lengths", "1200"), "Use shorter --lengths"),
        (("--model-options", "chunk=5"), "Did you mean 'chunk_tokens'"),
        (("--model-options", "chunk_tokens=0"), "at least 1"),
        (("--model-options", "max_memory={0: 1GiB}"), "device_map=auto"),
        (("--request", "top_p=1"), "does not heed --request top_p"),
        (("--request", "stop=5"), "takes a text or a list of texts"),
    ],
)
def test_a_rehearsal_refuses_what_the_run_would(
    typed: Any, short: Path, more: tuple[str, ...], said: str
) -> None:
    """It printed a script as if all were well."""
    given = ("--model", f"hf/{short}", "--lengths", "300", "--max-answer-tokens", "8")
    dry = typed("run", *given, *more, "--workers", "2", "--dry-run", "-o", "r", code=2)
    assert said in dry.stderr
    assert dry.stdout == ""


def test_packages_that_are_missing_here_are_told(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    from needlemap.plan import estimate

    made = experiment(folders("llama_3"))
    monkeypatch.setattr(estimate, "find_spec", lambda _: None)
    assert "needs torch and transformers where it is asked" in estimate.notes_on(made)[-1]
    assert "python3 -m pip install 'torch>=2.4' 'transformers>=5.0'" in estimate.notes_on(made)[-1]
