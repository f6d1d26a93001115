"""A stranger's chat template, normalizer or SentencePiece model in a process of its own:
little time, little memory, and nothing of ours to reach.

jinja2's sandbox lets a template reach no object but those it is given; it bounds neither time
nor memory. A tokenizer's normalizer, and the one inside of a SentencePiece model, may make
gigabytes of a word, and its library then ends the process. The process is started at the first
of them (0.07 s) and ends with this one; its environment holds no keys.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from contextlib import suppress
from datetime import datetime
from functools import cache
from threading import Lock, Timer
from typing import Any

from needlemap.deadline import seconds_left
from needlemap.errors import SettingsError

SECONDS, MEGABYTES = 5, 256
_NORMAL_S, _NORMAL_MB = 20, 512  # for a normalizer; a library's own memory is part of it
_PIECES, _A_SECOND = 400, 50_000  # bytes of memory for a character, and characters of a text
_TIMES, _FEW = 20, 10_000  # characters that may come of one of a text, and of a short one
_LARGEST = 2**24  # characters of a rendered text
_SLOWER = 6  # times as long by the clock, on a machine that is busy with other things
_KEPT = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "SYSTEMROOT",
    "LANG",
)
_DAY = datetime(2024, 7, 26)  # the date that Llama 3.1's template falls back on


class Unbounded(SettingsError):
    """A template that takes more time or memory than it may."""


class Renderer:
    """The process that renders; started anew where it ended, and in a fork of this process."""

    def __init__(self) -> None:
        self._lock, self._owner = Lock(), 0
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, template: str, variables: dict[str, Any]) -> str:
        """A template's text. Raises SettingsError with what the template says, Unbounded at a
        limit."""
        request = {
            "template": template,
            "variables": variables,
            "seconds": SECONDS,
            "megabytes": MEGABYTES,
        }
        return str(self._exchange(request)["text"])

    def normalize(self, normalizer: dict[str, Any], text: str) -> int:
        """How many characters a tokenizer's normalizer makes of a text. Raises as `render`."""
        megabytes = _NORMAL_MB + _TIMES * len(text) // 2**20
        asked = {"normalizer": normalizer, "text": text, "seconds": _NORMAL_S}
        return int(self._exchange({**asked, "megabytes": megabytes})["size"])

    def pieces(self, model: bytes, text: str) -> tuple[list[int], list[int]]:
        """A text's token ids by a SentencePiece model, and the byte at which each ends. Raises
        as `render`."""
        name = hashlib.sha256(model).hexdigest()
        megabytes = _NORMAL_MB + (_PIECES * len(text) + _TIMES * len(model)) // 2**20
        asked = {"pieces": name, "text": text, "seconds": _NORMAL_S + len(text) // _A_SECOND}
        asked |= {"megabytes": megabytes}
        said = self._exchange(asked)
        if "ids" not in said:  # a process that has not met the model yet
            said = self._exchange({**asked, "model": b64encode(model).decode()})
        return said["ids"], said["ends"]

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps(request, default=str).encode() + b"\n"
        with self._lock:
            said = self._answer(line, seconds_left(_SLOWER * request["seconds"]))
        if said.get("much"):
            seconds_left()  # a command's own limit has words of its own
        if "error" in said or said.get("much"):
            much = f"it takes more than {request['seconds']} s or {request['megabytes']} MB."
            raise Unbounded(much) if said.get("much") else SettingsError(str(said["error"]))
        return said

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
        self._process = None

    def _answer(self, line: bytes, most_s: float) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        clock = Timer(most_s, process.kill)
        clock.start()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            said: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError):  # it was killed, by a limit or by what it did
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
            began = process.returncode != 1
            self.close()
            return (
                {"much": True}
                if began
                else {"error": "the process that renders it does not start."}
            )
        finally:
            clock.cancel()
        return said

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self.close()
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is this process's business
                env={name: os.environ[name] for name in _KEPT if name in os.environ},
            )
        return self._process


