"""Recovery through a function of token ids: the same figures as a run's, for any trainer."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

import needlemap
from needlemap.callbacks import logits_of
from needlemap.errors import SettingsError
from needlemap.models.demo import DATA, load_engine
from needlemap.servers.gauge.checkpoint import write_checkpoint
from needlemap.training.recovery import Items, as_rows, length_recovery

GRID = {"lengths": "128,512", "depths": "10,90", "repeats": 4, "max_answer_tokens": 32}


@pytest.fixture(scope="module")
def forward():
    engine = load_engine(DATA)

    def logits(ids):
        engine.crop(0)
        return engine.extend_all(np.array(ids, np.int32))

    return logits


@pytest.fixture(scope="module")
def items():
    return Items(DATA, **GRID)


@pytest.fixture(scope="module")
def found(items, forward):
    return items.read(forward)


def test_it_finds_what_a_run_of_the_same_model_finds(found):
    run = needlemap.run(model="demo/retriever", scorer="recovery", save=False, quiet=True, **GRID)
    for length, row in found.by_length.items():
        other = run.map().margins[length]
        assert row.n == other.n == 8
        # One joins a prompt's pieces, the other tokenises across them.
        assert row.recovery == pytest.approx(other.score, abs=0.01)
        assert row.low == pytest.approx(other.low, abs=0.02)


def test_a_model_of_transformers_gives_what_a_run_on_its_folder_gives(tmp_path):
    """The gauge has a chat template, and its tokenizer is given as an object."""
    why = "needs transformers and torch: python3 -m pip install '.[hf]'"
    torch = pytest.importorskip("torch", reason=why)
    transformers = pytest.importorskip("transformers", reason=why)
    folder = str(tmp_path / "gauge")
    write_checkpoint(tmp_path / "gauge")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    grid = {"lengths": "512", "depths": "10,90", "repeats": 3, "max_answer_tokens": 32}
    with torch.no_grad():
        row = needlemap.recovery(logits_of(model), tokenizer, **grid).by_length[512]
    asked = {"model": f"hf/{folder}", "model_options": {"dtype": "float32"}}
    run = needlemap.run(**asked, scorer="recovery", save=False, quiet=True, **grid)
    whys = [record.scorer.why for record in run.records()]
    assert row.gain == pytest.approx(sum(why["gain"] for why in whys) / len(whys), abs=1e-4)
    assert row.low == pytest.approx(run.map().margins[512].low, abs=1e-4)
    assert row.accuracy == 1


def test_the_model_in_the_box_answers_within_its_length_and_recovers_more_beyond(found):
    near, far = found.by_length[128], found.by_length[512]
    assert (near.recovery, near.accuracy) == (1, 1)
    assert far.accuracy < far.recovery < 1
    assert far.accuracy_low < far.accuracy < far.accuracy_high
    assert found.scalars()["recovery_512_low"] == far.low


def test_the_last_rows_are_enough_and_logits_do_as_well_as_log_probabilities(items, found, forward):
    def few(ids):
        rows = forward(ids)[-16:].astype(np.float64)
        return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))

    assert items.read(few).scalars() == pytest.approx(found.scalars(), abs=1e-4)


def test_a_model_that_reads_no_needle_recovers_nothing(items):
    """Each token is as likely as any: there is nothing to recover, and that is told as missing."""

    def even(ids):
        return np.zeros((len(ids), 1024))

    row = items.read(even).by_length[512]
    assert (row.recovery, row.gain, row.n, row.missing) == (None, 0, 0, 8)
    # It was 1: a tie was a first choice, and a run has no accuracy of these items.
    assert row.accuracy is None
    assert "accuracy_512" not in items.read(even).scalars()


def test_accuracy_is_of_the_items_that_recovery_counts():
    items = [(0, (1.0, 1.0, 1.0)), (0, (0.0, 0.0, 0.0)), (1, (0.5, 1.0, 0.0))]
    row = length_recovery(512, items)
    assert (row.n, row.missing, row.accuracy) == (2, 1, 0.5)


def test_a_model_that_sees_only_the_end_of_a_prompt_recovers_nothing_from_its_start(forward):
    blind = Items(DATA, **{**GRID, "lengths": "512", "depths": "0"})
    row = blind.read(lambda ids: forward(ids[-80:])).by_length[512]
    assert row.recovery < 0.05
    assert row.low == 0
    assert row.n == 4
    assert row.gain_low < 0 < row.gain_high


@pytest.mark.parametrize(
    "tokenizer", [str(DATA), Tokenizer.from_file(str(DATA / "tokenizer.json"))]
)
def test_a_tokenizer_is_a_folder_or_an_object(tokenizer, items):
    other = Items(tokenizer, **GRID)
    assert [trial.prompt.sha256 for trial in other.trials] == [
        trial.prompt.sha256 for trial in items.trials
    ]


def test_what_cannot_be_read_is_refused_in_words(items):
    with pytest.raises(SettingsError, match="takes no model, scorer"):
        needlemap.recovery(len, DATA, model="demo/retriever", scorer="keyword")
    with pytest.raises(SettingsError, match="object is none"):
        needlemap.recovery(len, object())
    with pytest.raises(SettingsError, match=r"shape \(3,\).*at least the last"):
        items.read(lambda _: np.zeros(3))
    with pytest.raises(SettingsError, match="NaN"):
        as_rows(np.full((4, 2), np.nan), 3)
