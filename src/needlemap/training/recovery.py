"""Recovery of a model that is in training, through one function: log-probabilities of token ids.

    def forward(ids):  # a list of token ids
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0]

    found = needlemap.recovery(forward, tokenizer, lengths="1k,4k")
    found.by_length[4000].recovery

The prompts, the scorer and the intervals are those of `needlemap run --scorer recovery` on a
checkpoint with the same tokenizer and settings. Here nothing is written, and prefixes are computed
anew for each request, since a function of ids has no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from needlemap.errors import SettingsError
from needlemap.models import Answer, Forced
from needlemap.models.chat import Chat
from needlemap.models.decoding import spelt_out
from needlemap.models.model_files import TOKENIZER, ModelFiles
from needlemap.models.walk import likelihoods
from needlemap.settings.reading import configure
from needlemap.stats import Array
from needlemap.stats.cube import linearised
from needlemap.stats.intervals import cluster_mean, t_interval
from needlemap.stats.ratio import ratio_mean
from needlemap.training.scorer import LEAST_GAIN, first_choice, gains, value_places
from needlemap.trials import Trial, requests
from needlemap.trials.build import prepare

Row = tuple[float, float, float]  # gain, the oracle's gain, whether the value is said
Forward = Callable[[Sequence[int]], Any]
DEFAULTS: Mapping[str, Any] = {
    "lengths": "1k,4k",
    "depths": "10,50,90",
    "repeats": 8,
    "max_answer_tokens": 32,  # left free in each prompt: the answer is given, not written
}
OWN = ("model", "model_options", "scorer", "tokenizer", "out")


@dataclass(frozen=True, slots=True)
class LengthRecovery:
    """What was found at a length. recovery: with its 95 % interval over haystacks; None where the
    oracle gains nothing. gain: of all items, in nats a token of the value, with its interval.
    accuracy: share of all items whose value the model says, given the answer's wording; with its
    interval. n: items that recovery counts; missing: those where the oracle gains nothing."""

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
    """By length; tokens: that were given to the model in all."""

    by_length: Mapping[int, LengthRecovery]
    tokens: int

    def scalars(self) -> dict[str, float]:
        """What a tracker takes, by name; what is unknown is left out."""
        found = {
            f"{name}_{length}{end}": value
            for length, row in self.by_length.items()
            for name, end, value in (
                ("recovery", "", row.recovery),
                ("recovery", "_low", row.low),
                ("recovery", "_high", row.high),
                ("gain", "", row.gain),
                ("gain", "_low", row.gain_low),
                ("gain", "_high", row.gain_high),
                ("accuracy", "", row.accuracy),
            )
        }
        return {name: value for name, value in found.items() if value is not None}


def recovery(forward: Forward, tokenizer: Any, **settings: Any) -> TrainingRecovery:
    """How much of a needle's likelihood a model recovers from prompts of some lengths.

    forward: of token ids their log-probabilities, (tokens, vocabulary): row i is of the token
    behind ids[i]; logits do as well. Rows may be left out at the front, as long as those of an
    answer are there. tokenizer: of transformers or tokenizers, or a folder that holds
    tokenizer.json. settings: as `needlemap.run` takes them; `DEFAULTS` are those that differ.
    Raises SettingsError, and what `forward` raises.
    """
    return Items(tokenizer, **settings).read(forward)


class Items:
    """The items of some settings, built once, to be read by each checkpoint."""

    def __init__(self, tokenizer: Any, **settings: Any) -> None:
        """Raises SettingsError for settings that are not to be given here, or are wrong."""
        refused = sorted(set(OWN) & set(settings))
        if refused:
            raise SettingsError(
                f"needlemap.recovery takes no {', '.join(refused)}: the model is `forward`, "
                f"nothing is written, and the scorer is 'recovery'. Leave it out."
            )
        with TemporaryDirectory(prefix="needlemap-") as folder:
            named = tokenizer_folder(tokenizer, Path(folder))
            asked = {**DEFAULTS, **settings, "model": f"hf/{named}", "scorer": "recovery"}
            experiment = prepare(configure(None, asked))
            self._chat = Chat.of(ModelFiles(str(named)))
        self.trials: Sequence[Trial] = experiment.trials

    def read(self, forward: Forward) -> TrainingRecovery:
        """What a model makes of them, now."""
        answers, tokens = dict[str, Answer](), 0
        for request in requests(self.trials):
            answer = given_answer(forward, self._chat, request)
            answers[request.asked] = answer
            tokens += answer.prompt_tokens or 0
        lengths = sorted({trial.cell.length_tokens for trial in self.trials})
        by_length = {
            length: length_recovery(
                length,
                [
                    (trial.repeat, self._row(trial, answers))
                    for trial in self.trials
                    if trial.cell.length_tokens == length
                ],
            )
            for length in lengths
        }
        return TrainingRecovery(by_length, tokens)

    def _row(self, trial: Trial, answers: Mapping[str, Answer]) -> Row:
        """A trial's gain, its oracle's, and whether the model says the value."""
        reference = trial.item.reference
        beside: dict[str, Answer] = {each.role: answers[each.asked] for each in trial.beside}
        answer = replace(answers[trial.asked], beside=beside)
        places = value_places(answer.logprobs, reference)
        return *gains(answer, reference), float(first_choice(answer, places))


def given_answer(forward: Forward, chat: Chat, request: Trial) -> Answer:
    """How likely a model finds a reference answer behind a prompt. Raises SettingsError for what
    is no log-probabilities."""
    ids = chat.ids(request.prompt)
    given = chat.answer_ids(request.prompt, request.item.reference.answer)
    rows = as_rows(forward([*map(int, ids), *map(int, given)]), len(given) + 1)
    seen = tuple(likelihoods(rows[-len(given) - 1 : -1], given))
    forced = Forced(tuple(each[1] for each in seen), all(own >= other for _, own, _, other in seen))
    logprobs = spelt_out(seen, chat.vocabulary, "walk", len(ids))
    return Answer("", prompt_tokens=len(ids), forced=forced, logprobs=logprobs)


def as_rows(found: Any, least: int) -> Any:
    """What `forward` returned as an array, (tokens, vocabulary). least: rows that are needed."""
    if hasattr(found, "detach"):  # a torch tensor, wherever it is and of whatever type
        found = found.detach().float().cpu()
    rows = np.asarray(found, np.float32)
    if rows.ndim == 3 and len(rows) == 1:
        rows = rows[0]
    if rows.ndim != 2 or len(rows) < least:
        raise SettingsError(
            f"`forward` returned an array of shape {rows.shape}. It takes a list of token ids and "
            f"returns log-probabilities, (tokens, vocabulary), at least the last {least} rows."
        )
    if np.isnan(rows[-least:]).any():
        raise SettingsError("`forward` returned log-probabilities that are no numbers (NaN).")
    return rows


def tokenizer_folder(tokenizer: Any, empty: Path) -> Path:
    """A folder with a tokenizer's files. Raises SettingsError for what is none, or is no fast
    one."""
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
    """Of a length's items, each with its haystack's number."""
    gain, most, right = np.moveaxis(by_haystack(items), -1, 0)
    counts = most >= LEAST_GAIN
    found = ratio_mean(linearised(np.where(counts, gain, nan), np.where(counts, most, nan)))
    mean, hits = t_interval(gain), cluster_mean(right)
    return LengthRecovery(
        length_tokens,
        found.score if found else None,
        found.low if found else None,
        found.high if found else None,
        float(np.nanmean(gain)),
        mean[1] if mean else None,
        mean[2] if mean else None,
        hits.score if hits else None,
        hits.low if hits else None,
        hits.high if hits else None,
        int(counts.sum()),
        len(items) - int(counts.sum()),
    )


def by_haystack(items: Sequence[tuple[int, Row]]) -> Array:
    """(haystacks, items, 3), NaN where a haystack has fewer items than another."""
    numbers = sorted({number for number, _ in items})
    each = [[row for at, row in items if at == number] for number in numbers]
    found = np.full((len(each), max(map(len, each)), 3), nan)
    for at, rows in enumerate(each):
        found[at, : len(rows)] = rows
    return found
