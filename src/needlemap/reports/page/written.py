"""What a page says in words and tables, as HTML: of each sheet, difference and run, and of all.

Scripts bring the parts of the chosen view to their places (`PARTS` of main.js) and add colours
and charts; where they do not run, it is all there, one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from needlemap.reports.labels import (
    SIGNS,
    amount_label,
    interval_label,
    p_label,
    score_label,
    seconds_label,
    usd_label,
)
from needlemap.reports.renderers.html import (
    fold,
    isolated,
    listed,
    prose,
    sentence_html,
    soft,
    table,
    verdict_sign,
    visible,
    wide,
)
from needlemap.text import short

Data = Mapping[str, Any]
EACH = "Each cell: score in percent (n)."
ALL = "All that needlemap report says"


def written(summary: Data) -> str:
    """Return all that the page shows, in its order."""
    make_view = {
        "sheet": lambda number: _sheet(summary["sheets"][number]),
        "difference": lambda number: _difference(summary["differences"][number]),
        "run": lambda number: _run(summary["runs"][number]),
    }
    sections = []
    for kind, number in summary["views"]:
        content = make_view[kind](number)
        sections.append(
            f'<section id="{kind}-{number}" data-of="{kind} {number}">{content}</section>'
        )
    sections.append(f'<section data-of="all">{_part("told", _notes(summary))}</section>')
    return "\n".join(sections)


def _part(name: str, content: str) -> str:
    """Return HTML that scripts bring to a place of this name."""
    return f'<div data-part="{name}">{content}</div>' if content else ""


def _sheet(sheet: Data) -> str:
    """Return a sheet: advice, readings at a glance, curves and tables in its order, words."""
    comparison = sheet["comparison"] or {"refused": None}
    compared, refusal = comparison.get("sheet"), comparison["refused"]
    first, *others = _tables(sheet)
    chart = f'<figure class="chart">{sheet["chart"]}</figure>' if sheet["chart"] else ""
    shown = [first, chart] if sheet["first"] == "table" else [chart, first]
    pictures = "".join(
        f'<figure class="picture" data-points="{width:g}">{drawn}</figure>'
        for width, drawn in sheet.get("pictures", ())
    )
    lines = sheet["lines"] or ([f"Not compared: {refusal}"] if refusal else [])
    verdict = f'<section class="verdict">{_verdict(compared)}</section>' if compared else ""
    pair = f'<div class="pair">{"".join([*shown, pictures])}</div>'
    content = "".join([pair, *others, listed(lines), verdict])
    glance = _change_readings(comparison["json"]) if compared else sheet["readings"]
    answering = compared or sheet
    new_readings = [row for row in glance if not _stands_in(row[1], answering["answer"])]
    parts = f'{_readings(new_readings)}<div class="sheet-parts">{content}</div>'
    answer = _answer(answering, sheet["advice"])
    return f"<h2>{visible(sheet['title'])}</h2>\n{answer}{_part('sheet', parts)}"


def _stands_in(value: str, answer: str) -> bool:
    """Return True if the answer holds a number already: each stands once."""
    return bool(value) and re.search(rf"(?<![\w.]){re.escape(value)}(?![\w%])", answer) is not None


def _readings(rows: Iterable[Sequence[str]]) -> str:
    """Return what is known at a glance: a word, a value, a note, a kind; '' without a row."""
    shown = "".join(
        f'<div class="reading-of {kind}"><dt>{visible(word)}</dt><dd><b>{sentence_html(value)}</b>'
        f"{_note(note)}</dd></div>"
        for word, value, note, kind in rows
    )
    return f'<dl class="readings">{shown}</dl>' if shown else ""


def _note(note: str) -> str:
    return "".join(f'<span class="soft">{sentence_html(line)}</span>' for line in note.splitlines())


def _change_readings(comparison: Data) -> Iterator[Sequence[str]]:
    """Yield two compared runs at a glance."""
    overall = comparison["overall"]
    noun = "pair" if comparison["counted"] else "mean"
    note = f"%, A to B\n{amount_label(comparison['pairs'], noun)}"
    if comparison["counted"]:
        note += f", {amount_label(overall['haystacks'], 'haystack')}"
    scores = " → ".join(score_label(overall[name] / 100) for name in ("score_a", "score_b"))
    yield "Scores", scores, note, "main"
    if comparison["warnings"]:
        yield "Warning", "", " ".join(comparison["warnings"]).removeprefix("warning: "), "warned"
    if comparison["counted"]:
        note = f"{comparison['gained']:,} gained; p {p_label(overall['p'])}"
        yield "Changed", f"{comparison['lost']:,} lost", note, ""


def _run_readings(run: Data) -> Iterator[Sequence[str]]:
    """Yield a run at a glance. Its mean stands in its answer."""
    totals = run["totals"]
    if "sought" in run:
        yield run["sought"]["name"], run["sought"]["value"], "", "main"
    noun = "trial" if run["counted"] else "mean"
    failed, sent = totals["missing"] - totals["unasked"], totals["trials"] - totals["unasked"]
    if totals["unasked"]:
        note = f"of {amount_label(totals['trials'], noun)}"
        yield "Not sent", f"{totals['unasked']:,}", note, ""
    note = f"of {amount_label(sent, noun)}{' sent' if totals['unasked'] else ''}"
    yield "Not measured", f"{failed:,}", note, "warn" if failed else ""
    if withheld := run["overall"].get("withheld"):
        yield "Refused or filtered", f"{withheld:,}", "count as 0", ""
    if tokens := totals["prompt_tokens"]:
        shares = (("cached_tokens", "cached"), ("planned_tokens", "planned"))
        known_shares = [
            f"{100 * totals[key] / tokens:.0f} % {word}"
            for key, word in shares
            if totals[key] is not None
        ]
        yield "Prompt tokens", short(tokens), ", ".join(known_shares), ""
    if totals["usd"] is not None:
        judge = totals["judge_usd"]
        note = f"and {usd_label(judge)} for the judge" if judge is not None else ""
        yield "Cost", usd_label(totals["usd"]), note, ""
    if totals["seconds"] is not None:
        yield "Sum of latencies", seconds_label(totals["seconds"]), "", ""


def _difference(difference: Data) -> str:
    """Return two compared runs; of refused ones nothing is shown here."""
    sheet = difference["sheet"]
    title = f"<h2>{visible(difference['name'])}</h2>"
    answer = _answer(sheet, sheet["advice"])
    glance = _part("readings", _readings(_change_readings(difference["json"])))
    return f"{title}\n{answer}{glance}{_part('verdict', _verdict(sheet))}"


def _answer(sheet: Data, advice: Sequence[str] = ()) -> str:
    """Return what it comes to, in a sentence, with why; then what to do."""
    if "verdict" in sheet:
        word, claim, basis, next_step = sheet["verdict"]
        why = f'<p class="why">{sentence_html(_sentence(_capitalised(basis)))}</p>' if basis else ""
        head = sentence_html(_sentence(claim))
        shown = f'<p class="answer">{verdict_sign(word)} <b>{head}</b></p>{why}'
        advice_lines = [*([f"Next: {next_step}"] if next_step else []), *advice]
        return _part("answer", shown + "".join(map(_advised, advice_lines)))
    head, _, why = sheet["answer"].partition("; ")
    if not head:
        return ""
    rest = f'<p class="why">{sentence_html(_sentence(_capitalised(why)))}</p>' if why else ""
    shown = f'<p class="answer"><b>{sentence_html(_sentence(head))}</b></p>{rest}'
    return _part("answer", shown + "".join(map(_advised, advice)))


def _capitalised(text: str) -> str:
    """Return a text with a capital letter."""
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    """Return a text with a full stop."""
    return text if text[-1:] in ".!?" else f"{text}."


def _advised(text: str) -> str:
    """Return what something looks like and what to try, a line each."""
    lines = "<br>".join(sentence_html(line.strip()) for line in text.splitlines())
    return f'<p class="advice">{lines}</p>'


def _verdict(sheet: Data) -> str:
    """Return two compared runs: tables, then all lines of `needlemap compare`, folded."""
    return "".join(
        [
            "<h2>Comparison</h2>",
            soft(
                "Trials are paired by what was asked. Single cells are exploration: they are not "
                "corrected for their number."
            ),
            *_tables(sheet),
            fold("All that needlemap compare says", listed(sheet["lines"])),
        ]
    )


def _tables(sheet: Data) -> list[str]:
    """Return tables under their titles, and what stands below them.

    They are folded if they have the words to fold them under.
    """
    tables = sheet["table"], *sheet.get("more", ())
    return [_titled(table, sheet["title"]) for table in tables]


def _titled(table_data: Data, sheet_title: str) -> str:
    title, folded = table_data.get("title", ""), table_data.get("folded", "")
    if not table_data["head"] and not folded:
        return ""
    content = "".join(
        [
            soft("" if folded or title == sheet_title else title),
            wide("Table", _sheet_table(table_data)) if table_data["rows"] else "",
            *(f"<pre>{visible(line)}</pre>" for line in table_data.get("lines", ())),
            soft(table_data.get("after", "")),
        ]
    )
    return fold(folded, content) if folded else f"<section>{content}</section>"


def _sheet_table(table_data: Data) -> str:
    kinds = [kind for _, _, *kind in table_data["rows"][0]["cells"][1:]]
    rows = [
        [_row_name(row), *(_cell(*cell) for cell in row["cells"][1:])] for row in table_data["rows"]
    ]
    left = [column for column, kind in enumerate(kinds, start=1) if kind]
    return table(table_data["head"], rows, kind=f"numbers{_reflow(table_data)}", left=left)


# Letters of a row that a phone has room for, with two more between columns.
FITS = 46


def _reflow(table_data: Data) -> str:
    """Return the class of a table whose rows a narrow screen sets one cell below the other.

    What fits stays a table, down whose columns one can read.
    """
    texts = [
        [row["cells"][0], *(cell[0] for cell in row["cells"][1:])] for row in table_data["rows"]
    ]
    columns = zip(table_data["head"], *texts, strict=True)
    letters = sum(2 + max(map(len, column)) for column in columns)
    return " reflow" if letters > FITS else ""


def _row_name(row: Data) -> str:
    """Return a name that leads to what it is of."""
    name = isolated(row["cells"][0])
    if row["to"] is not None:
        kind, number = row["to"]
        name = f'<a class="link" href="#{kind}-{number}" data-to="{kind} {number}">{name}</a>'
    return f'<span class="row-name">{name}</span>'


def _cell(text: str, share: float | None, kind: str = "") -> str:
    """Return a score, which scripts set on its colour; other texts as they are."""
    if text in SIGNS:
        return f'<span class="words">{verdict_sign(text)}</span>'
    if share is not None:
        return f'<span class="tint" data-share="{share}">{sentence_html(text)}</span>'
    if kind and text:
        return f'<span class="{kind}">{sentence_html(text)}</span>'
    return sentence_html(text)


def _run(run: Data) -> str:
    """Return what stands next to a run's map; without scripts also the map in numbers."""
    effective = table(
        ["Rule", "Value [95 % interval]"], map(_effective, run["effective"]), kind="rules"
    )
    held = f"<h2>Effective length</h2>{wide('Effective length by rule', effective)}"
    beside = f'<figure class="chart">{run["beside"]}</figure>' if "beside" in run else ""
    lengths = fold(_margins_name(run), _margins(run), heading=True)
    return "\n".join(
        [
            f"<h2>{visible(run['name'])}</h2>",
            _part("effective", held if run["effective"] else ""),
            _answer(run),
            _part("readings", _readings(_run_readings(run))),
            _part("lines", listed(run["notes"]) + fold(ALL, listed(run["lines"]))),
            _part("beside", beside),
            f"{soft(EACH)}{_map(run)}",
            _part("numbers", lengths),
        ]
    )


