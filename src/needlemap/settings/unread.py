"""Settings that nothing would read: refused where they are given, with what to type instead.

Each rule is one reason, which a setting names where it is defined (`read=`). A setting is unread
where what it asks for would not happen; where it happens anyway, as `--no-canary` with a model that
gets no canary, it is left alone. Reads no documents and reaches no model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.http.compatible import served
from needlemap.models import Model
from needlemap.registry import find, installed, option_names
from needlemap.settings import KNOWN, Settings
from needlemap.tasks import Background, make_task


@dataclass(frozen=True, slots=True)
class Unread:
    """A setting that nothing reads. why: what to tell, with what to type. by: the settings that
    decide it."""

    name: str
    why: str
    by: tuple[str, ...]


class ChosenParts:
    """What settings come to, as far as rules ask: None for what is unknown, which is told
    elsewhere.

    own_item: whether the user says what is hidden; else the default item is, in the setting's
    language.
    """

    def __init__(self, settings: Settings, own_item: bool) -> None:
        self.settings, self.own_item = settings, own_item

    @cached_property
    def backend(self) -> Any:
        """The back end's class; a plug-in's that is none is told when it is made."""
        found = _known("models", self.settings.backend)
        return found if isinstance(found, type) and issubclass(found, Model) else None

    @cached_property
    def task(self) -> Any:
        """The task's class."""
        return _known("tasks", self.settings.task)

    @cached_property
    def source(self) -> Any:
        """The haystack's class."""
        return _known("haystacks", self.settings.haystack)

    @cached_property
    def scorer(self) -> Any:
        """The scorer's class; None where the task chooses it."""
        return _known("scorers", self.settings.scorer)

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

    def takes(self, extension: Any, name: str) -> bool:
        """Whether an extension has an option of that name; an unknown one may have any."""
        return extension is None or name in option_names(extension)

    def heeds(self, name: str) -> bool:
        """Whether the back end reads a setting, as far as it says."""
        unset = getattr(self.settings, name) is None
        return unset or not self.backend or name not in self.backend.unread

    @property
    def endless(self) -> bool:
        """Whether the haystack never ends."""
        return bool(getattr(self.source, "endless", False))


Why = tuple[str, str]  # before and behind 'leave --NAME out'
Rule = Callable[[ChosenParts, str], Why | None]


def find_unread(settings: Settings, own_item: bool = True) -> list[Unread]:
    """The settings that differ from their defaults and that nothing would read, in their order."""
    facts, found = ChosenParts(settings, own_item), []
    for name, field in Settings.model_fields.items():
        reason = KNOWN[name].read
        if reason is None or getattr(settings, name) == field.default:
            continue
        rules = _chain(reason)
        if why := next((why for rule, _ in rules if (why := rule(facts, name))), None):
            flag = f"--{name.replace('_', '-')}"
            left = "it" if flag in why[0] else flag
            by = tuple(decider for _, deciders in rules for decider in deciders)
            found.append(Unread(name, f"{why[0]}: leave {left} out{why[1]}.", by))
    return found


def _chain(reason: str) -> list[tuple[Rule, tuple[str, ...]]]:
    """A reason's rule, and before it those that it stands behind."""
    rule, by, behind = RULES[reason]
    return [*(_chain(behind) if behind else []), (rule, by)]


def what_stays(settings: Settings, name: str) -> Any:
    """The value of an unread setting once it is left out: its default; of values to draw, those in
    use."""
    if name != "draw":
        return Settings.model_fields[name].default
    used = _placeholders(settings)
    return {key: value for key, value in settings.draw.items() if key in used}


def _known(kind: str, name: str) -> Any:
    """An extension by its name; None for one that is unknown or broken, which is told when it is
    made."""
    if name not in installed(kind):
        return None
    with suppress(SettingsError):
        return find(kind, name)
    return None


