"""A verdict in words, the same in every command: what holds, for what, why, when it was
measured, and the exit code."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil
from typing import Any

from needlemap.grid import percent
from needlemap.reports.labels import length_labels
from needlemap.reports.report import Verdict
from needlemap.stats.intervals import least_pairs
from needlemap.stats.judging import Judgement, LostLength, Missing
from needlemap.stats.sequential import FEWEST_NEW
from needlemap.text import counted

SCOPES = {"these": "on these prompts", "new": "also on new haystacks"}
FLOORED = "the reference is at the floor: nothing could be lost, so nothing is proved"
SATURATED = "the reference is hardly ever wrong: trials so easy show only gross losses"
Names = tuple[str, str]  # of the reference and of the other
A_AND_B = ("A", "B")


def margin_label(margin: float) -> str:
    """A share in points.

    >>> margin_label(0.025)
    '2.5'
    """
    return f"{100 * margin:.6g}"


def word_label(found: Judgement) -> str:
    """The word with its margin: 'no worse than 2 points', 'worse', 'undecided'."""
    margin = f"{margin_label(found.margin)} points"
    if found.word == "worse" and found.loss is not None and found.loss.low > found.margin:
        return f"worse by more than {margin}"
    return f"no worse than {margin}" if found.word == "no worse" else found.word


def verdict_sentence(found: Judgement, names: Names = A_AND_B) -> str:
    """What holds, for what, and why.

    'no worse than 2 points, on these prompts: a loss of 0.0 [-1.5, 1.2]'
    """
    word = word_label(found)
    if found.word == "undecided":
        word = f"undecided at a margin of {margin_label(found.margin)} points"
    head = f"{word}, {scope_label(found)}"
    why = "; ".join(_reasons(found, names))
    return f"{head}: {why}" if why else head


def scope_label(found: Judgement) -> str:
    """What the word holds for."""
    if found.word == "undecided" and found.wanted == "new":
        return "on new haystacks"
    return SCOPES[found.scope]


def verdict_of(
    found: Judgement, names: Names = A_AND_B, ends: int | None = None, gated: str = ""
) -> Verdict:
    """The verdict with when it was measured. ends: the exit code of the command. gated: how
    the verdict would make it, where it does not."""
    parts = [f"verdict: {verdict_sentence(found, names)}", *measured_label(found.measured)]
    return Verdict(found.word, ". ".join(parts), found.code, ends, gated)


def measured_label(measured: tuple[str, str]) -> list[str]:
    """When the answers came; nothing where records do not say."""
    first, last = (moment[:16].replace("T", " ") for moment in measured)
    if not first:
        return []
    same_day = last.removeprefix(first[:10]).strip()
    return [f"Measured {first}{'' if last == first else f' to {same_day}'} UTC"]


def _reasons(found: Judgement, names: Names) -> list[str]:
    if not found.counted:
        return ["each score is a mean, and the files do not say of how many answers"]
    said = [_loss_label(found)] if found.loss is not None else []
    said += [lost_label(each) for each in found.lengths]
    if found.missing is not None and found.missing.reaches:
        said.append(_missing_label(found.missing, names))
    if found.word == "undecided":
        said += _what_decides(found)
    return said


def _loss_label(found: Judgement) -> str:
    assert found.loss is not None
    loss, margin = found.loss, margin_label(found.margin)
    kind, sign = ("gain", -1) if loss.value < 0 else ("loss", 1)
    low, high = sorted((sign * loss.low, sign * loss.high))
    amount = f"a {kind} of {_points(sign * loss.value)} [{_points(low)}, {_points(high)}]"
    if loss.low <= 0 and found.suspect and found.lost > found.gained and found.haystacks > 1:
        told = found.lengths or found.missing
        few = "" if told else f", likely but not sure from {found.haystacks} haystacks"
        return f"{amount}{few}"
    if loss.low <= 0:
        return amount
    if found.word == "undecided":
        return f"{amount} is sure; more than {margin} is neither shown nor excluded"
    return amount if found.word == "worse" else f"{amount} is sure, and less than {margin}"


def _points(share: float) -> str:
    return f"{100 * share + 0.0:.1f}"


def lost_label(each: LostLength) -> str:
    """'length 390: 6 of 6 lost'."""
    labels = list(length_labels(list(each.lengths)).values())
    at = f"length {labels[0]}" if len(labels) == 1 else f"lengths {labels[0]} to {labels[-1]}"
    family = f"{each.family}, " if each.family else ""
    gained = f", {each.gained} gained" if each.gained else ""
    missing = f", {each.missing} of them not answered" if each.missing else ""
    sure = ", which is sure" if each.sure else ""
    return f"{family}{at}: {each.lost} of {each.n} lost{gained}{missing}{sure}"


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
    return (
        f"{' and '.join(told)}{place}, which may add {_points(missing.share)} to the loss: "
        f"ask them again"
    )


def _what_decides(found: Judgement) -> list[str]:
    """What an undecided verdict lacks."""
    if found.floored:
        return [FLOORED]
    if not found.margin:
        return ["without a margin equal engines stay undecided"]
    if found.wanted == "new" and found.new is not None:
        if found.new.n < FEWEST_NEW:
            return [f"{counted(found.new.n, 'haystack')}, and new ones take {FEWEST_NEW} at least"]
        more = found.new.more
        return [f"about {more:,} more haystacks decide if they go on so"] if more else []
    if found.sequential and found.new is not None:
        if found.planned is not None:
            left = found.planned - found.new.n
            return [f"{left:,} of {found.planned:,} planned haystacks are still to be asked"] * (
                left > 0
            ) or _more_pairs(found)
        more = found.new.more
        return [f"about {more:,} more haystacks decide if they go on so"] if more else []
    return _more_pairs(found)


def _more_pairs(found: Judgement) -> list[str]:
    return [f"about {found.more:,} more pairs decide if it stays so"] if found.more else []


def least_label(found: Judgement, *, graded: bool = False) -> str:
    """How many pairs a verdict takes at least, all answers being equal; '' without a
    margin."""
    if not found.margin:
        return ""
    least = ceil(least_pairs(found.margin, graded=graded))
    return f"no worse than {margin_label(found.margin)} takes {least:,} equal pairs at least"


def warnings_of(found: Judgement) -> list[str]:
    """Why the reference proves little."""
    if not found.counted:
        return []
    if found.floored:
        return [f"warning: {FLOORED}"]
    easy = found.saturated and found.word in ("no worse", "undecided")
    return [f"warning: {SATURATED}"] if easy else []


def judgement_json(found: Judgement, names: Names = A_AND_B) -> dict[str, Any]:
    """The same for programs: shares in points."""
    loss = found.loss
    new = found.new
    return {
        "verdict": found.word,
        "code": found.code,
        "said": verdict_sentence(found, names),
        "scope": SCOPES[found.scope],
        "margin": round(100 * found.margin, 6),
        "loss": loss and {name: round(100 * value, 6) for name, value in asdict(loss).items()},
        "lost_lengths": [{**asdict(each), "lengths": list(each.lengths)} for each in found.lengths],
        "missing": found.missing and _missing_json(found.missing),
        "measured": list(found.measured) if found.measured[0] else None,
        "pairs": found.n,
        "lost": found.lost,
        "gained": found.gained,
        "decided_after_haystacks": found.after,
        "planned_haystacks": found.planned,
        "more_pairs": found.more,
        "new_haystacks": new
        and {"verdict": new.word, "haystacks": new.n, "more_haystacks": new.more},
    }


def _missing_json(missing: Missing) -> dict[str, Any]:
    return {
        "a": missing.first,
        "b": missing.second,
        "lengths": list(missing.lengths),
        "may_add": round(100 * missing.share, 6),
        "reaches_margin": missing.reaches,
    }
