"""Find settings that nothing would read, and what would read them.

Each part that settings choose names the settings that it reads: a back end and a task by their
constructors, the others in one function each below. A setting that no part names is read by every
run. A setting is unread if what it demands would not happen. If that happens anyway, as with
`--no-canary` and a model that gets no canary, the setting is left alone. Nothing here reads
documents or reaches a model.
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

# Values whose demand is met by any choice: no temperature is sent, one prompt follows another.
_HOLDS_ANYWAY: dict[str, Any] = {"temperature": None, "concurrency": 1}


@dataclass(frozen=True, slots=True)
class Part:
    """The settings that one chosen part reads.

    Attributes:
        could: The settings that a part of its kind may read.
        reads: Those of them that it reads.
        needs: Returns what would read one of them, in words that follow 'it needs'.
        by: The settings that choose the part.
    """

    could: Collection[str]
    reads: Collection[str]
    needs: Callable[[str], str]
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unread:
    """A setting that nothing reads.

    Attributes:
        name: Its name.
        parts: The chosen parts whose kinds may read it.
    """

    name: str
    parts: tuple[Part, ...]

    @property
    def why(self) -> str:
        """Return a message on what would read the setting, and what to type."""
        flag = f"--{self.name.replace('_', '-')}"
        needs = " or ".join(dict.fromkeys(part.needs(self.name) for part in self.parts))
        return f"Nothing reads {flag} here: it needs {needs}. Give that, or leave {flag} out."

    @property
    def by(self) -> tuple[str, ...]:
        """Return the settings that decide whether it is read."""
        return tuple(name for part in self.parts for name in part.by)


class Choice:
    """The parts that settings choose.

    None stands for an unknown or broken part. Making it will be an error, so until then it counts
    as one that reads every setting.

    Args:
        settings: The settings.
        own_item: Whether the user chose what is hidden. If not, it is the default item in the
            language of the settings.
    """

    def __init__(self, settings: Settings, own_item: bool) -> None:
        self.settings, self.own_item = settings, own_item

    @cached_property
    def backend(self) -> Any:
        """Return the back end's class."""
        return _backend(self.settings.backend)

    @cached_property
    def task(self) -> Any:
        """Return the task's class."""
        return _find("tasks", self.settings.task)

    @cached_property
    def source(self) -> Any:
        """Return the haystack's class."""
        return _find("haystacks", self.settings.haystack)

    @cached_property
    def scorer(self) -> Any:
        """Return the scorer's class, or None if the task chooses the scorer."""
        return _find("scorers", self.settings.scorer)

    @property
    def ready(self) -> bool:
        """Return True if the prompts exist already."""
        return self.task is not None and bool(self.task.ready)

    @cached_property
    def background(self) -> Background | None:
        """Return the haystack that the task brings, or None if it brings none."""
        if self.task is None or self.ready:
            return None
        with suppress(NeedlemapError):
            return make_task(self.settings).background(
                self.settings.first_repeat, self.settings.seed
            )
        return None


def find_unread(settings: Settings, own_item: bool = True) -> list[Unread]:
    """Return the settings that differ from their defaults and that nothing would read.

    They are in the order in which settings are defined.
    """
    parts = parts_of(Choice(settings, own_item))
    unread = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if value == field.default or (name in _HOLDS_ANYWAY and value == _HOLDS_ANYWAY[name]):
            continue

        possible_readers = tuple(part for part in parts if name in part.could)
        is_read = any(name in part.reads for part in possible_readers)
        if possible_readers and not is_read:
            unread.append(Unread(name, possible_readers))
    return unread


def remaining_value(settings: Settings, name: str) -> Any:
    """Return the value of an unread setting once it is left out.

    It is the default. Of the values to draw, those that a text uses remain.
    """
    if name != "draw":
        return Settings.model_fields[name].default
    placeholders = _placeholders(settings)
    return {key: value for key, value in settings.draw.items() if key in placeholders}


