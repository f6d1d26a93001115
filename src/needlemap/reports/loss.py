"""A paired loss in words, the same in every command: the verdict, or the loss alone."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil
from typing import Any

from needlemap.grid import percent
from needlemap.reports.labels import ends_label, length_labels, loss_label
from needlemap.stats.intervals import least_pairs
from needlemap.stats.judging import Loss, LostLength, Missing, PairedLoss
from needlemap.stats.sequential import FEWEST_NEW
from needlemap.stats.tested import NotTested
from needlemap.stats.verdicts import FAIL, PASS, Verdict
from needlemap.text import counted

SCOPES = {"these": "these prompts", "new": "new haystacks too"}
FLOORED = "the reference is mostly wrong: little could be lost, so nothing is proved"
SATURATED = "the reference is hardly ever wrong: trials so easy show only gross losses"
MEANS = "each score is a mean, and the files do not say of how many answers"
LISTED = 8  # lengths that a line names one by one
Names = tuple[str, str]  # of the reference and of the other
A_AND_B = ("A", "B")


def margin_label(margin: float) -> str:
    """A share in points.

    >>> margin_label(0.025)
    '2.5'
    """
    return f"{100 * margin:.6g}"


def interval_of(loss: Loss) -> str:
    """A loss with its interval, in points; positive is worse.

    >>> interval_of(Loss(0.133, 0.021, 0.232))
    '13.3 points (2.1 to 23.2)'
    """
    return f"{loss_label(loss.value)} points ({ends_label(loss.low, loss.high)})"


def loss_line(found: PairedLoss, names: Names = A_AND_B) -> str:
    """The loss alone: 'B loses 13.3 points (2.1 to 23.2), 60 pairs at 1k, 4k; these prompts'."""
    parts = [_loss(found, names[1]), *_evidence(found, names)]
    return "; ".join([", ".join(parts), scope_label(found)])


def verdict_of(found: PairedLoss, names: Names = A_AND_B) -> Verdict:
    """The verdict: the loss beside the margin, the pairs, what they hold for, what is next."""
    claim = _loss(found, names[1])
    if found.loss is not None and found.word == PASS:
        shown = f"{loss_label(found.loss.value)} ({ends_label(found.loss.low, found.loss.high)})"
        claim = f"{names[1]} loses less than {margin_label(found.margin)} points: {shown}"
    elif found.counted:
        claim = f"{claim}, allowed {margin_label(found.margin)}"
    return Verdict(
        found.word,
        claim,
        ", ".join(_evidence(found, names)),
        scope_label(found),
        "" if found.is_decided else "; ".join(_next(found)),
    )


def _loss(found: PairedLoss, name: str) -> str:
    """'B loses 13.3 points (2.1 to 23.2)'."""
    if not found.counted:
        return MEANS
    # From -100 to 100 points: one side answered nothing.
    if found.loss is None or found.loss.high - found.loss.low >= 2:
        return "no pair was scored"
    return f"{name} loses {interval_of(found.loss)}"


def _evidence(found: PairedLoss, names: Names) -> list[str]:
    """How many pairs, of which lengths, and what stands out among them."""
    labels = list(length_labels([length for length in found.tried if length]).values())
    at = f" at {', '.join(labels)}" if labels else ""
    if len(labels) > LISTED:
        at = f" at {len(labels)} lengths from {labels[0]} to {labels[-1]}"
    parts = [untested_label(found.untested)] if found.untested else []
    parts += [f"{counted(found.n, 'pair')}{at}", *map(lost_label, found.lengths)]
    if found.missing is not None and found.missing.reaches:
        parts.append(_missing_label(found.missing, names))
    if found.unsent and not found.sequential:
        parts.append(f"{counted(found.unsent, 'prompt')} not sent to both")
    return parts


def scope_label(found: PairedLoss) -> str:
    """What the word holds for, and when it was measured."""
    wanted = "new haystacks" if found.wanted == "new" else SCOPES["these"]
    scope = SCOPES[found.scope] if found.is_decided else wanted
    return ", ".join([scope, *measured_label(found.measured)])


def measured_label(measured: tuple[str, str]) -> list[str]:
    """When the answers came; nothing where records do not say."""
    first, last = (moment[:16].replace("T", " ") for moment in measured)
    if not first:
        return []
    same_day = last.removeprefix(first[:10]).strip()
    return [f"measured {first}{'' if last == first else f' to {same_day}'} UTC"]


def lost_label(each: LostLength) -> str:
    """'length 390: 6 of 6 lost, surely some'."""
    labels = list(length_labels(list(each.lengths)).values())
    at = f"lengths {labels[0]} to {labels[-1]}" if len(labels) > 1 else "".join(labels)
    at = f"length {at}" if len(labels) == 1 else at
    place = ", ".join(filter(None, (each.family, at)))
    gained = f", {each.gained} gained" if each.gained else ""
    missing = f", {each.missing} of them not answered" if each.missing else ""
    sure = ", surely some" if each.sure else ""
    return f"{place}: {each.lost} of {each.n} lost{gained}{missing}{sure}"


def untested_label(untested: tuple[NotTested, ...]) -> str:
    """'not tested: words at length 4k (the reference got 2 of 40 right)'."""
    parts = []
    for group in untested:
        labels = list(length_labels(list(group.lengths)).values())
        at = f"{'length' if len(labels) == 1 else 'lengths'} {', '.join(labels)}" if labels else ""
        place = " at ".join(filter(None, (group.family, at))) or "all prompts"
        parts.append(f"{place} (the reference got {group.right:g} of {group.n} right)")
    return f"not tested: {', '.join(parts)}"


def _missing_label(missing: Missing, names: Names) -> str:
    """Who did not answer what, and where."""
    sides = zip(names, names[::-1], (missing.first, missing.second), strict=True)
    told = [
        f"{one} did not answer {counted(count, 'prompt')} that {other} answered"
        for one, other, count in sides
        if count
    ]
    labels = list(length_labels(list(missing.lengths)).values())
    where = f"length {labels[0]}" if len(labels) == 1 else f"lengths {', '.join(labels)}"
    at = ""
    if missing.place is not None:
        repeat, length, depth = missing.place
        at = f"; the first: length {length}, depth {percent(depth):g}, repeat {repeat}"
    place = f" ({where}{at})" if any(missing.lengths) else ""  # samples of a log have none
    return f"{' and '.join(told)}{place}, which may add {loss_label(missing.share)} to the loss"


def _next(found: PairedLoss) -> list[str]:
    """What a verdict that is open lacks."""
    if found.floored:
        return [FLOORED]
    if not found.margin:
        return ["without a margin equal engines stay open: give --margin 2"]
    if found.unsent and not found.sequential:
        return ["resume both runs until all is sent"]
    if found.missing is not None and found.missing.reaches:
        return ["ask them again"]
    if found.wanted == "new" and found.new is not None:
        if found.new.n < FEWEST_NEW:
            return [f"{counted(found.new.n, 'haystack')}, and new ones take {FEWEST_NEW} at least"]
        return _more_haystacks(found.new.more)
    if found.sequential and found.planned is None and found.new is not None:
        return _more_haystacks(None if found.lengths or found.settled else found.new.more)
    if found.planned is not None and found.seen < found.planned:
        left = found.planned - found.seen
        return [f"{left:,} of {found.planned:,} planned {found.unit}s are still to be asked"]
    return _more_pairs(found)


def _more_haystacks(more: int | None) -> list[str]:
    return [f"about {more:,} more haystacks decide if they go on so"] if more else []


def _more_pairs(found: PairedLoss) -> list[str]:
    return [f"about {found.more:,} more pairs decide if it stays so"] if found.more else []


def least_label(found: PairedLoss, *, graded: bool = False) -> str:
    """How many pairs a verdict takes at least, all answers being equal; '' without a
    margin."""
    if not found.margin:
        return ""
    least = ceil(least_pairs(found.margin, graded=graded))
    return f"a PASS at {margin_label(found.margin)} points takes {least:,} equal pairs at least"


def warnings_of(found: PairedLoss) -> list[str]:
    """Why the reference proves little."""
    if not found.counted:
        return []
    if found.floored:
        return [f"warning: {FLOORED}"]
    easy = found.saturated and found.word != FAIL
    return [f"warning: {SATURATED}"] if easy else []


def loss_json(found: PairedLoss) -> dict[str, Any]:
    """The loss and what it rests on, for programs: shares in points."""
    loss = found.loss
    new = found.new
    return {
        "scope": SCOPES[found.scope],
        "margin": round(100 * found.margin, 6),
        "loss": loss and {name: round(100 * value, 6) for name, value in asdict(loss).items()},
        "lost_lengths": [{**asdict(each), "lengths": list(each.lengths)} for each in found.lengths],
        "missing": found.missing and _missing_json(found.missing),
        "not_sent": found.unsent,
        "measured": list(found.measured) if found.measured[0] else None,
        "pairs": found.n,
        "lost": found.lost,
        "gained": found.gained,
        "unit": found.unit if found.sequential else None,
        "decided_after": found.after,
        "planned": found.planned,
        "not_tested": [
            {**asdict(group), "lengths": list(group.lengths)} for group in found.untested
        ],
        "more_pairs": found.more,
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
