"""Notes on a run besides its scores: false answers, failures, counts, the tally so far.

False answers are reported if a scorer records whether the text held the value asked for
(`scorer.why.present`, by `only`): balanced accuracy. Of a server's counts only those in the
records are shown: a server that reports nothing has neither cached nor computed anything here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

from needlemap.finishes import list_unknown
from needlemap.grid import duration_label
from needlemap.models import backend_or_default
from needlemap.plan.lanes import ANSWER_TOKENS
from needlemap.records import RunFile, outdated
from needlemap.records.loaded import Loaded, closed_book_answers
from needlemap.records.record import (
    ANSWER_SPENT,
    DISTRACTORS,
    FILTERED,
    REFUSED,
    SCORED,
    SKIPPED,
    THE_MODELS,
    THINKING_SPENT,
    UNREADABLE,
    Record,
    costs_of,
    outcome_counts,
)
from needlemap.reports.labels import interval_label, length_labels, score_label
from needlemap.settings import LEAST_FRAMING
from needlemap.settings.prices import summed
from needlemap.stats import AskedPrompt
from needlemap.stats.intervals import ClusterMean, rate_of
from needlemap.text import printable

if TYPE_CHECKING:
    from needlemap.trials import Trial

# The score from which an answer without a haystack counts as right.
_RIGHT_FROM = 0.5
# Questions that are named.
_MOST_QUESTIONS = 3
# The share by which a server's count may differ from the length asked.
_TOLERANCE = 0.02
# Differences that vary by no more than this are a chat template's.
_ALIKE_TOKENS = 2
# More is another tokenizer, if there is only one length to judge by.
_LONG_TEMPLATE_TOKENS = 100
# Reasons of scorers: whether the text held the value, and whether the value was the model's first
# choice.
_PRESENT, _FIRST_CHOICE = "present", "first_choice"
_KEEPS_COUNT = "each record keeps the server's own count"
# The longest prompts' ratio of counted to asked, against the shortest's.
_CUT_OFF = 0.9


def ended_lines(run: Loaded) -> list[str]:
    """Return notes on a run's outcomes. If all trials were scored at their depths, none."""
    about, records = run.about, run.records
    unasked = sum(not prompt.records for prompt in run.prompts)
    skipped = unasked if about.stopped else 0
    return [
        *(f"note: {note}" for note in run.notes),
        *outdated(run.path, about),
        *placeless_lines(about, records),
        *(
            balance_lines(run.prompts, one_haystack=about.one_haystack)
            if _PRESENT in run.reasons
            else []
        ),
        *(needle_depth_lines(records) if about.depthless else []),
        *distractor_lines(distractor_answers(run)),
        *closed_book_lines(
            record
            for record in (closed_book_answers(run.folder) if run.folder else ())
            if record.scorer is not None and record.scorer.is_same(about.scorer)
        ),
        *outcome_lines(records, skipped, one_haystack=about.one_haystack),
        *easy_lines(run),
        *(
            first_choice_lines(records, one_haystack=about.one_haystack)
            if _FIRST_CHOICE in run.reasons
            else []
        ),
    ]


def easy_lines(run: Loaded) -> list[str]:
    """Return a note if all answers of a map are right, with what to run next, else none."""
    total = run.map.total
    if not isinstance(total, ClusterMean) or total.score < 1:
        return []
    return [
        f"note: all {total.n:,} answers are right, so this map shows gross losses only. Next: "
        "longer --lengths, or a harder task (needlemap list tasks)"
    ]


def needle_depth_lines(records: Iterable[Record]) -> list[str]:
    """Return a line on how often each of several needles was found, by its intended depth.

    If the depths differ between prompts, or if a prompt does not have one keyword for each needle,
    there is no line.
    """
    hits: dict[float, int] = {}
    needles: dict[float, int] = {}
    for record in records:
        missing_words = record.scorer.why.get("missing") if record.scorer else None
        depths = [needle.meant for needle in record.needles]
        if not record.scored or missing_words is None or len(depths) != len(record.keywords):
            continue
        if len({*depths}) < 2 or (needles and {*depths} != {*needles}):
            return []
        for depth, word in zip(depths, record.keywords, strict=True):
            needles[depth] = needles.get(depth, 0) + 1
            hits[depth] = hits.get(depth, 0) + (word not in missing_words)
    if not needles:
        return []
    rates = [f"{100 * depth:g}% {hits[depth]}/{needles[depth]}" for depth in sorted(needles)]
    return [f"found by depth: {' · '.join(rates)}"]


