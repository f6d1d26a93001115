"""What a run was: its settings and where they differ from the defaults, versions, hashes. Never a secret."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from needlemap.models.faults import hidden
from needlemap.settings import Settings

TEXTS = ("needle", "needles", "question", "answer", "keywords", "draw")  # the user's own words: shown as is
_PRIVATE = re.compile(r"(?i)api[-_]?key|secret|passw|authorization|credential|(^|[-_])token$")
_DIGITS = 12  # of a hash


def setting_rows(settings: Mapping[str, Any]) -> list[list[Any]]:
    """Name, value as text, and whether it differs from the default."""
    fields = Settings.model_fields
    return [
        [name, value_text(name, value), name not in fields or value != fields[name].default]
        for name, value in settings.items()
    ]


def value_text(name: str, value: Any) -> str:
    """A setting as text: passwords in addresses and whatever is named a key are hidden.

    >>> value_text("base_url", "http://me:pass@127.0.0.1/v1"), value_text("request", {"api_key": "abc"})
    ('http://[hidden]@127.0.0.1/v1', '{"api_key": "[hidden]"}')
    """
    if name in TEXTS:
        return _text(value)
    return hidden(_text(_masked(value)))


def fact_rows(about: Mapping[str, Any]) -> list[list[str]]:
    """Versions and hashes: what it takes to say which run this was."""
    tokenizer, scorer = about["tokenizer"], about["scorer"]
    rows = [
        ["needlemap", str(about.get("needlemap", ""))],
        ["created", str(about.get("created", ""))],
        ["python", str(about.get("python", ""))],
        *([name, str(number)] for name, number in about.get("packages", {}).items()),
        ["tokenizer", f"{tokenizer['name']} {_short(tokenizer.get('fingerprint'))}".strip()],
        ["scorer", f"{scorer['name']} {value_text('scorer_options', scorer.get('options') or {})}"],
        *_named("haystack", about.get("haystacks", [])),
        *_named("file", about.get("imported", {}).get("files", [])),
    ]
    return [row for row in rows if row[1]]


def _named(what: str, rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [f"{what} {number}", hidden(f"{row.get('name', '')} · sha256 {_short(row.get('sha256'))}")]
        for number, row in enumerate(rows)
    ]


def _short(digest: object) -> str:
    """The first letters of a hash, and what it is a hash of, if it says that."""
    kind, colon, digits = str(digest or "").rpartition(":")
    return f"{kind}{colon}{digits[:_DIGITS]}"


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def _masked(value: Any) -> Any:
    """A value without whatever a mapping in it names as private."""
    if isinstance(value, Mapping):
        return {
            name: "[hidden]" if _PRIVATE.search(str(name)) and part else _masked(part)
            for name, part in value.items()
        }
    return [_masked(part) for part in value] if isinstance(value, list) else value
