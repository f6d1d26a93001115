"""What a comparison says besides its numbers: of how many haystacks, by which test, and which
answers differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from needlemap.grid import percent
from needlemap.reports.labels import depth_labels, length_labels, p_label, score_label
from needlemap.stats import place_label
from needlemap.stats.intervals import FEWEST
from needlemap.stats.pairs import FirstDifference, Token
from needlemap.text import counted

if TYPE_CHECKING:
    from needlemap.stats import Place
    from needlemap.stats.difference import Difference
    from needlemap.stats.pairs import AnswerPairs, ChangedAnswer, NatsChange

# Characters of a sample's input.
_INPUT_SHOWN = 60
# Changed answers.
SHOWN = 5
# Two tokens so close are as good as equally likely: rounding decides.
_TIE_NATS = 0.05


def haystacks_label(clusters: int) -> str:
    """Return the number of haystacks of some pairs, and a note if they are too few."""
    few = f": too few to see how losses cluster, {FEWEST} show it" if clusters < FEWEST else ""
    return f"{counted(clusters, 'haystack')}{few}"


def p_text(overall: Difference) -> str:
    """Return p, its test and, if that is high, the least p that is possible."""
    least_p = ""
    if overall.flipped and overall.least_p > 0.01:
        least_p = f"; least possible {p_label(overall.least_p)}"
    return f"p={p_label(overall.p)} ({test_name(overall)}{least_p})"


def test_name(overall: Difference) -> str:
    """Return the name of the test that gave a p."""
    if not overall.flipped:
        return "exact McNemar, which takes prompts as independent"
    if overall.flipped == "prompts":
        return "sign flips of prompts, which takes them as independent"
    return "sign flips of whole haystacks"


def answers_line(families: Sequence[AnswerPairs]) -> str:
    """Return a line on how many answers are the same, over all families."""
    counts = answers_counts(families)
    n, differing, without_answer = counts["n"], counts["differing"], counts["unanswered"]
    if not n:
        were_given = any(pairs.nats for pairs in families)
        return f"answers: none, {'the models were given them' if were_given else 'A has none'}"
    unanswered_note = f", {without_answer} of them without an answer of B" if without_answer else ""
    share = f" ({score_label(differing / n)} %{unanswered_note})" if differing else ""
    return (
        f"answers: {n - differing:,} of {counted(n, 'pair')} identical, {differing:,} differ{share}"
    )


def answers_lines(pairs: AnswerPairs) -> list[str]:
    """Return lines on the first answers that differ, in the order of B's prompts, and where."""
    if not pairs.changed:
        return []

    lines = [
        f"first answers that differ, in the order asked ({min(SHOWN, pairs.differing)} shown):"
    ]
    for answer in pairs.changed[:SHOWN]:
        lines += _changed_answer_lines(answer)
    # Samples of a log have neither lengths nor depths.
    if any(pairs.by_length):
        lengths = length_labels([*pairs.by_length])
        depths = depth_labels([*pairs.by_depth])
        by_length = {label: pairs.by_length[length] for length, label in lengths.items()}
        by_depth = {label: pairs.by_depth[depth] for depth, label in depths.items()}
        lines.append(f"differ by length: {_counts(by_length)}")
        lines.append(f"differ by depth: {_counts(by_depth)}")
    return lines


def _changed_answer_lines(answer: ChangedAnswer) -> list[str]:
    place = place_label(answer.place)
    difference = answer.difference
    if not answer.place[1]:
        place = f"sample {answer.question[:_INPUT_SHOWN]!r}"
    if difference is None:
        return [f"  {place}: B gave no answer"]
    token = "" if difference.token is None else f", at token {difference.token + 1}"
    return [
        f"  {place}: the same for {counted(difference.character, 'character')}{token}",
        f"    A  {_excerpt(difference, difference.first)}{_token(difference.first_token)}",
        f"    B  {_excerpt(difference, difference.second)}{_token(difference.second_token)}",
    ]


def _excerpt(difference: FirstDifference, continuation: str) -> str:
    """Return the text before, a bar, and how one answer continues."""
    return f"{difference.before!r} | {continuation!r}"


def _token(token: Token | None) -> str:
    if token is None:
        return ""
    if token.lead is None:
        return f"  token {token.text!r}"
    tie = ", a tie" if abs(token.lead) < _TIE_NATS else ""
    return f"  token {token.text!r}, {token.lead:+.2f} nats before {token.other!r}{tie}"


def _counts(counts: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{label} {differing} of {n}" for label, (n, differing) in counts.items())


def nats_lines(nats: NatsChange | None) -> list[str]:
    """Return a line on how far log-probabilities moved, or none if none were kept."""
    if nats is None:
        return []
    return [
        f"log-probability of {counted(nats.n, 'equal answer')}, B - A in nats a token: mean "
        f"{nats.mean:+.4f}, largest {nats.largest:+.4f} at {place_label(nats.place)}"
    ]


def answers_json(pairs: AnswerPairs, shown: int | None = SHOWN) -> dict[str, Any]:
    """Return what answers_lines shows, as JSON can hold it.

    shown: changed answers, None for all.
    """
    return {
        **answers_counts([pairs]),
        "lengths": [
            {"length_tokens": length, "n": n, "differing": differing}
            for length, (n, differing) in pairs.by_length.items()
        ],
        "depths": [
            {"depth_percent": percent(depth), "n": n, "differing": differing}
            for depth, (n, differing) in pairs.by_depth.items()
        ],
        "changed": [
            {
                **_place_fields(changed.place),
                "difference": changed.difference and asdict(changed.difference),
            }
            for changed in pairs.changed[:shown]
        ],
        "nats": pairs.nats
        and {
            "n": pairs.nats.n,
            "mean": round(pairs.nats.mean, 6),
            "largest": round(pairs.nats.largest, 6),
            **_place_fields(pairs.nats.place),
        },
    }


def answers_counts(families: Sequence[AnswerPairs]) -> dict[str, int]:
    """Return the number of pairs, and of each kind of pair, over all families."""
    n, differing = sum(pairs.n for pairs in families), sum(pairs.differing for pairs in families)
    unanswered = sum(pairs.unanswered for pairs in families)
    return {"n": n, "identical": n - differing, "differing": differing, "unanswered": unanswered}


def _place_fields(place: Place) -> dict[str, Any]:
    repeat, length, depth = place
    return {"length_tokens": length, "depth_percent": percent(depth), "repeat": repeat}