# Outcomes that are shown with their shares.
_WITH_SHARES = {
    "refused": (REFUSED,),
    "filtered": (FILTERED,),
    "cut off": (ANSWER_SPENT, THINKING_SPENT),
    "unreadable": (UNREADABLE,),
}


def outcome_lines(
    records: Sequence[Record], skipped: int = 0, *, one_haystack: bool = False
) -> list[str]:
    """Return lines on the outcomes of trials. If every trial was simply scored, there is none.

    Shares of answers have intervals over haystacks, as means do. one_haystack: whether all repeats
    have one haystack.
    """
    outcomes = [record.outcome for record in records]
    counts = outcome_counts(outcomes)
    all_counts = {**counts, **({SKIPPED: skipped} if skipped else {})}
    if set(all_counts) <= {SCORED}:
        return list_unknown(record.finish for record in records)
    lines = ["outcomes: " + " · ".join(f"{count} {name}" for name, count in all_counts.items())]
    answers = [
        (0 if one_haystack else record.repeat, outcome)
        for record, outcome in zip(records, outcomes, strict=True)
        if outcome in THE_MODELS
    ]
    for label, names in _WITH_SHARES.items():
        rate = Rate.of([(haystack, float(outcome in names)) for haystack, outcome in answers])
        if rate is not None and rate.hits:
            low, high = (f"{100 * end:.1f}" for end in (rate.low, rate.high))
            share = (
                f"{rate.hits:g}/{rate.n} = {100 * rate.share:.1f} % [{low}, {high}] of the answers"
            )
            lines.append(f"{label}: {share}")
    if THINKING_SPENT in counts:
        lines.append(f"{THINKING_SPENT}: give --thinking-tokens, or a larger --max-answer-tokens")
    return [*lines, *list_unknown(record.finish for record in records)]


def first_choice_lines(records: Iterable[Record], *, one_haystack: bool = False) -> list[str]:
    """Return a line on how many values were the model's first choice, by length.

    It is the accuracy, next to a score that forces answers. For other scorers there is no line.
    one_haystack: whether all repeats have one haystack.
    """
    choices = first_choices(records, one_haystack=one_haystack)
    rates = {length: rate for length in choices if (rate := Rate.of(choices[length]))}
    if not rates:
        return []
    labels = length_labels([*rates])
    rates_text = " · ".join(
        f"{labels[length]} {_rate_text(rate)}" for length, rate in rates.items()
    )
    return [f"accuracy (each token of the value is the model's first choice): {rates_text}"]


def first_choices(
    records: Iterable[Record], *, one_haystack: bool
) -> dict[int, list[tuple[int, float]]]:
    """Return by length a (haystack, hit) for each trial.

    The hit is 1 if each token of the value was the model's first choice, else 0.
    """
    choices: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for record in records:
        is_first = _scorer_value(record, _FIRST_CHOICE)
        if isinstance(is_first, bool):
            choices[record.length_tokens].append(
                (0 if one_haystack else record.repeat, float(is_first))
            )
    return dict(sorted(choices.items()))


def accuracy_by_length(run: Loaded) -> dict[int, ClusterMean]:
    """Return by length the share of values that were the model's first choice.

    If the scorer does not force answers, there is none.
    """
    choices = first_choices(run.records, one_haystack=run.about.one_haystack)
    return {length: mean for length in choices if (mean := rate_of(choices[length]))}


