"""A shrunk sequence as a script for an issue: standard library only, beside the very texts.

`repro.json.gz` holds the requests, wave by wave. `@salt-line@` in a text is replaced by a line of
its own in each loop, so that no cache of before answers it. An assistant's message `{"from": n}` is
what the server itself said to request n.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from needlemap.asking import decoding_of
from needlemap.files import write_whole
from needlemap.finishes import Ending, pattern_of
from needlemap.http import bearer
from needlemap.http.compatible import KEY
from needlemap.reports.table import code_block, escape_markdown
from needlemap.servers.storm.act import Act, How
from needlemap.servers.storm.act import Path as Conversation
from needlemap.servers.storm.offered import SLOT
from needlemap.servers.storm.shrink import LOOPS, Shrunk
from needlemap.servers.storm.storm import Storm
from needlemap.settings import Settings

# What stands for a first line in the file, and while prompts are made: digits with as many tokens
# as any salt.
SALT, _DIGITS = "@salt-line@", "7182818284"
SCRIPT, TEXTS, ISSUE = "repro.py", "repro.json.gz", "issue.md"
# Moments at which a client goes away, in a loop each, in addition to that of the storm.
MOMENTS = 10
# How many times the tokens that a server caches are sent, so that a fresh one is full.
FILLED = 3
# Characters of an answer in the text for an issue.
_SHOWN = 300
# Tokens of template and answer that a request has in addition to its texts, about.
_AROUND = 100

# The special way in which a request is sent, in words.
HOWS: Mapping[How, str] = {
    "": "",
    "slot": f", in slot {SLOT}",
    "save": f", in slot {SLOT}, which is then saved",
    "restore": f", in slot {SLOT}, which was restored",
    "other": ", to the server's second model",
}

_SCRIPT = """#!/usr/bin/env python3
'''{title}
python repro.py http://127.0.0.1:8000/v1 [MODEL]   exit code 1: it shows the fault; 0: it does not;
2: the model misses the same prompt alone, or no answer came. It takes about {minutes} at most{key}.'''
import gzip, json, os, pathlib, re, secrets, sys, threading, time, urllib.request

told = json.loads(gzip.decompress((pathlib.Path(__file__).parent / "repro.json.gz").read_bytes()))
url = (sys.argv[1] if len(sys.argv) > 1 else told["base_url"]).rstrip("/") + told["path"]
model = sys.argv[2] if len(sys.argv) > 2 else told["model"]
key = os.environ.get(told["key_env"], "")
headers = {{"content-type": "application/json"}} | ({{"authorization": f"Bearer {{key}}"}} if key else {{}})
urllib.request.HTTPRedirectHandler.redirect_request = lambda *_: None  # the key stays here
{joined}

def ask(request, answers, salts, pace, share):
    rows = []
    for role, said in request["messages"]:
        if isinstance(said, dict):  # what the server itself said before
            said = answers.get(said["from"], ("",))[0] or said["else"]
        salt = salts.setdefault(request["family"], f"{{secrets.randbelow(10**10):010}}")
        rows.append({{"role": role, "content": said.replace("@salt-line@", salt)}})
    text = {{"prompt": "\\n\\n".join(row["content"] for row in rows)}}
    fields = told["fields"] | {{"model": model}} | (text if told["text"] else {{"messages": rows}})
    time.sleep(pace * request["after_s"])
    wait_s = pace * (share * request["seconds"] or request["cancel_s"])
    try:
        sent = urllib.request.Request(url, json.dumps(fields).encode(), headers)
        with urllib.request.urlopen(sent, timeout=wait_s if request["cancel_s"] else 600) as reply:
            rows = {rows}
        choice = next(row for at in (0, None) for row in rows if row.get("index") == at)
        said = choice["text"] if told["text"] else choice["message"]["content"]
        finish = re.sub(r"[\\W_]", "", str(choice.get("finish_reason", "stop") or told["null"])).lower()
        why = choice.get("error") or (re.search(told["broken"], finish) and f"broken off: {{finish}}")
        answers[request["n"]] = "" if why else said or "", finish, why
    except Exception as error:  # it was cancelled, or refused
        answers[request["n"]] = "", "", f"no answer: {{error!r}} {{error}}"


