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
    interval_label,
    p_label,
    score_label,
    seconds_label,
    usd_label,
)
from needlemap.reports.renderers.html import (
    fold,
    isolate,
    list_html,
    prose_block,
    sentence_html,
    soft_paragraph,
    table,
    verdict_sign,
    visible_html,
    wide_block,
)
from needlemap.text import counted, short

Data = Mapping[str, Any]
CELLS_NOTE = "Each cell: score in percent (n)."
ALL_LINES = "All sentences of needlemap report"


def views_html(summary: Data) -> str:
    """Return the HTML of all views, in the page's order, and of the notes on all runs."""
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
    """Return a sheet: its answer and advice, readings, curves and tables, and its lines."""
    comparison = sheet["comparison"] or {"refused": None}
    comparison_sheet, refusal = comparison.get("sheet"), comparison["refused"]
    first_table, *other_tables = _tables(sheet)
    chart = f'<figure class="chart">{sheet["chart"]}</figure>' if sheet["chart"] else ""
    chart_and_table = [first_table, chart] if sheet["first"] == "table" else [chart, first_table]
    pictures = "".join(
        f'<figure class="picture" data-points="{width:g}">{svg}</figure>'
        for width, svg in sheet.get("pictures", ())
    )
    lines = sheet["lines"] or ([f"Not compared: {refusal}"] if refusal else [])
    verdict = (
        f'<section class="verdict">{_verdict(comparison_sheet)}</section>'
        if comparison_sheet
        else ""
    )
    pair = f'<div class="pair">{"".join([*chart_and_table, pictures])}</div>'
    content = "".join([pair, *other_tables, list_html(lines), verdict])
    glance = _change_readings(comparison["json"]) if comparison_sheet else sheet["readings"]
    answering = comparison_sheet or sheet
    new_readings = [row for row in glance if not _stands_in(row[1], answering["answer"])]
    parts = f'{_readings(new_readings)}<div class="sheet-parts">{content}</div>'
    answer = _answer(answering, sheet["advice"])
    return f"<h2>{visible_html(sheet['title'])}</h2>\n{answer}{_part('sheet', parts)}"


def _stands_in(value: str, answer: str) -> bool:
    """Return True if the answer holds a number already, so that it is not shown twice."""
    return bool(value) and re.search(rf"(?<![\w.]){re.escape(value)}(?![\w%])", answer) is not None


