"""Where two answers first differ, and which answers of two runs do."""

from __future__ import annotations

from typing import Any

import pytest

from needlemap.records.record import PromptRecord, Record, ScorerRecord
from needlemap.stats import prompts_of
from needlemap.stats.pairs import AROUND, CUT, Token, first_difference, pair_answers

PLACES = [
    (repeat, length, depth) for repeat in (0, 1) for length in (100, 200) for depth in (0.0, 0.5)
]


def record(place: tuple[int, int, float], answer: str | None, **fields: Any) -> Record:
    repeat, length, depth = place
    prompt = PromptRecord(sha256=f"{place}", tokens=9, haystack_tokens=5)
    score = None if answer is None else 0.0
    given = {
        "key": f"{place}",
        "prompt": prompt,
        "model": "m",
        "task": "t",
        "score": score,
    } | fields
    return Record(length_tokens=length, depth=depth, repeat=repeat, seed=0, answer=answer, **given)


def pairs_of(first: list[Record], second: list[Record]) -> Any:
    return pair_answers(prompts_of(first), prompts_of(second), second)


def same(answer: str | None = "four") -> list[Record]:
    return [record(place, answer) for place in PLACES]


def thought(tokens: str, nats: list[float], others: str) -> dict[str, Any]:
    """Log-probabilities of an answer: a token a word."""
    words, rest = tokens.split(), others.split()
    fields = {"tokens": words, "nats": nats, "others": rest, "other_nats": [-9.0] * len(words)}
    return {**fields, "way": "generated", "start": None}


def test_equal_texts_do_not_differ():
    assert first_difference("", "") is None
    assert first_difference("the same", "the same") is None


def test_a_difference_shows_what_stands_around_it():
    found = first_difference(f"{'x' * 90} red fox", f"{'x' * 90} red hen")
    assert found is not None
    assert (found.character, found.before) == (95, f"{'x' * (AROUND - 5)} red ")
    assert (found.first, found.second, found.token) == ("fox", "hen", None)


def test_an_answer_that_ends_where_another_goes_on_differs_there():
    found = first_difference("It is 4", "It is 47")
    assert found is not None
    assert (found.character, found.first, found.second) == (7, "", "7")


def test_the_first_other_token_is_told_with_its_number_and_what_was_likely_there():
    one = tuple(
        map(Token, ("It", " is", " 4"), (-0.1, -0.2, -0.5), (" A", " was", " 7"), (-3, -4, -0.51))
    )
    other = (Token("It"), Token(" is"), Token(" 7"))
    found = first_difference("It is 4", "It is 7", (one, other))
    assert found is not None
    assert found.token == 2
    assert (found.first_token, found.second_token) == (one[2], other[2])
    assert one[2].lead == pytest.approx(0.01)  # a tie, no fault
    assert other[2].lead is None


def test_tokens_of_one_answer_alone_say_nothing():
    found = first_difference("It is 4", "It is 7", ((Token("It is 4"),), ()))
    assert found is not None
    assert found.token is None


def test_an_answer_that_ends_has_no_token_there():
    found = first_difference("a b", "a", ((Token("a"), Token(" b")), (Token("a"),)))
    assert found is not None
    assert (found.token, found.first_token, found.second_token) == (1, Token(" b"), None)


def test_equal_runs_have_no_changed_answer():
    found = pairs_of(same(), same())
    assert (found.n, found.differing, found.share, found.nats) == (8, 0, 0.0, None)


def test_changed_answers_come_in_the_order_in_which_the_second_run_was_asked():
    changed = [
        each if each.depth == 0 else record((each.repeat, each.length_tokens, 0.5), "five")
        for each in same()
    ]
    asked = list(reversed(changed))
    found = pair_answers(prompts_of(same()), prompts_of(asked), asked)
    assert [each.place for each in found.changed] == [
        (1, 200, 0.5), (1, 100, 0.5), (0, 200, 0.5), (0, 100, 0.5)
    ]  # fmt: skip
    assert (found.n, found.differing, found.share) == (8, 4, 0.5)
    assert found.by_length == {100: (4, 2), 200: (4, 2)}
    assert found.by_depth == {0.0: (4, 0), 0.5: (4, 4)}
    assert found.changed[0].difference == first_difference("four", "five")