def parts_of(choice: Choice) -> list[Part]:
    """Return what the chosen parts read."""
    settings = choice.settings
    always = [
        _backend_part(choice),
        _decoding_part(choice),
        _concurrency_part(choice),
        _task_part(choice),
        _spread_part(choice),
        _draw_part(choice),
        _part_if(settings.tokenizer == "server", "--tokenizer server", "base_url", by="tokenizer"),
        _part_if(settings.counts == "prompt", "--counts prompt", "framing_tokens", by="counts"),
        _part_if(settings.seek is not None, "--seek 85", "within", by="seek"),
        _part_if(bool(settings.until), "--until no-worse-than RUN:2", "scope", by="until"),
    ]
    # Read only where prompts are built.
    built = [
        _part_if(True, "", "collisions", "counts", "template", "question_position", "guide", by=""),
        _part_if(
            settings.seek is None, "a run without --seek", "repeats", "first_repeat", by="seek"
        ),
        _part_if(
            settings.depths.scale == "sigmoid",
            "--depths min:max:count:sigmoid",
            "sigmoid_ends",
            by="depths",
        ),
        _language_part(choice),
        _haystack_part(choice),
        _placement_part(choice),
    ]
    if not choice.ready:
        return always + built

    names = [name for part in built for name in part.could]
    return [*always, _part_if(False, "a task whose prompts are built here", *names, by="task")]


def _part_if(is_read: bool, needs: str, *names: str, by: str) -> Part:
    """Return a part that reads all of some settings if a condition holds, or else none of them.

    needs: the condition in words. by: the setting that decides it.
    """
    return Part(names, names if is_read else (), lambda _name: needs, (by,))


_BACKEND = ("base_url", "trust_remote_code", "logprobs", "stream")
_DECODING = ("temperature", "thinking_tokens", "request")


def _reads_of(backend: type[Model], names: Collection[str]) -> list[str]:
    """Return which of some settings a back end reads."""
    options = option_names(backend)
    reads = []
    for name in names:
        if name in ("base_url", "trust_remote_code"):
            is_read = name in options
        elif name == "stream":
            is_read = backend.streams
        else:
            is_read = name not in backend.unread
        if is_read:
            reads.append(name)
    return reads


def _backends_reading(name: str) -> str:
    """Return, in words, the installed back ends that read a setting."""
    backends = {backend: _backend(backend) for backend in installed("models")}
    readers = [
        backend
        for backend, kind in backends.items()
        if kind is not None and _reads_of(kind, [name])
    ]
    return f"a model of {_either(readers)}"


def _backend_part(choice: Choice) -> Part:
    reads = _BACKEND if choice.backend is None else _reads_of(choice.backend, _BACKEND)
    return Part(could=_BACKEND, reads=reads, needs=_backends_reading, by=("model",))


def _decoding_part(choice: Choice) -> Part:
    """Return the part that samples an answer.

    If the scorer weighs a given answer, the part reads nothing.
    """
    reads = _DECODING if choice.backend is None else _reads_of(choice.backend, _DECODING)
    weighs = bool(getattr(choice.scorer, "passes", ()))

    def needs(name: str) -> str:
        return "a scorer that asks for an answer" if name in reads else _backends_reading(name)

    return Part(_DECODING, () if weighs else reads, needs, by=("model", "scorer"))


def _concurrency_part(choice: Choice) -> Part:
    """Return the part that sends several requests at a time.

    If a model answers one prompt after another, a judge may still be asked meanwhile.
    """
    could = ("concurrency",)
    is_parallel = choice.backend is None or bool(_reads_of(choice.backend, could))
    has_judge = bool(getattr(choice.scorer, "asks", False))
    reads = could if is_parallel or has_judge else ()
    return Part(could, reads, _backends_reading, by=("model", "scorer"))


_OF_TASKS = (*ITEM, "distractors")


def _extensions_reading(kind: str, name: str) -> str:
    """Return, in words, the installed extensions of a kind whose constructor names a setting."""
    extensions = {extension: _find(kind, extension) for extension in installed(kind)}
    readers = [
        extension
        for extension, found in extensions.items()
        if found and name in option_names(found)
    ]
    return _either(readers)


def _tasks_reading(name: str) -> str:
    return f"task {_extensions_reading('tasks', name)}"


def _read_by_task(choice: Choice, names: Collection[str]) -> list[str]:
    """Return those of some settings that the task's constructor names."""
    if choice.task is None:
        return list(names)
    return [name for name in names if name in option_names(choice.task)]