def closed_book_lines(records: Iterable[Record]) -> list[str]:
    """Return a line on the questions that were answered right without a haystack.

    If no question was sent without a haystack, there is no line.
    """
    rows = list(records)
    if not rows:
        return []
    right_records = [record for record in rows if (record.score or 0.0) >= _RIGHT_FROM]
    scored_count = sum(record.scored for record in rows)
    missing_note = f", {len(rows) - scored_count} not measured" if scored_count < len(rows) else ""
    line = (
        f"closed book: {len(right_records)}/{scored_count} right without a haystack{missing_note}"
    )
    if not right_records:
        return [line]
    questions = ", ".join(
        repr(printable(record.question, line=True)) for record in right_records[:_MOST_QUESTIONS]
    )
    dots = " ..." if len(right_records) > _MOST_QUESTIONS else ""
    return [
        f"{line}: {questions}{dots}. Their scores prove nothing: hide something that no model can "
        f"know."
    ]


def balance_lines(prompts: Iterable[AskedPrompt], *, one_haystack: bool = False) -> list[str]:
    """Return lines on balanced accuracy and false answers.

    If all questions of the run have an answer in the text, there is no line. one_haystack: whether
    all repeats have one haystack.
    """
    result = balance(prompts, one_haystack=one_haystack)
    if result is None:
        return []
    share, low, high = result.accuracy
    return [
        f"balanced accuracy: {score_label(share)} {interval_label(low, high)}, the mean of two "
        f"rates: found where it was there {_rate_text(result.found)}, denied where it was not "
        f"{_rate_text(result.rejected)}",
        f"false answers: {_rate_text(result.false)}; {result.named} of them took what the text "
        f"holds instead, {result.invented} made a value up",
    ]


@dataclass(frozen=True, slots=True)
class DistractorAnswers:
    """What answers of a run took from distractors.

    Attributes:
        instead: Answers that give a distractor's value and not the right one.
        beside: How many give both.
        neither: How many give none of them.
    """

    instead: Rate
    beside: int
    neither: int

    @classmethod
    def of(
        cls, prompts: Iterable[AskedPrompt], *, one_haystack: bool = False
    ) -> DistractorAnswers | None:
        """Count the answers of a run, or return None if it has no distractors or no scores.

        Each prompt counts once. one_haystack: whether all repeats have one haystack.
        """
        takings: list[tuple[int, float]] = []
        both = neither_count = 0
        for prompt in prompts:
            values = [_scorer_value(record, DISTRACTORS) for record in prompt.records]
            distractors_taken = [bool(value) for value in values if isinstance(value, list)]
            score = prompt.score if distractors_taken else None
            if score is None:
                continue
            takes_distractor, is_right = any(distractors_taken), score >= _RIGHT_FROM
            takings.append(
                (
                    0 if one_haystack else prompt.places[0][0],
                    float(takes_distractor and not is_right),
                )
            )
            both += takes_distractor and is_right
            neither_count += not takes_distractor and not is_right
        rate = Rate.of(takings)
        return cls(rate, both, neither_count) if rate else None


def distractor_answers(run: Loaded) -> DistractorAnswers | None:
    """Return what answers of a run took from distractors, or None if it has none or no scores."""
    if DISTRACTORS not in run.reasons:
        return None
    return DistractorAnswers.of(run.prompts, one_haystack=run.about.one_haystack)


def distractor_lines(taken: DistractorAnswers | None) -> list[str]:
    """Return a line on what answers took from distractors, or none if there are none."""
    if taken is None:
        return []
    return [
        f"distractors: {_rate_text(taken.instead)} answers give a distractor's value instead of "
        f"the right one; {taken.beside} give both, {taken.neither} neither"
    ]


def _rate_text(rate: Rate) -> str:
    return (
        f"{rate.hits:g}/{rate.n} = {score_label(rate.share)} {interval_label(rate.low, rate.high)}"
    )


def placeless_lines(about: RunFile, records: Iterable[Record]) -> list[str]:
    """Return a line if all prompts of a published set are at depth 0, else none.

    `trials/build.py` puts them there, because such a set does not state depths.
    """
    if about.named.task != "published" or {record.depth for record in records} != {0.0}:
        return []
    return [
        "depth is unknown: the set does not tell where answers stand, so all its prompts are at "
        "depth 0"
    ]


