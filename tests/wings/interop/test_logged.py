"""What a tracker is told of a run."""

from __future__ import annotations

import pytest

import needlemap
from needlemap.errors import SettingsError
from needlemap.interop.trackers import logged
from needlemap.records.loaded import Loaded, load_run


def test_scores_are_in_percent_lengths_in_tokens_and_what_is_unknown_is_left_out(loaded):
    told = logged(loaded, "a-model")
    assert told.scalars == {
        "score/overall": pytest.approx(100 * 21 / 23),
        "score/n": 23,
        "score/low": told.scalars["score/low"],
        "score/high": told.scalars["score/high"],
        "score_at_length/1000": 100,
        "score_at_length/4000": pytest.approx(100 * 10 / 12),
        "effective_length/absolute_85": pytest.approx(1000 * 4 ** (15 / (100 - 1000 / 12))),
        "effective_length/relative_85": told.scalars["effective_length/absolute_85"],
        "effective_length/auc": pytest.approx((100 + 1000 / 12) / 2),
        "trials/scored": 23,
        "trials/missing": 1,
        "tokens/prompt": 2300,
        "tokens/cached": 920,
        "usd": 5.75,
        "usd_judge": 0.0,
    }
    assert told.scalars["score/low"] < 91 < told.scalars["score/high"]
    assert all(type(value) is float for value in told.scalars.values())


def test_a_run_that_seeks_tells_what_it_sought_and_no_score(tmp_path):
    grid = {"lengths": "500,4k", "seek": 85, "quiet": True}
    needlemap.run(model="baseline/bm25", **grid, out=tmp_path / "r")
    scalars = logged(load_run(tmp_path / "r"), "a-model").scalars
    sought = needlemap.load(tmp_path / "r").sought
    assert (scalars["sought/low"], scalars["sought/high"]) == (sought.low, 4000)
    assert not [name for name in scalars if name.startswith(("score", "effective"))]


def test_a_score_that_holds_is_as_long_as_was_tested(loaded):
    records = tuple(record.model_copy(update={"score": 1.0}) for record in loaded.records)
    scalars = logged(Loaded(loaded.path, loaded.about, records), "a-model").scalars
    assert scalars["effective_length/absolute_85"] == 4000


def test_other_rules_of_effective_length_are_logged_by_their_names(loaded):
    scalars = logged(loaded, "a-model", rules=("absolute:80",)).scalars
    assert {name: value for name, value in scalars.items() if name.startswith("effective")} == {
        "effective_length/absolute_80": 4000
    }


def test_settings_are_numbers_where_they_are_and_never_secrets(loaded):
    config = logged(loaded, "a-model").config
    assert (config["model"], config["repeats"], config["guide"]) == ("a-model", 6, True)
    assert (config["temperature"], config["about/needlemap"], config["about/numpy"]) == (
        "none",
        "0.1.0",
        "2.0",
    )
    assert config["about/haystack 0"] == "prose · sha256 0123456789ab"
    assert "secret" not in str(config)


def test_the_figure_is_a_png_and_cells_are_the_table(loaded):
    told = logged(loaded, "a-model", title="A title", palette="cividis")
    assert told.figure.startswith(b"\x89PNG")
    assert len(told.cells.rows) == 4
    with pytest.raises(SettingsError, match="cividis"):
        logged(loaded, "a-model", palette="cividi")


def test_a_run_without_any_answer_has_counts_alone(loaded):
    scalars = logged(Loaded("r", loaded.about, ()), "a-model").scalars
    assert scalars == {"trials/scored": 0, "trials/missing": 24}
