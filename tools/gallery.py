"""docs/gallery.md and its pictures: what a check sees of each public fault, from checks that were
kept.

    python benchmarks/check.py --clean 0 --keep CHECKS
    python benchmarks/check.py --faults FAULTS
    python tools/gallery.py CHECKS FAULTS

A picture shows the fault that begins at the middle size: a block for each size, a row for each way
of asking, a square for each answer. Where a fault shows in margins alone, a square is the darker
the more nats they move.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS, SIDE, STEP, LEFT, TOP, ACROSS, LINES, GAP = ROOT / "docs", 9, 11, 108, 20, 24, 2, 14
RIGHT, MOVED, WRONG, INK = "#cfe3d4", "#d98324", "#b3261e", "#444444"
ROWS = {  # ways of asking that show what a probe tests
    "pattern": ("ask",),
    "cache": ("cold", "warm", "tail", "within"),
    "onset": ("cold", "warm", "half", "stepped"),
    "nats": ("cold", "warm"),
    "same": ("ask", "again"),
    "load": ("ask", "loaded", "crowded"),
    "mates": ("cold", "ask"),
    "cut": ("ask",),
    "stop": ("ask",),
    "reference": ("reference-cold", "cold"),
}
GAUGE_SIZES = 500, 2000, 8000
GAUGE = "gauge, at 500", "at 2,000", "at 8,000"
LAST_COLUMNS = """The last three columns are of the same faults in
[the gauge](gauge.md), in a check to 8,000 tokens: {found} of {asked} are found. The gauge answers
one prompt at a time there, so `wrong-under-load` was not put into it. There
`off-by-one-after-a-hit` is found by `cache`, where a hit ends within a fact. A window that is never
left is felt by no head of the gauge."""
FULL_NATS = 0.5  # a token: margins that move so much are drawn darkest

sys.path.insert(0, str(ROOT / "tests" / "wings" / "servers" / "gallery"))
sys.path.insert(0, str(ROOT / "benchmarks"))
from mutants import MUTANTS, SIZES, Mutant, begins_at  # noqa: E402
from threads import THREADS, Thread  # noqa: E402

from gauge_faults import Begun, read_begun  # noqa: E402
from needlemap.records.folder import RunFolder  # noqa: E402
from needlemap.records.record import Record  # noqa: E402
from needlemap.servers.check import Finding, read_check  # noqa: E402

Block = tuple[int, list[tuple[str, list[str]]]]


def is_right(record: Record) -> bool:
    """Whether an answer is right, and ended by itself."""
    return record.score == 1.0 and record.finish != "length"


def hash_of(record: Record) -> str:
    """The prompt, byte for byte."""
    return record.prompt.sha256 if record.prompt else record.key


def margin_apart(one: Record, other: Record) -> float:
    """By how many nats a token the margins of two answers differ; 0 where they are not known."""
    if one.logprobs is None or other.logprobs is None:
        return 0.0
    rows = [
        [nats - (second or 0.0) for nats, second in zip(each.nats, each.other_nats, strict=True)]
        for each in (one.logprobs, other.logprobs)
    ]
    apart = [abs(left - right) for left, right in zip(*rows, strict=False)]
    return sum(apart) / len(apart) if apart else 0.0


def picture(blocks: Sequence[Block], title: str) -> str:
    """An SVG of sizes side by side: of each its rows of squares."""
    wide = LEFT + len(blocks) * (ACROSS * STEP + GAP)
    names = [name for name, _ in blocks[0][1]]
    lines = {
        name: max(1, *(-(-len(dict(rows).get(name, ())) // ACROSS) for _, rows in blocks))
        for name in names
    }
    parts, y = [], TOP
    for name in names:
        parts.append(f'<text x="4" y="{y + SIDE}" fill="{INK}">{name}</text>')
        for at, (_, rows) in enumerate(blocks):
            x = LEFT + at * (ACROSS * STEP + GAP)
            for number, colour in enumerate(dict(rows).get(name, ())):
                line, column = divmod(number, ACROSS)
                place = f'x="{x + column * STEP}" y="{y + line * STEP}"'
                parts.append(f'<rect {place} width="{SIDE}" height="{SIDE}" fill="{colour}"/>')
        y += lines[name] * STEP + SIDE
    heads = [
        f'<text x="{LEFT + at * (ACROSS * STEP + GAP)}" y="12" fill="{INK}">{size} tokens</text>'
        for at, (size, _) in enumerate(blocks)
    ]
    size = f'width="{wide}" height="{y}" viewBox="0 0 {wide} {y}"'
    style = 'font-family="sans-serif" font-size="11"'
    back = f'<title>{title}</title><rect width="100%" height="100%" fill="white"/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{back}',
            *heads,
            *parts,
            "</svg>\n",
        ]
    )


def colours_of(records: Iterable[Record], beside: dict[str, Record]) -> list[str]:
    """A colour for each answer: wrong ones red, right ones by how far their margins moved."""
    found = []
    for record in records:
        other = beside.get(hash_of(record))
        apart = margin_apart(record, other) if other else 0.0
        found.append(mixed(min(1.0, apart / FULL_NATS)) if is_right(record) else WRONG)
    return found


def mixed(share: float) -> str:
    """Between a right answer's colour and that of a margin that moved."""
    ends = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (RIGHT, MOVED)]
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(*ends, strict=True))