@dataclass(frozen=True, slots=True)
class Rate:
    """hits of n, with its 95 % interval over haystacks, as means have it."""

    hits: float
    n: int
    low: float
    high: float

    @classmethod
    def of(cls, scores: Sequence[tuple[int, float]]) -> Rate | None:
        """Return the rate of (haystack, score) pairs, or None if there are none."""
        mean = rate_of(scores)
        if mean is None or mean.low is None or mean.high is None:
            return None
        return cls(sum(score for _, score in scores), mean.n, mean.low, mean.high)

    @property
    def share(self) -> float:
        """Return hits / n."""
        return self.hits / self.n

    @property
    def complement(self) -> Rate:
        """Return the rate of misses, which is 1 - this rate."""
        return Rate(self.n - self.hits, self.n, 1 - self.high, 1 - self.low)


@dataclass(frozen=True, slots=True)
class Balance:
    """Answers to questions that the text answers, and to others.

    Attributes:
        found: Scores if the value was there.
        rejected: If it was not there, whether the answer denied it.
        named: Of the other answers there, those that took a value that stands in the text.
        invented: Those that made one up.
    """

    found: Rate
    rejected: Rate
    named: int
    invented: int = 0

    @property
    def false(self) -> Rate:
        """Return the rate of answers to questions that the text does not answer."""
        return self.rejected.complement

    @property
    def accuracy(self) -> tuple[float, float, float]:
        """Return the balanced accuracy, the mean of both rates, and its 95 % interval.

        A model that always gives the same answer reaches one half at most. An end of the interval
        lies as far from the mean as the root of the rates' squared distances to their own ends
        (Newcombe 1998, Statistics in Medicine 17:873, method 10; Zou and Donner 2008, Statistics in
        Medicine 27:1693).
        """
        share = (self.found.share + self.rejected.share) / 2
        rates = (self.found, self.rejected)
        below = sqrt(sum((rate.share - rate.low) ** 2 for rate in rates)) / 2
        above = sqrt(sum((rate.high - rate.share) ** 2 for rate in rates)) / 2
        return share, max(0.0, share - below), min(1.0, share + above)


def balance(prompts: Iterable[AskedPrompt], *, one_haystack: bool = False) -> Balance | None:
    """Return the balance of a run, or None if its questions are not of both kinds.

    Each prompt counts once.
    """
    scores: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    decoy_count = invented_count = 0
    for prompt in prompts:
        judged_records = [
            record for record in prompt.records if _scorer_value(record, _PRESENT) is not None
        ]
        if not judged_records:
            continue
        score = AskedPrompt(prompt.places, tuple(judged_records)).score
        if score is not None:
            present = bool(_scorer_value(judged_records[0], _PRESENT))
            scores[present].append((0 if one_haystack else prompt.places[0][0], score))
            decoy_count += not present and bool(_scorer_value(judged_records[0], "decoys"))
            invented_count += not present and bool(_scorer_value(judged_records[0], "invented"))
    present_rate, absent_rate = Rate.of(scores[True]), Rate.of(scores[False])
    return (
        Balance(present_rate, absent_rate, decoy_count, invented_count)
        if present_rate and absent_rate
        else None
    )


def _scorer_value(record: Record, name: str) -> object:
    return record.scorer.why.get(name) if record.scorer is not None and record.scored else None


def usage_lines(
    records: Iterable[Record], *, remote: bool, framing_tokens: int = 0, own: bool = False
) -> list[str]:
    """Return notes for the end of a run.

    remote: whether a server was asked, which should have counted. framing_tokens: what the run's
    settings say that the server's chat template adds. own: whether lengths count the server's own
    tokens.
    """
    answered_records = [
        record for record in records if record.latency_s is not None and not record.rescored
    ]
    counted_records = [record for record in answered_records if record.prompt_tokens is not None]
    start_lines = first_token_lines(answered_records)
    if answered_records and remote and not counted_records:
        planned = costs_of(answered_records)["planned_tokens"]
        cached = f", and whether the planned {planned:,} came from its cache" if planned else ""
        unknown = f"the server reports no usage: it is unknown how many tokens it counted{cached}"
        return [*start_lines, unknown]
    lines = [*start_lines, *cache_lines(answered_records, remote=remote)]
    if remote:
        lines += _length_lines(counted_records, framing_tokens, own)
    return lines


