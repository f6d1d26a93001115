"""Three lines that an author can paste: which items, which variant and rule, which score.

    items: 18 prompts, sha256 5f1d0c9a72e84b16, 1k–4k tokens of cl100k_base (edabeac7), seed 0
    task: single (distractors=4) in generated, scorer substring rule 3, needlemap 0.1.0
    score: baseline/bm25 83.3 % [57.8, 94.8] (n=18, 3 haystacks)

The hash covers the prompts' bytes and the right answers, in no order: runs with the same hash
asked the same. `needlemap replay RUN --verify` builds the prompts anew and prints it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps.effective import Mean
from needlemap.maps.intervals import ClusterMean
from needlemap.records.families import Families, families_of
from needlemap.records.loaded import Loaded
from needlemap.records.run_file import RuledScorer
from needlemap.reports.labels import interval_label, length_range, score_label
from needlemap.reports.seek_report import length_line, seeks, sought_of
from needlemap.reports.summary import overall_of, read_families, score_name, weighted_scores
from needlemap.settings import KNOWN, Settings
from needlemap.settings.reading import DEFAULT_ITEMS
from needlemap.text import counted, printable

HASH = 16  # letters of a hash that are shown
# What else the lines say, or the hash of the items.
_ELSEWHERE = (
    *("model", "model_options", "base_url", "request", "temperature", "trust_remote_code"),
    *("tokenizer", "task", "seed", "language", "haystack", "haystack_path", "prompts_of"),
)
_TEXTS = ("needle", "needles", "question", "answer", "keywords", "draw")


def items_hash(items: Iterable[tuple[str, str]]) -> str:
    """sha256 of some items, each the sha256 of its prompt and of what is right; their order
    and how often each stands there do not count.

    >>> items_hash([("b", "2"), ("a", "1"), ("b", "2")]) == items_hash([("a", "1"), ("b", "2")])
    True
    """
    lines = sorted({f"{prompt} {reference}\n" for prompt, reference in items})
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def citation(paths: Sequence[Path]) -> list[str]:
    """The lines of some runs: three, and three more for each run that asked other items.
    Raises NeedlemapError for a run that cannot be cited."""
    scores: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        families = families_of(path)
        if families.kind not in ("run", "suite"):
            raise SettingsError(
                f"--cite is of runs and suites, and '{path}' is a {families.kind}. Its verdict: "
                f"needlemap report {path}"
            )
        read = read_families(families)
        runs = {name: run for name, run in read.items() if run is not None}
        scores.setdefault((_items_line(path, runs), _tasks_line(families, runs)), []).append(
            _score(families, read)
        )
    return [
        line
        for (items, tasks), found in scores.items()
        for line in (items, tasks, f"score: {'; '.join(found)}")
    ]


def _items_line(path: Path, runs: Mapping[str, Loaded]) -> str:
    """The items' number and hash, their lengths, and whose tokens these count."""
    items = [pair for run in runs.values() for pair in _items(path, run)]
    if not items:
        raise NeedlemapError(f"'{path}' asked nothing yet, so there are no items to cite.")
    lengths = [length for run in runs.values() for length in run.map.lengths]
    abouts = [run.about for run in runs.values()]
    told = [
        (about.tokenizer.name, about.tokenizer.fingerprint.rpartition(":")[2][:HASH])
        for about in abouts
    ]
    tokenizers = " and ".join(
        f"{printable(name, line=True)} ({printable(print_, line=True)})"
        for name, print_ in dict.fromkeys(told)
    )
    seeds = ", ".join(dict.fromkeys(str(about.named.seed) for about in abouts))
    number = counted(len(set(items)), "prompt")
    return (
        f"items: {number}, sha256 {items_hash(items)[:HASH]}, {length_range(lengths)} of "
        f"{tokenizers}, seed {seeds}"
    )


def _items(path: Path, run: Loaded) -> Iterator[tuple[str, str]]:
    """What a run asked; Raises NeedlemapError where its prompts are not known."""
    if run.about.imported:
        raise NeedlemapError(
            f"'{path}' was imported: its prompts are not known, so there are no items to cite."
        )
    for record in run.records:
        if record.prompt is not None:
            yield record.prompt.sha256, record.reference_sha256


