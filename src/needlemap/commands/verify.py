"""`needlemap replay RUN --verify`: builds all prompts of a run anew and compares their hashes.

It asks no model. If prompts differ, the likeliest reason is a difference that run.json shows:
the tokenizer, a haystack's text, needlemap's version or a package's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from needlemap.asking.resume import first_at
from needlemap.asking.seek import asks_of
from needlemap.asking.session import versions
from needlemap.commands.arguments import ReplayFlags
from needlemap.commands.replay import with_cells
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps import Place, place_of, places_of
from needlemap.records.families import families_of
from needlemap.records.loaded import load_run
from needlemap.records.origin import CheckedRun
from needlemap.records.record import Record
from needlemap.records.run_file import RunFile
from needlemap.reports.cite import HASH, items_hash
from needlemap.reports.run_report import runs_below
from needlemap.text import counted, printable, show
from needlemap.trials.build import Experiment, prepare, prepare_haystacks
from needlemap.trials.resolve import resolve
from needlemap.version import __version__

_SHOWN = 3


def verify_command(path: Path, typed: ReplayFlags) -> int:
    """Say of each run in a folder whether its prompts are those that were recorded; 0 if all
    are, 1 if one differs. Raises NeedlemapError for a run that cannot be built anew."""
    if typed != ReplayFlags(verify=True, trust_run=typed.trust_run):
        raise SettingsError("--verify is of all prompts: leave --length, --ask and alike out.")
    runs = list(runs_below(path))
    if not runs:
        raise NeedlemapError(f"'{path}' holds no run.")
    return max(_verify(run, typed.trust_run) for run in runs)


def _verify(path: Path, trusted: bool) -> int:
    """Of one run, with all its families."""
    families = families_of(path)
    if families.kind not in ("run", "suite"):
        raise NeedlemapError(
            f"--verify is of runs and suites, and '{path}' is a {families.kind}. Give the folder "
            f"of one of its families: {', '.join(families.names[:_SHOWN])}"
        )
    items: set[tuple[str, str]] = set()
    code = 0
    for name in families.begun:
        run = CheckedRun.of(families.folder(name), trusted)
        records = [record for record in load_run(run.folder).records if record.prompt is not None]
        made = rebuilt(run)
        built = _built(made)
        items |= {built[place_of(each)] for each in records if place_of(each) in built}
        differing = [each for each in records if not _is_built(each, built.get(place_of(each)))]
        shown = families.folder(name) if name else path
        for line in _lines(str(shown), run.about, made, records, differing):
            show(line)
        code = max(code, int(bool(differing) or not records))
    show(f"items built anew: {counted(len(items), 'prompt')}, sha256 {items_hash(items)[:HASH]}")
    return code


def rebuilt(run: CheckedRun) -> Experiment:
    """All that a run asked, built anew. Raises NeedlemapError where that cannot be."""
    settings, cells = run.settings(), run.about.cells
    if settings.seek is not None:
        return prepare_haystacks(resolve(settings, asked=False), list(asks_of(cells).items()))
    return prepare(with_cells(settings, cells), asked=False)


def _built(made: Experiment) -> dict[Place, tuple[str, str]]:
    """The sha256 of each prompt built and of its right answers, by place."""
    return {
        place: (trial.prompt.sha256, trial.item.reference.digest())
        for trial in made.trials
        for place in places_of(trial)
    }


def _is_built(record: Record, built: tuple[str, str] | None) -> bool:
    """Whether a record's prompt and right answers equal those built at its place."""
    if built is None or record.prompt is None:
        return False
    prompt, right = built
    return record.prompt.sha256 == prompt and record.reference_sha256 in ("", right)


def _lines(
    path: str, about: RunFile, made: Experiment, records: list[Record], differing: list[Record]
) -> Iterator[str]:
    """How many prompts are the same, which are not, and why that may be."""
    same, whole = len(records) - len(differing), len(records)
    if not records:
        yield f"{path}: nothing was asked yet, so nothing can be compared"
        return
    yield f"{path}: {same:,} of {counted(whole, 'prompt')} the same bytes as recorded"
    if not differing:
        return
    first = sorted(map(place_of, differing))
    named = "; ".join(first_at(place).removeprefix("first: ") for place in first[:_SHOWN])
    more = f"; and {len(first) - _SHOWN:,} more" if len(first) > _SHOWN else ""
    yield f"  these differ: {named}{more}"
    yield f"  likeliest reason: {_reason(about, made)}"


def _reason(about: RunFile, made: Experiment) -> str:
    """What of a run is not as it was, in words."""
    then, now = about.tokenizer, made.tokenizer
    if then.fingerprint != now.fingerprint:
        return (
            f"another tokenizer: '{printable(then.name, line=True)}' had the fingerprint "
            f"{printable(then.fingerprint, line=True)}, '{now.name}' has {now.fingerprint}"
        )
    own = about.named.haystack_path is None  # then its text comes with needlemap
    version = (
        f"another needlemap: {printable(about.needlemap, line=True)} built them, this is "
        f"{__version__}"
    )
    if own and about.needlemap != __version__:
        return version
    for was, (name, sha256) in zip(about.haystacks, made.haystacks, strict=False):
        if (was.name, was.sha256) != (name, sha256):
            return (
                f"another haystack: '{printable(was.name, line=True)}' had the sha256 "
                f"{printable(was.sha256[:HASH], line=True)}, '{name}' has {sha256[:HASH]}"
            )
    if about.needlemap != __version__:
        return version
    packages = versions()
    for name, earlier in about.packages.items():
        if packages.get(name) not in (None, earlier):
            then_and_now = f"{printable(earlier, line=True)} then, {packages[name]} now"
            return f"another {printable(name, line=True)}: {then_and_now}"
    return (
        "haystack, tokenizer and versions are as recorded: a template, a plug-in or the records "
        "changed"
    )