RENDERER = Renderer()
atexit.register(RENDERER.close)


def serve() -> None:
    """Render each request, a line of JSON, until the input ends."""
    _compiled("")  # all that it imports, before memory is bounded
    for line in sys.stdin.buffer:
        request = json.loads(line)
        _bound(request["seconds"], request["megabytes"])
        if "pieces" in request:
            said = json.dumps(pieces(request["pieces"], request.get("model"), request["text"]))
        elif "normalizer" in request:
            said = json.dumps(normalized(request["normalizer"], request["text"]))
        else:
            said = json.dumps(rendered(request["template"], request["variables"]))
        sys.stdout.buffer.write(said.encode() + b"\n")
        sys.stdout.buffer.flush()


def rendered(template: str, variables: dict[str, Any]) -> dict[str, Any]:
    """{"text": ...}, {"error": why there is none}, or {"much": True} for one that took too
    much memory."""
    try:
        text = _compiled(template).render(**variables)
        if len(text) > _LARGEST:
            return {"much": True}
        text.encode()
        return {"text": text}
    except MemoryError:
        return {"much": True}
    except BaseException as error:
        from jinja2 import TemplateError

        with suppress(Exception):
            said = str(error)[:500]
            return {
                "error": said
                if isinstance(error, TemplateError)
                else f"{type(error).__name__}: {said}"
            }
        return {"error": type(error).__name__}


def normalized(normalizer: dict[str, Any], text: str) -> dict[str, Any]:
    """{"size": characters} of what a tokenizer's normalizer makes of a text, else as
    `rendered`."""
    from tokenizers import Tokenizer

    model = {"type": "BPE", "vocab": {}, "merges": []}
    try:
        whole = Tokenizer.from_str(json.dumps({**_BARE, "normalizer": normalizer, "model": model}))
        size = len(whole.normalizer.normalize_str(text))
    except MemoryError:
        return {"much": True}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"size": size} if size <= _FEW + _TIMES * len(text) else {"much": True}


_MODELS: dict[str, Any] = {}  # SentencePiece models of the process, by their hashes


def pieces(name: str, model: str | None, text: str) -> dict[str, Any]:
    """{"ids", "ends"} of a text by the model of that hash, {} where the model is not known
    yet, else as `rendered`. model: in base64."""
    try:
        if model is not None:
            import sentencepiece

            made = sentencepiece.SentencePieceProcessor(model_proto=b64decode(model))
            _MODELS.clear()
            _MODELS[name] = made
        if name not in _MODELS:
            return {}
        found = _MODELS[name].encode(text.encode(), return_type="offset_mapping")
    except MemoryError:
        return {"much": True}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"ids": list(found["ids"]), "ends": [stop for _, stop in found["offsets"]]}


_BARE: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    **dict.fromkeys(("truncation", "padding", "pre_tokenizer", "post_processor", "decoder")),
}


def _bound(seconds: int, megabytes: int) -> None:
    """Processor time and memory from here on; no files are written. Where the system knows
    such limits."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + seconds)
        _limit(resource.RLIMIT_FSIZE, 0)
        _limit(resource.RLIMIT_CORE, 0)
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + megabytes * 2**20)


def _limit(kind: int, most: int) -> None:
    import resource

    resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


@cache
def _compiled(template: str) -> Any:
    """As transformers compiles it: a stranger's program, in jinja2's sandbox."""
    import re

    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    bare = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", template)  # marks for training only
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _day}
    return environment.from_string(bare)


def _refuse(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _day(form: str) -> str:
    """The date that templates ask for: always the same, so that a run's prompts are too."""
    return _DAY.strftime(form)


def _to_json(value: Any, **options: Any) -> str:
    """JSON without HTML escapes."""
    return json.dumps(value, **{"ensure_ascii": False, **options})


if __name__ == "__main__":
    serve()
