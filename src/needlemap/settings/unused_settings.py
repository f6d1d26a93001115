"""Settings that nothing would read: refused where they are given, with what to type instead.

A setting is read where the constructor of a chosen part names it. What no constructor tells is
a rule of its own, which a setting names where it is defined (`read=`). A setting is unread
where what it asks for would not happen; where it happens anyway, as `--no-canary` with a model
that gets no canary, it is left alone. Reads no documents and reaches no model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Any, Literal

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.http.compatible import served
from needlemap.models import Model
from needlemap.registry import find, installed, option_names
from needlemap.settings import KNOWN, Settings
from needlemap.tasks import Background, make_task


@dataclass(frozen=True, slots=True)
class Unread:
    """A setting that nothing reads. why: what to tell, with what to type. by: the settings
    that decide it."""

    name: str
    why: str
    by: tuple[str, ...]


class ChosenParts:
    """What settings choose, as far as rules ask. None for an unknown or broken part, which is
    an error when it is made.

    own_item: whether the user says what is hidden; else the default item is, in the setting's
    language.
    """

    def __init__(self, settings: Settings, own_item: bool) -> None:
        self.settings, self.own_item = settings, own_item

    @cached_property
    def backend(self) -> Any:
        """The back end's class."""
        found = _find("models", self.settings.backend)
        return found if isinstance(found, type) and issubclass(found, Model) else None

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
        """The scorer's class; None where the task chooses it."""
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

    def names(self, part: Literal["backend", "task", "source"], name: str) -> bool:
        """Whether a part's constructor names a setting; an unknown part may name any."""
        extension = getattr(self, part)
        return extension is None or name in option_names(extension)

    def heeds(self, name: str) -> bool:
        """Whether the back end reads a setting, as far as it says."""
        unset = getattr(self.settings, name) is None
        return unset or not self.backend or name not in self.backend.unread

    @property
    def endless(self) -> bool:
        """Whether the haystack never ends."""
        return bool(getattr(self.source, "endless", False))

    @property
    def undrawn(self) -> str | None:
        """The first name in `draw` that no text holds in braces."""
        used = _placeholders(self.settings)
        return next((key for key in self.settings.draw if key not in used), None)

    @property
    def one_file(self) -> bool:
        """Whether the haystack is one file of JSON lines."""
        path = self.settings.haystack_path
        return (
            self.settings.haystack == "jsonl"
            and path is not None
            and Path(path).expanduser().is_file()
        )

    @property
    def task_options(self) -> str:
        """What the task takes."""
        return ", ".join(option_names(self.task)) or "none"

    @property
    def served(self) -> str:
        """The model's name, as a server's."""
        return served(self.settings.model_name or self.settings.model)


@dataclass(frozen=True, slots=True)
class Case:
    """A setting by its name, beside the parts that all settings choose."""

    p: ChosenParts
    name: str

    @property
    def s(self) -> Settings:
        """All settings."""
        return self.p.settings


Test = Callable[[Case], object]


@dataclass(frozen=True, slots=True)
class UnreadRule:
    """Where a setting is unread, and why. why, hint: before and behind 'leave --NAME out',
    with `s` for the settings and `p` for the chosen parts. by: the settings that decide it.
    behind: the rule that is asked before: what that one refuses, this one is not asked."""

    is_unread: Test
    why: str
    hint: str = ""
    by: tuple[str, ...] = ()
    behind: str = ""


def find_unread(settings: Settings, own_item: bool = True) -> list[Unread]:
    """The settings that differ from their defaults and that nothing would read, in their
    order."""
    parts, found = ChosenParts(settings, own_item), []
    for name, field in Settings.model_fields.items():
        reason = KNOWN[name].read
        if reason is None or getattr(settings, name) == field.default:
            continue
        rules = _chain(reason)
        rule = next((rule for rule in rules if rule.is_unread(Case(parts, name))), None)
        if rule is not None:
            flag = f"--{name.replace('_', '-')}"
            why, hint = (
                text.format(s=settings, p=parts, flag=flag) for text in (rule.why, rule.hint)
            )
            by = tuple(decider for each in rules for decider in each.by)
            left = "it" if flag in why else flag
            found.append(Unread(name, f"{why}: leave {left} out{hint}.", by))
    return found


def _chain(reason: str) -> list[UnreadRule]:
    """A reason's rule, and before it those that it stands behind."""
    rule = RULES[reason]
    return [*(_chain(rule.behind) if rule.behind else []), rule]


def what_stays(settings: Settings, name: str) -> Any:
    """The value of an unread setting once it is left out: its default; of values to draw,
    those in use."""
    if name != "draw":
        return Settings.model_fields[name].default
    used = _placeholders(settings)
    return {key: value for key, value in settings.draw.items() if key in used}


def _find(kind: str, name: str) -> Any:
    """An extension by its name; None for one that is unknown or broken."""
    if name not in installed(kind):
        return None
    with suppress(SettingsError):
        return find(kind, name)
    return None


def _placeholders(settings: Settings) -> set[str]:
    """The names in braces in what is hidden, asked and wanted; broken braces are refused where
    they are read."""
    texts = [settings.needle, *settings.needles, settings.question]
    found: set[str] = set()
    for text in [*texts, settings.answer or "", *settings.keywords]:
        with suppress(ValueError):
            found |= {name for _, name, _, _ in Formatter().parse(text) if name is not None}
    return found


def _unnamed(part: Literal["backend", "task", "source"]) -> Test:
    """The rule of most settings: no constructor names it."""
    return lambda case: not case.p.names(part, case.name)


