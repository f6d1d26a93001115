"""A golden: a finished run, frozen small enough for a repository, that tests compare with.

It is a run's folder like any other: run.json, and one records file with what a comparison needs: answers,
scores, log-probabilities, hashes of prompts. Prompts themselves are built anew (`--prompts-of`). Where
needles stood, what was paid and how long it took is left out, and the server's address too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import make_folder, read_regular, refuse_link, write_whole
from needlemap.maps.answers import WEIGHS
from needlemap.records.families import NAME, SIGNED, families_of
from needlemap.records.folder import RUN_FILE
from needlemap.records.loaded import Loaded, load_run
from needlemap.records.record import Record
from needlemap.version import SCHEMA

FORMAT = "golden"  # of `needlemap report`
RECORDS_FILE = "records-golden.jsonl"
MOST_BYTES = 200_000
_KEPT = (
    *("key", "asked", "run", "task", "model", "length_tokens", "depth", "repeat", "second"),
    *("seed", "question", "reference", "keywords", "reference_sha256", "prompt", "answer", "logprobs"),
    *("finish", "score", "scorer", "prompt_tokens", "completion_tokens"),
)
_COUNTED_BY_IT = "server"  # a tokenizer that is found at the model's address


def freeze(run: Path, out: Path) -> int:
    """Write a run's golden; its bytes. Raises NeedlemapError for a run that is not finished, for one that is
    too large, and where the folder holds anything else."""
    families = families_of(run)
    loaded = {name: load_run(families.folder(name)) for name in families.begun}
    files = dict[Path, bytes]()
    for name, each in loaded.items():
        _check_finished(each)
        place = out / name if name else out
        files[place / RUN_FILE] = _json(_about(each))
        files[place / RECORDS_FILE] = b"".join(map(_line, sorted(each.records, key=_order)))
    if not families.is_plain:
        files[out / NAME] = read_regular(families.path / NAME)
    size = sum(map(len, files.values()))
    if size > MOST_BYTES:
        trials = sum(len(each.records) for each in loaded.values())
        raise NeedlemapError(
            f"The golden of '{run}' takes {size:,} bytes, and at most {MOST_BYTES:,} belong into a "
            f"repository: of its {trials:,} trials about {trials * MOST_BYTES // size:,} have room. Give "
            f"fewer --lengths, --depths or --repeats, or leave --logprobs out."
        )
    _check_free(out, set(files))
    for file, data in files.items():
        make_folder(file.parent)
        write_whole(file, data)
    return size


def _check_finished(run: Loaded) -> None:
    """Raises NeedlemapError for a run whose answers are not all there, and for another tool's."""
    if "imported" in run.about:
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


def _about(run: Loaded) -> dict[str, Any]:
    """run.json without the signature of who began it, and without an address that builds no prompt."""
    settings = dict(run.about["settings"])
    if settings.get("tokenizer") != _COUNTED_BY_IT:
        settings["base_url"] = None
    return {**{name: value for name, value in run.about.items() if name != SIGNED}, "settings": settings}


def _json(value: Any) -> bytes:
    return f"{json.dumps(value, indent=1, ensure_ascii=False)}\n".encode()  # in lines, for diffs


def _line(record: Record) -> bytes:
    """What a comparison needs of a record, in its JSON line."""
    scorer = record.scorer
    if scorer is not None and scorer.name != WEIGHS:  # which says there of how many tokens
        record = record.model_copy(update={"scorer": scorer.model_copy(update={"why": {}})})
    fields = record.model_dump(mode="json", by_alias=True, include=set(_KEPT), exclude_defaults=True)
    return (
        json.dumps({"schema": SCHEMA, **fields}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    )


def _order(record: Record) -> tuple[str, int]:
    """The order asked."""
    return record.finished_at, record.length_tokens
