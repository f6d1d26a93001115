"""The gauge: a standard checkpoint in the package whose NumPy engine computes what engines should,
and finds every needle."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from needlemap import cli
from needlemap.errors import SettingsError
from needlemap.models.demo import NumpyEngine
from needlemap.prompts.templates import load_template
from needlemap.servers.gauge import checkpoint as gauge
from needlemap.settings.reading import DEFAULT_ITEMS, configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare

ITEM = DEFAULT_ITEMS["english"]
CHAT = "<|im_start|>{role}\n{text}<|im_end|>\n"


@pytest.fixture(scope="module")
def engine() -> NumpyEngine:
    return gauge.load_engine()


@pytest.fixture(scope="module")
def vocabulary() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(gauge.DATA / gauge.TOKENIZER))


def trials(**given: object) -> list[Trial]:
    """Prompts in the gauge's own tokens that hide secrets of twelve digits."""
    draw = {**ITEM["draw"], "number": "100000000000:999999999999"}
    own = {"model": "baseline/bm25", "tokenizer": str(gauge.DATA / gauge.TOKENIZER), "draw": draw}
    item = {name: ITEM[name] for name in ("needle", "question", "keywords")}
    return list(
        prepare(
            configure(None, {**own, **item, "canary": False, "max_answer_tokens": 16, **given})
        ).trials
    )


def answer(engine: NumpyEngine, vocabulary: tokenizers.Tokenizer, text: str) -> str:
    """The likeliest answer to a text, with what ended it."""
    engine.crop(0)
    ids, said = vocabulary.encode(text, add_special_tokens=False).ids, []
    for _ in range(24):
        token = int(engine.extend(np.array(ids, np.int32)).argmax())
        said.append(token)
        ids = [token]
        if vocabulary.id_to_token(token) == "<|im_end|>":
            break
    return vocabulary.decode(said, skip_special_tokens=False)


def document(needle: str, before: str = "", behind: str = "") -> str:
    """A user's text up to the question, as the chat template of needlemap has it."""
    text = f"{before} {needle}{behind}"
    return f"Here is the document.\n\n{text}\n\nThat is the end of the document. "


def asked(text: str, question: str) -> str:
    return CHAT.format(role="user", text=text + question) + "<|im_start|>assistant\n"


@pytest.mark.parametrize("length", [128, 600, 2_000])
def test_it_finds_needles_at_every_depth(
    engine: NumpyEngine, vocabulary: tokenizers.Tokenizer, length: int
) -> None:
    depths = "0,30,60,100"
    for trial in trials(lengths=str(length), depths=depths, template="text-en", repeats=2):
        text = "".join(message.content for message in trial.prompt.messages)
        secret = trial.item.reference.keywords[0]
        assert answer(engine, vocabulary, text) == f"{secret}.<|im_end|>"


def test_the_key_decides_among_twelve_needles(
    engine: NumpyEngine, vocabulary: tokenizers.Tokenizer
) -> None:
    draw = random.Random(12)
    secrets = {city: str(draw.randrange(10**11, 10**12)) for city in ITEM["draw"]["city"]}
    needles = " ".join(
        f"The locker code for {city} is {number}." for city, number in secrets.items()
    )
    for city, number in secrets.items():
        question = f"What is the locker code for {city}?"
        text = asked(document(needles), question)
        assert answer(engine, vocabulary, text) == f"{number}.<|im_end|>"


@pytest.mark.parametrize("number", ["7", "11111", "123451234567", "12345678900987654321"])
def test_digits_that_repeat_are_copied_in_order(
    engine: NumpyEngine, vocabulary: tokenizers.Tokenizer, number: str
) -> None:
    """Six tokens back are compared, so five digits may occur twice."""
    text = asked(document(f"The locker code for Oslo is {number}."), "What is the code for Oslo?")
    assert answer(engine, vocabulary, text) == f"{number}.<|im_end|>"


