"""Two runs that were read, compared on the trials they share; runs that asked something else are refused."""

from __future__ import annotations

from pathlib import Path

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps.comparison import Comparison, compare_pairs
from needlemap.maps.pairs import Pairs, pair_up
from needlemap.reports.comparison import Names
from needlemap.runs.contrast import contrast, how_to_score, outdated, phrase, prompt_contrast
from needlemap.runs.loaded import Loaded
from needlemap.runs.session import called, one_haystack
from needlemap.settings.grid import percent

MARGIN = 2.0  # points
_ASKS = "logprob"  # reads probabilities, which no kept answer has


def compare_loaded(first: Loaded, second: Loaded, margin: float = MARGIN) -> tuple[Comparison, Names]:
    """The comparison of two runs. margin: in points.

    Raises NeedlemapError when their trials or scorers are not the same, and says in what they differ;
    SettingsError for a margin that means nothing, or one run given twice.
    """
    share = margin_share(margin)
    pairs, names = pair_loaded(first, second)
    comparison = compare_pairs(pairs, share)
    if comparison is None:
        raise unfinished(first, second)
    return comparison, names


def margin_share(margin: float) -> float:
    """A margin in points as a share. Raises SettingsError."""
    if not 0 < margin <= 100:
        raise SettingsError(f"A margin is in points above 0 and up to 100, got {margin:g}.")
    return margin / 100


def pair_loaded(first: Loaded, second: Loaded) -> tuple[Pairs, Names]:
    """The trials that two runs share. Raises NeedlemapError when they asked or scored something else."""
    if Path(first.path).resolve() == Path(second.path).resolve():
        raise SettingsError(f"Run '{first.path}' is given twice. Give the folders of two runs.")
    found = contrast(first.about, second.about)
    runs = f"'{first.path}' and '{second.path}'"
    if "scorer" in found:
        raise NeedlemapError(
            f"{runs} are scored differently: {phrase({'scorer': found['scorer']})}. {alike(first, second)}"
        )
    cells = first.about["cells"], second.about["cells"]
    pairs = pair_up(first.records, second.records, cells, one_haystack=one_haystack(first.about))
    _refuse(pairs, phrase(prompt_contrast(found)), runs)
    said = {name: values for name, values in found.items() if name != "haystacks"}
    names = [f"{called(run.about['settings'])} ({run.path})" for run in (first, second)]
    notes = [line for run in (first, second) for line in outdated(run.path, run.about)]
    return pairs, Names(names[0], names[1], phrase(said), tuple(notes))


def alike(first: Loaded, second: Loaded) -> str:
    """What to type so that two runs are scored alike, if anything can be done."""
    runs = first, second
    imported = [run for run in runs if "imported" in run.about]
    if imported:
        return (
            f"'{imported[0].path}' was imported with its scores, and none of its answers can be scored anew: "
            f"compare it with a run that was imported from the same tool."
        )
    names = [str(run.about["scorer"]["name"]) for run in runs]
    if _ASKS in names:
        other = runs[names[0] == _ASKS].path
        return f"Scorer '{_ASKS}' asks the model, so '{other}' is to be run again: --scorer {_ASKS}"
    stale = [run for run in runs if outdated(run.path, run.about)] or [second]
    pattern = next((run for run in runs if run not in stale), first).about["scorer"]
    typed = " and ".join(how_to_score(run.path, pattern) for run in stale)
    asks = "the judge alone" if pattern["name"] == "judge" else "nothing"
    return f"Score both alike, which asks {asks}: {typed}"


def unfinished(first: Loaded, second: Loaded) -> NeedlemapError:
    """What to do about two runs of which no trial has both scores."""
    return NeedlemapError(
        f"'{first.path}' and '{second.path}' have no trial that both scored: finish them first."
    )


def _refuse(pairs: Pairs, differ: str, runs: str) -> None:
    """Raises NeedlemapError when two runs did not ask the same."""
    why = (
        differ or "the settings are the same: texts of haystack or template, or needlemap, changed meanwhile"
    )
    if pairs.unlike:
        repeat, length, depth = pairs.unlike[0]
        raise NeedlemapError(
            f"{runs} ask different prompts in {len(pairs.unlike)} trials (first: length {length}, depth "
            f"{percent(depth):g}, repeat {repeat}), so they cannot be paired. They differ in: {why}. "
            f"Run both with the same settings but the model."
        )
    if not pairs.first.asked.any():
        raise NeedlemapError(
            f"{runs} have no trial (length, depth, repeat) in common. They differ in: {why}. "
            f"Run both with the same --lengths, --depths and --repeats."
        )
