"""Logs of Inspect (`.eval`, `.json`) and sample files of lm-evaluation-harness
(`samples_*.jsonl`) as rows.

They may be of any benchmark. A sample's number is its id, or a hash of an id that is a text,
so two logs pair by it; an epoch is the same prompt asked again. A prompt is identified by a
hash of id, input and target (of lm-evaluation-harness: of the document, since chat templates
word one document in several ways). The harness names RULER's metrics after lengths: such a sample
has one score, at its own length. Of several scores one is read: the first, or the one that
`--metric` names. Samples of needlemap's own tasks know their length, depth and repeat; others
have length 0. An `.eval` file is a zip; what it holds is read sample by sample, and no more
than so much.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from needlemap.errors import NeedlemapError, Unmeasured, did_you_mean
from needlemap.extras import install_line
from needlemap.files import MOST_BYTES, folder_name, lines_of, open_regular, read_regular
from needlemap.finishes import check_finish, finish_of
from needlemap.grid import MOST_TOKENS, MOST_TRIALS
from needlemap.interop.result_row import UNIT, ResultRow, parse_json
from needlemap.models.servers import choice_of
from needlemap.untrusted import MOST_WHOLE, clean_text

INSPECT, HARNESS = "Inspect", "lm-evaluation-harness"
# the field of a sample's metadata, or of a document, that says what it is a trial of
OURS = "needlemap"
_SAMPLE = re.compile(r"samples/.+\.json", re.DOTALL)
# Of all samples of a log, unpacked, and of their answers: bytes, or times what the file has.
_MOST_WHOLE, _TIMES_WHOLE = 256 << 20, 40
_MOST_KEPT, _TIMES_KEPT = 64 << 20, 4
# bytes: zipfile unpacks all that it is asked for at once, and zstd packs a gigabyte into this
_PIECE = 4096
_SHOWN = 500  # characters of an input that are kept
_WORDS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
BY_LENGTH = "string_match"  # RULER's rule, whose metrics the harness names after lengths
RULER_SUITE = "ruler"
_RULER_TESTS = {"qa-squad": "qa-1", "qa-hotpot": "qa-2"}  # by the harness's names
_LENGTH = re.compile(r"[1-9]\d{2,8}")
_NO_METRIC = (
    "doc_id",
    "doc",
    "target",
    "arguments",
    "resps",
    "filtered_resps",
    "filter",
    "metrics",
)


@dataclass(frozen=True, slots=True)
class Log:
    """One file. model, task: as it names them. samples: rows without the score that counts.
    notes: what a reader should know of it. lower: metrics of which less is better. suite: of which
    suite of ours the task is a family."""

    tool: str
    model: str
    task: str
    samples: Sequence[ResultRow]
    notes: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    suite: str = ""

    def rows(self, metric: str = "") -> tuple[list[ResultRow], list[str]]:
        """A row a sample by one metric, and what else is to be said. Raises NeedlemapError for
        a metric that the log has not, or of which less is better."""
        samples = self.samples
        names = list(dict.fromkeys(name for sample in samples for name in sample.scores))
        if names == [BY_LENGTH] and _LENGTH.fullmatch(metric):  # the harness's name of it
            samples = [sample for sample in samples if sample.length == int(metric)] or samples
            metric = BY_LENGTH if len(samples) < len(self.samples) else metric
        if not names and any(not sample.error for sample in self.samples):
            raise NeedlemapError(f"{self.task}: no sample has a score that is a number.")
        if metric and metric not in names:
            raise NeedlemapError(
                f"{self.task}: no metric '{metric}'. {did_you_mean(metric, names)}"
            )
        chosen = metric or next(iter(names), "score")
        if chosen.partition(",")[0] in self.lower:
            raise NeedlemapError(
                f"{self.task}: of {chosen} less is better. Name another: --metric NAME"
            )
        others = ", ".join(name for name in names if name != chosen)
        several = (
            [f"{self.task}: scored by {chosen}; --metric takes {others} too"] if others else []
        )
        rows = [self._row(sample, chosen) for sample in samples]
        return rows, [*self.notes, *(several if not metric else ())]

    def _row(self, sample: ResultRow, metric: str) -> ResultRow:
        native = sample.scores.get(metric)
        error = "" if native is not None else sample.error or f"no {shown(metric)} in the file"
        return replace(
            sample,
            native=native,
            model=self.model,
            task=self.task,
            suite=self.suite,
            scorer=shown(metric),
            error=error,
        )


def _sample(place: str, id: int | str, ours: Any, **said: Any) -> ResultRow:
    """One sample, asked once. ours: what our own tasks say of it."""
    known = _ours(ours if isinstance(ours, dict) else {})
    length, depth = known.get("length_tokens", 0), 100 * known.get("depth", 0.0)
    return ResultRow(
        place, length, depth, None, scale=UNIT, repeat=known.get("repeat", _number(id)), **said
    )


def _ours(said: Mapping[str, Any]) -> dict[str, Any]:
    """Length, depth and repeat of one of our own trials; nothing where any of them is no such
    number."""
    length, depth, repeat = (said.get(name) for name in ("length_tokens", "depth", "repeat"))
    known = (
        isinstance(length, int)
        and 0 < length <= MOST_TOKENS
        and isinstance(depth, int | float)
        and 0 <= depth <= 1
        and isinstance(repeat, int)
        and 0 <= repeat < MOST_WHOLE
    )
    return {"length_tokens": length, "depth": depth, "repeat": repeat} if known else {}


def _number(id: int | str) -> int:
    """A number for a sample's id: itself, or for a text one from a hash, above all others.

    >>> _number(17), _number("a") > 2**52
    (17, True)
    """
    if isinstance(id, int) and 0 <= id < MOST_WHOLE // 2:
        return id
    return MOST_WHOLE // 2 + int(sha256(str(id).encode("utf-8", "replace")).hexdigest()[:12], 16)


def number_of(id: Any, place: str) -> int:
    """The same, of what a file says. Raises NeedlemapError for what is no id."""
    return _number(_id(id, place))


def is_harness(said: Mapping[str, Any]) -> bool:
    """Whether a line is a sample of lm-evaluation-harness."""
    return {"doc_id", "doc"} <= said.keys()


def is_inspect(data: bytes) -> bool:
    """Whether JSON is a log of Inspect."""
    start = data[:4096]
    return b'"eval"' in start and b'"status"' in start and b'"version"' in start


def samples_in(
    file: Path, read: Callable[[dict[str, Any], str], Iterable[ResultRow]]
) -> tuple[list[ResultRow], list[str]]:
    """The samples of a file of JSON lines, and what else is to be said. read: makes them of a line
    and its place. A last line that was not written to its end is left out. Raises
    NeedlemapError."""
    rows, notes, kept, name = list[ResultRow](), list[str](), 0, text_of(file.name)
    with open_regular(file) as opened:
        for number, line in enumerate(lines_of(opened), 1):
            place = f"{name}, line {number}"
            if not line.strip():
                continue
            try:
                said = _object(line, place)
            except NeedlemapError:
                if line.endswith(b"\n"):
                    raise
                notes.append(f"{place}: not written to its end, left out")
                break
            found = list(read(said, place))
            rows += found
            kept += sum(len(row.answer or "") for row in found)
            if kept > MOST_BYTES * 4 or len(rows) > MOST_TRIALS:
                raise NeedlemapError(f"{place}: more samples than are read of one file.")
    return rows, notes


def read_harness(file: Path) -> Log:
    """The samples of a file that `--log_samples` wrote. Raises NeedlemapError."""
    read, notes = samples_in(file, _harness_samples)
    samples = _joined(read)
    task, _, date = file.stem.removeprefix("samples_").rpartition("_")
    beside = _beside(file.with_name(f"results_{date}.json"))
    better = beside.get("higher_is_better")
    mine = better.get(task) if isinstance(better, dict) else None
    lower = [name for name, more in mine.items() if more is False] if isinstance(mine, dict) else []
    model = shown(beside.get("model_name")) or file.absolute().parent.name
    name, suite = task or file.stem, ""
    if any(BY_LENGTH in sample.scores for sample in samples):
        name, suite = ruler_family(name), RULER_SUITE
    return Log(HARNESS, model, name, samples, tuple(notes), tuple(lower), suite)


def ruler_family(test: str) -> str:
    """The family of `suite:ruler` that one of RULER's tests is, by whatever name a tool gives it.

    >>> ruler_family("niah_single_1"), ruler_family("ruler_qa_hotpot"), ruler_family("../x")
    ('niah-single-1', 'qa-2', 'x')
    """
    name = folder_name(test.removeprefix("ruler_").replace("_", "-"))
    return _RULER_TESTS.get(name, name)


def _beside(file: Path) -> dict[str, Any]:
    """What the harness says of a whole evaluation, if it lies beside the samples."""
    with suppress(OSError, NeedlemapError):
        return _object(read_regular(file), file.name)
    return {}


def _joined(samples: Iterable[ResultRow]) -> list[ResultRow]:
    """One sample a document and time it was asked: each filter writes it anew, with metrics of
    its own."""
    found: dict[tuple[str, int], ResultRow] = {}
    times: dict[tuple[str, str], int] = {}
    for sample in samples:
        epochs = [times.get((sample.asked, metric), 0) + 1 for metric in sample.scores]
        epoch = max(epochs, default=1)
        times |= {(sample.asked, metric): epoch for metric in sample.scores}
        first = found.setdefault((sample.asked, epoch), replace(sample, version=epoch))
        found[sample.asked, epoch] = replace(first, scores={**first.scores, **sample.scores})
    return list(found.values())


def _harness_samples(said: Mapping[str, Any], place: str) -> Iterator[ResultRow]:
    """A sample; of one that is scored by length one for each length that it has a score at."""
    doc, filter, named = said.get("doc"), str(said.get("filter") or "none"), said.get("metrics")
    names = named if isinstance(named, list) else [name for name in said if name not in _NO_METRIC]
    known = [str(name) for name in names if isinstance(said.get(str(name)), int | float)]
    tail = "" if filter == "none" else f",{filter}"
    target = said.get("target")
    sample = _sample(
        place,
        _id(said.get("doc_id"), place),
        doc.get(OURS) if isinstance(doc, dict) else None,
        asked=hash_of(
            [said.get("doc_id"), said.get("doc_hash") or doc, said.get("target_hash") or target]
        ),
        question=shown(doc.get("question") or doc if isinstance(doc, dict) else doc),
        reference=shown(target),
        answer=_first(said.get("filtered_resps")),
        scores={f"{name}{tail}": score_of(said[name]) for name in known},
    )
    longest = doc.get("max_length") if isinstance(doc, dict) else None
    if known and all(map(_LENGTH.fullmatch, known)):
        yield from _at_lengths(sample, {int(name): score_of(said[name]) for name in known}, longest)
    else:
        yield sample


def _at_lengths(
    sample: ResultRow, scores: Mapping[int, float | None], longest: Any
) -> Iterator[ResultRow]:
    """The same sample at the lengths that its metrics are named after, as the harness scores
    RULER: at lengths that are not the sample's own it writes -1. longest: the document's
    `max_length`, which is its own."""
    if isinstance(longest, int) and longest in scores:
        scores = {longest: scores[longest]}
    real = {length: score for length, score in scores.items() if score not in (None, -1)}
    known = (
        isinstance(longest, int) and not isinstance(longest, bool) and 0 < longest <= MOST_TOKENS
    )
    if not real:
        error = "-1 in the file: it has no score"
        yield replace(sample, length=longest if known else 0, scores={}, error=error)
    for length, score in real.items():
        asked = sample.asked if len(real) == 1 else hash_of([sample.asked, length])
        yield replace(sample, length=length, asked=asked, scores={BY_LENGTH: score})


def read_inspect_json(data: bytes, file: Path) -> Log:
    """A log that Inspect wrote as JSON. Raises NeedlemapError."""
    whole = _object(data, file.name)
    samples = whole.get("samples")
    return _inspect(whole, samples if isinstance(samples, list) else [], file)


def read_inspect(opened: IO[bytes], file: Path) -> Log:
    """A log of Inspect, a zip. Raises NeedlemapError."""
    with suppress(ImportError):  # Inspect packs by zstd, which zipfile reads from Python 3.14 on
        import zipfile_zstd  # noqa: F401
    try:
        with zipfile.ZipFile(opened) as packed:
            names = [info for info in packed.infolist() if _SAMPLE.fullmatch(info.filename)]
            size = file.stat().st_size
            unpacked = sum(info.file_size for info in names)
            if len(names) > MOST_TRIALS or unpacked > max(_MOST_WHOLE, _TIMES_WHOLE * size):
                raise NeedlemapError(
                    f"{file.name}: {len(names):,} samples, larger than any log that is read."
                )
            head = _head(packed, file.name)
            samples = (_member(packed, info, file.name) for info in names)
            return _inspect(head, samples, file, max(_MOST_KEPT, _TIMES_KEPT * size))
    except NotImplementedError:
        raise NeedlemapError(
            f"{file.name} is packed by zstd. Run: {install_line('inspect')}, or where Inspect is: "
            f"inspect log convert --to json --output-dir FOLDER {file.name}"
        ) from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, OSError) as error:
        raise NeedlemapError(f"{file.name}: not readable as a log of Inspect ({error}).") from None


def _head(packed: zipfile.ZipFile, name: str) -> dict[str, Any]:
    """What a log says of itself: of one that was not finished, what it began with."""
    names = set(packed.namelist())
    for member in ("header.json", "_journal/start.json"):
        if member in names:
            return _member(packed, packed.getinfo(member), name)
    raise NeedlemapError(f"{name}: no log of Inspect: it holds no header.json.")


def _member(packed: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> dict[str, Any]:
    """A file of a zip as JSON. Raises NeedlemapError for one that is too large, whatever the
    zip says."""
    data = bytearray()
    with packed.open(info) as opened:
        while len(data) <= MOST_BYTES and (piece := opened.read(_PIECE)):
            data += piece
    if len(data) > MOST_BYTES:
        raise NeedlemapError(f"{name}: {info.filename} is larger than {MOST_BYTES >> 20} MB.")
    return _object(data, f"{name}: {info.filename}")


def _inspect(
    head: Mapping[str, Any], samples: Iterable[Any], file: Path, most: int = MOST_BYTES * 4
) -> Log:
    """most: characters of all answers, which are kept."""
    evaluation = head.get("eval")
    if not isinstance(evaluation, dict):
        raise NeedlemapError(f"{file.name}: no log of Inspect: it does not say what was evaluated.")
    read, kept = list[ResultRow](), 0
    for number, sample in enumerate(samples, 1):
        read.append(_inspect_sample(sample, f"{file.name}, sample {number}"))
        kept += len(read[-1].answer or "")
        if kept > most:
            raise NeedlemapError(
                f"{file.name}: its answers have more than {most >> 20} MB, which is more than a "
                f"log of its size holds."
            )
    status = str(head.get("status") or "started")
    notes = (
        () if status == "success" else (f"{file.name}: the evaluation did not finish ({status})",)
    )
    return Log(
        INSPECT,
        shown(evaluation.get("model")),
        shown(evaluation.get("task")) or file.stem,
        read,
        notes,
    )


def _inspect_sample(said: Any, place: str) -> ResultRow:
    if not isinstance(said, dict):
        raise NeedlemapError(f"{place}: no sample of Inspect.")
    id, output, metadata = _id(said.get("id"), place), said.get("output"), said.get("metadata")
    epoch, error = said.get("epoch"), said.get("error")
    ours = metadata.get(OURS) if isinstance(metadata, dict) else None
    built = ours.get("prompt_sha256") if isinstance(ours, dict) else None
    answer = text_of(output.get("completion")) if isinstance(output, dict) else None
    finish, broken = _inspect_finish(output, answer or "")
    return _sample(
        place,
        id,
        ours,
        version=epoch if isinstance(epoch, int) and 0 < epoch <= MOST_TRIALS else 1,
        asked=hash_of([id, built or _without_ids(said.get("input")), said.get("target")]),
        question=shown(_without_ids(said.get("input"))),
        reference=shown(said.get("target")),
        answer=answer,
        finish=finish,
        scores={} if broken else dict(_inspect_scores(said.get("scores"))),
        error=broken or shown(error.get("message") if isinstance(error, dict) else error),
        finished_at=shown(said.get("completed_at")),
    )


def _inspect_finish(output: Any, answer: str) -> tuple[str | None, str]:
    """Why an answer ended, and why it is none: '' for one that counts."""
    choice = choice_of(output) if isinstance(output, dict) else None
    told = choice.get("stop_reason") if choice else None
    finish = None if told is None else finish_of(told)
    try:
        check_finish(finish, answer, shown(output.get("error")) if choice else "")
    except Unmeasured as failure:
        return finish, str(failure)
    return finish, ""


def _without_ids(input: Any) -> Any:
    """An input without what differs each time: messages have ids of their own."""
    if not isinstance(input, list):
        return input
    return [
        [each.get("role"), each.get("content")] if isinstance(each, dict) else each
        for each in input
    ]


def _inspect_scores(scores: Any) -> Iterator[tuple[str, float | None]]:
    """By scorer, or by scorer and name where a score has several values."""
    for name, score in scores.items() if isinstance(scores, dict) else ():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, dict):
            yield from ((f"{name}/{part}", score_of(each)) for part, each in value.items())
        elif not isinstance(value, list):
            yield str(name), score_of(value)


def score_of(value: Any) -> float | None:
    """A score as a number, as Inspect counts its words; None for any other value.

    >>> score_of("C"), score_of("P"), score_of(True), score_of("0.25"), score_of(float("nan"))
    (1.0, 0.5, 1.0, 0.25, None)
    """
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    with suppress(TypeError, ValueError, OverflowError):
        number = float(value)
        return number if math.isfinite(number) else None
    return None


def _object(data: bytes | bytearray, place: str) -> dict[str, Any]:
    value = parse_json(data, place)
    if not isinstance(value, dict):
        raise NeedlemapError(f"{place}: no JSON object.")
    return value


def _id(value: Any, place: str) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise NeedlemapError(f"{place}: a sample without an id.")
    return text_of(value) or "" if isinstance(value, str) else value


def hash_of(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _first(value: Any) -> str | None:
    """The first answer in lists of lists."""
    while isinstance(value, list) and value:
        value = value[0]
    return text_of(value) if isinstance(value, str) else None


def text_of(value: Any) -> str | None:
    """A text whose half characters, which no file can hold, are '?'."""
    return clean_text(value) if isinstance(value, str) else None


def shown(value: Any) -> str:
    """The beginning of a value as a text; empty of nothing."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True, default=str)
    return (text_of(text[:_SHOWN]) or "").strip()
