"""docs/gallery.md and its pictures: what a check sees of each public fault, from checks that were
kept.

    python benchmarks/check.py --clean 0 --keep CHECKS; python tools/gallery.py CHECKS

A picture has a row for each way of asking and a square for each answer of the shortest size, right
or wrong; of a fault that shows in margins alone, darker the more nats they move.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS, SIDE, STEP, LEFT, MOST = ROOT / "docs", 9, 11, 100, 48
RIGHT, WRONG, INK = "#cfe3d4", "#b3261e", "#444444"
ROWS = {  # ways of asking that show what a probe tests
    "length": ("short", "ask"),
    "comb": ("ask",),
    "edges": ("edges",),
    "cache": ("cold", "warm", "tail"),
    "onset": ("stepped", "warm", "cold"),
    "nats": ("cold", "warm"),
    "same": ("warm", "again", "short"),
    "load": ("ask", "loaded"),
    "mates": ("ask", "loaded"),
    "replies": ("cold", "ask"),
    "cut": ("ask",),
    "stop": ("short", "ask"),
    "window": ("ask", "window", "beyond"),
    "reference": ("reference-cold", "cold"),
}
FULL_NATS = 0.5  # a token: margins that move so much are drawn darkest

sys.path.insert(0, str(ROOT / "tests" / "gallery"))
from mutants import MUTANTS, Mutant  # noqa: E402

from needlemap.check import Finding, read_check  # noqa: E402
from needlemap.records.folder import RunFolder  # noqa: E402
from needlemap.records.record import Record  # noqa: E402


def hit(record: Record) -> bool:
    """Whether an answer is right."""
    return record.score == 1.0


def prompt(record: Record) -> str:
    """What was asked, byte for byte."""
    return record.prompt.sha256 if record.prompt else record.key


def margin_apart(one: Record, other: Record) -> float | None:
    """By how many nats a token the margins of two answers differ."""
    if one.logprobs is None or other.logprobs is None:
        return None
    rows = [
        [nats - (second or 0.0) for nats, second in zip(each.nats, each.other_nats, strict=True)]
        for each in (one.logprobs, other.logprobs)
    ]
    apart = [abs(left - right) for left, right in zip(*rows, strict=False)]
    return sum(apart) / len(apart) if apart else None


def picture(rows: Sequence[tuple[str, Sequence[str]]], title: str) -> str:
    """An SVG of rows, each a name and the colours of its squares."""
    wide = LEFT + STEP * max(len(colours) for _, colours in rows) + 4
    parts = [f'<title>{title}</title><rect width="100%" height="100%" fill="white"/>']
    for number, (name, colours) in enumerate(rows):
        y = 4 + number * 2 * STEP
        parts.append(f'<text x="4" y="{y + SIDE}" fill="{INK}">{name}</text>')
        for place, colour in enumerate(colours):
            parts.append(
                f'<rect x="{LEFT + place * STEP}" y="{y}" width="{SIDE}" height="{SIDE}" fill="{colour}"/>'  # noqa: E501
            )
    size = f'width="{wide}" height="{len(rows) * 2 * STEP}"'
    style = 'font-family="sans-serif" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>' + "\n".join(parts) + "</svg>\n"
    )


def colours_of(records: Iterable[Record], beside: dict[object, Record]) -> list[str]:
    """A colour for each answer: wrong ones red, right ones by how far their margins moved."""
    found = []
    for record in records:
        other = beside.get(prompt(record))
        apart = (margin_apart(record, other) or 0.0) if other else 0.0
        found.append(mixed(min(1.0, apart / FULL_NATS)) if hit(record) else WRONG)
    return found[:MOST]


def mixed(share: float) -> str:
    """Between a right answer's colour and a wrong one's."""
    ends = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (RIGHT, "#d98324")]
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(*ends, strict=True))


def rows_of(mutant: Mutant, check: Path) -> list[tuple[str, list[str]]]:
    """The ways that show a fault, at the size that shows it best."""
    sizes = {each.name.rpartition("-")[2] for each in check.glob(f"{ROWS[mutant.probe][-1]}-*")}
    each = [rows_at(mutant, check, size) for size in sorted(sizes, key=int)]
    return max(each, key=lambda rows: sum(colours.count(WRONG) for _, colours in rows))


def rows_at(mutant: Mutant, check: Path, size: str) -> list[tuple[str, list[str]]]:
    """The ways of one size, their answers in their order; of those that have one size that one."""
    found, beside = list[tuple[str, list[str]]](), dict[object, Record]()
    for kind in ROWS[mutant.probe]:
        folders = [check / f"{kind}-{size}", *check.glob(f"{kind}-*")]
        records = sorted(RunFolder(next(filter(Path.is_dir, folders))).records(), key=order)
        if records:
            found.append((kind, colours_of(records, beside)))
        beside = (
            {prompt(row): row for row in records} if mutant.probe in ("nats", "reference") else {}
        )
    return found


def order(record: Record) -> tuple[int, float, int]:
    """By what answers stand beside each other."""
    return record.length_tokens, record.depth, record.repeat


def section(mutant: Mutant, finding: Finding | None) -> str:
    """A fault's part of the page."""
    number = "#" + mutant.like.rpartition("/")[2]
    told = f"`{mutant.probe}`: {finding.said}." if finding else "Not found."
    return (
        f"## {mutant.name}\n\n{mutant.about} ({'/'.join(mutant.like.split('/')[3:5])}{number}: "
        f"[report]({mutant.like}))\n\n![{mutant.name}](images/gallery/{mutant.name}.svg)\n\n{told}\n\n"
        f"```bash\npython tests/gallery/mutants.py {mutant.name}\n```\n"
    )


def main(checks: Path) -> None:
    """Draw all that were kept, and write the page."""
    sections, found = [], 0
    (DOCS / "images" / "gallery").mkdir(parents=True, exist_ok=True)
    for mutant in MUTANTS:
        check = checks / mutant.name
        findings = {each.probe: each for each in read_check(check).findings if each.state == "fail"}
        found += mutant.probe in findings
        drawn = picture(rows_of(mutant, check), mutant.name)
        (DOCS / "images" / "gallery" / f"{mutant.name}.svg").write_text(drawn)
        sections.append(section(mutant, findings.get(mutant.probe)))
    head = (
        "# The gallery of faults\n\n"
        f"{len(MUTANTS)} public faults of inference engines, each in a few lines in the model in "
        f"the box "
        f"([the lines](../tests/gallery/faults.py)), and what [check](check.md) says of them: "
        f"{found} are "
        "found by the probe that is meant for them. In the pictures each square is an answer: "
        "green is "
        "right, red wrong; orange is right, with a margin over the runner-up that moved. The "
        "commands run "
        "from a checkout, in ten seconds each. Made by `tools/gallery.py`; do not edit.\n\n"
    )
    (DOCS / "gallery.md").write_text(head + "\n".join(sections))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
