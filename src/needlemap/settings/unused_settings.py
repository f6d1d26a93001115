"""Settings that nothing would read: refused where they are given, with what would read them.

Each part that settings choose names what it reads: a back end and a task by their constructors,
the others in one function each below. What no part names stands everywhere. A setting is unread
if what it asks for would not happen; one that holds anyway, as `--no-canary` with a model that
gets no canary, is left alone. Reads no documents and reaches no model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.models import Model
from needlemap.registry import find, installed, option_names
from needlemap.settings import ITEM, Settings
from needlemap.tasks import Background, make_task

# What a value asks for whatever is chosen: no temperature is sent, one prompt follows another.
_HOLDS_ANYWAY: dict[str, Any] = {"temperature": None, "concurrency": 1}


@dataclass(frozen=True, slots=True)
class Part:
    """What one chosen part says of the settings.

    could: settings that a part of its kind may read. reads: those that it does. needs: what would
    read a setting of them, in words that follow 'it needs'. by: the settings that choose the part.
    """

    could: Collection[str]
    reads: Collection[str]
    needs: Callable[[str], str]
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unread:
    """A setting that nothing reads. parts: those of the kinds that may read it."""

    name: str
    parts: tuple[Part, ...]

    @property
    def why(self) -> str:
        """What to tell, and what to type."""
        flag = f"--{self.name.replace('_', '-')}"
        needs = " or ".join(dict.fromkeys(part.needs(self.name) for part in self.parts))
        return f"Nothing reads {flag} here: it needs {needs}. Give that, or leave {flag} out."

    @property
    def by(self) -> tuple[str, ...]:
        """The settings that decide it."""
        return tuple(name for part in self.parts for name in part.by)


class Choice:
    """What settings choose. None stands for an unknown or broken part, which is an error when it
    is made and may read anything until then.

    own_item: whether the user says what is hidden; else the default item is, in the setting's
    language.
    """

    def __init__(self, settings: Settings, own_item: bool) -> None:
        self.settings, self.own_item = settings, own_item

    @cached_property
    def backend(self) -> Any:
        """The back end's class."""
        return _backend(self.settings.backend)

    @cached_property
    def task(self) -> Any:
        """The task's class."""
        return _find("tasks", self.settings.task)

    @cached_property
    def source(self) -> Any:
        """The haystack's class."""
        return _find("haystacks", self.settings.haystack)

    @cached_property
    def scorer(self) -> Any:
        """The scorer's class; None also if the task chooses it."""
        return _find("scorers", self.settings.scorer)

    @property
    def ready(self) -> bool:
        """Whether prompts exist already."""
        return self.task is not None and bool(self.task.ready)

    @cached_property
    def background(self) -> Background | None:
        """The haystack that the task brings."""
        if self.task is None or self.ready:
            return None
        with suppress(NeedlemapError):
            return make_task(self.settings).background(
                self.settings.first_repeat, self.settings.seed
            )
        return None


def find_unread(settings: Settings, own_item: bool = True) -> list[Unread]:
    """Return the settings that differ from their defaults and that nothing would read, in their
    order."""
    parts = parts_of(Choice(settings, own_item))
    unread = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        asked = tuple(part for part in parts if name in part.could)
        holds = value == field.default or (name in _HOLDS_ANYWAY and value == _HOLDS_ANYWAY[name])
        if asked and not holds and not any(name in part.reads for part in asked):
            unread.append(Unread(name, asked))
    return unread


def what_stays(settings: Settings, name: str) -> Any:
    """Return the value of an unread setting once it is left out: its default; of values to draw,
    those in use."""
    if name != "draw":
        return Settings.model_fields[name].default
    used = _placeholders(settings)
    return {key: value for key, value in settings.draw.items() if key in used}