def _effective(effective: Data) -> list[str]:
    value, rule = effective["value"], effective["rule"]
    unit = "" if value.startswith("-") else " %" if rule.startswith("auc") else " tokens"
    name = f'<span class="rule">{visible(rule)}</span>'
    return [
        f'{name}<span class="soft">{sentence_html(effective["says"])}</span>',
        f"<b>{sentence_html(value)}</b>{unit}",
    ]


def _map(run: Data) -> str:
    """Return lengths across, depths down.

    If every length has depths of its own, there is a row for each cell.
    """
    depths = {depth: label for depth, label, _ in run["depths"]}
    lengths = [label for _, label in run["lengths"]]
    cells = {(length, depth): text for length, depth, text in _cells(run["cells"])}
    if run["ragged"]:
        rows = [[lengths[length], depths[depth], text] for (length, depth), text in cells.items()]
        return table(["Length", "Depth", "Score (n)"], rows, kind="numbers")
    rows = [
        [label, *(cells.get((index, depth), "") for index in range(len(lengths)))]
        for depth, label, _ in run["depths"]
    ]
    return table(["", *lengths], rows, kind="numbers")


def _cells(cells: Data) -> Iterator[tuple[int, float, str]]:
    columns = (cells[name] for name in ("length", "depth", "score", "n"))
    for length, depth, score, n in zip(*columns, strict=True):
        yield length, depth, f"{score_label(score)} ({n})"


