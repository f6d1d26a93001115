"""Texts and tables as HTML. What comes in as a text is escaped here, once; what is HTML says so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from needlemap.reports.labels import SIGNS, typeset
from needlemap.text.printing import is_unseen, printable

# Scripts and emoji need them.
_JOINERS = "\u200c\u200d"
_ROLE = ' role="{}"'
# Of an address in our own sentences; what ends a sentence is no part of it.
_ADDRESS = re.compile(r"(https?://[^\s<>\"']*[^\s<>\"'.,;:)])")
# Characters from which a text scrolls.
LONG = 1500


def visible_html(text: str) -> str:
    """Return a text as HTML in which letters that cannot be seen are shown by their codes."""
    if text.isascii() and text.isprintable():
        return escape(text)
    return "".join(map(_letter, text))


def _letter(letter: str) -> str:
    if is_unseen(letter) and letter not in _JOINERS:
        return f'<bdi class="unseen">U+{ord(letter):04X}</bdi>'
    return escape(letter)


def sentence_html(text: str) -> str:
    """Return a sentence of ours as HTML, with its addresses as links."""
    pieces = _ADDRESS.split(typeset(text))
    return "".join(
        _link(piece) if index % 2 else visible_html(piece) for index, piece in enumerate(pieces)
    )


def _link(address: str) -> str:
    return f'<a href="{escape(address)}" rel="noreferrer">{visible_html(address)}</a>'


def verdict_sign(word: str) -> str:
    """Return a verdict's word with a sign, so that both tell it apart without colours."""
    shape = f'<span class="shape" aria-hidden="true">{SIGNS[word]}</span>'
    return f'<span class="word-of {word_class(word)}">{shape} {word}</span>'


def word_class(word: str) -> str:
    """Return the class of a verdict's word.

    >>> word_class("NOT ENOUGH DATA")
    'not-enough-data'
    """
    return word.lower().replace(" ", "-")


def isolate(text: str) -> str:
    """Return a name or value as HTML that cannot turn the direction of the words around it."""
    return f"<bdi>{visible_html(text)}</bdi>"


def soft_paragraph(text: str) -> str:
    """Return a paragraph of less weight, or '' if there is no text."""
    return f'<p class="soft">{sentence_html(text)}</p>' if text else ""


def prose_block(text: str) -> str:
    """Return a block of a text that we did not write, in its own direction."""
    focus = ' tabindex="0"' if len(text) > LONG else ""
    html = visible_html(text) if text else '<span class="soft">(empty)</span>'
    return f'<div class="prose" dir="auto"{focus}>{html}</div>'


def list_html(texts: Iterable[str]) -> str:
    """Return sentences as a list, one below the other, or '' if there are none."""
    lines = "".join(f"<li>{sentence_html(text.strip())}</li>" for text in texts)
    return f'<ul class="lines">{lines}</ul>' if lines else ""


def fold(title: str, content: str, *, heading: bool = False, is_open: bool = False) -> str:
    """Return HTML under a title that opens it."""
    heading_html = f"<h2>{visible_html(title)}</h2>" if heading else visible_html(title)
    state = " open" if is_open else ""
    return f'<details class="fold"{state}><summary>{heading_html}</summary>{content}</details>'


def wide_block(label: str, content: str) -> str:
    """Return HTML that may be wider than the screen: it scrolls by itself, also by keys."""
    name = escape(printable(label))
    return f'<div class="wide" tabindex="0" role="group" aria-label="{name}">{content}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    kind: str,
    left: Iterable[int] = (),
    marks: Sequence[str] = (),
) -> str:
    """Return a table with heads of text and rows of HTML. The first cell of a row names the row.

    kind: its classes. left: columns of words, whose heads are set to the left. marks: a class for
    each row. If the table has the class "reflow", its elements name their roles, because a browser
    does not take it for a table once a narrow screen sets cells one below the other.
    """
    left_columns, reflows = set(left), "reflow" in kind.split()
    role = _ROLE.format if reflows else "".format
    heads = "".join(
        f'<th scope="col"{role("columnheader")}{_class("left" if column in left_columns else "")}>'
        f"{isolate(text)}</th>"
        for column, text in enumerate(head)
    )
    heads_of_cells = [
        f' data-head="{escape(printable(text))}"' if reflows else "" for text in head[1:]
    ]
    body_rows = list(rows)
    body = "\n".join(
        f'<tr{role("row")}{_class(mark)}><th scope="row"{role("rowheader")}>{name}</th>'
        + "".join(
            f"<td{role('cell')}{head}{_class('' if cell else 'blank')}>{cell}</td>"
            for head, cell in zip(heads_of_cells, cells, strict=True)
        )
        + "</tr>"
        for (name, *cells), mark in zip(body_rows, marks or [""] * len(body_rows), strict=True)
    )
    group = role("rowgroup")
    return (
        f'<table{role("table")} class="{kind}">\n<thead{group}><tr{role("row")}>{heads}</tr>'
        f"</thead>\n<tbody{group}>\n{body}\n</tbody>\n</table>"
    )


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