def parts_of(choice: Choice) -> list[Part]:
    """Return what the chosen parts read."""
    settings = choice.settings
    always = [
        _backend_part(choice),
        _decoding(choice),
        _workers(choice),
        _task_part(choice),
        _needles(choice),
        _drawn(choice),
        _where(settings.tokenizer == "server", "--tokenizer server", "base_url", by="tokenizer"),
        _where(settings.counts == "prompt", "--counts prompt", "framing_tokens", by="counts"),
        _where(settings.seek is not None, "--seek 85", "within", by="seek"),
        _where(bool(settings.until), "--until no-worse-than RUN:2", "scope", by="until"),
    ]
    built = [
        _where(True, "", "collisions", "counts", "template", "question_position", "guide", by=""),
        _where(settings.seek is None, "a run without --seek", "repeats", "first_repeat", by="seek"),
        _where(
            settings.depths.scale == "sigmoid",
            "--depths min:max:count:sigmoid",
            "sigmoid_ends",
            by="depths",
        ),
        _language(choice),
        _haystack(choice),
        _placement(choice),
    ]
    if not choice.ready:
        return always + built
    names = [name for part in built for name in part.could]
    return [*always, _where(False, "a task whose prompts are built here", *names, by="task")]


def _where(is_read: bool, needs: str, *names: str, by: str) -> Part:
    """Return a part that reads all of these settings, or none."""
    return Part(names, names if is_read else (), lambda _name: needs, (by,))


_BACKEND = ("base_url", "trust_remote_code", "logprobs", "stream")
_DECODING = ("temperature", "thinking_tokens", "request")


def _reads_of(backend: type[Model], names: Collection[str]) -> list[str]:
    """Return which of some settings a back end reads, by its constructor or as it says."""
    named = option_names(backend)
    reads = []
    for name in names:
        if name in ("base_url", "trust_remote_code"):
            is_read = name in named
        elif name == "stream":
            is_read = backend.streams
        else:
            is_read = name not in backend.unread
        if is_read:
            reads.append(name)
    return reads


def _backends(name: str) -> str:
    """Return, in words, the installed back ends that read a setting."""
    known = {backend: _backend(backend) for backend in installed("models")}
    readers = [
        backend for backend, kind in known.items() if kind is not None and _reads_of(kind, [name])
    ]
    return f"a model of {_either(readers)}"


def _backend_part(choice: Choice) -> Part:
    reads = _BACKEND if choice.backend is None else _reads_of(choice.backend, _BACKEND)
    return Part(could=_BACKEND, reads=reads, needs=_backends, by=("model",))


def _decoding(choice: Choice) -> Part:
    """An answer is sampled, unless the scorer weighs a given one."""
    reads = _DECODING if choice.backend is None else _reads_of(choice.backend, _DECODING)
    weighs = bool(getattr(choice.scorer, "passes", ()))

    def needs(name: str) -> str:
        return "a scorer that asks for an answer" if name in reads else _backends(name)

    return Part(_DECODING, () if weighs else reads, needs, by=("model", "scorer"))


def _workers(choice: Choice) -> Part:
    """Prompts are asked at the same time, unless the model answers one after another; then a
    judge may be asked meanwhile."""
    could = ("concurrency",)
    side_by_side = choice.backend is None or bool(_reads_of(choice.backend, could))
    judged = bool(getattr(choice.scorer, "asks", False))
    reads = could if side_by_side or judged else ()
    return Part(could, reads, _backends, by=("model", "scorer"))


_OF_TASKS = (*ITEM, "distractors")


def _naming(kind: str, name: str) -> str:
    """Return, in words, the installed extensions of a kind whose constructor names a setting."""
    known = {extension: _find(kind, extension) for extension in installed(kind)}
    readers = [
        extension for extension, made in known.items() if made and name in option_names(made)
    ]
    return _either(readers)


def _tasks(name: str) -> str:
    return f"task {_naming('tasks', name)}"


def _named_by_task(choice: Choice, names: Collection[str]) -> list[str]:
    if choice.task is None:
        return list(names)
    return [name for name in names if name in option_names(choice.task)]


def _task_part(choice: Choice) -> Part:
    reads = [name for name in _named_by_task(choice, _OF_TASKS) if name != "draw"]
    could = [name for name in _OF_TASKS if name != "draw"]
    return Part(could, reads, _tasks, by=("task",))


