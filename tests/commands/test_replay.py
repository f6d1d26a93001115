"""`needlemap replay` rebuilds a prompt byte for byte, whatever was added to the run since."""

from __future__ import annotations

import pytest


@pytest.fixture
def run(needlemap, wire):
    """A run of 300 and 400 tokens that was later extended to 500 alone."""
    needlemap.run(wire, "--lengths", "300,400", "--depths", "0:100:4")
    needlemap.run(wire, "--lengths", "500", "--depths", "0:100:4", "--first-repeat", "1")
    return needlemap


def test_it_prints_what_was_sent_and_asks_again_if_told_to(run, wire):
    record = next(
        row
        for row in run.records()
        if (row["length_tokens"], round(row["depth"], 3)) == (400, 0.333)
    )
    ended = run("replay", "r", "--length", "400", "--depth", "33.333")
    assert (
        f"prompt {record['prompt']['sha256']}: the same bytes as recorded, 360 tokens"
        in ended.stderr
    )
    assert f"recorded answer: {record['answer']!r} (score 100.0 %)" in ended.stderr
    sent = [request["body"]["messages"] for request in wire.log()]
    assert ended.stdout in {
        "".join(f"[{message['role']}]\n{message['content']}\n\n" for message in one) for one in sent
    }
    asked = len(wire.log())
    again = run("replay", "r", "--length", "400", "--depth", "33.333", "--ask")
    assert f"answer now: {record['answer']!r} (finish stop)" in again.stderr
    assert len(wire.log()) == asked + 1
    wire.schedule("500")
    failed = run("replay", "r", "--length", "400", "--depth", "0", "--ask", code=2)
    assert "answered 500" in failed.stderr


@pytest.mark.usefixtures("run")
def test_lengths_and_repeats_of_every_start_can_be_replayed_and_others_are_named(typed):
    assert "the same bytes" in typed("replay", "r", "--length", "300", "--depth", "0").stderr
    assert (
        "the same bytes"
        in typed("replay", "r", "--length", "500", "--depth", "0", "--repeat", "1").stderr
    )
    assert typed("replay", "r", "--length", "500", "--depth", "0", code=2).stderr == (
        "needlemap: This run has no cell of length 500, depth 0 and repeat 0. Lengths: 300, 400, "
        "500. "
        "Depths: 0, 33.333333, 66.666667, 100. Repeats: 0, 1.\n"
    )


def test_a_cell_of_an_earlier_start_can_be_replayed_after_the_grid_changed(needlemap):
    flags = ("run", "bm25", "--repeats", "1", "-o", "r")
    needlemap(*flags, "--lengths", "1k", "--depths", "0,25,50")
    needlemap(*flags, "--lengths", "2k", "--depths", "0")
    assert "the same bytes" in needlemap("replay", "r", "--length", "1k", "--depth", "25").stderr


def test_a_length_is_taken_as_maps_label_it(needlemap):
    needlemap("run", "demo", "--lengths", "2388", "--depths", "50", "--no-canary", "-o", "far")
    shown = needlemap("replay", "far", "--length", "2.4k", "--depth", "50")
    assert "the same bytes as recorded" in shown.stderr
