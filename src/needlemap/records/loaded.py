"""Load a run, i.e. run.json and one record a trial, and freeze it as a golden.

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

# A format of `needlemap report`.
GOLDEN = "golden"
GOLDEN_RECORDS = "records-golden.jsonl"
MOST_GOLDEN = 200_000
_GOLDEN_FIELDS = {
    "key",
    "asked",
    "run",
    "task",
    "model",
    "length_tokens",
    "depth",
    "repeat",
    "second",
    "seed",
    "question",
    "reference",
    "keywords",
    "reference_sha256",
    "prompt",
    "answer",
    "logprobs",
    "finish",
    "score",
    "scorer",
    "prompt_tokens",
    "completion_tokens",
}
# The tokenizer that is found at the model's address.
_SERVER_TOKENIZER = "server"


@dataclass(frozen=True)
class Loaded:
    """A run that was read from its folder or from another tool's file.

    Attributes:
        path: The path as the user gave it.
        about: Its run.json.
        records: One record a trial, as `latest_records`.
        notes: What in its folder was left out, and which prompts are shorter than their length.
        folder: Its folder; None for another tool's file.
        suite: The suite of which it is a family in another tool's file.
    """

    path: str
    about: RunFile
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    folder: RunFolder | None = None
    suite: str = ""

    @cached_property
    def prompts(self) -> list[AskedPrompt]:
        """Return the prompts, sent or still to be sent, each with the cells that it stands for."""
        return prompts_of(self.records, self.about.cells, self.about.shared)

    @cached_property
    def cube(self) -> Cube:
        """Return the scores as an array."""
        return make_cube(self.prompts, one_haystack=self.about.one_haystack)

    @cached_property
    def reasons(self) -> frozenset[str]:
        """Return the names of all reasons that scorers gave for scores (`scorer.why`)."""
        names = set[str]()
        for record in self.records:
            if record.scorer is not None:
                names.update(record.scorer.why)
        return frozenset(names)

    @cached_property
    def map(self) -> Map:
        """Return the map of the scores."""
        about = self.about
        settings = about.named
        score_map = make_map(
            self.prompts,
            model=about.model_label,
            tokenizer=printable(about.tokenizer.name, line=True),
            task=printable(settings.task, line=True),
            scorer=printable(about.scorer.name, line=True),
            mode=settings.mode,
            cube=self.cube,
            depthless=about.depthless,
        )
        return with_skipped(score_map) if about.stopped else score_map


def load_run(folder: RunFolder | str | Path, *, texts: bool = True) -> Loaded:
    """Read a run, or raise NeedlemapError if there is none or it cannot be read.

    texts: False if outlines of its records are enough, as for its map.
    """
    folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    records = tuple(latest_records(folder.records(texts=texts)))
    return Loaded(
        path=folder.given,
        about=folder.about(),
        records=records,
        notes=(*folder.left_out.notes(), *short_prompt_notes(records)),
        folder=folder,
    )


def short_prompt_notes(records: Sequence[Record]) -> list[str]:
    """Return a note if prompts are shorter than their length because the haystack ended."""
    lengths: list[int] = []
    tokens: list[int] = []
    for record in records:
        if record.prompt is not None and record.prompt.is_short:
            lengths.append(record.length_tokens)
            tokens.append(record.prompt.tokens)
    if not lengths:
        return []

    shortest_length = min(lengths)
    most_tokens = max(tokens)
    prompts = counted(len(lengths), "prompt")
    return [
        f"the haystack ended: {prompts} from length {shortest_length:,} on are shorter than their "
        f"length, the longest has {most_tokens:,} tokens: no effective length is taken from there"
    ]


def closed_book_records(folder: RunFolder, *, texts: bool = True) -> Iterator[Record]:
    """Yield every record of questions without a haystack, as limits count them all.

    texts: False if outlines are enough.
    """
    file = folder.path / CLOSED_BOOK
    if is_regular(file):
        yield from folder.records_in(file, folder.run_file, texts=texts)


def closed_book_answers(folder: RunFolder) -> list[Record]:
    """Return one record of each question that was sent without a haystack.

    It is the last that was scored or, if none was scored, the first.
    """
    records: dict[str, Record] = {}
    for record in closed_book_records(folder):
        if record.is_skipped:
            continue
        if record.scored or record.key not in records:
            records[record.key] = record
    return list(records.values())


def freeze(families: Families, out: Path) -> int:
    """Write a run's golden, and return its size in bytes.

    Raise NeedlemapError if the run is not finished, if it is too large, or if the folder holds
    anything else.
    """
    runs = {name: load_run(families.folder(name)) for name in families.started_names}
    files: dict[Path, bytes] = {}
    for name, run in runs.items():
        _check_finished(run)
        # Indented, so that a diff shows the setting that changed.
        about = json.dumps(_golden_about(run), indent=1, ensure_ascii=False)
        records = sorted(run.records, key=attrgetter("finished_at", "length_tokens"))
        files[out / name / RUN_FILE] = f"{about}\n".encode()
        files[out / name / GOLDEN_RECORDS] = b"".join(map(_golden_line, records))
    if not families.is_plain:
        files[out / SUITE_FILE] = read_regular(families.path / SUITE_FILE)

    size = sum(map(len, files.values()))
    if size > MOST_GOLDEN:
        trials = sum(len(run.records) for run in runs.values())
        raise NeedlemapError(
            f"The golden of '{families.path}' takes {size:,} bytes, and at most {MOST_GOLDEN:,} "
            f"belong into a repository: of its {trials:,} trials about "
            f"{trials * MOST_GOLDEN // size:,} have room. Give fewer --lengths, --depths or "
            f"--repeats, or leave --logprobs out."
        )

    _check_output_folder(out, set(files))
    for file, data in files.items():
        make_folder(file.parent)
        write_whole(file, data)
    return size


def _check_finished(run: Loaded) -> None:
    """Raise NeedlemapError if a run lacks answers, or if another tool made it."""
    if run.about.imported:
        raise NeedlemapError(
            f"'{run.path}' was imported: its prompts cannot be built again, so no test can ask."
        )
    missing_scores = run.map.missing
    if missing_scores:
        raise NeedlemapError(
            f"'{run.path}' lacks {missing_scores:,} scores. Finish it first: "
            f"needlemap run -o {run.path}"
        )


def _check_output_folder(out: Path, files: set[Path]) -> None:
    """Raise NeedlemapError if a folder holds anything but an earlier golden of these files."""
    refuse_link(out)
    if not out.exists():
        return
    folders = {folder for file in files for folder in file.parents}
    for path in sorted(out.rglob("*")):
        is_golden = path in files or (path.is_dir() and path in folders)
        if not is_golden:
            raise NeedlemapError(
                f"'{out}' holds '{path.name}', which no golden has. Give another folder with -o."
            )


def _golden_about(run: Loaded) -> dict[str, Any]:
    """Return run.json without its signature, and without an address that prompts do not need."""
    about = run.about
    if about.settings.get("tokenizer") != _SERVER_TOKENIZER:
        about = about.with_settings({"base_url": None})
    return {name: value for name, value in about.document().items() if name != "signed"}


def _golden_line(record: Record) -> bytes:
    """Return a JSON line of the fields that a comparison needs of a record."""
    scorer = record.scorer
    # Scorers in WEIGHS keep in `why` how many tokens a score is of.
    if scorer is not None and scorer.name not in WEIGHS:
        record = record.model_copy(update={"scorer": scorer.model_copy(update={"why": {}})})
    fields = record.model_dump(
        mode="json", by_alias=True, include=_GOLDEN_FIELDS, exclude_defaults=True
    )
    line = json.dumps({"schema": SCHEMA, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"{line}\n".encode()