def play(waves, pace=1, share=0):
    answers, salts, began = {{}}, {{}}, time.monotonic()
    for wave in waves:
        threads = [threading.Thread(target=ask, args=(row, answers, salts, pace, share)) for row in wave]
        [each.start() for each in threads], [each.join() for each in threads]
    got, finish, why = answers[told["target"]]  # no answer is neither right nor wrong
    odd = re.search(told["cut"], finish) or any(secret in got for secret in told["foreign"])
    right = None if why else not odd and all(each in got for each in told["wanted"])
    return why or got, right, time.monotonic() - began


alone = [play([[{{**told["alone"], "after_s": 0, "cancel_s": 0}}]]) for _ in range(3)]
if not any(right for _, right, _ in alone):
    sys.exit(print("missed alone, by the model or a spoilt server: got", repr(alone[-1][0])) or 2)
pace = min(seconds for _, right, seconds in alone if right) / told["alone"]["seconds"]
loops, missing = told["loops"], 0
print(f"{{loops}} loops at most, about {{pace * loops * told['seconds']:.0f}} s", flush=True)
for loop in range(1, loops + 1):
    got, right, _ = play(told["waves"], pace, loop % 2 * loop * 0.618 % 1)  # when clients go away
    right is False and sys.exit(print(f"loop {{loop}}: wanted {{told['wanted']}} got {{got!r}}") or 1)
    missing += right is None
sys.exit(print(f"{{loops}} loops, {{missing}} without an answer, others right") or 2 * (missing == loops))
"""  # noqa: E501


_STREAMED = 'joined(reply, time.monotonic() + wait_s if request["cancel_s"] else 1e18)'
_AT_ONCE = {"joined": "", "rows": 'json.load(reply)["choices"]'}
_JOINED = """

def joined(reply, end):  # a streamed answer in one piece
    text, finish, error = "", None, None
    for line in reply:
        if time.monotonic() > end:
            raise TimeoutError("the client went away")
        data = line.decode().partition("data:")[2].strip() if line.startswith(b"data:") else ""
        event = json.loads(data) if data and data != "[DONE]" else {}
        error = error or event.get("error")
        for row in event.get("choices") or []:
            text += row.get("text") or (row.get("delta") or {}).get("content") or ""
            finish, error = row.get("finish_reason") or finish, error or row.get("error")
    message = {"content": text}
    return [{"index": 0, "text": text, "message": message, "finish_reason": finish, "error": error}]

