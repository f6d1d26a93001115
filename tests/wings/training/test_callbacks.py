"""The callback in a real training of a tiny model, by transformers' own Trainer."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from needlemap import callbacks
from needlemap.errors import SettingsError
from needlemap.models.demo import DATA

WHY = "needs transformers, torch and accelerate: python3 -m pip install '.[hf]'"
torch = pytest.importorskip("torch", reason=WHY)
transformers = pytest.importorskip("transformers", reason=WHY)
pytest.importorskip("accelerate", reason=WHY)

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers and torch
ITEMS = {"lengths": "128", "depths": "50", "repeats": 3}


def tiny(dropout=0.1):
    """A Llama with random weights in the demo's vocabulary."""
    torch.manual_seed(3)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=1024,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=256,
            attention_dropout=dropout,
        )
    )


def trained(tmp_path, callback, **more):
    """A Trainer that trained for four steps, and its model's weights behind them."""
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=4,
        per_device_train_batch_size=2,
        logging_steps=1,
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        seed=5,
        **{"report_to": [], **more},
    )
    rows = [
        {"input_ids": list(range(n, n + 16)), "labels": list(range(n, n + 16))} for n in range(8)
    ]
    trainer = transformers.Trainer(
        model=tiny(),
        args=arguments,
        train_dataset=rows,
        processing_class=transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(DATA / "tokenizer.json"), pad_token="!"
        ),
        callbacks=[callback] if callback else [],
    )
    trainer.train()
    return trainer, [value.detach().clone() for value in trainer.model.parameters()]


def losses(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def test_a_training_with_it_is_the_same_training_and_has_recovery_in_its_log(tmp_path):
    plain, weights = trained(tmp_path / "plain", None)
    callback = callbacks.NeedleCallback(every=2, **ITEMS)
    trainer, same = trained(tmp_path / "asked", callback)
    assert list(callback.found) == [2, 4]
    told = {row["step"]: row for row in trainer.state.log_history if "eval_gain_128" in row}
    assert list(told) == [2, 4]
    # Without a word learnt there is nothing to recover, and no accuracy of it.
    assert not {"eval_recovery_128", "eval_accuracy_128"} & set(told[4])
    assert told[4]["eval_gain_128_low"] < told[4]["eval_gain_128"]
    assert losses(trainer) == losses(plain)
    assert all(torch.equal(one, other) for one, other in zip(weights, same, strict=True))


def test_it_writes_to_the_tracker_that_the_trainer_reports_to(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "log"))
    callback = callbacks.NeedleCallback(every=3, **ITEMS)
    trained(tmp_path, callback, report_to=["tensorboard"])
    seen = set()
    for folder in {path.parent for path in (tmp_path / "log").rglob("events.*")}:
        events = EventAccumulator(str(folder)).Reload()
        for tag in events.Tags()["scalars"]:
            seen |= {(tag, event.step) for event in events.Scalars(tag)}
    assert {("eval/gain_128", 3), ("eval/gain_128", 4)} <= seen


@pytest.mark.parametrize(
    "broken",
    [
        {"forward": lambda _: 1 / 0},
        {"forward": lambda _: lambda _: 1 / 0},
        {"lengths": "nonsense"},
        {"nonsense": 1},
    ],
)
def test_whatever_goes_wrong_is_logged_and_ends_no_training(tmp_path, caplog, broken):
    callback = callbacks.NeedleCallback(every=2, **{**ITEMS, **broken})
    with caplog.at_level(logging.WARNING, "needlemap"):
        trainer, _ = trained(tmp_path, callback)
    assert trainer.state.global_step == 4
    assert callback.found == {}
    assert trainer.model.training
    assert "needlemap measured nothing" in caplog.text


def test_modes_and_random_numbers_are_left_as_they_were():
    model = tiny()
    model.model.layers[0].eval()  # a frozen part
    before = {name: part.training for name, part in model.named_modules()}
    state = torch.get_rng_state()
    with callbacks.evaluating(model):
        assert not any(part.training for part in model.modules())
        assert not torch.is_grad_enabled()
        torch.rand(1)
    assert {name: part.training for name, part in model.named_modules()} == before
    assert torch.equal(torch.get_rng_state(), state)


def test_without_a_tokenizer_it_says_what_to_type(caplog):
    state = SimpleNamespace(is_world_process_zero=True)
    callbacks.NeedleCallback(**ITEMS).on_train_begin(None, state, None, processing_class=None)
    assert "Trainer(..., processing_class=tokenizer)" in caplog.text


def test_a_tokenizer_of_its_own_or_a_processors_is_taken():
    state = SimpleNamespace(is_world_process_zero=True)
    callback = callbacks.NeedleCallback(tokenizer=DATA, **ITEMS)
    callback.on_train_begin(None, state, None, processing_class=None)
    other = callbacks.NeedleCallback(**ITEMS)
    other.on_train_begin(None, state, None, processing_class=SimpleNamespace(tokenizer=DATA))
    assert [len(each._items.trials) for each in (callback, other)] == [3, 3]


def test_only_the_main_process_asks():
    callback = callbacks.NeedleCallback(every=1, **ITEMS)
    other = SimpleNamespace(is_world_process_zero=False, global_step=1, log_history=[])
    callback.on_train_begin(None, other, None, processing_class=None)
    callback.on_step_end(None, other, None, model=None)
    assert callback.found == {}
    assert other.log_history == []


def test_a_model_that_is_spread_over_processes_is_not_asked_by_one(caplog, monkeypatch):
    """It would wait for the others for ever."""
    arguments, model = SimpleNamespace(fsdp=[]), tiny()
    assert not callbacks.is_spread(arguments, model)
    next(model.parameters()).ds_id = 1
    assert callbacks.is_spread(arguments, model)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert callbacks.is_spread(arguments, tiny())
    callback = callbacks.NeedleCallback(every=1, **ITEMS)
    callback._items = SimpleNamespace(read=lambda _: pytest.fail("it was asked"))
    state = SimpleNamespace(is_world_process_zero=True, global_step=1, log_history=[])
    callback.on_step_end(arguments, state, None, model=tiny())
    callback.on_step_end(arguments, state, None, model=tiny())
    assert caplog.text.count("spread over processes") == 1


def test_an_interval_that_is_none_is_refused_at_once():
    with pytest.raises(SettingsError, match="at least 1, got 0"):
        callbacks.NeedleCallback(every=0)
