"""A run as it was read from its folder: run.json and every record, once, and what statistics make
of them.

A golden is a finished run, frozen small enough for a repository, that tests compare with: a run's
folder like any other, with one records file that has what a comparison needs: answers, scores,
log-probabilities, hashes of prompts. Prompts themselves are built anew (`--prompts-of`). Where
needles stood, what was paid and how long it took is left out, and the server's address too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.errors import NeedlemapError
from needlemap.files import (
    RUN_FILE,
    SUITE_FILE,
    is_regular,
    make_folder,
    read_regular,
    refuse_link,
    write_whole,
)
from needlemap.records.folder import CLOSED_BOOK, RunFolder
from needlemap.records.record import Record
from needlemap.records.run_file import RunFile
from needlemap.stats import AskedPrompt, Cube, latest_records, make_cube, prompts_of
from needlemap.stats.means import Map, make_map, with_skipped
from needlemap.stats.pairs import WEIGHS
from needlemap.text import counted, printable
from needlemap.version import SCHEMA

if TYPE_CHECKING:
    from needlemap.records.families import Families

GOLDEN = "golden"  # of `needlemap report`
GOLDEN_RECORDS = "records-golden.jsonl"
MOST_GOLDEN = 200_000
_KEPT = (
    *("key", "asked", "run", "task", "model", "length_tokens", "depth", "repeat", "second"),
    *(
        "seed",
        "question",
        "reference",
        "keywords",
        "reference_sha256",
        "prompt",
        "answer",
        "logprobs",
    ),
    *("finish", "score", "scorer", "prompt_tokens", "completion_tokens"),
)
_COUNTED_BY_IT = "server"  # a tokenizer that is found at the model's address


@dataclass(frozen=True)
class Loaded:
    """path: as the user gave it. about: its run.json. records: one a trial, as
    `latest_records`. notes: what in its folder was left out, and which prompts are shorter than
    their length. folder: None where another tool's file was read. suite: of which suite it is a
    family in such a file."""

    path: str
    about: RunFile
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    folder: RunFolder | None = None
    suite: str = ""

    @cached_property
    def prompts(self) -> list[AskedPrompt]:
        """What it asked and is still to ask, each prompt with all cells that it stands for."""
        return prompts_of(self.records, self.about.cells, self.about.shared)

    @cached_property
    def cube(self) -> Cube:
        """Its scores as an array."""
        return make_cube(self.prompts, one_haystack=self.about.one_haystack)

    @cached_property
    def map(self) -> Map:
        """Its map."""
        about, named = self.about, self.about.named
        map = make_map(
            self.prompts,
            model=about.called,
            tokenizer=printable(about.tokenizer.name, line=True),
            task=printable(named.task, line=True),
            scorer=printable(about.scorer.name, line=True),
            mode=named.mode,
            cube=self.cube,
            depthless=about.depthless,
        )
        return with_skipped(map) if about.stopped else map


def load_run(folder: RunFolder | str | Path, *, texts: bool = True) -> Loaded:
    """Read a run. texts: False where outlines of its records do, as for its map. Raises
    NeedlemapError when there is no run, or it cannot be read."""
    folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    records = tuple(latest_records(folder.records(texts=texts)))
    notes = (*folder.left_out.notes(), *_shorter(records))
    return Loaded(folder.given, folder.about(), records, notes, folder)


def _shorter(records: Sequence[Record]) -> list[str]:
    """That lengths are those asked for, where prompts are shorter by more than seams cost."""
    short = [row for row in records if row.prompt is not None and row.prompt.is_short]
    if not short:
        return []
    longest = max(row.prompt.tokens for row in short if row.prompt is not None)
    first = min(row.length_tokens for row in short)
    return [
        f"the haystack ended: {counted(len(short), 'prompt')} from length {first:,} on are shorter "
        f"than their length, the longest has {longest:,} tokens: no effective length is taken from "
        f"there"
    ]


def closed_book_records(folder: RunFolder, *, texts: bool = True) -> Iterator[Record]:
    """Every record of questions without a haystack, as written: for limits, since each was paid
    for. texts: False where outlines do."""
    if is_regular(file := folder.path / CLOSED_BOOK):
        yield from folder.records_in(file, folder.run_file, texts=texts)


def kept(folder: RunFolder) -> list[Record]:
    """The last record of each question without a haystack, scored ones first."""
    found: dict[str, Record] = {}
    for record in closed_book_records(folder):
        if record.is_skipped:
            continue
        if record.scored or record.key not in found:
            found[record.key] = record
    return list(found.values())


def freeze(families: Families, out: Path) -> int:
    """Write a run's golden; its bytes. Raises NeedlemapError for a run that is not finished, for
    one that is too large, and where the folder holds anything else."""
    loaded = {name: load_run(families.folder(name)) for name in families.begun}
    files = dict[Path, bytes]()
    for name, each in loaded.items():
        _check_finished(each)
        about = json.dumps(_golden_about(each), indent=1, ensure_ascii=False)  # in lines, for diffs
        asked = sorted(each.records, key=attrgetter("finished_at", "length_tokens"))
        files[out / name / RUN_FILE] = f"{about}\n".encode()
        files[out / name / GOLDEN_RECORDS] = b"".join(map(_golden_line, asked))
    if not families.is_plain:
        files[out / SUITE_FILE] = read_regular(families.path / SUITE_FILE)
    size = sum(map(len, files.values()))
    if size > MOST_GOLDEN:
        trials = sum(len(each.records) for each in loaded.values())
        raise NeedlemapError(
            f"The golden of '{families.path}' takes {size:,} bytes, and at most {MOST_GOLDEN:,} "
            f"belong into "
            f"a repository: of its {trials:,} trials about {trials * MOST_GOLDEN // size:,} have "
            f"room. Give "
            f"fewer --lengths, --depths or --repeats, or leave --logprobs out."
        )
    _check_free(out, set(files))
    for file, data in files.items():
        make_folder(file.parent)
        write_whole(file, data)
    return size


def _check_finished(run: Loaded) -> None:
    """Raises NeedlemapError for a run whose answers are not all there, and for another tool's."""
    if run.about.imported:
        raise NeedlemapError(
            f"'{run.path}' was imported: its prompts cannot be built again, so no test can ask."
        )
    if missing := run.map.missing:
        raise NeedlemapError(
            f"'{run.path}' lacks {missing:,} scores. Finish it first: needlemap run -o {run.path}"
        )