def _is_in_turn(case: Case) -> bool:
    """Whether one prompt is answered after another, and no judge is asked meanwhile."""
    judged = getattr(case.p.scorer, "asks", False)
    return not (case.p.heeds(case.name) or case.s.concurrency == 1 or judged)


def _has_languages(case: Case) -> bool:
    """Whether template and haystack have languages of their own, so that none is to choose."""
    if not case.p.own_item or case.p.names("task", case.name) or case.s.template == "auto":
        return False
    return case.s.haystack != "generated" or case.p.background is not None


def _is_straight(case: Case) -> bool:
    """Whether the depths are on no sigmoid curve."""
    return case.s.depths.scale != "sigmoid"


RULES: dict[str, UnreadRule] = {
    "address": UnreadRule(
        lambda c: not c.p.names("backend", c.name) and c.s.tokenizer != "server",
        "'{s.model}' has no address",
        ", or name a server's model, as {p.served}",
        ("model", "tokenizer"),
    ),
    "own code": UnreadRule(
        _unnamed("backend"),
        "'{s.model}' runs no code that comes with a model (a server is told when it is started)",
        by=("model",),
    ),
    "model": UnreadRule(
        lambda c: not c.p.heeds(c.name), "'{s.model}' takes no {flag}", by=("model",)
    ),
    "streamed": UnreadRule(
        lambda c: c.p.backend is not None and not c.p.backend.streams,
        "'{s.model}' takes no {flag}",
        by=("model",),
    ),
    "sampled": UnreadRule(
        lambda c: getattr(c.s, c.name) is not None and bool(getattr(c.p.scorer, "passes", ())),
        "Scorer '{s.scorer}' weighs a given answer and asks for none",
        by=("scorer",),
        behind="model",
    ),
    "side by side": UnreadRule(
        _is_in_turn, "'{s.model}' answers one prompt after another", by=("model", "scorer")
    ),
    "task": UnreadRule(
        _unnamed("task"),
        "Task '{s.task}' takes no {flag}",
        ". Its options: {p.task_options}",
        ("task",),
    ),
    "own words": UnreadRule(
        _unnamed("task"),
        "Task '{s.task}' has words of its own, and {flag} is of a needle of yours",
        ", or give --needle and --question",
        ("task",),
    ),
    "several": UnreadRule(
        lambda c: c.s.task == "multi" and len(c.s.needles) == 1,
        "One needle is not spread",
        ", or repeat --needles",
        ("needles",),
        "task",
    ),
    "chained": UnreadRule(
        lambda c: c.s.spread == "even",
        "--spread even is given by depth and number of needles",
        ", or give --spread chain",
        ("spread",),
        "several",
    ),
    "drawn": UnreadRule(
        lambda c: c.p.undrawn is not None,
        "No needle, question, answer or key word holds {{{p.undrawn}}}",
        ", or write {{{p.undrawn}}} there",
        ("needle", "needles", "question", "answer", "keywords"),
        "task",
    ),
    "built": UnreadRule(
        lambda c: c.p.ready,
        "Task '{s.task}' asks each prompt once and as it is",
        ". Fewer prompts: --task-options limit=N",
        ("task",),
    ),
    "language": UnreadRule(
        _has_languages,
        "Template '{s.template}' and haystack '{s.haystack}' have their own language",
        by=("template", "haystack", "needle", "question"),
        behind="built",
    ),
    "haystack": UnreadRule(
        lambda c: c.p.background is not None,
        "Task '{s.task}' brings its own haystack, '{p.background.source.name}'",
        by=("task_options",),
        behind="built",
    ),
    "path": UnreadRule(
        lambda c: c.s.haystack == "generated",
        "Haystack 'generated' is made up and reads no path",
        ", or --haystack",
        ("haystack",),
        "haystack",
    ),
    "files": UnreadRule(
        _unnamed("source"),
        "Haystack '{s.haystack}' chooses no files by name",
        ", or give --haystack jsonl",
        ("haystack_path",),
        "path",
    ),
    "one file": UnreadRule(
        lambda c: c.p.one_file,
        "'{s.haystack_path}' is one file",
        ", or give its folder as --haystack-path",
        behind="files",
    ),
    "ending": UnreadRule(
        lambda c: c.p.endless,
        "Haystack '{s.haystack}' never ends, so nothing is repeated",
        by=("haystack",),
        behind="haystack",
    ),
    "ordered": UnreadRule(
        lambda c: c.s.order == "cumulative" and c.p.endless,
        "Haystack '{s.haystack}' never ends, so its order before cannot be shuffled again",
        ", or give --order shuffled",
        ("haystack",),
        "haystack",
    ),
    "placed": UnreadRule(
        lambda c: c.p.background is not None and c.p.background.unit != "sentence",
        "Task '{s.task}' places its needles between two {p.background.unit}s",
        by=("task_options",),
        behind="built",
    ),
    "sigmoid": UnreadRule(
        _is_straight,
        "--depths are on no sigmoid curve",
        ", or give --depths min:max:count:sigmoid",
        ("depths",),
        "built",
    ),
    "framing": UnreadRule(
        lambda c: c.s.counts != "prompt",
        "With --counts context a length leaves the chat template out",
        ", or give --counts prompt",
        ("counts",),
    ),
    "repeats": UnreadRule(
        lambda c: c.s.seek is not None,
        "--seek asks as many haystacks as it takes",
        by=("seek",),
        behind="built",
    ),
    "seek": UnreadRule(
        lambda c: c.s.seek is None, "Nothing is sought", ", or give --seek 85", ("seek",)
    ),
    "until": UnreadRule(
        lambda c: not c.s.until,
        "No verdict is asked for",
        ", or give --until no-worse-than RUN:2",
        ("until",),
    ),
}