def _margins_name(run: Data) -> str:
    return "Numbers by length" if run["depthless"] else "Numbers by length and depth"


def _margins(run: Data) -> str:
    lengths = [f"{length:,}" for length, _ in run["lengths"]]
    tables = [_margin("Length, tokens", lengths, run["by_length"])]
    if not run["depthless"]:
        tables.append(_margin("Depth", run["by_depth"]["label"], run["by_depth"]))
    return f'<div class="pair">{"".join(tables)}</div>'


def _margin(name: str, labels: Sequence[str], means: Data) -> str:
    columns = (means[name] for name in ("score", "low", "high", "n"))
    rows = [
        [
            label,
            score_label(score) if n else "not measured",
            interval_label(low, high),
            f"{n:,}",
        ]
        for label, score, low, high, n in zip(labels, *columns, strict=True)
    ]
    return table([name, "Score, %", "95 % interval", "n"], rows, kind="numbers")


def _notes(summary: Data) -> str:
    """Return what is not compared or measured, costs, settings, versions and hashes."""
    runs = summary["runs"]
    refused = [difference for difference in summary["differences"] if difference["refused"]]
    failed = any(run["totals"]["missing"] > run["totals"]["unasked"] for run in runs)
    notes = {
        "What is not compared, and why": _refused(refused, runs),
        "What could not be measured": _failures(runs),
        "Tokens, cost and time": _totals(runs),
        "Settings": _values(runs, "settings", "Setting"),
        "Versions and hashes": _values(runs, "versions", "What"),
    }
    return "\n".join(
        fold(name, wide(name, content), heading=True, is_open=failed and name.endswith("measured"))
        for name, content in notes.items()
        if content
    )


