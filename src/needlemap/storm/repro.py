"""A shrunk sequence as a script for an issue: standard library only, beside the very texts.

`repro.json.gz` holds the requests, wave by wave. `@salt-line@` in a text is replaced by a line of
its own in each loop, so that no cache of before answers it. An assistant's message `{"from": n}` is
what the server itself said to request n.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from needlemap.files import write_whole
from needlemap.storm.act import Act, Turn
from needlemap.storm.act import Path as Conversation
from needlemap.storm.shrink import Shrunk
from needlemap.storm.storm import Storm

SALT, _DIGITS = "@salt-line@", "7182818284"  # the second has as many tokens as any salt
SCRIPT, TEXTS, ISSUE = "repro.py", "repro.json.gz", "issue.md"

_SCRIPT = '''#!/usr/bin/env python3
"""{title}

python repro.py http://127.0.0.1:8000/v1 [MODEL]   exit code 1: it shows the fault; 0: it does not;
2: the model misses the same prompt alone. It takes about {minutes} at the pace of the storm.
"""
import gzip, json, pathlib, secrets, sys, threading, time, urllib.request

told = json.loads(gzip.decompress((pathlib.Path(__file__).parent / "repro.json.gz").read_bytes()))
url = sys.argv[1].rstrip("/") if len(sys.argv) > 1 else told["base_url"]
model = sys.argv[2] if len(sys.argv) > 2 else told["model"]


def ask(request, answers, salts):
    rows = []
    for role, said in request["messages"]:
        if isinstance(said, dict):  # what the server itself said before
            said = answers.get(said["from"]) or said["else"]
        salt = salts.setdefault(request["family"], f"{{secrets.randbelow(10**10):010}}")
        rows.append({{"role": role, "content": said.replace("@salt-line@", salt)}})
    body = {{"model": model, "messages": rows, **told["fields"]}}
    time.sleep(request["after_s"])
    sent = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(),
                                  {{"content-type": "application/json", **told["headers"]}})
    try:
        with urllib.request.urlopen(sent, timeout=request["cancel_s"] or 600) as reply:
            answers[request["n"]] = json.load(reply)["choices"][0]["message"]["content"] or ""
    except OSError as error:  # it was cancelled, or refused
        if not request["cancel_s"]:
            answers[request["n"]] = f"no answer: {{error}}"


def play(waves):
    answers, salts = {{}}, {{}}
    for wave in waves:
        threads = [threading.Thread(target=ask, args=(each, answers, salts)) for each in wave]
        [each.start() for each in threads]
        [each.join() for each in threads]
    return answers.get(told["target"], "")


alone = play([[{{**told["alone"], "after_s": 0, "cancel_s": None}}]])
if not all(secret in alone for secret in told["wanted"]):
    print("the model misses the prompt alone: wanted", told["wanted"], "got", repr(alone))
    sys.exit(2)
for loop in range(1, told["loops"] + 1):
    got = play(told["waves"])
    if not all(secret in got for secret in told["wanted"]):
        print(f"loop {{loop}}: wanted {{told['wanted']}} got {{got!r}}")
        sys.exit(1)
print(f"{{told['loops']}} loops, all right")
'''


def write_repro(storm: Storm, shrunk: Shrunk, folder: Path) -> list[Path]:
    """Write the script, its texts, and a text for an issue; where they lie."""
    told = document(storm, shrunk)
    seconds = shrunk.loops * sum(max(each["seconds"] for each in wave) for wave in told["waves"])
    title = f"{shrunk.act.operation}: {len(shrunk.sequence.acts)} requests, fails {_often(shrunk)}"
    packed = gzip.compress(json.dumps(told, ensure_ascii=False).encode(), mtime=0)
    script = _SCRIPT.format(title=title, minutes=_minutes(seconds))
    issue = issue_text(storm, shrunk, _minutes(seconds))
    made = []
    for name, data in ((SCRIPT, script.encode()), (TEXTS, packed), (ISSUE, issue.encode())):
        write_whole(folder / name, data)
        made.append(folder / name)
    return made


def _often(shrunk: Shrunk) -> str:
    return f"{shrunk.failed} of {shrunk.of} times"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{max(1, round(seconds))} seconds"


def document(storm: Storm, shrunk: Shrunk) -> dict[str, Any]:
    """What repro.json.gz holds: requests, what is wanted, how often it is played."""
    settings = storm.resolved.settings
    numbers = {act.path: act.number for act in reversed(shrunk.sequence.acts)}
    waves = [
        [_request(storm, shrunk, act, numbers) for act in wave] for wave in shrunk.sequence.waves
    ]
    target = next(each for wave in waves for each in wave if each["n"] == shrunk.target)
    fields: dict[str, Any] = {"max_tokens": settings.max_answer_tokens, **settings.request}
    if settings.temperature is not None:
        fields["temperature"] = settings.temperature
    texts = storm.texts
    return {
        "base_url": settings.base_url or "http://127.0.0.1:8000/v1",
        "model": settings.model_name,
        "fields": fields,
        "headers": {},
        "loops": shrunk.loops,
        "target": shrunk.target,
        "wanted": list(texts.secrets(shrunk.sequence.number, shrunk.act)),
        "alone": target,
        "waves": waves,
    }


def _request(
    storm: Storm, shrunk: Shrunk, act: Act, numbers: dict[Conversation, int]
) -> dict[str, Any]:
    """One request, with what the server said before in its place."""
    texts, number = storm.texts, shrunk.sequence.number
    marks = {path: f"@answer {at}@" for path, at in numbers.items()}
    rows = texts.messages(number, act.path, marks.get, _DIGITS)
    made: list[tuple[str, Any]] = []
    known = {mark: (numbers[path], path[-1]) for path, mark in marks.items()}
    for role, said in rows:
        if role == "assistant" and said in known:
            at, turn = known[said]
            made.append((role, {"from": at, "else": _right(storm, number, turn)}))
        else:
            made.append((role, said.replace(_DIGITS, SALT)))
    base, each = storm.fixed.pace if storm.fixed else (0.0, 0.0)
    pace_s = base + each * (act.tokens + 100)
    return {
        "n": act.number,
        "family": act.family,
        "operation": act.operation,
        "messages": made,
        "after_s": round(act.after * pace_s, 4),
        "cancel_s": None if act.cancel is None else round(max(0.001, act.cancel * pace_s), 4),
        "seconds": round(pace_s, 4),
    }


def _right(storm: Storm, number: int, turn: Turn) -> str:
    return storm.texts.right(number, turn)


def issue_text(storm: Storm, shrunk: Shrunk, minutes: str) -> str:
    """What to paste into an issue."""
    acts = [
        f"{place}. wave {act.wave}, session {act.session}: {act.operation}, "
        f"about {act.tokens:,} tokens"
        + (f", the client goes away after {act.cancel:g} of a prompt's time" if act.cancel else "")
        + (" <- this answer is wrong" if act.number == shrunk.target else "")
        for place, act in enumerate(shrunk.sequence.acts, 1)
    ]
    wanted = ", ".join(storm.texts.secrets(shrunk.sequence.number, shrunk.act))
    return "\n".join(
        [
            f"# Wrong answers after a sequence of {len(acts)} requests",
            "",
            f"A prompt is answered wrong in {shrunk.failed} of {shrunk.of} replays of the sequence "
            f"below, and in {shrunk.cold} of {shrunk.of // 2} when it is asked alone behind a "
            "first line that no cache holds.",
            "",
            *acts,
            "",
            f"Wanted: `{wanted}`. Got: `{' '.join(shrunk.got.split())[:300]}`",
            "",
            f"`{SCRIPT}` beside `{TEXTS}` plays it with Python's standard library alone, "
            f"{shrunk.loops} times at most (about {minutes}):",
            "",
            "    python repro.py http://127.0.0.1:8000/v1",
            "",
            f"Model: {storm.resolved.settings.model}. Found by needlemap storm, whose sequence had "
            f"{shrunk.was} requests.",
            "",
        ]
    )