def first_token_lines(records: Iterable[Record]) -> list[str]:
    """Return a line on the median wait for streamed answers, at the shortest and longest length.

    If no answer was streamed, there is no line.
    """
    waits: dict[int, list[float]] = defaultdict(list)
    for record in records:
        if record.first_token_s is not None:
            waits[record.length_tokens].append(record.first_token_s)
    if not waits:
        return []
    labels = length_labels(sorted(waits))
    ends = dict.fromkeys([min(waits), max(waits)])
    waits_text = ", ".join(f"{median(waits[size]):.2f} s at {labels[size]}" for size in ends)
    return [f"first token: {waits_text} (median)"]


def judge_lines(records: Iterable[Record]) -> list[str]:
    """Return a line on what a judge's verdicts cost, or none if they cost nothing."""
    costs = [record.judge_usd for record in records]
    paid, unknown = summed(costs, of_known=True), costs.count(None)
    if not paid and not unknown:
        return []
    unpriced_note = f", and {unknown:,} verdicts at an unknown price" if unknown else ""
    return [f"judge: ${paid or 0.0:.4f}{unpriced_note}"]


def cache_lines(records: Iterable[Record], *, remote: bool = False) -> list[str]:
    """Return a line on cached tokens and those planned, or none if the server reports none."""
    answered_records = (
        record for record in records if record.latency_s is not None and not record.rescored
    )
    costs = costs_of(answered_records, ("prompt_tokens", "cached_tokens", "planned_tokens"))
    cached, planned = costs["cached_tokens"], costs["planned_tokens"]
    if cached is None:
        if not (remote and planned):
            return []
        return [f"cached: not reported by the server (planned: {planned:,})"]
    plan = f"; planned {planned:,}" if planned else ""
    return [f"cached: {cached:,} of {costs['prompt_tokens'] or 0:,} prompt tokens{plan}"]


def _length_lines(records: Sequence[Record], framing_tokens: int, own: bool) -> list[str]:
    """Return a warning with a remedy if the server's counts differ from the lengths, else none."""
    counts = sorted(
        (_prompt_length(record) + framing_tokens, record.prompt_tokens or 0) for record in records
    )
    deviating = [
        (own_count, server_count)
        for own_count, server_count in counts
        if abs(server_count - own_count) > _TOLERANCE * own_count
    ]
    if not deviating:
        return []
    own_count, server_count = max(deviating, key=lambda row: abs(row[1] - row[0]) / row[0])
    differences = [server_count - own_count for own_count, server_count in counts]
    remedy = _remedy(counts, differences, framing_tokens, records[0].model, own)
    return [
        f"warning: the server counted {server_count:,} tokens where {own_count:,} were asked; "
        f"{len(deviating)} of {len(counts)} prompts are off by more than {_TOLERANCE:.0%}. {remedy}"
    ]


def _remedy(
    rows: Sequence[tuple[int, int]],
    differences: Sequence[int],
    framing_tokens: int,
    model: str,
    own: bool,
) -> str:
    """Return what to type. One length does not tell a template from another vocabulary.

    rows: (asked, counted) by length.
    """
    are_alike = max(differences) - min(differences) <= _ALIKE_TOKENS
    framing = framing_tokens + round(median(differences))
    has_several = rows[-1][0] > 1.5 * rows[0][0]
    if are_alike and framing >= LEAST_FRAMING and (has_several or own):
        addition = "It counts as many fewer of each"
        if framing > 0:
            addition = "Its chat template adds as many to each"
        return f"{addition}: use --framing-tokens {framing}."
    if are_alike and not has_several and abs(differences[0]) <= _LONG_TEMPLATE_TOKENS:
        return (
            f"One length does not tell whether its chat template adds them (--framing-tokens "
            f"{framing}) or its tokenizer is another one: ask a second length; {_KEEPS_COUNT}."
        )
    shortest, longest = (
        server_count / own_count for own_count, server_count in (rows[0], rows[-1])
    )
    if longest < _CUT_OFF * min(shortest, 1):
        return (
            "It seems to cut long prompts off: start it with a longer context, or use shorter "
            "--lengths."
        )
    if note := backend_or_default(model.partition("/")[0]).vocabulary:
        return f"{note} Lengths are those of the one you chose: {_KEEPS_COUNT}."
    return (
        "Its tokenizer is another one: use --tokenizer with a path to its tokenizer.json, or "
        f"--tokenizer server (vLLM, llama.cpp); {_KEEPS_COUNT}."
    )