def test_what_the_second_run_did_not_answer_differs_and_what_the_first_did_not_is_left_out():
    holes = [record(place, None if place[1] == 100 else "four") for place in PLACES]
    found = pairs_of(same(), holes)
    assert (found.n, found.differing, found.unanswered) == (8, 4, 4)
    assert found.changed[0].difference is None
    back = pairs_of(holes, same())
    assert (back.n, back.differing) == (4, 0)


def test_a_prompt_that_two_cells_share_is_one_pair():
    shared = {"a": [(100, 0.0, 0), (100, 0.5, 0)]}
    cells = [(100, 0.0, [0]), (100, 0.5, [0])]
    runs = [[record((0, 100, 0.0), answer, asked="a")] for answer in ("four", "five")]
    found = pair_answers(*(prompts_of(run, cells, shared) for run in runs), runs[1])
    assert (found.n, found.differing, found.places) == (1, 1, ((0, 100, 0.0),))


def test_log_probabilities_of_the_same_answer_are_set_beside_each_other_in_nats():
    one = [
        record(place, "x y", logprobs=thought("x y", [-0.1, -0.3], "a b")) for place in PLACES[:4]
    ]
    nats = [[-0.1, -0.3], [-0.2, -0.4], [-0.1, -0.3], [-0.9, -0.9]]
    other = [
        record(place, "x y", logprobs=thought("x y", at, "a b"))
        for place, at in zip(PLACES, nats, strict=False)
    ]
    found = pairs_of(one, other).nats
    assert (found.n, found.place) == (4, PLACES[3])
    assert found.largest == pytest.approx(-0.7)
    assert found.mean == pytest.approx(-0.2)


@pytest.mark.parametrize("ends", [("</s>", "</s>"), ("</s>", None), (None, "</s>"), ("</s>", "")])
def test_the_token_that_stops_an_answer_is_no_part_of_it(ends):
    """hf keeps it and llama.cpp does not, so that their log-probabilities were never compared."""
    runs = []
    for end, nats in zip(ends, (-0.1, -0.3), strict=True):
        tokens = [" 47", "11", *([] if end is None else [end])]
        kept = {
            "tokens": tokens,
            "nats": [nats, nats, -5.0 * (end == "</s>")][: len(tokens)],
            "others": [None] * len(tokens),
            "other_nats": [None] * len(tokens),
            "way": "generated",
            "start": None,
        }
        runs.append([record(place, "4711", logprobs=kept) for place in PLACES])
    found = pairs_of(*runs).nats
    assert (found.n, found.mean) == (8, pytest.approx(-0.2))


def test_answers_that_were_given_are_no_answers_but_have_nats():
    def weighed(native: float, tokens: int = 3) -> list[Record]:
        scorer = ScorerRecord(name="logprob", native=native, why={"tokens": tokens})
        return [record(place, None, score=0.1, scorer=scorer) for place in PLACES]

    found = pairs_of(weighed(-1.5), weighed(-1.0))
    assert (found.n, found.differing) == (0, 0)
    assert (found.nats.n, found.nats.mean, found.nats.largest) == (8, 0.5, 0.5)
    assert (
        pairs_of(weighed(-1.5), weighed(-1.0, tokens=4)).nats is None
    )  # another vocabulary's tokens


def test_the_first_changed_answers_are_cut_into_tokens_where_none_were_kept():
    places = [(repeat, 100, 0.0) for repeat in range(CUT + 2)]
    first, second = ([record(place, answer) for place in places] for answer in ("a b", "a c"))
    cut = lambda text: tuple(map(Token, text.split()))  # noqa: E731
    found = pair_answers(prompts_of(first), prompts_of(second), second, cut)
    assert found.changed[0].difference.second_token == Token("c")
    assert [each.difference.token for each in found.changed] == [1] * CUT + [None] * 2