def _needles(choice: Choice) -> Part:
    """Several needles are spread, in a chain by steps."""
    could = ("spread", "diff")
    settings, reads = choice.settings, _named_by_task(choice, could)
    named = tuple(reads)
    one = settings.task == "multi" and len(settings.needles) == 1
    if one:
        reads = []
    elif settings.spread == "even":
        reads = [name for name in reads if name != "diff"]

    def needs(name: str) -> str:
        if name not in named:
            return _tasks(name)
        return "several --needles" if one else "--spread chain"

    return Part(could, reads, needs, by=("task", "needles", "spread"))


def _drawn(choice: Choice) -> Part:
    """Values are drawn for {placeholders} that a text holds."""
    used = _placeholders(choice.settings)
    unused = [key for key in choice.settings.draw if key not in used]
    named = bool(_named_by_task(choice, ("draw",)))

    def needs(name: str) -> str:
        return f"{{{unused[0]}}} in what is hidden, asked or wanted" if named else _tasks(name)

    return Part(("draw",), ("draw",) if named and not unused else (), needs, by=("task", *ITEM))


def _language(choice: Choice) -> Part:
    """The default item, a task, the template and generated prose are in a language."""
    settings = choice.settings
    prose = settings.haystack == "generated" and choice.background is None
    named = bool(_named_by_task(choice, ("language",)))
    is_read = not choice.own_item or named or prose or settings.template == "auto"
    return Part(
        could=("language",),
        reads=("language",) if is_read else (),
        needs=lambda _name: "--template auto or --haystack generated",
        by=("template", "haystack", "needle", "question"),
    )


_HAYSTACK = (
    *("haystack", "shuffle", "joined"),
    *("haystack_path", "file_list", "order", "haystack_repeat"),
)


def _haystack(choice: Choice) -> Part:
    """Documents are chosen, ordered and joined, unless the task brings its own haystack."""
    settings, source, path = choice.settings, choice.source, choice.settings.haystack_path
    missing: dict[str, str] = {}
    if choice.background is not None:
        missing = dict.fromkeys(_HAYSTACK, "a task without a haystack of its own")
    elif settings.haystack == "generated":
        missing = dict.fromkeys(("haystack_path", "file_list"), "another --haystack")
    elif source is not None and "file_list" not in option_names(source):
        missing["file_list"] = f"--haystack {_naming('haystacks', 'file_list')}"
    elif settings.haystack == "jsonl" and path and Path(path).expanduser().is_file():
        missing["file_list"] = "a folder as --haystack-path"

    if getattr(source, "endless", False):
        missing.setdefault("haystack_repeat", "a haystack that ends")
        if settings.order == "cumulative":
            missing.setdefault("order", "a haystack that ends")
    reads = [name for name in _HAYSTACK if name not in missing]
    by = ("haystack", "haystack_path", "task", "task_options")
    return Part(_HAYSTACK, reads, missing.__getitem__, by)


def _placement(choice: Choice) -> Part:
    """A task may place its needles between lines or paragraphs of its own haystack."""
    by_sentence = choice.background is None or choice.background.unit == "sentence"
    return Part(
        could=("placement",),
        reads=("placement",) if by_sentence else (),
        needs=lambda _name: "a task whose needles stand between sentences",
        by=("task", "task_options"),
    )


def _find(kind: str, name: str) -> Any:
    """Return an extension by its name; None for one that is unknown or broken."""
    if name not in installed(kind):
        return None
    with suppress(SettingsError):
        return find(kind, name)
    return None


def _backend(name: str) -> Any:
    kind = _find("models", name)
    return kind if isinstance(kind, type) and issubclass(kind, Model) else None


def _either(names: Collection[str]) -> str:
    """Return names as alternatives.

    >>> _either(["a", "b", "c"]), _either(["a"])
    ('a, b or c', 'a')
    """
    *others, last = names or ["none that is installed"]
    return f"{', '.join(others)} or {last}" if others else last


def _placeholders(settings: Settings) -> set[str]:
    """Return the names in braces in what is hidden, asked and wanted; broken braces are refused
    where they are read."""
    texts = [settings.needle, *settings.needles, settings.question]
    found: set[str] = set()
    for text in [*texts, settings.answer or "", *settings.keywords]:
        with suppress(ValueError):
            found |= {name for _, name, _, _ in Formatter().parse(text) if name is not None}
    return found
