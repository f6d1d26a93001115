"""Read logs of Inspect (`.eval`, `.json`) and sample files of lm-evaluation-harness
(`samples_*.jsonl`) as rows.

They may be of any benchmark. A sample's number is its id, or a hash of an id that is a text, so
that two logs pair by it. An epoch is the same prompt sent again. A prompt is identified by a hash
of id, input and target; in lm-evaluation-harness of the document, because chat templates word one
document in several ways. The harness names RULER's metrics after lengths: such a sample has one
score, at its own length. Of several scores one is read: the first, or the one that `--metric`
names. Samples of needlemap's own tasks have their length, depth and repeat; others have length 0.
An `.eval` file is a zip, which is read sample by sample, up to a limit.
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
# The field of a sample's metadata, or of a document, that says which trial it is.
OURS = "needlemap"
_SAMPLE = re.compile(r"samples/.+\.json", re.DOTALL)
# Limits of all samples of a log, unpacked, and of their answers. The larger of the two holds: a
# number of bytes, or a multiple of the file's size.
_MOST_WHOLE = 256 << 20
_TIMES_WHOLE = 40
_MOST_KEPT = 64 << 20
_TIMES_KEPT = 4
# Bytes: zipfile unpacks all that is wanted at once, and zstd packs a gigabyte into this.
_PIECE = 4096
# Characters of an input that are kept.
_SHOWN = 500
_WORDS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
# RULER's rule, whose metrics the harness names after lengths.
BY_LENGTH = "string_match"
RULER_SUITE = "ruler"
# Names of families, by the harness's names.
_RULER_TESTS = {"qa-squad": "qa-1", "qa-hotpot": "qa-2"}
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
    """One log.

    Attributes:
        tool: The tool that wrote it.
        model: The model, as the tool names it.
        task: The task, as the tool names it.
        samples: Rows without the score that counts.
        notes: What a reader should know about it.
        lower: Metrics of which less is better.
        suite: The suite of which the task is a family; '' for none.
    """

    tool: str
    model: str
    task: str
    samples: Sequence[ResultRow]
    notes: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    suite: str = ""

    def rows(self, metric: str = "") -> tuple[list[ResultRow], list[str]]:
        """Return a row a sample by one metric, and notes.

        Raises NeedlemapError for a metric that the log does not have, or of which less is better.
        """
        samples = self.samples
        names = list(dict.fromkeys(name for sample in samples for name in sample.scores))
        # A length is the harness's name for the rule's score there.
        if names == [BY_LENGTH] and _LENGTH.fullmatch(metric):
            samples = [sample for sample in samples if sample.length == int(metric)] or samples
            if len(samples) < len(self.samples):
                metric = BY_LENGTH
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
        notes = list(self.notes)
        others = ", ".join(name for name in names if name != chosen)
        if others and not metric:
            notes.append(f"{self.task}: scored by {chosen}; --metric takes {others} too")
        return [self._row(sample, chosen) for sample in samples], notes

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


def _sample(place: str, id: int | str, ours: Any, **fields: Any) -> ResultRow:
    """Return one sample, sent once. ours: what needlemap's own tasks write of it."""
    trial = _own_trial(ours if isinstance(ours, dict) else {})
    return ResultRow(
        place,
        trial.get("length_tokens", 0),
        depth_percent=100 * trial.get("depth", 0.0),
        native=None,
        scale=UNIT,
        repeat=trial.get("repeat", _number(id)),
        **fields,
    )