def _prompt_length(record: Record) -> int:
    return record.prompt.tokens if record.prompt else record.length_tokens


class Tally:
    """Counts of a run under way.

    Attributes:
        total, already: The trials in all, and those scored before this start.
        limits: What is used of the run's limits, in words; '' without limits.
    """

    def __init__(self, total: int, already: int, limits: Callable[[], str] = str) -> None:
        self.total = total
        self.already = already
        self.scored = 0
        self.failed = 0
        self.tokens = 0
        self.cached = 0
        self.promised = 0
        self.usd: float | None = 0.0
        self.started = time.monotonic()
        self._limits = limits
        self._work: dict[str, int] = {}
        self._computed = 0

    def plan(self, trials: Iterable[Trial]) -> None:
        """Take what is left to compute.

        Of each trial these are the prompt tokens that it does not share with the one before it, and
        an answer.
        """
        self.started = time.monotonic()
        self._computed = 0
        self._work = {
            trial.key: trial.prompt.asked_tokens - (trial.shared_tokens or 0) + ANSWER_TOKENS
            for trial in trials
        }

    def add(self, record: Record) -> None:
        """Count one record."""
        self.scored += record.scored
        self.failed += not record.scored
        self._computed += self._work.pop(record.key, 0)
        self._paid(record.judge_usd)
        if record.rescored:
            return
        self.tokens += record.prompt_tokens or 0
        self.cached += record.cached_tokens or 0
        self.promised += (record.shared_tokens or 0) if record.cached_tokens is not None else 0
        if record.answer is not None or record.unread.attempts:
            self._paid(record.asked_usd)

    def _paid(self, usd: float | None) -> None:
        self.usd = summed([self.usd, usd])

    def bar(self, width: int) -> str:
        """Return how far it is, by the tokens left to compute, with the rate and the time left."""
        seconds = max(time.monotonic() - self.started, 1e-6)
        tokens_left = sum(self._work.values())
        share = self._computed / max(1, self._computed + tokens_left)
        rate = (self.scored + self.failed) / seconds
        words = f"{100 * share:3.0f} %"
        if self._computed and tokens_left:
            words += (
                f" · {rate:.1f}/s · {duration_label(tokens_left * seconds / self._computed)} left"
            )
        room = max(0, min(40, width - len(words) - 1))
        full_blocks = int(share * room)
        return f"{'█' * full_blocks}{'░' * (room - full_blocks)} {words}".strip()

    def line(self, *, over: bool = False) -> str:
        """Return what is known: scored of total, failures, tokens, money.

        Until it ends, the rate and the time left follow, by the tokens that are left to compute.
        """
        ended_count = self.scored + self.failed
        seconds = max(time.monotonic() - self.started, 1e-6)
        left_s = sum(self._work.values()) * seconds / max(1, self._computed)
        parts = [f"{self.already + self.scored}/{self.total} scored"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.tokens:
            parts.append(f"{self.tokens:,} tokens")
        if self.cached or self.promised:
            plan = f" of {self.promised:,} planned" if self.promised else ""
            parts.append(f"{self.cached:,} cached{plan}")
        if limits := self._limits():
            parts.append(limits)
        elif self.usd:
            parts.append(f"${self.usd:.4f}")
        if self._computed and self._work and not over:
            parts += [f"{ended_count / seconds:.1f}/s", f"{duration_label(left_s)} left"]
        return " · ".join(parts)
