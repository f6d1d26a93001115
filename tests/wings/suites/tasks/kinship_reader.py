"""A reader of kinship's facts, in both languages, who does not know how they were written."""

from __future__ import annotations

import re

PERSON = r"([A-Z]\w+ [A-Z]\w+)"
KIN = {  # which of the two is the child
    rf"{PERSON} is the (?:mother|father) of {PERSON}\.": 1,
    rf"{PERSON} is the (?:daughter|son) of {PERSON}\.": 0,
    rf"The (?:mother|father) of {PERSON} is {PERSON}\.": 0,
    rf"{PERSON} has a (?:daughter|son) called {PERSON}\.": 1,
    rf"Among the children of {PERSON} is {PERSON}\.": 1,
    rf"{PERSON} brought up (?:her|his) (?:daughter|son) {PERSON}\.": 1,
    r"(\w{3})是(\w{3})的[母父]亲。": 1,
    r"(\w{3})是(\w{3})的(?:女儿|儿子)。": 0,
    r"(\w{3})的[母父]亲是(\w{3})。": 0,
    r"(\w{3})有个(?:女儿|儿子)，名叫(\w{3})。": 1,
    r"(\w{3})的孩子里有(\w{3})。": 1,
    r"(\w{3})把[她他]的(?:女儿|儿子)(\w{3})抚养成人。": 1,
}


def parents(text: str) -> dict[str, str]:
    """Each child's parent."""
    matches = [
        (match.groups(), child)
        for pattern, child in KIN.items()
        for match in re.finditer(pattern, text)
    ]
    found = {names[child]: names[1 - child] for names, child in matches}
    assert len(found) == len(matches) == len(set(found.values()))
    return found


def kinship_oracle(text: str, question: str) -> list[str]:
    """Who is asked for."""
    above = parents(text)
    steps = re.search(r"stands (\d+) gen|[高低](\d+)代", question)
    down = re.search("below|低", question)
    way = {parent: child for child, parent in above.items()} if down else above
    (person,) = {name for name in (*above, *above.values()) if name in question}
    for _ in range(int(steps[1] or steps[2]) if steps else len(above)):
        person = way.get(person, person)
    return [person]