def _own_trial(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return length, depth and repeat of one of needlemap's own trials.

    {} if any of them is out of bounds.
    """
    length = fields.get("length_tokens")
    depth = fields.get("depth")
    repeat = fields.get("repeat")
    has_length = isinstance(length, int) and 0 < length <= MOST_TOKENS
    has_depth = isinstance(depth, int | float) and 0 <= depth <= 1
    has_repeat = isinstance(repeat, int) and 0 <= repeat < MOST_WHOLE
    if not (has_length and has_depth and has_repeat):
        return {}
    return {"length_tokens": length, "depth": depth, "repeat": repeat}


def _number(id: int | str) -> int:
    """Return a number for a sample's id: itself, or of a text one from a hash, above all others.

    >>> _number(17), _number("a") > 2**52
    (17, True)
    """
    if isinstance(id, int) and 0 <= id < MOST_WHOLE // 2:
        return id
    return MOST_WHOLE // 2 + int(sha256(str(id).encode("utf-8", "replace")).hexdigest()[:12], 16)


def number_of(id: Any, place: str) -> int:
    """Return the same for what a file holds. Raises NeedlemapError for what is not an id."""
    return _number(sample_id(id, place))


def is_harness(line: Mapping[str, Any]) -> bool:
    """Return True if a line is a sample of lm-evaluation-harness."""
    return {"doc_id", "doc"} <= line.keys()


def is_inspect(data: bytes) -> bool:
    """Return True if JSON is a log of Inspect."""
    start = data[:4096]
    return b'"eval"' in start and b'"status"' in start and b'"version"' in start


def samples_in(
    file: Path, read: Callable[[dict[str, Any], str], Iterable[ResultRow]]
) -> tuple[list[ResultRow], list[str]]:
    """Return the samples of a file of JSON lines, and notes.

    A last line that was not written to its end is left out. read: returns the samples of a line.
    Raises NeedlemapError if any other line is not valid.
    """
    rows: list[ResultRow] = []
    notes: list[str] = []
    answer_characters = 0
    name = text_of(file.name)
    with open_regular(file) as opened:
        for number, line in enumerate(lines_of(opened), 1):
            place = f"{name}, line {number}"
            if not line.strip():
                continue
            try:
                fields = _object(line, place)
            except NeedlemapError:
                if line.endswith(b"\n"):
                    raise
                notes.append(f"{place}: not written to its end, left out")
                break
            samples = list(read(fields, place))
            rows += samples
            answer_characters += sum(len(sample.answer or "") for sample in samples)
            if answer_characters > MOST_BYTES * 4 or len(rows) > MOST_TRIALS:
                raise NeedlemapError(f"{place}: more samples than are read of one file.")
    return rows, notes


def read_harness(file: Path) -> Log:
    """Read a file that `--log_samples` wrote.

    Raises NeedlemapError if a line is not a sample.
    """
    rows, notes = samples_in(file, _harness_samples)
    samples = _joined(rows)
    task, _, date = file.stem.removeprefix("samples_").rpartition("_")
    results = _results_beside(file.with_name(f"results_{date}.json"))
    name = task or file.stem
    suite = ""
    if any(BY_LENGTH in sample.scores for sample in samples):
        name = ruler_family(name)
        suite = RULER_SUITE
    return Log(
        HARNESS,
        model=shown(results.get("model_name")) or file.absolute().parent.name,
        task=name,
        samples=samples,
        notes=tuple(notes),
        lower=_lower_is_better(results, task),
        suite=suite,
    )


def _lower_is_better(results: Mapping[str, Any], task: str) -> tuple[str, ...]:
    """Return the metrics of a task of which less is better."""
    by_task = results.get("higher_is_better")
    by_metric = by_task.get(task) if isinstance(by_task, dict) else None
    if not isinstance(by_metric, dict):
        return ()
    return tuple(name for name, is_higher_better in by_metric.items() if is_higher_better is False)


def ruler_family(test: str) -> str:
    """Return the family of `suite:ruler` that one of RULER's tests is, by any tool's name of it.

    >>> ruler_family("niah_single_1"), ruler_family("ruler_qa_hotpot"), ruler_family("../x")
    ('niah-single-1', 'qa-2', 'x')
    """
    name = folder_name(test.removeprefix("ruler_").replace("_", "-"))
    return _RULER_TESTS.get(name, name)


def _results_beside(file: Path) -> dict[str, Any]:
    """Return what the harness writes of a whole evaluation, if it lies next to the samples."""
    with suppress(OSError, NeedlemapError):
        return _object(read_regular(file), file.name)
    return {}


def _joined(samples: Iterable[ResultRow]) -> list[ResultRow]:
    """Return one sample for each document and time it was sent.

    Each filter writes a sample anew, with metrics of its own.
    """
    by_prompt: dict[tuple[str, int], ResultRow] = {}
    last_epoch: dict[tuple[str, str], int] = {}
    for sample in samples:
        epochs = [last_epoch.get((sample.asked, metric), 0) + 1 for metric in sample.scores]
        epoch = max(epochs, default=1)
        for metric in sample.scores:
            last_epoch[sample.asked, metric] = epoch
        key = sample.asked, epoch
        first = by_prompt.setdefault(key, replace(sample, version=epoch))
        by_prompt[key] = replace(first, scores={**first.scores, **sample.scores})
    return list(by_prompt.values())


def _harness_samples(fields: Mapping[str, Any], place: str) -> Iterator[ResultRow]:
    """Yield a sample.

    If it is scored by length, there is one for each length that it has a score at.
    """
    document = fields.get("doc")
    target = fields.get("target")
    own_fields = document if isinstance(document, dict) else {}
    scores = _harness_scores(fields)
    filter_name = str(fields.get("filter") or "none")
    suffix = "" if filter_name == "none" else f",{filter_name}"
    identity = [
        fields.get("doc_id"),
        fields.get("doc_hash") or document,
        fields.get("target_hash") or target,
    ]
    sample = _sample(
        place,
        sample_id(fields.get("doc_id"), place),
        own_fields.get(OURS),
        asked=hash_of(identity),
        question=shown(own_fields.get("question") or document),
        reference=shown(target),
        answer=_first_text(fields.get("filtered_resps")),
        scores={f"{name}{suffix}": score for name, score in scores.items()},
    )
    if scores and all(map(_LENGTH.fullmatch, scores)):
        by_length = {int(name): score for name, score in scores.items()}
        yield from _at_lengths(sample, by_length, longest=own_fields.get("max_length"))
    else:
        yield sample


def _harness_scores(fields: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the scores of a sample by metric."""
    metrics = fields.get("metrics")
    if not isinstance(metrics, list):
        metrics = [name for name in fields if name not in _NO_METRIC]
    return {
        str(name): score_of(fields[str(name)])
        for name in metrics
        if isinstance(fields.get(str(name)), int | float)
    }


def _at_lengths(
    sample: ResultRow, scores: Mapping[int, float | None], longest: Any
) -> Iterator[ResultRow]:
    """Yield a sample at the lengths that its metrics are named after, as the harness scores RULER.

    At lengths that are not the sample's own it writes -1. longest: the document's `max_length`,
    which is its own.
    """
    if isinstance(longest, int) and longest in scores:
        scores = {longest: scores[longest]}
    real = {length: score for length, score in scores.items() if score not in (None, -1)}
    if not real:
        is_length = isinstance(longest, int) and not isinstance(longest, bool)
        yield replace(
            sample,
            length=longest if is_length and 0 < longest <= MOST_TOKENS else 0,
            scores={},
            error="-1 in the file: it has no score",
        )
    for length, score in real.items():
        asked = sample.asked if len(real) == 1 else hash_of([sample.asked, length])
        yield replace(sample, length=length, asked=asked, scores={BY_LENGTH: score})


def read_inspect_json(data: bytes, file: Path) -> Log:
    """Read a log that Inspect wrote as JSON.

    Raises NeedlemapError if it is not such a log.
    """
    log = _object(data, file.name)
    samples = log.get("samples")
    return _inspect(log, samples if isinstance(samples, list) else [], file=file)


def read_inspect(opened: IO[bytes], file: Path) -> Log:
    """Read a log of Inspect, a zip.

    Raises NeedlemapError if it is not such a log, or is too large.
    """
    # Inspect packs by zstd, which zipfile reads from Python 3.14 on.
    with suppress(ImportError):
        import zipfile_zstd  # noqa: F401
    try:
        with zipfile.ZipFile(opened) as packed:
            members = [info for info in packed.infolist() if _SAMPLE.fullmatch(info.filename)]
            size = file.stat().st_size
            unpacked = sum(info.file_size for info in members)
            if len(members) > MOST_TRIALS or unpacked > max(_MOST_WHOLE, _TIMES_WHOLE * size):
                raise NeedlemapError(
                    f"{file.name}: {len(members):,} samples, larger than any log that is read."
                )
            head = _head(packed, file.name)
            samples = (_member(packed, info, name=file.name) for info in members)
            return _inspect(head, samples, file=file, most=max(_MOST_KEPT, _TIMES_KEPT * size))
    except NotImplementedError:
        raise NeedlemapError(
            f"{file.name} is packed by zstd. Run: {install_line('inspect')}, or where Inspect is: "
            f"inspect log convert --to json --output-dir FOLDER {file.name}"
        ) from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, OSError) as error:
        raise NeedlemapError(f"{file.name}: not readable as a log of Inspect ({error}).") from None


