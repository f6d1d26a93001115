"""The tables in docs/ that are made from the code: settings, record fields, columns, the older
tools' names, marks of thinking.

python tools/doc_tables.py        rewrites them in place, between their marks; tests/test_docs.py
compares
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from needlemap.commands.listing import EXTENSIONS, describe, names_of
from needlemap.http.compatible import PROVIDERS
from needlemap.models import Logprobs
from needlemap.models.thinking import MARKS
from needlemap.records.record import Record
from needlemap.registry import installed
from needlemap.settings import KNOWN, Settings, help_texts, marked
from needlemap.settings.older_names import ELSEWHERE, TABLE
from needlemap.stats.table_schema import CELLS, TRIALS, DataColumn

DOCS = Path(__file__).parent.parent / "docs"
PLAIN = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    dict: "mapping",
    tuple: "list",
    Literal: "text",
}

# What each field of a record means, in the order of records/record.py; without a line here it is an
# error.
MEANINGS = {
    "schema": "version of this list",
    "key": "hash of all that can change the answer or its score; resume goes by it",
    "asked": (
        "hash of what the model was asked: it seeds sampling, and answers are scored anew by it"
    ),
    "run": (
        "hash of the settings that make a run what it is, as in run.json: a record of another is "
        "left out"
    ),
    "task": "the task's name",
    "model": "as set: BACKEND/NAME",
    "length_tokens": "the cell's length",
    "depth": "the cell's depth, a share in [0, 1]. Of a prompt "
    "that several cells share, the first one's",
    "repeat": "number of the repeat, from 0",
    "second": "whether its prompt was asked for the second time (--ask-twice)",
    "seed": "the run's seed",
    "question": "what was asked",
    "reference": "the reference answer",
    "keywords": "words that a right answer holds",
    "reference_sha256": "hash of all that is right and wrong: reference, key words, decoys, choices ...; "  # noqa: E501
    "empty in imported records",
    "needles[].meant": "the depth it was meant for, a share in [0, 1]; the first needle's is its cell's",  # noqa: E501
    "needles[].realised": "haystack tokens before it, as a share of all haystack tokens",
    "needles[].byte": "its first byte's offset in the context (haystack with needles)",
    "needles[].text": "the needle as it was placed; it and its surroundings of the first 32 needles only",  # noqa: E501
    "needles[].before": "up to 300 characters of the context before it; other needles there are part of it",  # noqa: E501
    "needles[].after": "up to 300 characters of the context behind it",
    "prompt.sha256": "hash of roles and bytes of all messages",
    "prompt.tokens": "the prompt's tokens by our tokenizer, without the reserve",
    "prompt.fed_tokens": "by the model's own tokenizer, chat template included, where that is another one",  # noqa: E501
    "prompt.ids_sha256": "hash of the token ids that the model sees, chat template included; null if "  # noqa: E501
    "they are not known (32 bits each, lowest byte first)",
    "prompt.haystack_tokens": "of which haystack",
    "prompt.positions": "haystack tokens before each needle",
    "prompt.pad": "what was added at the haystack's end to reach the exact length; mostly nothing",
    "prompt.off_by": "tokens by which the asked length was missed; 0 but for rare seams",
    "prompt.haystack_repeated": "whether documents come more than once in this prompt",
    "prompt.collisions": "needles, key words or answers that the haystack held already (--collisions warn)",  # noqa: E501
    "answer": "the answer, unchanged; null if there is none",
    "logprobs.tokens": "with --logprobs the answer's tokens, at most 4,096; with scorers `logprob` and "  # noqa: E501
    "`recovery` the reference answer's. Null is all of `logprobs` where there is none",
    "logprobs.nats": "natural log-probability of each, after the prompt and the tokens before it",
    "logprobs.others": "the likeliest other token in its place: the runner-up, or the first choice where the "  # noqa: E501
    "token was not that; null where the server does not say",
    "logprobs.other_nats": "that one's log-probability",
    "logprobs.way": "`generated`: the model's own answer. A given one: `walk` (computed here), `echo` (the "  # noqa: E501
    "server repeats it), `steps` (the server is made to say it, token by token)",
    "logprobs.start": "tokens before the first one, so that token i stands at position start + i; null where "  # noqa: E501
    "unknown",
    "beside[].role": "scorer `recovery`: where the same answer was given too. `bare`: the prompt of the "  # noqa: E501
    "same length without the needle; `oracle`: the needle and the question alone",
    "beside[].sha256": "hash of that prompt",
    "beside[].nats": "natural log-probability of each of the answer's tokens there",
    "beside[].tokens": "that prompt's tokens, as the provider counted them, else as we did. A prompt that "  # noqa: E501
    "several trials share counts in the first; here and in the next three the others have 0",
    "beside[].cached_tokens": "as `cached_tokens`",
    "beside[].shared_tokens": "as `shared_tokens`",
    "beside[].latency_s": "as `latency_s`",
    "thinking": "what a reasoning model wrote before its answer, at most 20,000 characters of it",
    "finish": "`stop`, `length`, or the provider's own word",
    "score": "in [0, 1]; null if the trial could not be measured",
    "scorer.name": "the scorer",
    "scorer.options": "its options as resolved",
    "scorer.rule": "number of its rule, raised when a rule moves scores; 1 where none is written",
    "scorer.scale": "lowest and highest native score",
    "scorer.native": "the score on that scale",
    "scorer.why": "what decided it: words found, distance, the judge's words and usage",
    "scorer.unreadable": "whether nothing could be taken from the answer to be compared; its score is 0 then",  # noqa: E501
    "scorer.mean": "whether it is a mean of an unknown number of answers, as in an imported summary",  # noqa: E501
    "scorer.ratio": "of `recovery` the gain and the oracle's gain, in nats a token; null for other scorers",  # noqa: E501
    "scorer.usd": "what a judge cost; 0 without one, null if no price is known",
    "prompt_tokens": "as the provider counted them; null if it does not say",
    "cached_tokens": "of which it read from a cache",
    "shared_tokens": (
        "tokens that the plan promised a cache holds; null where the mode shares nothing"
    ),
    "completion_tokens": "tokens of the answer",
    "thinking_tokens": "of which the model thought, as the provider counted them",
    "usage": "the provider's usage report: but no number beyond 2^53 and no long text",
    "usd": "price of this answer in US dollars; null if no price is known",
    "latency_s": "seconds of the attempt that was answered",
    "first_token_s": "seconds until the first piece of a [streamed](../models.md#streaming) answer "
    "came; missing in any other record",
    "attempts": "how often it was sent; 0 if it was not (a shorter prompt was already too long)",
    "unread.attempts": "how many of these were sent and not refused, and brought no answer that could be "  # noqa: E501
    "read: a provider may bill them, so limits count them",
    "unread.prompt_tokens": "their prompts' tokens, by the provider's count where there is one",
    "unread.answer_tokens": "tokens of their answers, as the provider counted them",
    "unread.usd": "their price in US dollars; null if no price is known",
    "rescored": "whether the answer is an earlier record's, scored anew: nothing was asked",
    "failure": "why it could not be measured; null if it was",
    "error": "the same in the server's or library's words, without keys",
    "outcome": "what became of it: `scored`, `refused by the model`, "
    "`filtered by the provider`, `answer budget spent`, "
    "`thinking budget spent`, `unreadable answer` (all scored), else the failure",
    "answered_by": "the model that the provider names in its reply",
    "finished_at": "UTC time",
}


def settings_table() -> str:
    """Every setting by group, with its default, but for the older tools' ways."""
    groups: dict[str, list[tuple[str, FieldInfo]]] = {}
    for name, field in Settings.model_fields.items():
        if name not in marked("older"):
            groups.setdefault(KNOWN[name].group, []).append((name, field))
    parts = [f"### {group}\n\n{_settings(rows)}" for group, rows in groups.items()]
    return "\n\n".join(parts)


