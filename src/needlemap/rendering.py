"""Run a stranger's chat template, normalizer or SentencePiece model in a process of its own.

The process gets little time and memory, and nothing of ours to reach: its environment has no keys.

jinja2's sandbox gives a template only the objects that it is passed. It limits neither time nor
memory. A tokenizer's normalizer, and the one inside of a SentencePiece model, may make gigabytes of
a word, and its library then ends the process. The process starts with the first of them (0.07 s)
and ends with this one.
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

# Limits of a template.
SECONDS = 5
MEGABYTES = 256
# Limits of a normalizer, with its library's own memory.
_NORMAL_S = 20
_NORMAL_MB = 512
# Limits of a SentencePiece model: bytes of memory for a character, characters of a text a second.
_PIECES = 400
_A_SECOND = 50_000
# Characters that may come of one character of a text, and of a short text.
_TIMES = 20
_FEW = 10_000
# Characters of a rendered text.
_LARGEST = 2**24
# It may take so many times as long by the clock, on a machine that is busy with other things.
_SLOWER = 6
# Variables of the environment.
_KEPT = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "SYSTEMROOT",
    "LANG",
)
# The date that Llama 3.1's template falls back on.
_DAY = datetime(2024, 7, 26)


class Unbounded(SettingsError):
    """A template that takes more time or memory than it may."""


class Renderer:
    """The process that renders.

    It is started again if it has ended, and in a fork of this process.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        # The process that started it.
        self._owner = 0
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, template: str, variables: dict[str, Any]) -> str:
        """Return the text of a template.

        Raises SettingsError with the template's own error, and Unbounded at a limit.
        """
        request = {
            "template": template,
            "variables": variables,
            "seconds": SECONDS,
            "megabytes": MEGABYTES,
        }
        return str(self._exchange(request)["text"])

    def normalize(self, normalizer: dict[str, Any], text: str) -> int:
        """Return how many characters a tokenizer's normalizer makes of a text.

        Raises as `render` does.
        """
        request = {
            "normalizer": normalizer,
            "text": text,
            "seconds": _NORMAL_S,
            "megabytes": _NORMAL_MB + _TIMES * len(text) // 2**20,
        }
        return int(self._exchange(request)["size"])

    def pieces(self, model: bytes, text: str) -> tuple[list[int], list[int]]:
        """Return a text's token ids by a SentencePiece model, and the byte at which each ends.

        Raises as `render` does.
        """
        request = {
            "pieces": hashlib.sha256(model).hexdigest(),
            "text": text,
            "seconds": _NORMAL_S + len(text) // _A_SECOND,
            "megabytes": _NORMAL_MB + (_PIECES * len(text) + _TIMES * len(model)) // 2**20,
        }
        reply = self._exchange(request)
        if "ids" not in reply:
            # The process does not have the model yet.
            reply = self._exchange({**request, "model": b64encode(model).decode()})
        return reply["ids"], reply["ends"]

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps(request, default=str).encode() + b"\n"
        with self._lock:
            reply = self._answer(line, seconds_left(_SLOWER * request["seconds"]))
        if reply.get("much"):
            # The command's own limit has an error of its own.
            seconds_left()
            limits = f"{request['seconds']} s or {request['megabytes']} MB"
            raise Unbounded(f"it takes more than {limits}.")
        if "error" in reply:
            raise SettingsError(str(reply["error"]))
        return reply

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
        self._process = None

    def _answer(self, line: bytes, most_s: float) -> dict[str, Any]:
        process = self._running_process()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = Timer(most_s, process.kill)
        timer.start()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            reply: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            # It was killed, by a limit or by what it did.
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
            has_started = process.returncode != 1
            self.close()
            if has_started:
                return {"much": True}
            return {"error": "the process that renders it does not start."}
        finally:
            timer.cancel()
        return reply

    def _running_process(self) -> subprocess.Popen[bytes]:
        """Return this process's renderer, started anew if it has ended or is that of a parent."""
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self.close()
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C is handled by this process.
                start_new_session=True,
                env={name: os.environ[name] for name in _KEPT if name in os.environ},
            )
        return self._process


RENDERER = Renderer()
atexit.register(RENDERER.close)


def serve() -> None:
    """Render each request, a line of JSON, until the input ends."""
    # Import everything that it needs before memory is limited.
    _compile("")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        _bound(request["seconds"], request["megabytes"])
        if "pieces" in request:
            reply = pieces(request["pieces"], request.get("model"), request["text"])
        elif "normalizer" in request:
            reply = normalized(request["normalizer"], request["text"])
        else:
            reply = rendered(request["template"], request["variables"])
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.flush()


def rendered(template: str, variables: dict[str, Any]) -> dict[str, Any]:
    """Return a template's text as {"text": ...}.

    Return {"error": ...} if there is none, and {"much": True} if it took too much memory.
    """
    try:
        text = _compile(template).render(**variables)
        if len(text) > _LARGEST:
            return {"much": True}
        text.encode()
        return {"text": text}
    except MemoryError:
        return {"much": True}
    except BaseException as error:
        from jinja2 import TemplateError

        with suppress(Exception):
            message = str(error)[:500]
            if not isinstance(error, TemplateError):
                message = f"{type(error).__name__}: {message}"
            return {"error": message}
        return {"error": type(error).__name__}


def normalized(normalizer: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the size of what a tokenizer's normalizer makes of a text, as {"size": characters}.

    Otherwise return what `rendered` does.
    """
    from tokenizers import Tokenizer

    model = {"type": "BPE", "vocab": {}, "merges": []}
    try:
        file = json.dumps({**_BARE, "normalizer": normalizer, "model": model})
        size = len(Tokenizer.from_str(file).normalizer.normalize_str(text))
    except MemoryError:
        return {"much": True}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    if size > _FEW + _TIMES * len(text):
        return {"much": True}
    return {"size": size}


# SentencePiece models of the process, by their hashes.
_MODELS: dict[str, Any] = {}


def pieces(name: str, model: str | None, text: str) -> dict[str, Any]:
    """Return {"ids", "ends"} of a text by the model with a hash.

    Return {} if the model is not known yet, and otherwise what `rendered` does. name: the hash.
    model: the model in base64.
    """
    try:
        if model is not None:
            import sentencepiece

            processor = sentencepiece.SentencePieceProcessor(model_proto=b64decode(model))
            _MODELS.clear()
            _MODELS[name] = processor
        if name not in _MODELS:
            return {}
        encoding = _MODELS[name].encode(text.encode(), return_type="offset_mapping")
    except MemoryError:
        return {"much": True}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"ids": list(encoding["ids"]), "ends": [stop for _, stop in encoding["offsets"]]}


_BARE: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    **dict.fromkeys(("truncation", "padding", "pre_tokenizer", "post_processor", "decoder")),
}


def _bound(seconds: int, megabytes: int) -> None:
    """Limit processor time and memory from here on, and forbid files.

    Does nothing if the system has no such limits.
    """
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
def _compile(template: str) -> Any:
    """Return a chat template, compiled as transformers does it.

    A template is a stranger's program, so it runs in jinja2's sandbox.
    """
    import re

    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # These marks are for training only, and jinja2 does not know them.
    template = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", template)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _day}
    return environment.from_string(template)


def _refuse(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _day(form: str) -> str:
    """Return the date that templates ask for: always the same, so that a run's prompts are too."""
    return _DAY.strftime(form)


def _to_json(value: Any, **options: Any) -> str:
    """Return JSON without HTML escapes."""
    return json.dumps(value, **{"ensure_ascii": False, **options})


if __name__ == "__main__":
    serve()
