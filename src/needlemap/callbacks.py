"""needlemap inside a training: recovery every few hundred steps, in the trackers that are there.

    from needlemap.callbacks import NeedleCallback

    Trainer(..., callbacks=[NeedleCallback(every=500, lengths="4k,16k")])

For the Trainer of transformers, and what builds on it (TRL, axolotl). Only the main process asks,
while the others wait; where weights are spread over processes (FSDP, DeepSpeed ZeRO-3) one alone
would wait for ever, so nothing is measured there. Whatever goes wrong here is logged and ends no
training.
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
LAST_ROWS = 64  # of a prompt's logits: more than an answer has tokens


class NeedleCallback:
    """Recovery, gain and accuracy at some lengths, every `every` steps and at the end.

    settings: as `needlemap.recovery` takes them. tokenizer: where it is not the Trainer's
    `processing_class`. forward: from a model to a function of token ids,
    where logits are not `model(input_ids=...).logits`. found: by step what was found. They are in
    the Trainer's log history and in each tracker that it reports to, as `eval_recovery_LENGTH`
    and `eval_gain_LENGTH`, each with `_low` and `_high`, and `eval_accuracy_LENGTH`.

    It has all that the Trainer calls, and is no subclass of TrainerCallback, which would load it.
    """

    def __init__(
        self,
        every: int = 500,
        *,
        tokenizer: Any = None,
        forward: Callable[[Any], Forward] | None = None,
        **settings: Any,
    ) -> None:
        """Raises SettingsError for an interval that is none; other settings are read when the
        training begins."""
        if every < 1:
            raise SettingsError(f"every takes a number of steps, at least 1, got {every}.")
        self.every, self.found = every, dict[int, TrainingRecovery]()
        self._forward, self._settings = forward or logits_of, settings
        self._tokenizer = tokenizer
        self._items: Items | None = None
        self._trackers: list[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        """Nothing, for the events that are not heeded."""
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
        if state.is_world_process_zero:
            with logged():
                given = self._tokenizer or processing_class
                if given is None:
                    raise SettingsError(
                        "there is no tokenizer. Type Trainer(..., processing_class=tokenizer), or "
                        "NeedleCallback(tokenizer=tokenizer)."
                    )
                own = getattr(given, "tokenizer", given)  # that of a processor of images and text
                self._items = Items(own, **self._settings)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Ask, where it is time."""
        if state.global_step % self.every == 0:
            self._read(args, state, control, others.get("model"))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Ask the model as it is left."""
        if state.global_step not in self.found:
            self._read(args, state, control, others.get("model"))

    def _read(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any
    ) -> None:
        if self._items is None or not state.is_world_process_zero:
            return
        with logged():
            if is_spread(args, model):
                self._items = None  # said once
                raise SettingsError(
                    "the model's weights are spread over processes (FSDP, ZeRO-3, tensors), and "
                    "one of them cannot ask it. Measure its checkpoints: needlemap run --model "
                    "hf/CHECKPOINT --scorer recovery."
                )
            with evaluating(model):
                found = self._items.read(self._forward(model))
            self.found[state.global_step] = found
            scalars = {f"eval_{name}": value for name, value in found.scalars().items()}
            state.log_history.append({**scalars, "step": state.global_step})
            for tracker in self._opened(args, state, control, model):
                with logged():
                    tracker.on_log(args, state, control, logs=dict(scalars), model=model)

    def _opened(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any
    ) -> Sequence[Any]:
        """Writers to what the Trainer reports to: it tells a callback nothing of its own."""
        if self._trackers is None:
            self._trackers = []
            for kind in reporting(args):
                with logged():
                    tracker = kind()
                    tracker.on_train_begin(args, state, control, model=model)
                    self._trackers.append(tracker)
        return self._trackers


def is_spread(args: TrainingArguments, model: Any) -> bool:
    """Whether a model's weights are spread over processes, by how it was started or by what its
    parameters are."""
    kinds = {type(value).__name__ for value in model.parameters()}
    marked = any(hasattr(value, "ds_id") for value in model.parameters())  # ZeRO-3's
    started = bool(args.fsdp) or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    return started or marked or not kinds.isdisjoint(("DTensor", "FlatParameter"))


def reporting(args: TrainingArguments) -> list[Any]:
    """The classes of callbacks that write to what a Trainer reports to."""
    from transformers.integrations import integration_utils

    kinds: Callable[[Any], list[Any]] = integration_utils.get_reporting_integration_callbacks
    return kinds(args.report_to)


def logits_of(model: Any) -> Forward:
    """A model of transformers as a function of token ids."""
    import torch

    device = next(model.parameters()).device

    def forward(ids: Sequence[int]) -> Any:
        tokens = torch.tensor([list(ids)], device=device)
        return model(input_ids=tokens, use_cache=False).logits[0, -LAST_ROWS:]

    return forward


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Without gradients, and in evaluation mode, part by part as it was afterwards; the states of
    random numbers are left as they were."""
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
def logged() -> Iterator[None]:
    """An exception is logged and does not end the run."""
    try:
        yield
    except Exception as error:
        LOGGER.warning("needlemap measured nothing: %s", raised_by(error))