def older_table() -> str:
    """The settings that are ways of the older tools."""
    return _settings([(name, Settings.model_fields[name]) for name in marked("older")])


def _settings(rows: Sequence[tuple[str, FieldInfo]]) -> str:
    return table(
        ("setting", "default", "what it is"),
        [(f"`{name}`", _default(field.default), _described(name, field)) for name, field in rows],
    )


def _described(name: str, field: FieldInfo) -> str:
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    listed = ", ".join(f"`{choice}`" for choice in choices)
    # A row of a table is one line.
    text = " ".join(help_texts()[name].split())
    return f"{text} One of {listed}." if listed else text


def _default(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return "none"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def record_table() -> str:
    """Every field of a record, parts included."""
    rows = list(_fields(Record, ""))
    unknown = set(MEANINGS) - {name for name, _ in rows}
    if unknown:
        raise ValueError(f"No such field of a record: {', '.join(sorted(unknown))}")
    return table(
        ("field", "type", "what it is"),
        [(f"`{name}`", kind, MEANINGS[name]) for name, kind in rows],
    )


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        full = prefix + (field.alias or name)
        part, many = _part(field.annotation)
        if Logprobs in get_args(field.annotation):
            yield from (
                (f"{full}.{each}", _kind(kind)) for each, kind in get_type_hints(Logprobs).items()
            )
        elif part is None:
            yield full, _kind(field.annotation)
        else:
            yield from _fields(part, f"{full}[]." if many else f"{full}.")
    for name, computed in model.model_computed_fields.items():
        yield prefix + name, _kind(computed.return_type)


def _part(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model that a field holds, if it holds one, and whether it holds a list of them."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind, get_origin(annotation) is tuple
    return None, False


def _kind(annotation: Any) -> str:
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_kind(kind) for kind in get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if annotation is type(None):
        return "null"
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    return PLAIN[get_origin(annotation) or annotation]


def names_table() -> str:
    """Every older name and what it means here; those that are refused say what to write instead."""
    refused = [
        (f"`{name}`", "OpenCompass", f"refused: {where}") for name, where in ELSEWHERE.items()
    ]
    rows = [(f"`{row.name}`", row.tool, row.ours) for row in TABLE]
    return table(("older name", "tool", "here"), [*rows, *refused])


def columns_table(columns: Sequence[DataColumn]) -> str:
    """Every column of a table."""
    return table(
        ("column", "type", "what it is"), [(f"`{c.name}`", c.kind, c.meaning) for c in columns]
    )


def marks_table() -> str:
    """What models write before and behind their thoughts."""
    rows = [
        (marks.used_by, *(", ".join(f"`{text.strip()}`" for text in texts) for texts in marks[1:3]))
        for marks in MARKS
    ]
    return table(("written by", "start", "end"), rows)


def providers_table() -> str:
    """Who speaks OpenAI's API where."""
    rows = [
        (
            ", ".join(f"`{prefix}`" for prefix in each.prefixes),
            f"`{each.address}`",
            f"`{each.key}`" if each.key else "",
            "tried" if each.tried else "from its documentation",
        )
        for each in PROVIDERS
    ]
    return table(("also called", "`--base-url`", "`key_env`", ""), rows)


def shelf_table(kind: str) -> str:
    """Presets or suites, each with what its file says of it."""
    rows = [(f"`{name}`", about) for name, about in names_of(kind).items()]
    return table((kind.removesuffix("s"), "what it asks"), rows)


def options_text() -> str:
    """What `needlemap list KIND NAME` prints of every extension."""
    parts = list[str]()
    for kind in EXTENSIONS:
        parts.append(f"## {kind.capitalize()}")
        for name in sorted(installed(kind)):
            text = "\n".join(describe(kind, name))
            parts.append(
                f"### {kind.removesuffix('s').capitalize()} {name}\n\n```text\n{text}\n```"
            )
    return "\n\n".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells
    )


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "settings": ("reference/settings.md", settings_table),
    "presets": ("reference/presets.md", lambda: shelf_table("presets")),
    "suites": ("reference/presets.md", lambda: shelf_table("suites")),
    "options": ("reference/options.md", options_text),
    "record fields": ("internals/records.md", record_table),
    "older ways": ("from-opencompass.md", older_table),
    "older names": ("from-opencompass.md", names_table),
    "cell columns": ("internals/tables.md", lambda: columns_table(CELLS)),
    "providers": ("reference/providers.md", providers_table),
    "thinking marks": ("reference/providers.md", marks_table),
    "trial columns": ("internals/tables.md", lambda: columns_table(TRIALS)),
}


def renewed(page: str, name: str, text: str) -> str:
    """A page with the text between its two marks of that name replaced."""
    pattern = re.compile(rf"(<!-- {name}: .*?-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    found, times = pattern.subn(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", page)
    if times != 1:
        raise ValueError(f"The page has {times} places for '{name}'.")
    return found


def main() -> None:
    """Rewrite all tables in place."""
    for name, (file, make) in TABLES.items():
        page = DOCS / file
        page.write_text(renewed(page.read_text("utf-8"), name, make()), encoding="utf-8")


if __name__ == "__main__":
    main()