def _address(facts: ChosenParts, name: str) -> Why | None:
    settings = facts.settings
    if facts.takes(facts.backend, name) or settings.tokenizer == "server":
        return None
    return (
        f"'{settings.model}' has no address",
        f", or name a server's model, as {served(settings.model_name)}",
    )


def _own_code(facts: ChosenParts, name: str) -> Why | None:
    if facts.takes(facts.backend, name):
        return None
    model = facts.settings.model
    return (
        f"'{model}' runs no code that comes with a model (a server is told when it is started)",
        "",
    )


def _model(facts: ChosenParts, name: str) -> Why | None:
    return (
        None
        if facts.heeds(name)
        else (f"'{facts.settings.model}' takes no --{name.replace('_', '-')}", "")
    )


def _sampled(facts: ChosenParts, name: str) -> Why | None:
    settings = facts.settings
    if getattr(settings, name) is None or not getattr(facts.scorer, "weighs", False):
        return None
    return f"Scorer '{settings.scorer}' weighs a given answer and asks for none", ""


def _side_by_side(facts: ChosenParts, name: str) -> Why | None:
    settings = facts.settings
    if facts.heeds(name) or settings.concurrency == 1 or getattr(facts.scorer, "asks", False):
        return None
    return f"'{settings.model}' answers one prompt after another", ""


def _task(facts: ChosenParts, name: str) -> Why | None:
    if facts.takes(facts.task, name):
        return None
    known = ", ".join(option_names(facts.task)) or "none"
    return (
        f"Task '{facts.settings.task}' takes no --{name.replace('_', '-')}",
        f". Its options: {known}",
    )


def _several(facts: ChosenParts, _name: str) -> Why | None:
    if facts.settings.task != "multi" or len(facts.settings.needles) != 1:
        return None
    return "One needle is not spread", ", or repeat --needles"


def _chained(facts: ChosenParts, _name: str) -> Why | None:
    if facts.settings.spread != "even":
        return None
    return "--spread even is given by depth and number of needles", ", or give --spread chain"


def _drawn(facts: ChosenParts, _name: str) -> Why | None:
    used = _placeholders(facts.settings)
    unused = next((key for key in facts.settings.draw if key not in used), None)
    if unused is None:
        return None
    return (
        f"No needle, question, answer or key word holds {{{unused}}}",
        f", or write {{{unused}}} there",
    )


def _placeholders(settings: Settings) -> set[str]:
    """The names in braces in what is hidden, asked and wanted; broken braces are told elsewhere."""
    texts = [
        settings.needle,
        *settings.needles,
        settings.question,
        settings.answer or "",
        *settings.keywords,
    ]
    found: set[str] = set()
    for text in texts:
        with suppress(ValueError):
            found |= {name for _, name, _, _ in Formatter().parse(text) if name is not None}
    return found


def _language(facts: ChosenParts, name: str) -> Why | None:
    settings = facts.settings
    if not facts.own_item or facts.task is None or name in option_names(facts.task):
        return None
    if settings.template == "auto" or (
        settings.haystack == "generated" and facts.background is None
    ):
        return None
    return (
        f"Template '{settings.template}' and haystack '{settings.haystack}' have their own "
        f"language",
        "",
    )


def _built(facts: ChosenParts, _name: str) -> Why | None:
    if not facts.ready:
        return None
    asked = f"Task '{facts.settings.task}' asks each prompt once and as it is"
    return asked, ". Fewer prompts: --task-options limit=N"


def _haystack(facts: ChosenParts, _name: str) -> Why | None:
    if facts.background is None:
        return None
    return (
        f"Task '{facts.settings.task}' brings its own haystack, '{facts.background.source.name}'",
        "",
    )


def _path(facts: ChosenParts, _name: str) -> Why | None:
    if facts.settings.haystack != "generated":
        return None
    return "Haystack 'generated' is made up and reads no path", ", or --haystack"


