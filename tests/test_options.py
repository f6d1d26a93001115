"""Options are checked against the constructor that takes them."""

from __future__ import annotations

from typing import Literal

import pytest

from needlemap.errors import SettingsError
from needlemap.registry import Checked


class Sample(metaclass=Checked):
    def __init__(
        self, name: str, *, window: int | None = None, words: tuple[str, ...] = ()
    ) -> None:
        self.name, self.window, self.words = name, window, words


def test_right_options_arrive():
    made = Sample("x", window=3, words=("a",))
    assert (made.name, made.window, made.words) == ("x", 3, ("a",))


def test_a_list_from_a_settings_file_becomes_what_the_annotation_says():
    assert Sample("x", words=["a", "b"]).words == ("a", "b")  # type: ignore[arg-type]


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(
        SettingsError, match=r"Unknown option 'windw' of Sample. Did you mean 'window'\?"
    ):
        Sample("x", windw=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("options", [{"window": "three"}, {"words": "abc"}, {"words": [1]}])
def test_a_wrong_value_is_named(options):
    (name,) = options
    with pytest.raises(SettingsError, match=f"Option '{name}' of Sample"):
        Sample("x", **options)


def test_a_wrong_value_is_told_what_is_allowed_in_plain_words():
    class Kinds(metaclass=Checked):
        def __init__(
            self,
            *,
            facts: int = 1,
            rate: float = 1.0,
            last: bool = False,
            text: str = "",
            key: Literal["word", "uuid"] = "word",
        ) -> None:
            pass

    for options, allowed in (
        ({"facts": "many"}, "a whole number, got 'many'"),
        ({"facts": 1.5}, "a whole number, got 1.5"),
        ({"rate": "fast"}, "a number, got 'fast'"),
        ({"last": "maybe"}, "true or false, got 'maybe'"),
        ({"text": 3}, "text, got 3"),
        ({"key": "colour"}, "'word' or 'uuid', got 'colour'"),
    ):
        (name,) = options
        with pytest.raises(SettingsError, match=rf"^Option '{name}' of Kinds must be {allowed}\.$"):
            Kinds(**options)  # type: ignore[arg-type]
    with pytest.raises(
        SettingsError, match=r"Option 'window' of Sample must be a whole number, got 'three'"
    ):
        Sample("x", window="three")  # type: ignore[arg-type]


def test_several_needles_are_typed_one_by_one(needlemap):
    needles = ["The locker code for Turin is 51328.", "The locker code for Rome is 71328."]
    typed = [word for needle in needles for word in ("--needle", needle)]
    grid = ("--lengths", "400", "--depths", "50", "--question", "What are the codes?")
    model = ("--model", "baseline/bm25", "--max-answer-tokens", "24")
    needlemap("run", *model, "--task", "multi", *typed, *grid, "-o", "r")
    (record,) = needlemap.records()
    assert [needle["text"].strip() for needle in record["needles"]] == needles