def _check_free(out: Path, ours: set[Path]) -> None:
    """Raises NeedlemapError where a folder holds what no earlier golden of these families has."""
    refuse_link(out)
    for path in sorted(out.rglob("*")) if out.exists() else ():
        if path not in ours and not (path.is_dir() and any(path in each.parents for each in ours)):
            raise NeedlemapError(
                f"'{out}' holds '{path.name}', which no golden has. Give another folder with -o."
            )


def _golden_about(run: Loaded) -> dict[str, Any]:
    """run.json without the signature of who began it, and without an address that builds no
    prompt."""
    counted_by_it = run.about.settings.get("tokenizer") == _COUNTED_BY_IT
    about = run.about if counted_by_it else run.about.with_settings({"base_url": None})
    return {name: value for name, value in about.document().items() if name != "signed"}


def _golden_line(record: Record) -> bytes:
    """What a comparison needs of a record, in its JSON line."""
    scorer = record.scorer
    if scorer is not None and scorer.name not in WEIGHS:  # which says there of how many tokens
        record = record.model_copy(update={"scorer": scorer.model_copy(update={"why": {}})})
    fields = record.model_dump(
        mode="json", by_alias=True, include=set(_KEPT), exclude_defaults=True
    )
    return (
        json.dumps({"schema": SCHEMA, **fields}, ensure_ascii=False, separators=(",", ":")).encode()
        + b"\n"
    )