def test_a_number_of_the_prose_is_not_taken_for_the_value(
    engine: NumpyEngine, vocabulary: tokenizers.Tokenizer
) -> None:
    """A first gauge answered with nothing where the text behind the needle had line breaks."""
    behind = " I was 45 then, and live at \n\n5 Elm Row. Tickets cost 19 crowns,\n7 on Sundays. "
    text = document("The locker code for Oslo is 223583737680.", "It is 3 miles to Lima.", behind)
    found = answer(engine, vocabulary, asked(text, "What is the locker code for Oslo?"))
    assert found == "223583737680.<|im_end|>"


@pytest.mark.parametrize("number", ["223583737680", "849"])
def test_a_road_to_the_city_is_not_the_code_for_it(
    engine: NumpyEngine, vocabulary: tokenizers.Tokenizer, number: str
) -> None:
    """A gauge that compared only the word before " is" answered with kilometres."""
    roads = " From Marton to Turin is 131 kilometres by road, and 2 by boat." * 3
    text = document(f"The locker code for Turin is {number}.", roads, roads)
    found = answer(engine, vocabulary, asked(text, "What is the locker code for Turin?"))
    assert found == f"{number}.<|im_end|>"


def test_it_answers_what_was_asked_last(
    engine: NumpyEngine, vocabulary: tokenizers.Tokenizer
) -> None:
    needles = "The locker code for Oslo is 48172. The locker code for Lima is 90331."
    text = asked(document(needles), "What is the locker code for Oslo?") + "48172.<|im_end|>\n"
    text += asked("", "What is the locker code for Lima?")
    assert answer(engine, vocabulary, text) == "90331.<|im_end|>"


def test_the_engine_computes_what_transformers_does(engine: NumpyEngine) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM.from_pretrained(gauge.DATA, dtype=torch.float32)
    ids = np.random.default_rng(0).integers(0, 1_024, 700).astype(np.int32)
    engine.crop(0)
    ours = engine.extend_all(ids)
    with torch.no_grad():
        theirs = model(torch.from_numpy(ids[None].astype(np.int64))).logits[0].numpy()
    assert np.abs(log_shares(ours) - log_shares(theirs)).max() < 0.02
    assert np.median(np.abs(log_shares(ours) - log_shares(theirs))) < 1e-4


def log_shares(logits: np.ndarray) -> np.ndarray:
    less = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(less - np.log(np.exp(less).sum(axis=-1, keepdims=True)))


def test_a_prompt_in_two_steps_gives_the_logits_of_one(engine: NumpyEngine) -> None:
    ids = np.random.default_rng(1).integers(5, 1_024, 400).astype(np.int32)
    engine.crop(0)
    whole = engine.extend(ids)
    engine.crop(150)
    assert np.abs(engine.extend(ids[150:]) - whole).max() < 1e-3


def test_the_checkpoint_is_small_and_shares_keys_among_queries() -> None:
    told = gauge.read_config()
    assert sum(bits.size for bits in gauge.read_tensors().values()) <= 1_200_000
    assert sum(path.stat().st_size for path in gauge.DATA.iterdir()) <= 3_000_000
    assert told["head_dim"] == 64
    assert told["num_attention_heads"] == 2 * told["num_key_value_heads"]
    assert 8_000 <= gauge.holds_tokens() <= told["max_position_embeddings"]


def test_no_tensor_is_idle(vocabulary: tokenizers.Tokenizer) -> None:
    """An engine that computes any one matrix wrong must be seen: five per cent moves the logits."""
    text = asked(document("The locker code for Oslo is 4817."), "What is the locker code for Oslo?")
    ids = np.array(vocabulary.encode(text, add_special_tokens=False).ids, np.int32)
    honest = gauge.load_engine().extend(ids)
    weights = gauge.load_weights()
    for layer in weights.layers:
        for name in ("attend", "mix", "widen", "narrow"):
            matrix = getattr(layer, name)
            kept = matrix.copy()
            matrix *= np.float32(1.05)
            moved = np.abs(NumpyEngine(weights).extend(ids) - honest).max()
            matrix[:] = kept
            assert moved > 0.01, name