def _readings(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of a word, a value, a note and a class as HTML, or '' if there is no row."""
    readings = "".join(
        f'<div class="reading-of {kind}"><dt>{visible_html(word)}</dt>'
        f"<dd><b>{sentence_html(value)}</b>{_note(note)}</dd></div>"
        for word, value, note, kind in rows
    )
    return f'<dl class="readings">{readings}</dl>' if readings else ""


def _note(note: str) -> str:
    return "".join(f'<span class="soft">{sentence_html(line)}</span>' for line in note.splitlines())


def _change_readings(comparison: Data) -> Iterator[Sequence[str]]:
    """Yield the readings of two compared runs: word, value, note and class."""
    overall = comparison["overall"]
    noun = "pair" if comparison["counted"] else "mean"
    note = f"%, A to B\n{counted(comparison['pairs'], noun)}"
    if comparison["counted"]:
        note += f", {counted(overall['haystacks'], 'haystack')}"
    shares = (
        None if overall[name] is None else overall[name] / 100 for name in ("score_a", "score_b")
    )
    yield "Scores", " → ".join(map(score_label, shares)), note, "main"
    if comparison["warnings"]:
        yield "Warning", "", " ".join(comparison["warnings"]).removeprefix("warning: "), "warned"
    if comparison["counted"]:
        note = f"{comparison['gained']:,} gained"
        if overall["p"] is not None:
            note += f"; p {p_label(overall['p'])}"
        yield "Changed", f"{comparison['lost']:,} lost", note, ""


def _run_readings(run: Data) -> Iterator[Sequence[str]]:
    """Yield the readings of a run: word, value, note and class. Its answer has its mean."""
    totals = run["totals"]
    if "sought" in run:
        yield run["sought"]["name"], run["sought"]["value"], "", "main"
    noun = "trial" if run["counted"] else "mean"
    failure_count, sent_count = (
        totals["missing"] - totals["unasked"],
        totals["trials"] - totals["unasked"],
    )
    if totals["unasked"]:
        note = f"of {counted(totals['trials'], noun)}"
        yield "Not sent", f"{totals['unasked']:,}", note, ""
    note = f"of {counted(sent_count, noun)}{' sent' if totals['unasked'] else ''}"
    yield "Not measured", f"{failure_count:,}", note, "warn" if failure_count else ""
    if run["withheld"]:
        yield "Refused or filtered", f"{run['withheld']:,}", "count as 0", ""
    if tokens := totals["prompt_tokens"]:
        shares = (("cached_tokens", "cached"), ("planned_tokens", "planned to be shared"))
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
    """Return the HTML of two compared runs. They must not be refused."""
    sheet = difference["sheet"]
    title = f"<h2>{visible_html(difference['name'])}</h2>"
    answer = _answer(sheet, sheet["advice"])
    glance = _part("readings", _readings(_change_readings(difference["json"])))
    return f"{title}\n{answer}{glance}{_part('verdict', _verdict(sheet))}"


def _answer(sheet: Data, advice: Sequence[str] = ()) -> str:
    """Return the HTML of a sheet's result, its reason, and what to do next.

    If the sheet has neither a verdict nor an answer, the result is ''.
    """
    sign = ""
    advice_lines = list(advice)
    if "verdict" in sheet:
        word, claim, reason, next_step = sheet["verdict"]
        sign = f"{verdict_sign(word)} "
        if next_step:
            advice_lines.insert(0, f"Next: {next_step}")
    else:
        claim, _, reason = sheet["answer"].partition("; ")
        if not claim:
            return ""

    html = f'<p class="answer">{sign}<b>{sentence_html(_sentence(claim))}</b></p>'
    if reason:
        html += f'<p class="why">{sentence_html(_sentence(_capitalised(reason)))}</p>'
    html += "".join(map(_advice_html, advice_lines))
    return _part("answer", html)


def _capitalised(text: str) -> str:
    """Return a text with a capital letter."""
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    """Return a text with a full stop."""
    return text if text[-1:] in ".!?" else f"{text}."


def _advice_html(text: str) -> str:
    """Return advice as a paragraph: what the result looks like and what to try, a line each."""
    lines = "<br>".join(sentence_html(line.strip()) for line in text.splitlines())
    return f'<p class="advice">{lines}</p>'


def _verdict(sheet: Data) -> str:
    """Return two compared runs: tables, then all lines of `needlemap compare`, folded."""
    return "".join(
        [
            "<h2>Comparison</h2>",
            soft_paragraph(
                "Trials are paired by what was asked. Single cells are exploration: they are not "
                "corrected for their number."
            ),
            *_tables(sheet),
            fold("All sentences of needlemap compare", list_html(sheet["lines"])),
        ]
    )


def _tables(sheet: Data) -> list[str]:
    """Return a sheet's tables under their titles, with the lines below them.

    A table that has a title to fold it under is folded.
    """
    tables = sheet["table"], *sheet.get("more", ())
    return [_titled_table(table, sheet["title"]) for table in tables]


def _titled_table(table_data: Data, sheet_title: str) -> str:
    title, fold_title = table_data.get("title", ""), table_data.get("folded", "")
    if not table_data["head"] and not fold_title:
        return ""
    content = "".join(
        [
            soft_paragraph("" if fold_title or title == sheet_title else title),
            wide_block("Table", _sheet_table(table_data)) if table_data["rows"] else "",
            *(f"<pre>{visible_html(line)}</pre>" for line in table_data.get("lines", ())),
            soft_paragraph(table_data.get("after", "")),
        ]
    )
    return fold(fold_title, content) if fold_title else f"<section>{content}</section>"


def _sheet_table(table_data: Data) -> str:
    """Return the HTML of a sheet's table. Columns of texts are left-aligned."""
    kinds = [kind for _, _, *kind in table_data["rows"][0]["cells"][1:]]
    rows = [
        [_row_name(row), *(_cell(*cell) for cell in row["cells"][1:])] for row in table_data["rows"]
    ]
    text_columns = [column for column, kind in enumerate(kinds, start=1) if kind]
    return table(
        table_data["head"], rows, kind=f"numbers{_reflow_class(table_data)}", left=text_columns
    )


# Letters of a row that a phone has room for, with two more between columns.
PHONE_LETTERS = 46


def _reflow_class(table_data: Data) -> str:
    """Return the class " reflow" if a table's rows are too wide for a phone, else ''.

    A narrow screen then sets the cells of a row one below the other. A table that fits is kept,
    because one can read down its columns.
    """
    texts = [
        [row["cells"][0], *(cell[0] for cell in row["cells"][1:])] for row in table_data["rows"]
    ]
    columns = zip(table_data["head"], *texts, strict=True)
    letters = sum(2 + max(map(len, column)) for column in columns)
    return " reflow" if letters > PHONE_LETTERS else ""


def _row_name(row: Data) -> str:
    """Return the name of a row, with a link to its view if it has one."""
    name = isolate(row["cells"][0])
    if row["to"] is not None:
        kind, number = row["to"]
        name = f'<a class="link" href="#{kind}-{number}" data-to="{kind} {number}">{name}</a>'
    return f'<span class="row-name">{name}</span>'


def _cell(text: str, share: float | None, kind: str = "") -> str:
    """Return the text of a cell. If it is a score, scripts set it on the score's colour."""
    if text in SIGNS:
        return f'<span class="words">{verdict_sign(text)}</span>'
    if share is not None:
        return f'<span class="tint" data-share="{share}">{sentence_html(text)}</span>'
    if kind and text:
        return f'<span class="{kind}">{sentence_html(text)}</span>'
    return sentence_html(text)


def _run(run: Data) -> str:
    """Return the HTML next to a run's map. Without scripts it also has the map in numbers."""
    effective = table(
        ["Rule", "Value [95 % interval]"], map(_effective, run["effective"]), kind="rules"
    )
    effective_lengths = (
        f"<h2>Effective length</h2>{wide_block('Effective length by rule', effective)}"
    )
    seek_figure = f'<figure class="chart">{run["beside"]}</figure>' if "beside" in run else ""
    lengths = fold(_margins_name(run), _margins(run), heading=True)
    return "\n".join(
        [
            f"<h2>{visible_html(run['name'])}</h2>",
            _part("effective", effective_lengths if run["effective"] else ""),
            _answer(run),
            _part("readings", _readings(_run_readings(run))),
            _part("lines", list_html(run["notes"]) + fold(ALL_LINES, list_html(run["lines"]))),
            _part("beside", seek_figure),
            f"{soft_paragraph(CELLS_NOTE)}{_map(run)}",
            _part("numbers", lengths),
        ]
    )


def _effective(effective: Data) -> list[str]:
    value, rule = effective["value"], effective["rule"]
    unit = "" if value.startswith("-") else " %" if rule.startswith("auc") else " tokens"
    name = f'<span class="rule">{visible_html(rule)}</span>'
    return [
        f'{name}<span class="soft">{sentence_html(effective["says"])}</span>',
        f"<b>{sentence_html(value)}</b>{unit}",
    ]


def _map(run: Data) -> str:
    """Return the map as a table with lengths across and depths down.

    If every length has depths of its own, the table has a row for each cell.
    """
    depths = {depth: label for depth, label, _ in run["depths"]}
    lengths = [label for _, label in run["lengths"]]
    cells = {(length, depth): text for length, depth, text in _cell_texts(run["cells"])}
    if run["ragged"]:
        rows = [[lengths[length], depths[depth], text] for (length, depth), text in cells.items()]
        return table(["Length", "Depth", "Score (n)"], rows, kind="numbers")
    rows = [
        [label, *(cells.get((index, depth), "") for index in range(len(lengths)))]
        for depth, label, _ in run["depths"]
    ]
    return table(["", *lengths], rows, kind="numbers")


def _cell_texts(cells: Data) -> Iterator[tuple[int, float, str]]:
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
    """Return the tables below all views: refusals, failures, costs, settings and versions."""
    runs = summary["runs"]
    refusals = [difference for difference in summary["differences"] if difference["refused"]]
    has_failures = any(run["totals"]["missing"] > run["totals"]["unasked"] for run in runs)
    notes = {
        "What is not compared, and why": _refusals_html(refusals, runs),
        "What could not be measured": _failures(runs),
        "Tokens, cost and time": _totals(runs),
        "Settings": _values(runs, "settings", "Setting"),
        "Versions and hashes": _values(runs, "versions", "What"),
    }
    return "\n".join(
        fold(
            name,
            wide_block(name, content),
            heading=True,
            is_open=has_failures and name.endswith("measured"),
        )
        for name, content in notes.items()
        if content
    )


def _refusals_html(refusals: Sequence[Data], runs: Sequence[Data]) -> str:
    rows = []
    for difference in refusals:
        first, second = (isolate(runs[difference[side]]["name"]) for side in "ab")
        rows.append([f"{first} with {second}", isolate(difference["refused"])])
    return table(["Runs", "Why"], rows, kind="reflow") if rows else ""


def _failures(runs: Sequence[Data]) -> str:
    rows = [
        [
            isolate(failure["kind"]),
            f"{failure['count']:,}",
            "".join(map(prose_block, failure["examples"])),
            isolate(run["name"]),
        ]
        for run in runs
        for failure in run["failures"]
    ]
    if not rows:
        return soft_paragraph("Every trial was measured.")
    head = ["Kind", "Trials", "In the server's or library's words", "Run"]
    column_count = 4 if len(runs) > 1 else 3
    return table(head[:column_count], [row[:column_count] for row in rows], kind="reflow")


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
# These totals are shown only if a run has any.
OPTIONAL_TOTALS = ("thinking_tokens", "judge_usd")


def _totals(runs: Sequence[Data]) -> str:
    totals = [run["totals"] for run in runs]
    keys = [
        key for key in TOTALS if key not in OPTIONAL_TOTALS or any(total[key] for total in totals)
    ]
    rows = [
        [isolate(run["name"]), *(_amount_text(run["totals"][key]) for key in keys)] for run in runs
    ]
    head = ["Run", *(TOTALS[key] for key in keys)]
    lines = [line for total in totals for line in total["cache_lines"]]
    return table(head, rows, kind="numbers reflow") + "".join(map(soft_paragraph, lines))


def _amount_text(value: float | None) -> str:
    """Return a count as it is, and dollars or seconds to the hundredth.

    If they are below one, they have two digits.
    """
    if value is None:
        return "not known"
    if not isinstance(value, float):
        return f"{value:,}"
    return f"{value:.2g}" if value < 1 else f"{value:,.2f}"


def _values(runs: Sequence[Data], key: str, head: str) -> str:
    """Return a table with a row for each value, and the runs that have it.

    If a setting differs between the runs, or from its default, it has a mark.
    """
    runs_by_value: dict[str, dict[str, list[str]]] = {}
    changed_names: set[str] = set()
    for run in runs:
        for name, value, *marks_of_value in run[key]:
            runs_by_value.setdefault(name, {}).setdefault(str(value), []).append(run["name"])
            changed_names |= {name} if any(marks_of_value) else set()
    differing_names = {
        name
        for name, values in runs_by_value.items()
        if [*map(len, values.values())] != [len(runs)]
    }
    legend = []
    if changed_names:
        legend.append("• set for this run; without a mark: the default.")
    if differing_names:
        legend.append("≠ differs between the runs.")
    entries = [
        (name, value, names)
        for name, values in runs_by_value.items()
        for value, names in values.items()
    ]
    rows = [
        [
            _name_with_marks(name, differing_names, changed_names),
            prose_block(value),
            visible_html(_run_names(names, len(runs))),
        ]
        for name, value, names in entries
    ]
    marks = [
        f"{'differs ' * (name in differing_names)}{'changed' * (name in changed_names)}"
        for name, *_ in entries
    ]
    column_count = 3 if len(runs) > 1 else 2
    cells = [row[:column_count] for row in rows]
    html = table([head, "Value", "Runs"][:column_count], cells, kind=f"{key} reflow", marks=marks)
    return soft_paragraph(" ".join(legend)) + html


def _name_with_marks(name: str, differing_names: set[str], changed_names: set[str]) -> str:
    signs = f"{'≠ ' * (name in differing_names)}{'• ' * (name in changed_names)}"
    return f'<span class="sign">{signs}</span>{isolate(name)}'


def _run_names(names: Sequence[str], count: int) -> str:
    if len(names) == count:
        return "all"
    dots = ", …" if len(names) > 3 else ""
    return f"{len(names)} of {count}: {', '.join(names[:3])}{dots}"
