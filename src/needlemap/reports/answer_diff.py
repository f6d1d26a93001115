"""What a comparison says besides its numbers: of how many haystacks, by which test, and which
answers differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from needlemap.grid import percent
from needlemap.reports.labels import depth_labels, length_labels, p_label, score_label
from needlemap.stats.intervals import FEWEST
from needlemap.stats.pairs import FirstDifference, Token
from needlemap.text import counted

if TYPE_CHECKING:
    from needlemap.stats import Place
    from needlemap.stats.difference import Difference
    from needlemap.stats.pairs import AnswerPairs, ChangedAnswer, NatsChange

_ASKED = 60  # characters of a sample's input
SHOWN = 5  # changed answers
_TIE_NATS = 0.05  # two tokens so close are as good as equally likely: rounding decides


def haystacks_label(clusters: int) -> str:
    """Of how many haystacks the pairs are."""
    few = f": too few to see how losses cluster, {FEWEST} show it" if clusters < FEWEST else ""
    return f"{counted(clusters, 'haystack')}{few}"


def p_text(overall: Difference) -> str:
    """p, of which test, and how small it could be at all."""
    least = (
        f"; least possible {p_label(overall.least_p)}"
        if overall.flipped and overall.least_p > 0.01
        else ""
    )
    return f"p={p_label(overall.p)} ({tested_by(overall)}{least})"


def tested_by(overall: Difference) -> str:
    """Which test a p is of."""
    if not overall.flipped:
        return "exact McNemar, which takes prompts as independent"
    if overall.flipped == "prompts":
        return "sign flips of prompts, which takes them as independent"
    return "sign flips of whole haystacks"


def answers_line(found: Sequence[AnswerPairs]) -> str:
    """How many answers are the same, over all families."""
    counts = answers_counts(found)
    n, differing, silent = counts["n"], counts["differing"], counts["unanswered"]
    if not n:
        given = any(each.nats for each in found)
        return f"answers: none, {'the models were given them' if given else 'A has none'}"
    untold = f", {silent} of them without an answer of B" if silent else ""
    share = f" ({score_label(differing / n)} %{untold})" if differing else ""
    return (
        f"answers: {n - differing:,} of {counted(n, 'pair')} identical, {differing:,} differ{share}"
    )


def answers_lines(found: AnswerPairs, shown: int = SHOWN) -> list[str]:
    """The first answers that differ, in the order in which B was asked, and where they do."""
    lines = [
        f"first answers that differ, in the order asked ({min(shown, found.differing)} shown):"
    ]
    for each in found.changed[:shown]:
        lines += _changed_lines(each)
    if not any(found.by_length):  # samples of a log, which has neither
        return lines if found.changed else []
    by_length = {
        label: found.by_length[at] for at, label in length_labels([*found.by_length]).items()
    }
    by_depth = {label: found.by_depth[at] for at, label in depth_labels([*found.by_depth]).items()}
    lines += [f"differ by length: {_counts(by_length)}", f"differ by depth: {_counts(by_depth)}"]
    return lines if found.changed else []


def place_label(place: Place) -> str:
    """Where a trial stands, as `replay` takes it.

    >>> place_label((2, 1000, 0.5))
    'length 1000, depth 50, repeat 2'
    """
    repeat, length, depth = place
    return f"length {length}, depth {percent(depth):g}, repeat {repeat}"


def _changed_lines(changed: ChangedAnswer) -> list[str]:
    place, apart = place_label(changed.place), changed.difference
    if not changed.place[1]:
        place = f"sample {changed.question[:_ASKED]!r}"
    if apart is None:
        return [f"  {place}: B gave no answer"]
    token = "" if apart.token is None else f", at token {apart.token + 1}"
    return [
        f"  {place}: the same for {counted(apart.character, 'character')}{token}",
        f"    A  {_around(apart, apart.first)}{_token(apart.first_token)}",
        f"    B  {_around(apart, apart.second)}{_token(apart.second_token)}",
    ]


def _around(apart: FirstDifference, own: str) -> str:
    """The text before, a bar, and how one answer goes on."""
    return f"{apart.before!r} | {own!r}"


def _token(token: Token | None) -> str:
    if token is None:
        return ""
    if token.lead is None:
        return f"  token {token.text!r}"
    tie = ", a tie" if abs(token.lead) < _TIE_NATS else ""
    return f"  token {token.text!r}, {token.lead:+.2f} nats before {token.other!r}{tie}"


def _counts(found: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{label} {differing} of {n}" for label, (n, differing) in found.items())


def nats_lines(nats: NatsChange | None) -> list[str]:
    """How far log-probabilities moved; nothing where none were kept."""
    if nats is None:
        return []
    return [
        f"log-probability of {counted(nats.n, 'equal answer')}, B - A in nats a token: mean "
        f"{nats.mean:+.4f}, largest {nats.largest:+.4f} at {place_label(nats.place)}"
    ]


def answers_json(found: AnswerPairs, shown: int | None = SHOWN) -> dict[str, Any]:
    """The same as a mapping that JSON can hold. shown: changed answers, None for all."""
    return {
        **answers_counts([found]),
        "lengths": [
            {"length_tokens": length, "n": n, "differing": differing}
            for length, (n, differing) in found.by_length.items()
        ],
        "depths": [
            {"depth_percent": percent(depth), "n": n, "differing": differing}
            for depth, (n, differing) in found.by_depth.items()
        ],
        "changed": [
            {**_place_fields(each.place), "difference": each.difference and asdict(each.difference)}
            for each in found.changed[:shown]
        ],
        "nats": found.nats
        and {
            "n": found.nats.n,
            "mean": round(found.nats.mean, 6),
            "largest": round(found.nats.largest, 6),
            **_place_fields(found.nats.place),
        },
    }


def answers_counts(found: Sequence[AnswerPairs]) -> dict[str, int]:
    """How many pairs, and how many of each kind, over all families."""
    n, differing = sum(each.n for each in found), sum(each.differing for each in found)
    unanswered = sum(each.unanswered for each in found)
    return {"n": n, "identical": n - differing, "differing": differing, "unanswered": unanswered}


def _place_fields(place: Place) -> dict[str, Any]:
    repeat, length, depth = place
    return {"length_tokens": length, "depth_percent": percent(depth), "repeat": repeat}