def _head(packed: zipfile.ZipFile, name: str) -> dict[str, Any]:
    """Return a log's header; of one that was not finished, what it started with."""
    names = set(packed.namelist())
    for member in ("header.json", "_journal/start.json"):
        if member in names:
            return _member(packed, packed.getinfo(member), name=name)
    raise NeedlemapError(f"{name}: no log of Inspect: it holds no header.json.")


def _member(packed: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> dict[str, Any]:
    """Return a file of a zip as JSON.

    Raises NeedlemapError for one that is too large, whatever size the zip states.
    """
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
    """Return a log from its header and its samples. most: characters of all answers together."""
    evaluation = head.get("eval")
    if not isinstance(evaluation, dict):
        raise NeedlemapError(f"{file.name}: no log of Inspect: it does not say what was evaluated.")
    rows: list[ResultRow] = []
    answer_characters = 0
    for number, sample in enumerate(samples, 1):
        row = _inspect_sample(sample, f"{file.name}, sample {number}")
        rows.append(row)
        answer_characters += len(row.answer or "")
        if answer_characters > most:
            raise NeedlemapError(
                f"{file.name}: its answers have more than {most >> 20} MB, which is more than a "
                f"log of its size holds."
            )
    notes = []
    status = str(head.get("status") or "started")
    if status != "success":
        notes.append(f"{file.name}: the evaluation did not finish ({status})")
    return Log(
        INSPECT,
        model=shown(evaluation.get("model")),
        task=shown(evaluation.get("task")) or file.stem,
        samples=rows,
        notes=tuple(notes),
    )


def _inspect_sample(fields: Any, place: str) -> ResultRow:
    """Return a sample of Inspect. Raises NeedlemapError for anything else."""
    if not isinstance(fields, dict):
        raise NeedlemapError(f"{place}: no sample of Inspect.")
    id = sample_id(fields.get("id"), place)
    output = fields.get("output")
    metadata = fields.get("metadata")
    epoch = fields.get("epoch")
    error = fields.get("error")
    ours = metadata.get(OURS) if isinstance(metadata, dict) else None
    prompt_sha256 = ours.get("prompt_sha256") if isinstance(ours, dict) else None
    prompt = _without_ids(fields.get("input"))
    answer = text_of(output.get("completion")) if isinstance(output, dict) else None
    finish, failure = _inspect_finish(output, answer or "")
    return _sample(
        place,
        id,
        ours,
        version=epoch if isinstance(epoch, int) and 0 < epoch <= MOST_TRIALS else 1,
        asked=hash_of([id, prompt_sha256 or prompt, fields.get("target")]),
        question=shown(prompt),
        reference=shown(fields.get("target")),
        answer=answer,
        finish=finish,
        scores={} if failure else dict(_inspect_scores(fields.get("scores"))),
        error=failure or shown(error.get("message") if isinstance(error, dict) else error),
        finished_at=shown(fields.get("completed_at")),
    )


def _inspect_finish(output: Any, answer: str) -> tuple[str | None, str]:
    """Return why an answer ended, and why it does not count, or '' if it does."""
    choice = choice_of(output) if isinstance(output, dict) else None
    stop_reason = choice.get("stop_reason") if choice else None
    finish = None if stop_reason is None else finish_of(stop_reason)
    try:
        check_finish(finish, answer, shown(output.get("error")) if choice else "")
    except Unmeasured as failure:
        return finish, str(failure)
    return finish, ""


def _without_ids(input: Any) -> Any:
    """Return an input without what differs each time: messages have ids of their own."""
    if not isinstance(input, list):
        return input
    return [
        [message.get("role"), message.get("content")] if isinstance(message, dict) else message
        for message in input
    ]


def _inspect_scores(scores: Any) -> Iterator[tuple[str, float | None]]:
    """Yield scores by scorer, or by scorer and name if a score has several values."""
    if not isinstance(scores, dict):
        return
    for name, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, dict):
            for part, part_value in value.items():
                yield f"{name}/{part}", score_of(part_value)
        elif not isinstance(value, list):
            yield str(name), score_of(value)


def score_of(value: Any) -> float | None:
    """Return a score as a number, with Inspect's values for its words, or None for anything else.

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


def sample_id(value: Any, place: str) -> int | str:
    """Return a sample's id. Raises NeedlemapError for a value that is not one."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise NeedlemapError(f"{place}: a sample without an id.")
    return text_of(value) or "" if isinstance(value, str) else value


def hash_of(value: Any) -> str:
    """Return the hash by which equal prompts are recognised."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _first_text(value: Any) -> str | None:
    """Return the first text in lists of lists, or None if there is no text."""
    while isinstance(value, list) and value:
        value = value[0]
    return text_of(value) if isinstance(value, str) else None


def text_of(value: Any) -> str | None:
    """Return a text whose half characters, which no file can hold, are '?'."""
    return clean_text(value) if isinstance(value, str) else None


def shown(value: Any) -> str:
    """Return the beginning of a value as a text, or '' for None."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True, default=str)
    return (text_of(text[:_SHOWN]) or "").strip()
