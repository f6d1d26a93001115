"""Measure recovery of a model in training, through a function: log-probabilities of token ids.

    def forward(ids):  # a list of token ids
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0]

    found = needlemap.recovery(forward, tokenizer, lengths="1k,4k")
    found.by_length[4000].recovery

The prompts, the scorer and the intervals are those of `needlemap run --scorer recovery` on a
checkpoint with the same tokenizer and settings. Here nothing is written, and prefixes are computed
again for each prompt, because a function of ids has no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from needlemap.errors import SettingsError
from needlemap.models import Answer, Forced
from needlemap.models.chat import Chat
from needlemap.models.decoding import token_logprobs
from needlemap.models.model_files import TOKENIZER, ModelFiles
from needlemap.models.walk import likelihoods
from needlemap.settings.reading import configure
from needlemap.stats.cube import linearise
from needlemap.stats.intervals import cluster_mean, grid_by_haystack, t_interval
from needlemap.stats.ratio import ratio_mean
from needlemap.training.scorer import LEAST_GAIN, first_choice, gains, value_places
from needlemap.trials import Trial, requests
from needlemap.trials.build import prepare

# The gain, the oracle's gain, and 1 if the model says the value, else 0.
Row = tuple[float, float, float]
Forward = Callable[[Sequence[int]], Any]
DEFAULTS: Mapping[str, Any] = {
    "lengths": "1k,4k",
    "depths": "10,50,90",
    "repeats": 8,
    # Each prompt keeps room for so many, because the answer is given, not written.
    "max_answer_tokens": 32,
}
# Settings that have a fixed value here.
OWN = ("model", "model_options", "scorer", "tokenizer", "out")


@dataclass(frozen=True, slots=True)
class LengthRecovery:
    """The result at one length. All intervals are 95 % intervals over haystacks.

    Attributes:
        length_tokens: The length of the prompts.
        recovery: The gain as a share of the oracle's; None if the oracle gains nothing.
        low, high: Its interval; None with too few haystacks.
        gain: The mean over all items, in nats for each token of the value.
        gain_low, gain_high: Its interval.
        accuracy: The share of the items that recovery counts whose value the model says, given the
            answer's wording; None if it counts none.
        accuracy_low, accuracy_high: Its interval.
        n: How many items recovery counts.
        missing: How many it does not count, because the oracle gains nothing.
    """

    length_tokens: int
    recovery: float | None
    low: float | None
    high: float | None
    gain: float
    gain_low: float | None
    gain_high: float | None
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None
    n: int
    missing: int


@dataclass(frozen=True, slots=True)
class TrainingRecovery:
    """The result of `recovery`.

    Attributes:
        by_length: The result at each length.
        tokens: How many tokens the model read in all.
    """

    by_length: Mapping[int, LengthRecovery]
    tokens: int

    def scalars(self) -> dict[str, float]:
        """Return known values by name, for a tracker."""
        values = dict[str, float | None]()
        for length, row in self.by_length.items():
            values[f"recovery_{length}"] = row.recovery
            values[f"recovery_{length}_low"] = row.low
            values[f"recovery_{length}_high"] = row.high
            values[f"gain_{length}"] = row.gain
            values[f"gain_{length}_low"] = row.gain_low
            values[f"gain_{length}_high"] = row.gain_high
            values[f"accuracy_{length}"] = row.accuracy
        return {name: value for name, value in values.items() if value is not None}


def recovery(forward: Forward, tokenizer: Any, **settings: Any) -> TrainingRecovery:
    """Measure how much of a needle's likelihood a model recovers from prompts of some lengths.

    forward: takes token ids and returns log-probabilities or logits, (tokens, vocabulary). Row i
    is of the token after ids[i]. It may leave out rows at the front, but not those of an answer.
    tokenizer: of transformers or tokenizers, or a folder that holds tokenizer.json. settings: as
    `needlemap.run` takes them; `DEFAULTS` are those that differ. Raises SettingsError, and the
    exceptions of `forward`.
    """
    return Items(tokenizer, **settings).read(forward)


class Items:
    """The items of some settings, built once and read by each checkpoint.

    Attributes:
        trials: All trials of the settings.
    """

    def __init__(self, tokenizer: Any, **settings: Any) -> None:
        """Build the items. Raises SettingsError for wrong settings, and for those in `OWN`."""
        refused_names = sorted(set(OWN) & set(settings))
        if refused_names:
            raise SettingsError(
                f"needlemap.recovery takes no {', '.join(refused_names)}: the model is `forward`, "
                f"nothing is written, and the scorer is 'recovery'. Leave it out."
            )
        with TemporaryDirectory(prefix="needlemap-") as folder:
            tokenizer_path = tokenizer_folder(tokenizer, Path(folder))
            flags = {
                **DEFAULTS,
                **settings,
                "model": f"hf/{tokenizer_path}",
                "scorer": "recovery",
            }
            experiment = prepare(configure(None, flags))
            self._chat = Chat.of(ModelFiles(str(tokenizer_path)))
        self.trials: Sequence[Trial] = experiment.trials

    def read(self, forward: Forward) -> TrainingRecovery:
        """Return the recovery of a model at its present state."""
        answers = dict[str, Answer]()
        tokens = 0
        for request in requests(self.trials):
            answer = given_answer(forward, self._chat, request=request)
            answers[request.asked] = answer
            tokens += answer.prompt_tokens or 0

        by_length = dict[int, LengthRecovery]()
        for length in sorted({trial.cell.length_tokens for trial in self.trials}):
            items = [
                (trial.repeat, self._row(trial, answers))
                for trial in self.trials
                if trial.cell.length_tokens == length
            ]
            by_length[length] = length_recovery(length, items)
        return TrainingRecovery(by_length, tokens)

    def _row(self, trial: Trial, answers: Mapping[str, Answer]) -> Row:
        reference = trial.item.reference
        beside: dict[str, Answer] = {
            request.role: answers[request.asked] for request in trial.beside
        }
        answer = replace(answers[trial.asked], beside=beside)
        gain, oracle_gain = gains(answer, reference)
        places = value_places(answer.logprobs, reference)
        return gain, oracle_gain, float(first_choice(answer, places))


def given_answer(forward: Forward, chat: Chat, request: Trial) -> Answer:
    """Return how likely a model finds the reference answer after a prompt.

    Raises SettingsError if `forward` does not return log-probabilities.
    """
    prompt_ids = chat.ids(request.prompt)
    answer_ids = chat.answer_ids(request.prompt, request.item.reference.answer)
    output = forward([*map(int, prompt_ids), *map(int, answer_ids)])
    rows = as_rows(output, len(answer_ids) + 1)
    # The last row is of the token after the answer.
    answer_rows = rows[-len(answer_ids) - 1 : -1]
    tokens = tuple(likelihoods(answer_rows, answer_ids))
    forced = Forced(
        tuple(own_nats for _, own_nats, _, _ in tokens),
        all(own_nats > other_nats for _, own_nats, _, other_nats in tokens),
    )
    logprobs = token_logprobs(tokens, chat.vocabulary, "walk", len(prompt_ids))
    return Answer("", prompt_tokens=len(prompt_ids), forced=forced, logprobs=logprobs)


def as_rows(output: Any, needed: int) -> Any:
    """Return the output of `forward` as an array, (tokens, vocabulary).

    needed: how many rows at the end. Raises SettingsError if they are not
    log-probabilities.
    """
    # A tensor of torch may be of another type, or on another device.
    if hasattr(output, "detach"):
        output = output.detach().float().cpu()
    rows = np.asarray(output, np.float32)
    if rows.ndim == 3 and len(rows) == 1:
        rows = rows[0]
    if rows.ndim != 2 or len(rows) < needed:
        raise SettingsError(
            f"`forward` returned an array of shape {rows.shape}. It takes a list of token ids and "
            f"returns log-probabilities, (tokens, vocabulary), at least the last {needed} rows."
        )
    if np.isnan(rows[-needed:]).any():
        raise SettingsError("`forward` returned log-probabilities that are no numbers (NaN).")
    return rows


def tokenizer_folder(tokenizer: Any, empty: Path) -> Path:
    """Return a folder with a tokenizer's files.

    empty: a folder for them. Raises SettingsError for an object that is not a fast tokenizer.
    """
    if isinstance(tokenizer, str | Path):
        return Path(tokenizer).expanduser().absolute()
    if hasattr(tokenizer, "save_pretrained"):
        tokenizer.save_pretrained(str(empty))
    elif hasattr(tokenizer, "to_str"):
        (empty / TOKENIZER).write_text(tokenizer.to_str(), encoding="utf-8")
    if not (empty / TOKENIZER).is_file():
        raise SettingsError(
            f"needlemap.recovery reads fast tokenizers, and {type(tokenizer).__name__} is none. "
            f"Give one of transformers (PreTrainedTokenizerFast) or tokenizers, or a folder that "
            f"holds {TOKENIZER}."
        )
    return empty


def length_recovery(length_tokens: int, items: Sequence[tuple[int, Row]]) -> LengthRecovery:
    """Return the result at a length. items: each with the number of its haystack."""
    grid = grid_by_haystack(sorted(items, key=itemgetter(0)))
    gains, oracle_gains, first_choices = np.moveaxis(grid, -1, 0)
    counts = oracle_gains >= LEAST_GAIN
    counted_gains = np.where(counts, gains, nan)
    counted_oracle_gains = np.where(counts, oracle_gains, nan)
    recovered = ratio_mean(linearise(counted_gains, counted_oracle_gains))
    # As in a run, whose records have no first choice where there is nothing to recover.
    accuracy = cluster_mean(np.where(counts, first_choices, nan))
    gain_low = gain_high = None
    gain_interval = t_interval(gains)
    if gain_interval:
        _, gain_low, gain_high = gain_interval
    n = int(counts.sum())
    return LengthRecovery(
        length_tokens,
        recovery=recovered.score if recovered else None,
        low=recovered.low if recovered else None,
        high=recovered.high if recovered else None,
        gain=float(np.nanmean(gains)),
        gain_low=gain_low,
        gain_high=gain_high,
        accuracy=accuracy.score if accuracy else None,
        accuracy_low=accuracy.low if accuracy else None,
        accuracy_high=accuracy.high if accuracy else None,
        n=n,
        missing=len(items) - n,
    )
