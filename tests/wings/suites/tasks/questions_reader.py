"""A reader of the entries that questions are about."""

from __future__ import annotations

import re

from needlemap.suites.lexicon import lexicon

ENTRIES = lexicon("passages", "english")
TOWNS = rf"\b(?:{'|'.join(ENTRIES['towns'])})\b"


def facts_in(entry: str, forms: list[str], value: str) -> list[str]:
    """What an entry says in any of some forms."""
    patterns = [
        re.sub(r"\\{\w+\\}", r"\\w+", re.escape(form).replace(r"\{value\}", f"({value})"))
        for form in forms
    ]
    return [found for pattern in patterns for found in re.findall(rf"(?:^| ){pattern}", entry)]


def questions_oracle(text: str, question: str) -> list[str]:
    """Whoever reads the entry that the question names, and where it leads to another that one."""
    entries = dict(re.findall(r"^([^:\n]+): (.+)$", text, re.MULTILINE))
    said = re.search(r"Say (.+)\. Answer with", question)
    assert said
    (title,) = [title for title in entries if said[1].find(f" {title} ") >= 0]
    kind = next((kind for kind in ("ship", "firm") if f"the {kind} {title}" in question), "person")
    entry, who = entries[title], ENTRIES["titles"][kind].format(title=title)
    if kind != "person" and ENTRIES[kind]["bridge"]["ask"].format(who=who) in question:
        (title,) = facts_in(entry, ENTRIES[kind]["bridge"]["says"], r"\w+ \w+")
        who, entry = ENTRIES[kind]["bridge"]["ask"].format(who=who), entries[title]
        kind = "person"
    facts = ENTRIES[kind]["facts"].values()
    (fact,) = [each for each in facts if each["ask"].format(who=who) == said[1]]
    return facts_in(entry, fact["says"], r"\w+")


def questions_choices(text: str, question: str) -> list[str]:
    """Towns or years of the text, each once."""
    pattern = r"\b\d{4}\b" if "the year" in question else TOWNS
    return list(dict.fromkeys(re.findall(pattern, text)))
