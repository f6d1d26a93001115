"""Keys planted wherever a user may have some, errors of all kinds, and a look into everything that
is left.

What an address may hold: tests/test_security.py.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from pathlib import Path

import pytest

TAG = "planted"  # no key is left whole, nor any piece with this in it
KEYS = {
    "OPENAI_API_KEY": f"sk-{TAG}-mo/del+0123.45678=abc",
    "JUDGE_KEY": f"{TAG}Judge0123456789abc",
    "ANTHROPIC_API_KEY": f"{TAG}Anthropic0123456789",
    "ANTHROPIC_AUTH_TOKEN": f"{TAG}Token0123456789abc",
    "ANTHROPIC_CUSTOM_HEADERS": f"x-gateway: {TAG}Gateway0123456789",
    "HF_TOKEN": f"hf_{TAG}0123456789abcdef",
    "WANDB_API_KEY": f"{TAG}Wandb0123456789abcdef",
}
ERRORS = (
    *(
        "ok",
        "echo:500",
        "echo:200",
        "echo:400",
        "401",
        "invalid-json",
        "cut",
        "echo:429",
        "wrong-shape",
    ),
    *("spell:200", "spell:400", "spell:500"),
)
GRID = (
    "--lengths",
    "200,300",
    "--depths",
    "0,50,100",
    "--repeats",
    "2",
    "--retries",
    "0",
    "--no-canary",
)
BLOB = re.compile(r'<script type="application/octet-stream" id="[^"]*">([^<]*)</script>')


@pytest.fixture
def needlemap(needlemap):
    """The command line of somebody with many keys."""
    needlemap.environment |= KEYS
    return needlemap


def clean(name: str, data: bytes) -> None:
    """Nothing of a key is in it: as it is, unpacked, as base64, in escapes, or its end."""
    for piece in (data, *map(unpacked, BLOB.findall(data.decode("utf-8", "replace")))):
        at = piece.find(TAG.encode())
        assert at < 0, f"{name}: {piece[max(0, at - 80) : at + 80]!r}"
    for key in KEYS.values():
        assert key[-8:].encode() not in data, name
        assert (
            "".join(f"\\u{ord(letter):04x}" for letter in key[4:8]).encode() not in data.lower()
        ), name
        assert base64.b64encode(key.encode())[:16] not in data, name


def unpacked(blob: str) -> bytes:
    return gzip.decompress(base64.b64decode(blob))


def all_clean(folder: Path) -> None:
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    for file in files:
        assert TAG not in str(file)
        clean(str(file), file.read_bytes())


@pytest.mark.parametrize("backend", ["openai", "anthropic"])
def test_whatever_a_server_says_back_no_key_is_in_any_file_or_output(
    needlemap, typed, wire, wires, backend
):
    judges = wires()
    judges.schedule(
        *("say:Score: 7", "echo:500", "echo:200", "401", "echo:400", "spell:200", "spell:400") * 20
    )
    wire.schedule(*ERRORS, cycle=True)
    judge = f"judge_options={{base_url: '{judges.base_url}', key_env: JUDGE_KEY}}"
    chosen = (
        "--model",
        f"{backend}/m",
        "--base-url",
        wire.root if backend == "anthropic" else wire.base_url,
    )
    flags = (*chosen, "--tokenizer", "cl100k_base", "--max-answer-tokens", "40", "-o", "r", *GRID)
    scorer = ("--scorer", "judge", "--scorer-options", judge, "--scorer-options", "model=openai/j")
    for _ in range(2):  # a refused key ends a run at once
        ended = needlemap("run", *flags, *scorer, "--save-contexts", code=None)
        clean("run", (ended.stdout + ended.stderr).encode())
    assert all(request["had_key"] for request in wire.log() + judges.log())
    met = {request["fault"] for request in wire.log()}
    assert met >= {"ok", "echo:500", "echo:200", "401", "echo:429", "spell:200", "spell:400"}
    assert judges.log()
    assert [row for row in needlemap.records() if "[hidden]" in json.dumps(row)]
    for file in ("page.html", "trials.csv", "map.svg"):
        typed("report", "r", "-o", file, "--format", "trials" if file.endswith("csv") else "cells")
    shown = (
        typed("report", "r"),
        typed("replay", "r", "--length", "200", "--depth", "0", code=None),
    )
    for each in shown:
        clean("report", (each.stdout + each.stderr).encode())
    all_clean(needlemap.folder)


def test_replicas_get_their_keys_by_no_argument_that_other_users_could_list(needlemap, wire):
    wire.schedule("slow:0.05", "echo:500", "ok", cycle=True)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, "--workers", "2")
    seen: set[bytes] = set()
    while process.poll() is None:
        seen |= arguments()
        time.sleep(0.02)
    out, err = process.communicate()
    assert sum(b"needlemap" in each for each in seen) >= 3, (
        out,
        err,
    )  # the command and its replicas
    clean("arguments", b"\n".join(seen))
    clean("output", (out + err).encode())
    all_clean(needlemap.folder)


def arguments() -> set[bytes]:
    """What all processes of this machine were started with."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.add(file.read_bytes())
        except OSError:
            continue  # it ended meanwhile
    return found


@pytest.mark.parametrize(
    "flag",
    [
        ("--request", "api_key={key}"),
        ("--request", "headers={{Authorization: Bearer {key}}}"),
        ("--model-options", "api_key={key}"),
        ("--model-options", "key_env={key}"),
        ("--scorer-options", "judge_options={{api_key: {key}}}"),
        ("--openai-api-key", "{key}"),
        ("--base-url", "http://me:{key}@127.0.0.1:9/v1"),
        ("--base-url", "http://127.0.0.1:9/v1?token={key}"),
        ("--scorer-options", "judge_options={{base_url: 'http://127.0.0.1:9/v1?key={key}'}}"),
    ],
)
def test_a_key_in_a_setting_is_refused_before_it_is_written_anywhere(typed, wire, tmp_path, flag):
    name, value = flag
    key = f"sk-{TAG}-elsewhere-0123"
    server = (
        "--model",
        "openai/m",
        "--base-url",
        wire.base_url,
        "--tokenizer",
        "cl100k_base",
        "-o",
        "r",
    )
    ended = typed("run", *server, "--scorer", "judge", *GRID, name, value.format(key=key), code=2)
    clean("run", (ended.stdout + ended.stderr).encode())
    for file in tmp_path.rglob("*"):
        clean(str(file), file.read_bytes() if file.is_file() else b"")
    assert wire.log() == []