def _files(facts: ChosenParts, name: str) -> Why | None:
    settings, path = facts.settings, facts.settings.haystack_path
    if not facts.takes(facts.source, name):
        return (
            f"Haystack '{settings.haystack}' chooses no files by name",
            ", or give --haystack jsonl",
        )
    if settings.haystack == "jsonl" and path is not None and Path(path).expanduser().is_file():
        return f"'{path}' is one file", ", or give its folder as --haystack-path"
    return None


def _ending(facts: ChosenParts, _name: str) -> Why | None:
    if not facts.endless:
        return None
    return f"Haystack '{facts.settings.haystack}' never ends, so nothing is repeated", ""


def _ordered(facts: ChosenParts, _name: str) -> Why | None:
    if facts.settings.order != "cumulative" or not facts.endless:
        return None
    never = (
        f"Haystack '{facts.settings.haystack}' never ends, so its order before cannot be shuffled "
        f"again"
    )
    return never, ", or give --order shuffled"


def _placed(facts: ChosenParts, _name: str) -> Why | None:
    if facts.background is None or facts.background.unit == "sentence":
        return None
    return (
        f"Task '{facts.settings.task}' places its needles between two {facts.background.unit}s",
        "",
    )


def _sigmoid(facts: ChosenParts, _name: str) -> Why | None:
    depths = facts.settings.depths
    scale = depths.get("scale") if isinstance(depths, dict) else str(depths).rpartition(":")[2]
    if scale == "sigmoid":
        return None
    return "--depths are on no sigmoid curve", ", or give --depths min:max:count:sigmoid"


def _bins(facts: ChosenParts, _name: str) -> Why | None:
    if facts.settings.mode == "bins":
        return None
    return f"Mode '{facts.settings.mode}' asks every cell at its own depth", ", or give --mode bins"


def _framing(facts: ChosenParts, _name: str) -> Why | None:
    if facts.settings.counts == "prompt":
        return None
    return (
        "With --counts context a length leaves the chat template out",
        ", or give --counts prompt",
    )


def _repeats(facts: ChosenParts, _name: str) -> Why | None:
    return (
        None if facts.settings.seek is None else ("--seek asks as many haystacks as it takes", "")
    )


def _seek(facts: ChosenParts, _name: str) -> Why | None:
    return None if facts.settings.seek is not None else ("Nothing is sought", ", or give --seek 85")


def _until(facts: ChosenParts, _name: str) -> Why | None:
    goal = ", or give --until no-worse-than RUN:2"
    return None if facts.settings.until else ("No verdict is asked for", goal)


# By the name that settings give as `read`: the rule, the settings that decide it, and the rule that
# it stands behind: what that one refuses, this one is not asked.
RULES: dict[str, tuple[Rule, tuple[str, ...], str]] = {
    "address": (_address, ("model", "tokenizer"), ""),
    "own code": (_own_code, ("model",), ""),
    "model": (_model, ("model",), ""),
    "sampled": (_sampled, ("scorer",), "model"),
    "side by side": (_side_by_side, ("model", "scorer"), ""),
    "task": (_task, ("task",), ""),
    "several": (_several, ("needles",), "task"),
    "chained": (_chained, ("spread",), "several"),
    "drawn": (_drawn, ("needle", "needles", "question", "answer", "keywords"), "task"),
    "built": (_built, ("task",), ""),
    "language": (_language, ("template", "haystack", "needle", "question"), "built"),
    "haystack": (_haystack, ("task_options",), "built"),
    "path": (_path, ("haystack",), "haystack"),
    "files": (_files, ("haystack_path",), "path"),
    "ending": (_ending, ("haystack",), "haystack"),
    "ordered": (_ordered, ("haystack",), "haystack"),
    "placed": (_placed, ("task_options",), "built"),
    "sigmoid": (_sigmoid, ("depths",), "built"),
    "bins": (_bins, ("mode",), "built"),
    "framing": (_framing, ("counts",), ""),
    "repeats": (_repeats, ("seek",), "built"),
    "seek": (_seek, ("seek",), ""),
    "until": (_until, ("until",), ""),
}