"""


def write_repro(storm: Storm, shrunk: Shrunk, folder: Path) -> list[Path]:
    """Write the script, its texts and a text for an issue, and return their paths.

    If margins moved, only the text is written, because a script has no reference to compare with.
    """
    repro = document(storm, shrunk)
    minutes = _minutes(repro["loops"] * repro["seconds"])
    count = len(shrunk.sequence.acts)
    title = f"{shrunk.act.operation}: {count} requests, fails {_failure_count(shrunk)}"
    key = f". ${repro['key_env']} holds the key" if repro["key_env"] else ""
    packed = gzip.compress(json.dumps(repro).encode(), mtime=0)
    is_streamed = repro["fields"].get("stream")
    parts = {"joined": _JOINED, "rows": _STREAMED} if is_streamed else _AT_ONCE
    script = _SCRIPT.format(title=title, minutes=minutes, key=key, **parts)
    issue = issue_text(storm, shrunk, repro["loops"], minutes)
    # A script saves no slot, and asks one model.
    can_play = shrunk.limit is None and not any(act.how for act in shrunk.sequence.acts)
    files = [(ISSUE, issue.encode())]
    if can_play:
        files = [(SCRIPT, script.encode()), (TEXTS, packed), *files]

    paths = []
    for name, data in files:
        write_whole(folder / name, data)
        paths.append(folder / name)
    return paths


def _failure_count(shrunk: Shrunk) -> str:
    return f"{shrunk.failed} of {shrunk.of} times"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{max(1, round(seconds))} seconds"


def document(storm: Storm, shrunk: Shrunk) -> dict[str, Any]:
    """Return the content of repro.json.gz: the requests, the right answer, the number of loops.

    seconds: of one loop at the pace of the storm. foreign: secrets of the other requests. null,
    broken, cut: the meaning of an empty finish reason, and patterns of others. key_env: the
    variable of the key if the storm had one; never the key.
    """
    settings, texts, sequence = storm.resolved.settings, storm.texts, shrunk.sequence
    # Of two requests with one conversation the first counts.
    numbers = {act.path: act.number for act in reversed(sequence.acts)}
    waves = [[_request(storm, shrunk, act, numbers) for act in wave] for wave in sequence.waves]
    target = next(request for wave in waves for request in wave if request["n"] == shrunk.target)
    secrets = set[str]().union(*(texts.all_secrets(sequence.number, act) for act in sequence.acts))
    own_secrets = texts.all_secrets(sequence.number, shrunk.act)
    is_text = not storm.resolved.traits.chat
    return {
        "base_url": _address(settings.base_url or "http://127.0.0.1:8000/v1"),
        "path": "/completions" if is_text else "/chat/completions",
        "text": is_text,
        "model": settings.model_name,
        "fields": _fields(settings, storm.resolved.stops, streams=_streams(storm)),
        "key_env": _key_variable(settings),
        "null": "stop" if settings.model_options.get("null_finish") == "whole" else "null",
        "broken": pattern_of(Ending.BROKEN, Ending.WINDOW, Ending.FILTERED),
        "cut": pattern_of(Ending.CUT),
        "loops": loops_of(storm, shrunk),
        "seconds": round(sum(max(request["seconds"] for request in wave) for wave in waves), 4),
        "target": shrunk.target,
        "wanted": list(texts.secrets(sequence.number, shrunk.act)),
        "foreign": sorted(secrets - own_secrets),
        "alone": target,
        "waves": waves,
    }


def _address(base_url: str) -> str:
    """Return an address, with /v1 if only a host was typed, as the storm tried it too."""
    if "/" in base_url.partition("://")[2].rstrip("/"):
        return base_url
    return f"{base_url.rstrip('/')}/v1"


def loops_of(storm: Storm, shrunk: Shrunk) -> int:
    """Return how often the script plays the sequence at most.

    It is as often as the fault's rate needs. If a client goes away, each loop is played at several
    moments. If it is known what the server caches, a fresh server must get full, because the one
    that showed the fault was.
    """
    acts = shrunk.sequence.acts
    loops = shrunk.loops
    if any(act.cancel for act in acts):
        loops *= 2 * MOMENTS
    kv_tokens = storm.file().kv_tokens
    if kv_tokens:
        loops = max(loops, ceil(FILLED * kv_tokens / sum(act.tokens for act in acts)))
    return min(loops, LOOPS)


def _streams(storm: Storm) -> bool:
    """Return True if the storm's answers were streamed, because of --stream or the server."""
    records = storm.records().values()
    return storm.resolved.settings.stream or any(
        record.first_token_s is not None for record in records
    )


def _fields(settings: Settings, stops: Sequence[str], *, streams: bool) -> dict[str, Any]:
    """Return the fields of a request in addition to its model and its prompt."""
    budget = settings.model_options.get("max_tokens_field") or "max_tokens"
    fields: dict[str, Any] = {budget: decoding_of(settings).most_tokens}
    if settings.temperature is not None:
        fields["temperature"] = settings.temperature
    if stops:
        fields["stop"] = list(stops)
    if streams:
        fields["stream"] = True
    return {**fields, **settings.request}