def test_the_templates_answer_is_asked_for_as_it_was_made(vocabulary: tokenizers.Tokenizer) -> None:
    """What opens an answer is one token each, in both templates."""
    _, behind = load_template("text-en").parts[0].around(ITEM["question"])
    assert str(behind).endswith("\nAnswer:")
    for text in (
        "Answer",
        "assistant",
        " is",
        "?",
        ":",
        "\n",
        *(f" {c}" for c in ITEM["draw"]["city"]),
    ):
        assert len(vocabulary.encode(text, add_special_tokens=False).ids) == 1, text


def test_the_command_writes_a_checkpoint_and_leaves_other_files_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # once more changes nothing
        with pytest.raises(SystemExit) as left:
            cli.app(["gauge", "-o", str(tmp_path / "gauge")])
        assert left.value.code == 0
    assert sorted(path.name for path in (tmp_path / "gauge").iterdir()) == sorted(gauge.FILES)
    assert "finds every needle up to 16,384 tokens" in capsys.readouterr().err
    (tmp_path / "gauge" / "config.json").write_text("{}")
    with pytest.raises(SettingsError, match=r"config.json' is another file"):
        gauge.write_checkpoint(tmp_path / "gauge")
    with pytest.raises(SettingsError, match="is a file"):
        gauge.write_checkpoint(tmp_path / "gauge" / "config.json")


def test_no_torch_is_needed() -> None:
    code = "import sys; from needlemap.servers.gauge.checkpoint import load_engine; load_engine();"
    code += "print(json.dumps(sorted({'torch', 'transformers', 'gguf'} & set(sys.modules))))"
    ended = subprocess.run(
        [sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, check=True
    )
    assert json.loads(ended.stdout) == []


def test_without_its_package_the_file_of_llama_cpp_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from needlemap.servers.gauge.gguf import write_gguf

    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(SettingsError, match=r"pip install 'gguf"):
        write_gguf(tmp_path / "gauge.gguf")


def test_it_is_a_back_end_for_chat_and_plain_text_alike(needlemap) -> None:  # type: ignore[no-untyped-def]
    item = [f"--{name}={ITEM[name]}" for name in ("needle", "question")]
    draw = ("--keywords", "{number}", "--draw", "city=Oslo,Lima", "--draw", "number=10000:99999")
    grid = ("--lengths", "128,300", "--depths", "0,50,100", "--logprobs")
    for template in ("chat-en", "text-en"):
        asked = ("--template", template, "--max-answer-tokens", 16, "-o", template)
        needlemap("run", "--model", "gauge/numpy", *item, *draw, *grid, *asked)
        records = needlemap.records(template)
        assert [record["score"] for record in records if record["score"] != 1] == []
        assert {record["logprobs"]["tokens"][-1] for record in records} == {"<|im_end|>"}


def test_it_has_one_name_and_refuses_what_it_does_not_heed(needlemap) -> None:  # type: ignore[no-untyped-def]
    asked = ("--lengths", "128", "--depths", "0")
    other = needlemap("run", "--model", "gauge/other", *asked, code=2)
    assert "Unknown gauge 'other'. Type: gauge/numpy" in other.stderr


def test_its_folder_says_twice_what_engines_look_for_in_two_places(tmp_path: Path) -> None:
    """An mlx-lm that looks for rope_theta alone took 10,000, and answered every question with a
    full stop; CTranslate2 wants names for the tokens that begin a text and stand for unknown ones.
    """
    folder = gauge.write_checkpoint(tmp_path / "gauge")
    config = json.loads((folder / "config.json").read_text())
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 1e12
    told = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.token_to_id(told["bos_token"]) == config["bos_token_id"]
    assert tokenizer.token_to_id(told["unk_token"]) is not None
    assert told["add_bos_token"] is False
    assert tokenizer.get_vocab_size() == config["vocab_size"]


def test_transformers_puts_no_token_before_a_text_of_its_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = gauge.write_checkpoint(tmp_path / "gauge")
    text = "The locker code for Oslo is 223583737680."
    plain = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    assert tokenizer.encode(text) == plain
    assert len(tokenizer) == 1024
