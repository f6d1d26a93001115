"""NeedleBench's own summary: a column a model, a row a test, language and size, in percent.

    dataset,internlm-20b
    NeedleBench-Overall-Score-4K,39.60
    Single-Needle-Retrieval-EN-4K,48.00
    2-Needle-ZH-4K,20.00

Each row is a mean over lengths and depths up to that size, so it has one length and no depth.
Rows of a test and a language become families of `suite:needlebench`; the file's means of these
are made anew from them, and a note says where they differ.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence

from needlemap.errors import NeedlemapError
from needlemap.interop import Fields, ResultRow

SUITE = "needlebench"
SCORER = "OpenCompass"
_NO_SCORE = "-"
_RULE = "---"  # begins a row that names a block
_LEAF = re.compile(r"(?:(Single|Multi)-Needle-Retrieval|([2-5])-Needle)-(EN|ZH)-([1-9][0-9]{0,4})K")
_TOTAL = re.compile(
    r"NeedleBench-(Overall)-Score-([0-9]{1,5})K|[A-Za-z-]+\((S-RT|M-RT|M-RS)\)-([0-9]{1,5})K"
)
_NAMES = {"Single": "single", "Multi": "parallel"}
_OVERALL = {"overall": (1 / 3, 1 / 3, 1 / 3), "overall-v1": (0.4, 0.3, 0.3)}
_NEAR = 0.0151  # points: the file's values are rounded to 0.01


def is_summary(header: Sequence[str], lines: Sequence[Sequence[str]]) -> bool:
    """Whether a table is this summary."""
    return header[:1] == ["dataset"] and any(_LEAF.fullmatch(line[0]) for line in lines)


def read_summary(text: str, name: str) -> list[ResultRow]:
    """A row a model, test, language and size. Raises NeedlemapError."""
    header, table = _table(text, name)
    found = []
    for number, line in table:
        leaf = _LEAF.fullmatch(line[0])
        if leaf is None:
            continue
        kind, needles, language, size = leaf.groups()
        family = f"{_NAMES[kind] if kind else f'reasoning-{needles}'}-{language.lower()}"
        for model, said in zip(header[1:], line[1:], strict=True):
            place = f"{name}, row {number} ({line[0]})"
            native = None if said == _NO_SCORE else Fields({model: said}, place).number(model)
            found.append(
                ResultRow(
                    place,
                    1000 * int(size),
                    50,
                    native,
                    model=model,
                    task=family,
                    scorer=SCORER,
                    scale=(0.0, 100.0),
                    error="" if native is not None else f"'{_NO_SCORE}' in the summary",
                    mean=True,
                    suite=SUITE,
                )
            )
    return found


def summary_notes(text: str, name: str) -> list[str]:
    """What a reader of the summary should know: which weights its overall score has, and
    whether its single needle's score is that of several needles. Raises NeedlemapError."""
    header, table = _table(text, name)
    notes = list[str]()
    for at, model in enumerate(header[1:], 1):
        values = {line[0]: float(line[at]) for _, line in table if _is_number(line[at])}
        totals: dict[str, dict[str, float]] = {}
        for row, value in values.items():
            if total := _TOTAL.fullmatch(row):
                overall, size, part, other = total.groups()
                totals.setdefault(size or other, {})[overall or part] = value
        for size, known in totals.items():
            notes += _notes(f"{name}, {model}, {size}K", known, values, size)
    return notes


def _notes(
    place: str, known: Mapping[str, float], values: Mapping[str, float], size: str
) -> Iterator[str]:
    parts = [known.get(each) for each in ("S-RT", "M-RT", "M-RS")]
    if "Overall" in known and None not in parts:
        made = {
            name: sum(weight * (part or 0.0) for weight, part in zip(weights, parts, strict=True))
            for name, weights in _OVERALL.items()
        }
        same = [score for score, value in made.items() if abs(value - known["Overall"]) < _NEAR]
        said = f"has the weights of '{same[0]}'" if same else "has neither version's weights"
        yield f"{place}: its overall score of {known['Overall']:.2f} {said}"
    pairs = [
        [values.get(f"{test}-Needle-Retrieval-{each}-{size}K") for test in _NAMES]
        for each in ("EN", "ZH")
    ]
    if all(one is not None and one == other for one, other in pairs):
        yield (
            f"{place}: single and parallel needles have equal scores. OpenCompass's summary takes "
            f"the first from the second since June 2025"
        )


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?", text) is not None


def _table(text: str, name: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and the numbered rows that hold values. Raises NeedlemapError."""
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except csv.Error as error:
        raise NeedlemapError(f"{name}: not readable as CSV ({error}).") from None
    header = lines[0]
    if len(header) < 2 or len(set(header)) != len(header):
        raise NeedlemapError(f"{name}: a column a model is expected behind 'dataset'.")
    rows = [
        (number, line)
        for number, line in enumerate(lines[1:], 2)
        if line[0] != header[0] and not line[0].startswith(_RULE)
    ]
    for number, line in rows:
        if len(line) != len(header):
            raise NeedlemapError(
                f"{name}, row {number}: {len(header)} columns expected, got {len(line)}."
            )
    return header, rows