def _key_variable(settings: Settings) -> str:
    """Return the name of the variable that holds the storm's key, or '' if it had none."""
    variable = str(settings.model_options.get("key_env") or KEY)
    return variable if bearer(variable) else ""


def _request(
    storm: Storm, shrunk: Shrunk, act: Act, numbers: dict[Conversation, int]
) -> dict[str, Any]:
    """Return one request, in which references stand for the server's earlier answers."""
    texts, round_number = storm.texts, shrunk.sequence.number
    marks = {path: f"@answer {number}@" for path, number in numbers.items()}
    rows = texts.messages(round_number, act.path, marks.get, _DIGITS)
    turns_by_mark = {mark: (numbers[path], path[-1]) for path, mark in marks.items()}
    messages: list[tuple[str, Any]] = []
    for role, content in rows:
        if role == "assistant" and content in turns_by_mark:
            number, turn = turns_by_mark[content]
            right_answer = texts.right_answer(round_number, turn)
            messages.append((role, {"from": number, "else": right_answer}))
        else:
            messages.append((role, content.replace(_DIGITS, SALT)))

    prompt_s, token_s = storm.fixed.pace if storm.fixed else (0.0, 0.0)
    pace_s = prompt_s + token_s * (act.tokens + _AROUND)
    return {
        "n": act.number,
        "family": act.family,
        "operation": act.operation,
        "messages": messages,
        "after_s": round(act.after * pace_s, 4),
        "cancel_s": 0 if act.cancel is None else max(0.001, round(act.cancel * pace_s, 4)),
        "seconds": max(0.0001, round(pace_s, 4)),
    }


def issue_text(storm: Storm, shrunk: Shrunk, loops: int, minutes: str) -> str:
    """Return the text to paste into an issue."""
    acts = [
        f"{place}. wave {act.wave}, session {act.session}: {act.operation}, "
        f"about {act.tokens:,} tokens"
        + (f", the client goes away after {act.cancel:g} of a prompt's time" if act.cancel else "")
        + HOWS[act.how]
        + (" <- this answer is wrong" if act.number == shrunk.target else "")
        for place, act in enumerate(shrunk.sequence.acts, 1)
    ]
    title, fault = "Wrong answers", "A prompt is answered wrong"
    facts = {
        "Model": storm.resolved.settings.model,
        "Wanted": ", ".join(storm.texts.secrets(shrunk.sequence.number, shrunk.act)),
        "Got": " ".join(shrunk.got.split())[:_SHOWN],
    }
    margin_lines = []
    script_lines = [
        f"`{SCRIPT}` beside `{TEXTS}` plays it with Python's standard library alone, "
        f"{loops} times at most (about {minutes}):",
        "",
        "    python repro.py http://127.0.0.1:8000/v1",
        "",
    ]
    if any(act.how for act in shrunk.sequence.acts):
        script_lines = []
    if shrunk.limit is not None:
        title, fault = "Log-probabilities that move", "The margins of a right answer move"
        script_lines = []
        facts["Got"] = facts["Wanted"]
        margin_lines = [
            "That is said. Its tokens' margins over the likeliest others move by more than "
            f"{shrunk.limit:.2g} nats a token from those of "
            f"{escape_markdown(storm.options.reference)}.",
            "",
        ]
    return "\n".join(
        [
            f"# {title} after a sequence of {len(acts)} requests",
            "",
            f"{fault} in {shrunk.failed} of {shrunk.of} replays of the sequence "
            f"below, and in {shrunk.cold} of {shrunk.cold_of} when it is asked alone behind a "
            "first line that no cache holds.",
            "",
            *acts,
            "",
            # A server's words and names: in somebody's tracker they must neither link nor mention.
            code_block(f"{name}: {value}" for name, value in facts.items()),
            "",
            *margin_lines,
            *script_lines,
            f"Found by needlemap storm, whose sequence had {shrunk.was} requests.",
            "",
        ]
    )
