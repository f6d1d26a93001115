"""A paired loss in words, the same in every command: the verdict, or the loss alone."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil
from typing import Any

from needlemap.reports.labels import ends_label, length_labels, loss_label, score_label
from needlemap.stats import place_label
from needlemap.stats.intervals import least_pairs
from needlemap.stats.judging import Loss, LostLength, Missing, PairedLoss
from needlemap.stats.sequential import FEWEST_NEW
from needlemap.stats.tested import NotTested
from needlemap.stats.verdicts import FAIL, PASS, Verdict
from needlemap.text import counted

SCOPES = {"these": "these prompts", "new": "new haystacks too"}
FLOORED = "the reference is mostly wrong: little could be lost, so nothing is proved"
SATURATED = "the reference is hardly ever wrong: trials so easy show only gross losses"
NO_PAIR = "no pair with both scores was judged"
MEANS = "each score is a mean, and the files do not say of how many answers"
# Lengths that a line names one by one.
LISTED = 8
# Of the reference and of the other.
Names = tuple[str, str]
A_AND_B = ("A", "B")


def margin_label(margin: float) -> str:
    """Return a share in points.

    >>> margin_label(0.025)
    '2.5'
    """
    return f"{100 * margin:.6g}"


def interval_of(loss: Loss) -> str:
    """Return a loss with its interval, in points; positive is worse.

    >>> interval_of(Loss(0.133, 0.021, 0.232))
    '13.3 points (2.1 to 23.2)'
    """
    return f"{loss_label(loss.value)} points ({ends_label(loss.low, loss.high)})"


def loss_line(paired: PairedLoss, names: Names = A_AND_B) -> str:
    """Return the loss alone.

    For example 'B loses 13.3 points (2.1 to 23.2), 60 pairs at 1k, 4k; these prompts'.
    """
    parts = [_loss_text(paired, names[1]), *_evidence(paired, names)]
    return "; ".join([", ".join(parts), scope_label(paired)])


def loss_answer(paired: PairedLoss, names: Names) -> str:
    """Return the loss and, behind a semicolon, the rest of `loss_line`, as a page opens."""
    evidence = ", ".join(_evidence(paired, names))
    return "; ".join([_loss_text(paired, names[1]), evidence, scope_label(paired)])


def verdict_of(paired: PairedLoss, names: Names = A_AND_B) -> Verdict:
    """Return the verdict: the loss and the margin, the pairs, their scope, and what is next."""
    claim = _loss_text(paired, names[1])
    if paired.loss is not None and paired.word == PASS:
        interval = (
            f"{loss_label(paired.loss.value)} ({ends_label(paired.loss.low, paired.loss.high)})"
        )
        claim = f"{names[1]} loses less than {margin_label(paired.margin)} points: {interval}"
    elif paired.counted:
        claim = f"{claim}, allowed {margin_label(paired.margin)}"
    return Verdict(
        word=paired.word,
        claim=claim,
        evidence=", ".join(_evidence(paired, names)),
        scope=scope_label(paired),
        next="" if paired.is_decided else "; ".join(_next_steps(paired)),
    )


def _loss_text(paired: PairedLoss, name: str) -> str:
    """Return the loss in words: 'B loses 13.3 points (2.1 to 23.2)'."""
    if not paired.counted:
        return MEANS
    if paired.loss is None:
        return NO_PAIR
    return f"{name} loses {interval_of(paired.loss)}"


def _evidence(paired: PairedLoss, names: Names) -> list[str]:
    """Return phrases on what a verdict rests on.

    They name groups that were not tested, the pairs and their lengths, lengths with many losses,
    and missing answers.
    """
    labels = list(length_labels([length for length in paired.tried if length]).values())
    place = f" at {', '.join(labels)}" if labels else ""
    if len(labels) > LISTED:
        place = f" at {len(labels)} lengths from {labels[0]} to {labels[-1]}"

    parts = [untested_label(paired.untested)] if paired.untested else []
    parts += [f"{counted(paired.n, 'pair')}{place}", *map(lost_label, paired.lengths)]
    if paired.missing is not None and paired.missing.reaches:
        parts.append(_missing_label(paired.missing, names))
    if paired.unjudged:
        parts.append(
            f"{counted(paired.unjudged, 'pair')} of unfinished or later haystacks not judged"
        )
    if paired.unsent and not paired.sequential:
        parts.append(f"{counted(paired.unsent, 'prompt')} not sent to both")
    return parts


def scope_label(paired: PairedLoss) -> str:
    """Return the scope of a verdict in words, and when its answers came."""
    goal = "new haystacks" if paired.wanted == "new" else SCOPES["these"]
    scope = SCOPES[paired.scope] if paired.is_decided else goal
    return ", ".join([scope, *measured_label(paired.measured)])


def measured_label(measured: tuple[str, str]) -> list[str]:
    """Return a phrase on when the answers came, or none if records do not show it."""
    start, end = (moment[:16].replace("T", " ") for moment in measured)
    if not start:
        return []
    same_day = end.removeprefix(start[:10]).strip()
    return [f"measured {start}{'' if end == start else f' to {same_day}'} UTC"]


def lost_label(row: LostLength) -> str:
    """Return the losses of one length: 'length 390: 6 of 6 lost, surely some'."""
    labels = list(length_labels(list(row.lengths)).values())
    lengths = f"lengths {labels[0]} to {labels[-1]}" if len(labels) > 1 else "".join(labels)
    lengths = f"length {lengths}" if len(labels) == 1 else lengths
    place = ", ".join(filter(None, (row.family, lengths)))
    gained_note = f", {row.gained} gained" if row.gained else ""
    missing_note = f", {row.missing} of them not answered" if row.missing else ""
    certainty = ", surely some" if row.sure else ""
    return f"{place}: {row.lost} of {row.n} lost{gained_note}{missing_note}{certainty}"


def untested_label(untested: tuple[NotTested, ...]) -> str:
    """Return a phrase on the groups that were not tested.

    For example 'not tested: words at length 4k (the reference scores 5.0, n=40)'.
    """
    parts = []
    for group in untested:
        labels = list(length_labels(list(group.lengths)).values())
        lengths = (
            f"{'length' if len(labels) == 1 else 'lengths'} {', '.join(labels)}" if labels else ""
        )
        place = " at ".join(filter(None, (group.family, lengths))) or "all prompts"
        score = score_label(group.right / group.n)
        parts.append(f"{place} (the reference scores {score}, n={group.n:,})")
    return f"not tested: {', '.join(parts)}"


def _missing_label(missing: Missing, names: Names) -> str:
    """Return a sentence on the answers that one side did not give, and their lengths."""
    sides = zip(names, names[::-1], (missing.first, missing.second), strict=True)
    sentences = [
        f"{side} did not answer {counted(count, 'prompt')} that {other_side} answered"
        for side, other_side, count in sides
        if count
    ]
    labels = list(length_labels(list(missing.lengths)).values())
    lengths = f"length {labels[0]}" if len(labels) == 1 else f"lengths {', '.join(labels)}"
    first_place = ""
    if missing.place is not None:
        first_place = f"; the first: {place_label(missing.place)}"
    # Samples of a log have no length.
    place = f" ({lengths}{first_place})" if any(missing.lengths) else ""
    return (
        f"{' and '.join(sentences)}{place}, which may add {loss_label(missing.share)} to the loss"
    )


def _next_steps(paired: PairedLoss) -> list[str]:
    """Return what to do so that an open verdict is decided, if anything can be done."""
    if paired.floored:
        return [FLOORED]
    if not paired.margin:
        return ["without a margin equal engines stay open: give --margin 2"]
    if paired.unsent and not paired.sequential:
        return ["resume both runs until all is sent"]
    if paired.missing is not None and paired.missing.reaches:
        return ["ask them again"]
    if paired.wanted == "new" and paired.new is not None:
        if paired.new.n < FEWEST_NEW:
            return [f"{counted(paired.new.n, 'haystack')}, and new ones take {FEWEST_NEW} at least"]
        return _more_haystacks(paired.new.more)
    if paired.sequential and paired.planned is None and paired.new is not None:
        return _more_haystacks(None if paired.lengths or paired.settled else paired.new.more)
    if paired.planned is not None and paired.seen < paired.planned:
        # Some of those that were not seen may have been sent, out of turn.
        unsent = min(paired.planned - paired.seen, paired.unsent)
        return [f"{unsent:,} of {paired.planned:,} planned {paired.unit}s are still to be asked"]
    return _more_pairs(paired)


def _more_haystacks(count: int | None) -> list[str]:
    return [f"about {count:,} more haystacks decide if they go on so"] if count else []


def _more_pairs(paired: PairedLoss) -> list[str]:
    return [f"about {paired.more:,} more pairs decide if it stays so"] if paired.more else []


def least_label(paired: PairedLoss) -> str:
    """Return a phrase on the pairs that a PASS takes if all answers are equal.

    If there is no margin, it is ''.
    """
    if not paired.margin:
        return ""
    least = ceil(least_pairs(paired.margin))
    return f"a PASS at {margin_label(paired.margin)} points takes {least:,} equal pairs at least"


def warnings_of(paired: PairedLoss) -> list[str]:
    """Return a warning if the reference proves little, else none."""
    if not paired.counted:
        return []
    if paired.floored:
        return [f"warning: {FLOORED}"]
    is_easy = paired.saturated and paired.word != FAIL
    return [f"warning: {SATURATED}"] if is_easy else []


def overrun_notes(counts: tuple[int, int], names: Names = A_AND_B) -> list[str]:
    """Return notes on answers of either side that count as wrong because they did not stop."""
    return [
        f"note: {counted(count, 'answer')} of {side} ran on to the end of the budget where "
        f"{other_side} stopped: counted as wrong"
        for side, other_side, count in zip(names, names[::-1], counts, strict=True)
        if count
    ]


def loss_json(paired: PairedLoss) -> dict[str, Any]:
    """Return the loss and its counts for programs, with shares in points."""
    loss = paired.loss
    new = paired.new
    return {
        "scope": SCOPES[paired.scope],
        "margin": round(100 * paired.margin, 6),
        "loss": loss and {name: round(100 * value, 6) for name, value in asdict(loss).items()},
        "lost_lengths": [{**asdict(row), "lengths": list(row.lengths)} for row in paired.lengths],
        "missing": paired.missing and _missing_json(paired.missing),
        "not_sent": paired.unsent,
        "not_judged": paired.unjudged,
        "measured": list(paired.measured) if paired.measured[0] else None,
        "pairs": paired.n,
        "lost": paired.lost,
        "gained": paired.gained,
        "unit": paired.unit if paired.sequential else None,
        "decided_after": paired.after,
        "planned": paired.planned,
        "not_tested": [
            {**asdict(group), "lengths": list(group.lengths)} for group in paired.untested
        ],
        "more_pairs": paired.more,
        "new_haystacks": new and {"word": new.word, "haystacks": new.n, "more_haystacks": new.more},
    }


def _missing_json(missing: Missing) -> dict[str, Any]:
    return {
        "a": missing.first,
        "b": missing.second,
        "lengths": list(missing.lengths),
        "may_add": round(100 * missing.share, 6),
        "reaches_margin": missing.reaches,
    }