def _refused(refused: Sequence[Data], runs: Sequence[Data]) -> str:
    rows = []
    for difference in refused:
        first, second = (isolated(runs[difference[side]]["name"]) for side in "ab")
        rows.append([f"{first} with {second}", isolated(difference["refused"])])
    return table(["Runs", "Why"], rows, kind="reflow") if rows else ""


def _failures(runs: Sequence[Data]) -> str:
    rows = [
        [
            isolated(failure["kind"]),
            f"{failure['count']:,}",
            "".join(map(prose, failure["examples"])),
            isolated(run["name"]),
        ]
        for run in runs
        for failure in run["failures"]
    ]
    if not rows:
        return soft("Every trial was measured.")
    head = ["Kind", "Trials", "In the server's or library's words", "Run"]
    shown = 4 if len(runs) > 1 else 3
    return table(head[:shown], [row[:shown] for row in rows], kind="reflow")


TOTALS = {
    "trials": "trials",
    "scored": "scored",
    "missing": "not measured",
    "prompt_tokens": "prompt tokens",
    "cached_tokens": "of which read from a cache",
    "planned_tokens": "of which planned to be shared",
    "completion_tokens": "answer tokens",
    "thinking_tokens": "of which thinking",
    "usd": "cost, US dollars",
    "judge_usd": "the judge's cost, US dollars",
    "seconds": "sum of latencies, s",
}
# Shown only if there is any.
RARE = ("thinking_tokens", "judge_usd")


def _totals(runs: Sequence[Data]) -> str:
    totals = [run["totals"] for run in runs]
    keys = [key for key in TOTALS if key not in RARE or any(total[key] for total in totals)]
    rows = [[isolated(run["name"]), *(_amount(run["totals"][key]) for key in keys)] for run in runs]
    head = ["Run", *(TOTALS[key] for key in keys)]
    lines = [line for total in totals for line in total["cache_lines"]]
    return table(head, rows, kind="numbers reflow") + "".join(map(soft, lines))


def _amount(value: float | None) -> str:
    """Return a count as it is; dollars and seconds to the hundredth, below one to two digits."""
    if value is None:
        return "not known"
    if not isinstance(value, float):
        return f"{value:,}"
    return f"{value:.2g}" if value < 1 else f"{value:,.2f}"


def _values(runs: Sequence[Data], key: str, head: str) -> str:
    """Return a row a value, with the runs that have it.

    What differs between runs, or from the default, is marked.
    """
    runs_by_value: dict[str, dict[str, list[str]]] = {}
    changed: set[str] = set()
    for run in runs:
        for name, value, *more in run[key]:
            runs_by_value.setdefault(name, {}).setdefault(str(value), []).append(run["name"])
            changed |= {name} if any(more) else set()
    differs = {
        name
        for name, values in runs_by_value.items()
        if [*map(len, values.values())] != [len(runs)]
    }
    legend = []
    if changed:
        legend.append("• set for this run; without a mark: the default.")
    if differs:
        legend.append("≠ differs between the runs.")
    entries = [
        (name, value, names)
        for name, values in runs_by_value.items()
        for value, names in values.items()
    ]
    rows = [
        [_marked(name, differs, changed), prose(value), visible(_whose(names, len(runs)))]
        for name, value, names in entries
    ]
    marks = [
        f"{'differs ' * (name in differs)}{'changed' * (name in changed)}" for name, *_ in entries
    ]
    shown = 3 if len(runs) > 1 else 2
    cells = [row[:shown] for row in rows]
    html = table([head, "Value", "Runs"][:shown], cells, kind=f"{key} reflow", marks=marks)
    return soft(" ".join(legend)) + html


def _marked(name: str, differs: set[str], changed: set[str]) -> str:
    signs = f"{'≠ ' * (name in differs)}{'• ' * (name in changed)}"
    return f'<span class="sign">{signs}</span>{isolated(name)}'


def _whose(names: Sequence[str], count: int) -> str:
    if len(names) == count:
        return "all"
    more = ", …" if len(names) > 3 else ""
    return f"{len(names)} of {count}: {', '.join(names[:3])}{more}"