def _task_part(choice: Choice) -> Part:
    reads = [name for name in _read_by_task(choice, _OF_TASKS) if name != "draw"]
    could = [name for name in _OF_TASKS if name != "draw"]
    return Part(could, reads, _tasks_reading, by=("task",))


def _spread_part(choice: Choice) -> Part:
    """Return the part that spreads several needles, in a chain by steps of `diff`."""
    could = ("spread", "diff")
    settings = choice.settings
    task_reads = _read_by_task(choice, could)

    is_single = settings.task == "multi" and len(settings.needles) == 1
    reads = task_reads
    if is_single:
        reads = []
    elif settings.spread == "even":
        reads = [name for name in task_reads if name != "diff"]

    def needs(name: str) -> str:
        if name not in task_reads:
            return _tasks_reading(name)
        return "several --needles" if is_single else "--spread chain"

    return Part(could, reads, needs, by=("task", "needles", "spread"))


def _draw_part(choice: Choice) -> Part:
    """Return the part that draws values for the {placeholders} of a text."""
    placeholders = _placeholders(choice.settings)
    unused = [key for key in choice.settings.draw if key not in placeholders]
    is_option = bool(_read_by_task(choice, ("draw",)))

    def needs(name: str) -> str:
        if not is_option:
            return _tasks_reading(name)
        return f"{{{unused[0]}}} in what is hidden, asked or wanted"

    reads = ("draw",) if is_option and not unused else ()
    return Part(("draw",), reads, needs, by=("task", *ITEM))


def _language_part(choice: Choice) -> Part:
    """Return the part that reads a language.

    The default item, a task, the template or generated prose may read it.
    """
    settings = choice.settings
    has_prose = settings.haystack == "generated" and choice.background is None
    is_option = bool(_read_by_task(choice, ("language",)))
    is_read = not choice.own_item or is_option or has_prose or settings.template == "auto"
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


def _haystack_part(choice: Choice) -> Part:
    """Return the part that chooses, orders and joins documents.

    If the task brings its own haystack, the part reads nothing.
    """
    settings, source, path = choice.settings, choice.source, choice.settings.haystack_path
    # What each unread setting needs.
    missing: dict[str, str] = {}
    if choice.background is not None:
        missing = dict.fromkeys(_HAYSTACK, "a task without a haystack of its own")
    elif settings.haystack == "generated":
        missing = dict.fromkeys(("haystack_path", "file_list"), "another --haystack")
    elif source is not None and "file_list" not in option_names(source):
        missing["file_list"] = f"--haystack {_extensions_reading('haystacks', 'file_list')}"
    elif settings.haystack == "jsonl" and path and Path(path).expanduser().is_file():
        missing["file_list"] = "a folder as --haystack-path"

    if getattr(source, "endless", False):
        missing.setdefault("haystack_repeat", "a haystack that ends")
        if settings.order == "cumulative":
            missing.setdefault("order", "a haystack that ends")

    reads = [name for name in _HAYSTACK if name not in missing]
    by = ("haystack", "haystack_path", "task", "task_options")
    return Part(_HAYSTACK, reads, missing.__getitem__, by)


def _placement_part(choice: Choice) -> Part:
    """Return the part that places needles between sentences.

    A task may place its needles between lines or paragraphs of its own haystack instead.
    """
    by_sentence = choice.background is None or choice.background.unit == "sentence"
    return Part(
        could=("placement",),
        reads=("placement",) if by_sentence else (),
        needs=lambda _name: "a task whose needles stand between sentences",
        by=("task", "task_options"),
    )


def _find(kind: str, name: str) -> Any:
    """Return the extension of a name, or None if it is unknown or broken."""
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
    """Return the names in braces in the texts of an item: needles, question, answer, keywords.

    A text with broken braces has none. It is refused where it is read.
    """
    texts = [settings.needle, *settings.needles, settings.question]
    names: set[str] = set()
    for text in [*texts, settings.answer or "", *settings.keywords]:
        with suppress(ValueError):
            names |= {name for _, name, _, _ in Formatter().parse(text) if name is not None}
    return names
