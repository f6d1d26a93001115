"""Scores of a run: its prompts (`asked.py`), one array of them (`cube.py`), and the statistics
behind every interval and verdict, a file each."""

from needlemap.stats.asked import (
    AskedPrompt,
    Cell,
    Place,
    asks_same,
    by_place,
    latest_records,
    place_label,
    place_of,
    places_of,
    prompt_of,
    prompts_of,
)
from needlemap.stats.cube import Array, Cube, cube_of, is_ragged, make_cube

__all__ = [
    "Array",
    "AskedPrompt",
    "Cell",
    "Cube",
    "Place",
    "asks_same",
    "by_place",
    "cube_of",
    "is_ragged",
    "latest_records",
    "make_cube",
    "place_label",
    "place_of",
    "places_of",
    "prompt_of",
    "prompts_of",
]
