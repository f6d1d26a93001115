"""Measure recovery during a training, and log it with the training's own trackers.

    from needlemap.callbacks import NeedleCallback

    Trainer(..., callbacks=[NeedleCallback(every=500, lengths="4k,16k")])

It is for the Trainer of transformers, and for tools that build on it (TRL, axolotl). Only the main
process asks the model, while the others wait. If weights are spread over processes (FSDP, DeepSpeed
ZeRO-3), a single process would wait for ever, so nothing is measured. An error here is logged, and
never ends the training.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from needlemap.errors import SettingsError
from needlemap.secrets import raised_by
from needlemap.training.recovery import Forward, Items, TrainingRecovery

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

LOGGER = logging.getLogger("needlemap")
# Rows of a prompt's logits that are kept: more than an answer has tokens.
LAST_ROWS = 64


class NeedleCallback:
    """Measures recovery, gain and accuracy at some lengths, every few steps and at the end.

    Results are logged in the Trainer's history and in each tracker that it reports to, as
    `eval_recovery_LENGTH` and `eval_gain_LENGTH`, each with `_low` and `_high`, and as
    `eval_accuracy_LENGTH`.

    It is not a subclass of TrainerCallback, because that would import transformers. It has all
    methods that the Trainer calls.

    Args:
        every: The steps from one measurement to the next.
        tokenizer: The tokenizer, if it is not the Trainer's `processing_class`.
        forward: Returns a function from token ids to logits for a model, if they are not
            `model(input_ids=...).logits`.
        settings: Those of `needlemap.recovery`.

    Attributes:
        found: The results by step.
    """

    def __init__(
        self,
        every: int = 500,
        *,
        tokenizer: Any = None,
        forward: Callable[[Any], Forward] | None = None,
        **settings: Any,
    ) -> None:
        """Raise SettingsError if `every` is less than one step.

        Other settings are checked when the training starts.
        """
        if every < 1:
            raise SettingsError(f"every takes a number of steps, at least 1, got {every}.")
        self.every, self.found = every, dict[int, TrainingRecovery]()
        self._forward, self._settings = forward or logits_of, settings
        self._tokenizer = tokenizer
        self._items: Items | None = None
        self._trackers: list[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        """Return a function that does nothing, for the events of the Trainer without a method."""
        if not name.startswith("on_"):
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
        return lambda *_, **__: None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        processing_class: Any = None,
        **others: Any,
    ) -> None:
        """Build the prompts."""
        if not state.is_world_process_zero:
            return

        with log_errors():
            tokenizer = self._tokenizer or processing_class
            if tokenizer is None:
                raise SettingsError(
                    "there is no tokenizer. Type Trainer(..., processing_class=tokenizer), or "
                    "NeedleCallback(tokenizer=tokenizer)."
                )
            # A processor of images and text has a tokenizer of its own.
            tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
            self._items = Items(tokenizer, **self._settings)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Measure the model if the step is a multiple of `every`."""
        if state.global_step % self.every == 0:
            self._measure(args, state, control, others.get("model"))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Measure the model at the end of the training, unless its last step was measured."""
        if state.global_step not in self.found:
            self._measure(args, state, control, others.get("model"))

    def _measure(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any
    ) -> None:
        if self._items is None or not state.is_world_process_zero:
            return

        with log_errors():
            if is_spread(args, model):
                # The error is logged once.
                self._items = None
                raise SettingsError(
                    "the model's weights are spread over processes (FSDP, ZeRO-3, tensors), and "
                    "one of them cannot ask it. Measure its checkpoints: needlemap run --model "
                    "hf/CHECKPOINT --scorer recovery."
                )

            with evaluating(model):
                recovery = self._items.read(self._forward(model))
            self.found[state.global_step] = recovery

            scalars = {f"eval_{name}": value for name, value in recovery.scalars().items()}
            state.log_history.append({**scalars, "step": state.global_step})
            for tracker in self._open_trackers(args, state, control, model):
                with log_errors():
                    tracker.on_log(args, state, control, logs=dict(scalars), model=model)

    def _open_trackers(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any
    ) -> Sequence[Any]:
        """Return callbacks that write to the trackers of the Trainer, opened once.

        The Trainer gives a callback no access to its own ones.
        """
        if self._trackers is None:
            self._trackers = []
            for kind in tracker_classes(args):
                with log_errors():
                    tracker = kind()
                    tracker.on_train_begin(args, state, control, model=model)
                    self._trackers.append(tracker)
        return self._trackers


def is_spread(args: TrainingArguments, model: Any) -> bool:
    """Return True if a model's weights are spread over processes.

    The arguments of the training show it, or the model's parameters.
    """
    uses_fsdp = bool(args.fsdp) or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    uses_zero_3 = any(hasattr(parameter, "ds_id") for parameter in model.parameters())
    kinds = {type(parameter).__name__ for parameter in model.parameters()}
    return uses_fsdp or uses_zero_3 or not kinds.isdisjoint(("DTensor", "FlatParameter"))


def tracker_classes(args: TrainingArguments) -> list[Any]:
    """Return the classes of callbacks that write to the trackers of a Trainer."""
    from transformers.integrations import integration_utils

    kinds: Callable[[Any], list[Any]] = integration_utils.get_reporting_integration_callbacks
    return kinds(args.report_to)


def logits_of(model: Any) -> Forward:
    """Return the function of a transformers model from token ids to the last rows of its logits."""
    import torch

    device = next(model.parameters()).device

    def forward(ids: Sequence[int]) -> Any:
        tokens = torch.tensor([list(ids)], device=device)
        return model(input_ids=tokens, use_cache=False).logits[0, -LAST_ROWS:]

    return forward


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Set a model to evaluation mode without gradients, and restore the mode of each part after it.

    The states of random number generators are restored too.
    """
    import torch

    modes = {part: part.training for part in model.modules()}
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    try:
        model.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            yield
    finally:
        for part, training in modes.items():
            part.training = training


@contextmanager
def log_errors() -> Iterator[None]:
    """Log an exception in place of raising it, so that it does not end the training."""
    try:
        yield
    except Exception as error:
        LOGGER.warning("needlemap measured nothing: %s", raised_by(error))