def _tasks_line(families: Families, runs: Mapping[str, Loaded]) -> str:
    """For each family its task, the options that differ from the defaults, and its scorer's
    rule."""
    said = {name: _task(run) for name, run in runs.items()}
    versions = " and ".join(dict.fromkeys(run.about.needlemap for run in runs.values()))
    if families.is_plain:
        return f"task: {said['']}, needlemap {printable(versions, line=True)}"
    listed = "; ".join(f"{name}: {words}" for name, words in said.items())
    suite = printable(families.suite, line=True)
    return f"tasks of suite {suite}: {listed}; needlemap {printable(versions, line=True)}"


def _task(run: Loaded) -> str:
    settings, scorer = run.about.settings, run.about.scorer
    names = dict.fromkeys(printable(each.name, line=True) for each in run.about.haystacks)
    variant = ", ".join(_variant(settings))
    variant = f" ({printable(variant, line=True)})" if variant else ""
    task = printable(run.about.named.task, line=True)
    return f"{task}{variant} in {' and '.join(names) or 'none'}, {_scorer(scorer)}"


def _scorer(scorer: RuledScorer) -> str:
    given = {name: value for name, value in scorer.options.items() if value not in (False, [], "")}
    options = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
    behind = f" ({options})" if options else ""
    return printable(f"scorer {scorer.name}{behind} rule {scorer.rule}", line=True)


def _variant(settings: Mapping[str, Any]) -> Iterator[str]:
    """The settings of prompts and answers that are not as by default."""
    item = DEFAULT_ITEMS.get(str(settings.get("language")), {})
    if any(settings.get(name) and settings[name] != item.get(name) for name in _TEXTS):
        yield "a needle of its own"
    if settings.get("language") not in (None, Settings.model_fields["language"].default):
        yield str(settings["language"])
    for name, known in KNOWN.items():
        default = Settings.model_fields[name].default
        if known.role not in ("asked", "built") or name in (*_ELSEWHERE, *_TEXTS):
            continue
        if name in settings and settings[name] != default:
            yield f"{name}={_short(settings[name])}"


def _short(value: Any) -> str:
    """A value in a word; of a list how much it holds; of a path its last part."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_short(each)}" for name, each in value.items())
    if isinstance(value, list):
        return f"{len(value)} texts"
    return Path(value).name if isinstance(value, str) and "/" in value else str(value)


def _score(families: Families, read: Mapping[str, Loaded | None]) -> str:
    """The model and its mean with interval and n, or its effective length; and the missing
    trials. Of a suite with weighted scores these too."""
    runs = [run for run in read.values() if run is not None]
    model = " and ".join(dict.fromkeys(run.map.model for run in runs))
    if (only := read.get("")) is not None and seeks(only):
        sought = sought_of(only)
        return f"{model} {length_line(sought) if sought else 'found nothing yet'}"
    mean, n = overall_of(families, read), sum(run.map.n for run in runs)
    if mean is None:
        return f"{model} has no mean, as some families have no score yet"
    haystacks = f", {counted(mean.clusters, 'haystack')}" if isinstance(mean, ClusterMean) else ""
    what = f"score {score_name(families)}" if families.scores else "mean"
    several = f", the {what} of {len(read)} families" if len(read) > 1 else ""
    lacking = sum(run.map.missing for run in runs)
    missing = f", {lacking:,} missing" if lacking else ""
    held_back = sum(run.map.withheld for run in runs)
    missing += f", {held_back:,} refused or filtered" if held_back else ""
    told = _in_words(mean)
    own = "".join(
        f", {printable(name, line=True)} {_in_words(weighted)}"
        for name, scores in [*weighted_scores(families, read).items()][:-1]
        if (weighted := scores.overall()) is not None
    )
    return f"{model} {told} (n={n:,}{haystacks}{several}{missing}){own}"


def _in_words(mean: ClusterMean | Mean) -> str:
    """A mean in percent with its interval."""
    known = mean.low is not None
    interval = interval_label(mean.low, mean.high) if known else "without an interval"
    return f"{score_label(mean.score)} % {interval}"