def rows_at(probe: str, check: Path, size: int) -> list[tuple[str, list[str]]]:
    """The ways of one size, their answers in order of haystacks."""
    found, beside = list[tuple[str, list[str]]](), dict[str, Record]()
    for way in ROWS[probe]:
        folder = check / f"{way}-{size}"
        records = list(RunFolder(folder).records()) if folder.is_dir() else []
        by_length = probe == "pattern"
        records.sort(key=lambda each: (by_length * each.length_tokens, each.repeat, each.depth))
        found.append((way, colours_of(spread(records), beside)))
        if probe in ("nats", "reference"):
            beside = {hash_of(record): record for record in records}
    return found


def spread(records: Sequence[Record]) -> Sequence[Record]:
    """As many as a row has room for, spread over all haystacks."""
    most = ACROSS * LINES
    return (
        [records[at * len(records) // most] for at in range(min(most, len(records)))]
        if (len(records) > most)
        else records
    )


def found_at(check: Path, probe: str) -> tuple[Finding, int | None]:
    """What the probe came to, and from which size on it fails."""
    (finding,) = [each for each in read_check(check).findings if each.probe == probe]
    return finding, begins_at(finding)


def section(mutant: Mutant, checks: Path) -> str:
    """A fault's part of the page."""
    number = "#" + mutant.like.rpartition("/")[2]
    report = f"[{'/'.join(mutant.like.split('/')[3:5])}{number}]({mutant.like})"
    finding, at = found_at(checks / f"{mutant.name}-{SIZES[1]}", mutant.probe)
    verdict = "fails" if at else "does not fail"
    return (
        f"## {mutant.name}\n\n{mutant.about} Public report: {report}.\n\n"
        f"![{mutant.name}](images/gallery/{mutant.name}.svg)\n\n"
        f"`{mutant.probe}` {verdict}: {finding.said}.\n\n"
        f"```bash\npython tests/wings/servers/gallery/mutants.py {mutant.name}\n```\n"
    )


def table_row(mutant: Mutant, checks: Path, in_gauge: Sequence[Begun]) -> tuple[str, int]:
    """A fault's row of the table, and at how many sizes of the model in the box it is found where
    it begins."""
    cells, count = [], 0
    for index, size in enumerate(SIZES):
        finding, at = found_at(checks / f"{mutant.name}-{size}", mutant.probe)
        is_found = at == finding.sizes[index].size
        cells.append("found" if is_found else finding.state if at is None else f"from {at} on")
        count += is_found
    cells += gauge_cells(mutant.name, in_gauge)
    return f"| [{mutant.name}](#{mutant.name}) | `{mutant.probe}` | {' | '.join(cells)} |", count


def gauge_cells(name: str, in_gauge: Sequence[Begun]) -> list[str]:
    """What became of a fault at each size of the gauge; '' where it was not asked."""
    told = {(each.fault, each.size): each.state for each in in_gauge}
    return [told.get((name, size), "") for size in GAUGE_SIZES]


def thread_row(thread: Thread, counts: Mapping[str, int]) -> str:
    """A thread's row of the coverage table. counts: at how many sizes each fault is found."""
    found = "not tried"
    if thread.fault:
        count = counts[thread.fault]
        said = "found" if count == len(SIZES) else f"found at {count} of {len(SIZES)} sizes"
        found = f"{said}: [{thread.fault}](#{thread.fault})"
    elif thread.storm:
        found = f"{'not found' if thread.missed else 'found'}: {thread.storm}"
    probe = f"`{thread.probe}`" * (not thread.storm) or "[storm](storm.md)"
    return f"| {thread.where} | {thread.what} | {probe} | {found} |"


def coverage(counts: Mapping[str, int]) -> str:
    """The table of public threads, and what it comes to."""
    covered = sum(counts.get(thread.fault) == len(SIZES) for thread in THREADS)
    stormed = sum(bool(thread.storm) and not thread.missed for thread in THREADS)
    missed = sum(thread.missed for thread in THREADS)
    partly = len(THREADS) - covered - stormed - missed
    return f"""## Thirty threads of 2026

Public threads on long contexts that went wrong in silence. For each a fault is tried. {covered} of
{len(THREADS)} are found by `check` at each size of this gallery, {partly} at some sizes. {stormed}
more are found by `storm` in its engine in a box; {missed} it missed.

| thread | what | probe | found |
| --- | --- | --- | --- |
{chr(10).join(thread_row(thread, counts) for thread in THREADS)}

"""


def main(checks: Path, in_gauge: Sequence[Begun]) -> None:
    """Draw all that were kept, and write the page."""
    (DOCS / "images" / "gallery").mkdir(parents=True, exist_ok=True)
    rows, counts = [], {}
    for mutant in MUTANTS:
        row, count = table_row(mutant, checks, in_gauge)
        rows.append(row)
        counts[mutant.name] = count
        check = checks / f"{mutant.name}-{SIZES[1]}"
        blocks = [(size, rows_at(mutant.probe, check, size)) for size in read_check(check).sizes]
        drawn = picture(blocks, f"{mutant.name}, from {SIZES[1]} tokens on")
        (DOCS / "images" / "gallery" / f"{mutant.name}.svg").write_text(drawn)
    first, middle, last = SIZES
    gauge = [each.state == "found" for each in in_gauge]
    found = sum(counts.values())
    head = f"""# The gallery of faults

For readers who ask what [check](check.md) can see. At the end you know which probe finds which
fault, and which faults none finds. {len(MUTANTS)} public faults of inference engines are put into
the model in the box, in [a few lines](../tests/wings/servers/gallery/faults.py) each.

Each fault begins at each of the three sizes of a check to 256 tokens: shorter prompts are answered
right. A fault is found if its probe fails at that size, and at no shorter one: {found} of
{len(MUTANTS) * len(SIZES)} are. SUSPECT is exit code 5, where something points to a loss;
PASS is a miss. {LAST_COLUMNS.format(found=sum(gauge), asked=len(gauge))}

| fault | probe | begins at {first} | at {middle} | at {last} | {" | ".join(GAUGE)} |
| --- | --- | --- | --- | --- | --- | --- | --- |
{chr(10).join(rows)}

A picture shows the fault that begins at {middle} tokens. Each square is an answer, and each row is
a [way of asking](#ways-of-asking). Green is right, red is wrong. Orange is right, with a margin
over the runner-up that moved. The reference reads prompts as text, whose tokens differ by two or
three: that alone moves margins by 0.1 nats a token.

The commands run in a checkout, in about half a minute each. A size behind the name says where the
fault begins. `tools/gallery.py` makes this page: do not edit it.

`python tests/wings/servers/gallery/mutants.py last-tokens-only 512 2048` puts a fault that begins
at 512 tokens into [the gauge](gauge.md), with prompts to 2,048.

"""
    sections = [section(mutant, checks) for mutant in MUTANTS]
    (DOCS / "gallery.md").write_text(head + "\n".join(sections) + "\n" + coverage(counts) + WAYS)


WAYS = """## Ways of asking

| row | the prompt |
| --- | --- |
| cold | from an empty cache |
| warm | the same once more |
| tail | the same question behind more text, where a cache hit ends just behind the fact |
| within | the same question, with a number of other last digits: a cache hit ends within it |
| half, stepped | half of the prompt; then the whole, behind what a cache holds of it |
| ask | other questions about the same text |
| again | the same prompt a second time |
| loaded, crowded | beside others: from the cache; computed |
| reference-cold | the same prompt, asked of the sound model |
"""

if __name__ == "__main__":
    main(Path(sys.argv[1]), read_begun(Path(sys.argv[2])))
