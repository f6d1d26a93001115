"""Equal ways: what replies of any model to the same prompts, asked in several ways, come to."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isinf

import pytest

from needlemap.servers.ways import (
    AGAIN,
    ALONE,
    CACHED,
    COMPANY,
    FLOODED,
    PREFILLED,
    REWOUND,
    TOLERANCE,
    Move,
    Way,
    WayReply,
    is_copied,
    judge_ways,
    limit_of,
    move_between,
    pair_steps,
    percentile,
    step_move,
)

MANY = 24


def said(
    prompt: int, way: str, nats: float = -0.5, *, held: int | None = 0, replay: int = 0
) -> WayReply:
    """A reply whose first choice has this log-probability."""
    steps = (("a", {"a": nats, "b": -3.0}),)
    return WayReply(
        prompt, way, "a", steps, prompt_tokens=100 * prompt, cached_tokens=held, replay=replay
    )


def replies(
    way: str, moves: dict[int, float], *, n: int = MANY, held: int | None = 0, noise: float = 0.0
) -> list[WayReply]:
    """Each prompt alone, cold again, and in one way; moves: by prompt."""
    found = []
    for prompt in range(n):
        found.append(said(prompt, ALONE))
        found.append(said(prompt, AGAIN, -0.5 - noise))
        found.append(said(prompt, way, -0.5 - moves.get(prompt, 0.0), held=held))
    return found


def replayed(way: str, moves: dict[int, float], *, held: int | None = 0) -> list[WayReply]:
    """Prompts asked again in a way, and alone."""
    return [
        reply
        for prompt, nats in moves.items()
        for number in (1, 2)
        for reply in (
            said(prompt, way, -0.5 - nats, held=held, replay=number),
            said(prompt, ALONE, replay=number),
        )
    ]


def judged(found: list[WayReply], way: str, data_type: str = "float32") -> Way:
    return next(row for row in judge_ways(found, TOLERANCE[data_type]) if row.way == way)


@pytest.mark.parametrize("way", [COMPANY, FLOODED, "a way of one's own"])
def test_equal_replies_pass(way):
    row = judged(replies(way, {}), way)
    assert (row.state, row.n, row.beyond, row.alike) == ("PASS", MANY, 0, 1.0)


def test_moves_that_come_again_in_two_prompts_fail():
    moves = {3: 0.4, 9: 0.2}
    row = judged(replies(COMPANY, moves) + replayed(COMPANY, moves), COMPANY)
    assert (row.state, row.beyond, row.confirmed) == ("FAIL", 2, 2)


def test_one_prompt_whose_move_comes_again_is_suspect():
    moves = {3: 0.4}
    row = judged(replies(COMPANY, moves) + replayed(COMPANY, moves), COMPANY)
    assert (row.state, row.confirmed) == ("SUSPECT", 1)


def test_moves_that_do_not_come_again_are_noise():
    """A tie between two experts tips now and then: rare, large, and gone when asked again."""
    found = replies(COMPANY, {3: 0.4}) + replayed(COMPANY, {3: 0.0})
    row = judged(found, COMPANY)
    assert (row.state, row.beyond, row.confirmed) == ("PASS", 1, 0)


def test_many_moves_that_nobody_asked_again_are_suspect():
    assert judged(replies(COMPANY, dict.fromkeys(range(9), 0.4)), COMPANY).state == "SUSPECT"


def test_a_prompt_that_moves_also_alone_confirms_nothing():
    found = replies(COMPANY, {3: 0.4, 4: 0.4})
    for prompt in (3, 4):
        for number, nats in ((1, -0.5), (2, -0.9)):
            found += [
                said(prompt, COMPANY, -1.5, replay=number),
                said(prompt, ALONE, nats, replay=number),
            ]
    assert judged(found, COMPANY).confirmed == 0


@pytest.mark.parametrize(("n", "state"), [(19, "NOT ENOUGH DATA"), (20, "PASS")])
def test_fewer_than_20_prompts_are_not_enough(n, state):
    assert judged(replies(COMPANY, {}, n=n), COMPANY).state == state


def test_of_few_prompts_no_way_fails():
    moves = {3: 0.4, 9: 0.2}
    found = replies(COMPANY, moves, n=12) + replayed(COMPANY, moves)
    assert judged(found, COMPANY).state == "SUSPECT"


def test_a_copy_that_is_asked_again_is_another_text_and_no_noise():
    copies = [replace(said(3, way, -2.5), copy=1) for way in (ALONE, AGAIN)]
    row = judged(replies(COMPANY, {}) + copies, COMPANY)
    assert (row.state, row.limit) == ("PASS", TOLERANCE["float32"])


def test_what_a_cache_held_is_no_noise():
    """A spoilt cache answered the repeats: what it moved looked like noise, and excused itself."""
    moves = {3: 0.4, 9: 0.4}
    found = replies(COMPANY, moves) + replayed(COMPANY, moves)
    found = [
        said(reply.prompt, AGAIN, -1.7, held=64) if reply.way == AGAIN else reply for reply in found
    ]
    rows = {row.way: row for row in judge_ways(found, TOLERANCE["float32"])}
    assert rows[COMPANY].state == "FAIL"
    assert (rows[AGAIN].n, rows[AGAIN].left_out) == (2, MANY)


def test_a_prompt_that_was_not_cold_alone_is_no_yardstick():
    found = [
        said(reply.prompt, ALONE, held=32) if reply.way == ALONE and reply.prompt < 10 else reply
        for reply in replies(COMPANY, {})
    ]
    row = judged(found, COMPANY)
    assert (row.state, row.n, row.left_out) == ("NOT ENOUGH DATA", MANY - 10, 10)


def test_a_prompt_in_company_that_a_cache_held_is_left_out():
    row = judged(replies(COMPANY, {}, held=16), COMPANY)
    assert (row.state, row.n, row.left_out) == ("not tested", 0, MANY)


@pytest.mark.parametrize("way", [CACHED, REWOUND])
@pytest.mark.parametrize(("held", "state"), [(0, "not tested"), (None, "PASS"), (64, "PASS")])
def test_a_cache_that_held_nothing_was_not_tested(way, held, state):
    row = judged(replies(way, {}, held=held), way)
    assert row.state == state
    assert ("hits not reported" in row.said) == (held is None)


def test_noise_that_no_data_type_explains_is_suspect_and_widens_nothing():
    rows = {
        row.way: row for row in judge_ways(replies(COMPANY, {}, noise=1.3), TOLERANCE["float32"])
    }
    assert rows[AGAIN].state == "SUSPECT"
    assert rows[COMPANY].limit == pytest.approx(10 * TOLERANCE["float32"])


def sent_early_and_late(*, cached: float = 0.0, late: float = 1.5, replay: float = 1.5):
    """Each prompt cold, from the cache, and twice cold when others had passed; nats it is off."""
    found = []
    for prompt in range(MANY):
        found += [
            said(prompt, ALONE),
            said(prompt, CACHED, -0.5 - cached, held=90),
            said(prompt, AGAIN, -0.5 - late),
            said(prompt, AGAIN, -0.5 - replay, replay=1),
        ]
    return judge_ways(found)[0]


def test_prompts_that_are_steady_early_and_late_and_differ_between_fail():
    """mlx-lm 0.31.0 kept a beginning that all prompts share, and kept it wrong until it was
    dropped: whatever was sent meanwhile agreed."""
    row = sent_early_and_late()
    assert (row.way, row.state, row.n, row.confirmed) == (AGAIN, "FAIL", MANY, MANY)


@pytest.mark.parametrize("noisy", [{"cached": 1.5}, {"replay": 0.0}, {"late": 0.4, "replay": 0.4}])
def test_what_differs_each_time_is_noise_and_no_fault(noisy):
    assert sent_early_and_late(**noisy).state in ("SUSPECT", "PASS")


@pytest.mark.parametrize(
    ("data_type", "noise", "limit"),
    [
        ("float32", 0.0, 0.005),
        ("float32", 0.01, 0.03),
        ("float32", 9, 0.05),
        ("bfloat16", 0.0, 0.5),
        ("float16", 9, 0.5),
    ],
)
def test_the_limit_is_of_the_data_type_or_the_noise(data_type, noise, limit):
    assert limit_of([Move(noise, 0, True)], TOLERANCE[data_type]) == pytest.approx(limit)


def of_repeats(nats, way_nats=0.0):
    """The rows of prompts that moved by so much when they were cold again, and among others."""
    found = []
    for prompt, moved in enumerate(nats):
        found += [
            said(prompt, ALONE),
            said(prompt, AGAIN, -0.5 - moved),
            said(prompt, COMPANY, -0.5 - way_nats),
            said(prompt, COMPANY, -0.5 - way_nats, replay=1),
        ]
    return {row.way: row for row in judge_ways(found)}


QUANTISED = [0.1, 0.15, 0.17, 0.17, 0.2, 0.25, 0.3, 0.4, 0.5, 0.55] * 2


def test_even_noise_of_quantised_weights_is_no_fault():
    """SmolLM2-135M in four bits on llama.cpp: a cold repeat in thirteen moved by 0.55 nats."""
    rows = of_repeats(QUANTISED, way_nats=0.6)
    assert (rows[AGAIN].state, rows[COMPANY].state, rows[COMPANY].limit) == ("PASS", "PASS", 1.0)


@pytest.mark.parametrize(
    "nats",
    [[0.05] * 19 + [0.55], [0.6] * 20, QUANTISED[:9]],
    ids=["one moved far", "most moved far", "few repeats"],
)
def test_noise_that_is_not_even_ends_at_what_data_types_explain(nats):
    assert of_repeats(nats)[AGAIN].limit == TOLERANCE["bfloat16"]


def test_even_noise_excuses_no_more_than_a_nat():
    assert of_repeats(QUANTISED, way_nats=1.7)[COMPANY].state == "FAIL"


def test_a_way_of_which_nothing_came_back_is_not_tested():
    (_, row) = judge_ways([said(0, ALONE)], ways=[REWOUND])
    assert (row.way, row.state, row.said) == (REWOUND, "not tested", "nothing was asked")


@pytest.mark.parametrize(("hits", "state"), [(MANY, "PASS"), (19, "not tested"), (1, "not tested")])
def test_prompts_that_a_server_computes_anew_do_not_show_that_its_hits_are_right(hits, state):
    """A recurrent state cannot be cut: such a server holds whole prompts or nothing of them."""
    found = replies(REWOUND, {}, held=90)
    missed = {each.prompt for each in found if each.way == REWOUND and each.prompt >= hits}
    found = [
        replace(each, cached_tokens=0) if each.way == REWOUND and each.prompt in missed else each
        for each in found
    ]
    row = judged(found, REWOUND)
    assert (row.state, row.n) == (state, MANY)
    assert row.said.endswith(f"; a cache held a part of {hits}") is bool(missed)


def test_what_is_computed_anew_and_wrong_is_a_fault():
    moves = {3: 1.4, 9: 1.4}
    found = replies(REWOUND, moves, held=90) + replayed(REWOUND, moves)
    found = [
        replace(each, cached_tokens=0) if each.prompt in moves and each.way == REWOUND else each
        for each in found
    ]
    assert judged(found, REWOUND).state == "FAIL"


def test_texts_alone_are_compared_and_it_is_said():
    found = []
    for prompt in range(MANY):
        other = "other" if prompt in (2, 5) else "same"
        found += [WayReply(prompt, ALONE, "same"), WayReply(prompt, AGAIN, "same")]
        found.append(WayReply(prompt, FLOODED, other))
        if other == "other":
            found += [
                WayReply(prompt, FLOODED, other, replay=1),
                WayReply(prompt, ALONE, "same", replay=1),
            ]
    row = judged(found, FLOODED)
    assert (row.state, row.beyond, row.confirmed) == ("FAIL", 2, 2)
    assert "texts alone" in row.said
    assert row.alike == pytest.approx(22 / 24)


def test_the_map_says_in_prompts_of_which_length():
    row = judged(replies(COMPANY, {1: 0.3, 11: 0.7, 12: 0.1}), COMPANY)
    assert row.bands == (
        (0, 3, 1, pytest.approx(0.3)),
        (256, 8, 0, pytest.approx(0.0)),
        (1_024, 13, 2, pytest.approx(0.7)),
    )


def test_percentiles_are_of_all_moves():
    row = judged(replies(COMPANY, {n: n / 100 for n in range(MANY)}), COMPANY)
    assert row.percentiles == pytest.approx({50: 0.11, 90: 0.21, 99: 0.23, 100: 0.23})
    assert percentile([5.0], 50) == 5.0


def test_answers_are_compared_as_far_as_they_say_the_same():
    same, other = ("a", {"a": -0.1}), ("b", {"b": -0.2, "c": -0.3})
    one = WayReply(0, ALONE, "", (same, other, ("x", {"x": -1.0})))
    two = WayReply(0, CACHED, "", (same, ("c", {"c": -0.1, "b": -0.4}), ("x", {"x": -9.0})))
    assert move_between(one, two) == Move(pytest.approx(0.2), 1, True)


def test_another_first_choice_is_seen():
    one = WayReply(0, ALONE, "a", (("a", {"a": -0.69, "b": -0.70}),))
    two = WayReply(0, CACHED, "b", (("b", {"a": -0.70, "b": -0.69}),))
    move = move_between(one, two)
    assert move is not None
    assert (move.nats, move.alike) == (pytest.approx(0.01), False)


def test_a_token_that_one_side_does_not_list_is_bounded_by_its_last():
    assert step_move({"a": -0.1, "b": -2.0}, {"a": -0.1, "c": -2.1}) == pytest.approx(0.1)
    assert step_move({"a": -0.1, "b": -2.0}, {"a": -0.1, "c": -6.0}) == pytest.approx(4.0)
    assert step_move({}, {"a": -1.0}) == 0.0


@pytest.mark.parametrize(("one", "other", "nats"), [("x", "x", 0.0), ("x", "y", inf)])
def test_texts_without_log_probabilities(one, other, nats):
    move = move_between(WayReply(0, ALONE, one), WayReply(0, CACHED, other))
    assert move is not None
    assert move.nats == nats
    assert isinf(move.nats) != move.alike


def test_replies_without_anything_are_no_comparison():
    assert move_between(WayReply(0, ALONE, ""), WayReply(0, CACHED, "")) is None


def test_what_was_generated_is_compared_with_its_prefill_where_ids_agree():
    """Positions 1 and 64 of 70: one of them was spelt otherwise in the prompt."""
    step = ("a", {"a": -0.5})
    generated = [(7, step)] * 70
    steps, left_out = pair_steps(generated, {1: (7, ("?", {"a": -0.7})), 64: (8, step)})
    assert (steps, left_out) == ({1: (step, ("a", {"a": -0.7}))}, 1)


def sent_as_prompts(moves: dict[int, float], *, n: int = MANY, copy: int = 0) -> list[WayReply]:
    """Answers of 300 tokens; moves: at token 256, by prompt."""
    step = ("a", {"a": -0.5, "b": -3.0})
    found = []
    for prompt in range(n):
        moved_step = ("a", {"a": -0.5 - moves.get(prompt, 0.0), "b": -3.0})
        rows = {1: (step, step), 256: (step, moved_step), 300: (step, step)}
        found.append(
            WayReply(
                prompt,
                PREFILLED,
                "a",
                tuple(right for _, right in rows.values()),
                prompt_tokens=90,
                cached_tokens=0,
                copy=copy,
                generated=tuple(left for left, _ in rows.values()),
                positions=tuple(rows),
            )
        )
    return found


def test_an_answer_is_compared_with_itself_as_a_prompt():
    """No asking alone is needed: what the server generated is the yardstick."""
    row = judged(sent_as_prompts({}), PREFILLED)
    assert (row.state, row.n, row.beyond, row.alike) == ("PASS", MANY, 0, 1.0)


def test_a_decode_that_computes_something_else_fails_and_the_map_says_at_which_token():
    found = sent_as_prompts({3: 0.4, 9: 0.2}) + sent_as_prompts({0: 0.4, 1: 0.2}, n=0)
    copies = sent_as_prompts({3: 0.4, 9: 0.2}, n=10, copy=1)
    row = judged(found + [each for each in copies if each.prompt in (3, 9)], PREFILLED)
    assert (row.state, row.beyond, row.confirmed) == ("FAIL", 2, 2)
    assert row.bands == ((1, MANY, 0, 0.0), (256, 2 * MANY, 2, pytest.approx(0.4)))


def test_what_copies_do_not_show_is_no_fault_of_decoding():
    copies = sent_as_prompts({}, n=10, copy=1)
    row = judged(sent_as_prompts({3: 0.4, 9: 0.2}) + copies, PREFILLED)
    assert (row.state, row.beyond, row.confirmed) == ("SUSPECT", 2, 0)


@pytest.mark.parametrize(
    ("moved", "copies", "confirmed"),
    [(1, 1, True), (1, 2, False), (2, 2, True), (1, 4, False), (2, 4, True), (0, 0, False)],
)
def test_half_of_the_copies_confirm_a_move_but_never_one_of_several(moved, copies, confirmed):
    """llama.cpp 0.2.14 restored the wrong checkpoint for one copy of three."""
    pairs = [
        (said(0, ALONE), said(0, REWOUND, -0.5 - 2.0 * (number < moved)))
        for number in range(copies)
    ]
    assert is_copied(pairs, 0.5) is confirmed


def test_positions_whose_ids_differ_are_counted_and_answers_without_any_are_not_tested():
    found = [replace(each, left_out=1) for each in sent_as_prompts({})]
    assert judged(found, PREFILLED).left_out == MANY
    (row,) = judge_ways([WayReply(0, PREFILLED, "a", left_out=2)])[1:]
    assert (row.state, row.left_out) == ("not tested", 2)
    assert row.said == "needs /v1/completions with token ids and their log-probabilities"
