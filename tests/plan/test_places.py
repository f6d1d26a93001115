"""Which cells are asked and where their needles go: in mode 'bins' inside their bin, where that can
be."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needlemap.errors import TooShort
from needlemap.grid import Cell, Depths, Lengths, make_grid
from needlemap.plan import ordered, reused
from needlemap.plan.bins import bin_edges, chain_tokens
from needlemap.plan.cover import in_bin, places
from needlemap.prompts import Prompt
from needlemap.settings.reading import configure
from needlemap.trials.build import Experiment, prepare


def outside(experiment: Experiment) -> list[Cell]:
    """Cells whose first needle is not in its bin."""
    return [
        cell
        for cell, prompt in by_cell(experiment).items()
        if not in_bin(experiment.grid, cell.depth, prompt.needles[0].realised)
    ]


def by_cell(experiment: Experiment) -> dict[Cell, Prompt]:
    """The prompt of each cell, also where several share one; in the grid's order."""
    found = {cell: trial.prompt for trial in experiment.trials for _, cell in trial.places}
    return {cell: found[cell] for cell in experiment.grid.cells}


def sentence_ends(prompt: Prompt, low: float, high: float) -> list[str]:
    """The marks that end sentences in a part of a prompt's haystack, but for those at its very
    edges."""
    haystack = next(
        span.text for span in prompt.context_spans if len(span.text) > prompt.haystack_tokens
    )
    low_byte, high_byte = (
        int(haystack.offsets[place])
        for place in (int(low * prompt.haystack_tokens) + 5, int(high * prompt.haystack_tokens) - 5)
    )
    part = haystack.data[low_byte:high_byte].decode("utf-8", "ignore")
    return re.findall(r"[.!?][\"')]?\s|[。！？][^”’」』）。！？]|\n\S", part)


@pytest.mark.parametrize("mode", ["exact", "single", "cold"])
def test_modes_that_choose_nothing_leave_every_cell_its_depth(mode, cuts):
    grid = make_grid(Lengths.of([100, 200]), Depths.of([0, 50, 100]))
    assert places(mode, grid, [80, 180], cuts(200)) == [(cell, None) for cell in grid.cells]


@settings(max_examples=15, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "lengths": st.lists(st.integers(300, 900), min_size=1, max_size=4).map(
                lambda lengths: ",".join(map(str, lengths))
            ),
            "depths": st.one_of(
                st.sampled_from(["0:100:1", "0:100:2", "0:100:9", "0:100:7:sigmoid", "50", "100"]),
                st.lists(st.integers(0, 100), min_size=1, max_size=5).map(
                    lambda depths: ",".join(map(str, depths))
                ),
            ),
            "language": st.sampled_from(["english", "chinese"]),
            "placement": st.just("sentence"),
        }
    )
)
def test_needles_leave_their_bin_only_where_no_sentence_ends_in_it_and_then_stand_as_in_mode_exact(
    given,
):
    settings = configure(
        None, {**given, "mode": "bins", "tokenizer": "cl100k_base", "max_answer_tokens": 20}
    )
    experiment = prepare(settings)
    edges = dict(
        zip(
            experiment.grid.depths,
            bin_edges(experiment.grid.depths),
            strict=True,
        )
    )
    exact = by_cell(prepare(settings.model_copy(update={"mode": "exact"})))
    binned = by_cell(experiment)
    for cell in outside(experiment):
        assert binned[cell].sha256 == exact[cell].sha256
        assert not sentence_ends(exact[cell], *edges[cell.depth])


def test_tiny_lengths_are_asked_as_they_can_be(prepared):
    """Bins of a few tokens hold no sentence end: such cells keep their exact place."""
    grid = {"lengths": "90,100,120", "depths": "0:100:11"}
    exact, experiment = by_cell(prepared(**grid)), prepared(**grid, mode="bins")
    binned = by_cell(experiment)
    assert all(binned[cell].positions == exact[cell].positions for cell in outside(experiment))


@pytest.mark.parametrize("mode", ["exact", "bins"])
@pytest.mark.parametrize("lengths", ["20", "20,600", "55,600"])
def test_a_length_without_room_is_an_error_in_every_mode(prepared, mode, lengths):
    with pytest.raises(TooShort, match="leaves no room"):
        prepared(lengths=lengths, depths="0,50,100", mode=mode)


def test_several_needles_stay_in_order_behind_the_first(prepared):
    experiment = prepared(
        mode="bins",
        lengths="500:900:3",
        depths="0:100:5",
        task="multi",
        needles=["The red key opens the shed.", "The shed holds the map."],
        question="What does the red key lead to?",
        answer="The map.",
    )
    assert outside(experiment) == []
    for trial in experiment.trials:
        assert all(one <= other for one, other in pairwise(trial.prompt.positions))


def test_cells_of_a_bin_share_positions_across_lengths(prepared):
    grid = {"lengths": "1k:4k:8", "depths": "0:100:8"}
    binned = {trial.prompt.positions[0] for trial in prepared(**grid, mode="bins").trials}
    exact = {trial.prompt.positions[0] for trial in prepared(**grid).trials}
    assert len(binned) < 0.6 * len(exact)


def test_chain_tokens_are_what_a_walk_computes_of_the_haystack(prepared):
    """The promise of `chain_tokens`, kept by real prompts: template, needle and question come on
    top."""
    experiment = prepared(lengths="1k:4k:8", depths="0:100:8", mode="bins")
    prompts = [trial.prompt for trial in ordered(experiment.trials, "bins")]
    computed = sum(len(prompt.ids) for prompt in prompts) - sum(reused(prompts))
    sizes = sorted({prompt.haystack_tokens for prompt in prompts})
    chains: dict[int, int] = {}
    for prompt in prompts:
        (position,) = prompt.positions
        chains[position] = max(chains.get(position, 0), prompt.haystack_tokens)
    haystack = max(chains) + sum(top - position for position, top in chains.items())
    head, needle, tail = 30, 15, 30
    assert haystack < computed <= haystack + head + needle * len(chains) + tail * len(prompts)
    rows = [[p.positions[0] for p in prompts if p.haystack_tokens == size] for size in sizes]
    assert len(sizes) == 8
    assert all(len(row) == 8 for row in rows)
    assert chain_tokens(np.array(rows), np.array(sizes)) == haystack


@pytest.mark.parametrize("placement", ["token", "period"])
def test_older_placements_take_a_plans_positions_too(prepared, placement):
    """They once kept their own, so that mode 'bins' shared no more than 'exact', without a word."""
    grid = {"lengths": "1k:4k:8", "depths": "0:100:8", "placement": placement}
    experiment = prepared(**grid, mode="bins")
    binned = {trial.prompt.positions[0] for trial in experiment.trials}
    exact = {trial.prompt.positions[0] for trial in prepared(**grid).trials}
    assert len(binned) < 0.6 * len(exact)
    assert outside(experiment) == []
