"""From settings to trials: every prompt of a run, built but not asked. The same settings give the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from needlemap.errors import HaystackError, SettingsError
from needlemap.framing import make_frame
from needlemap.grid import Cell, Grid, make_grid
from needlemap.haystacks.assembly import Haystack, assemble
from needlemap.haystacks.base import Source
from needlemap.identity import prefix_hashes, settings_hash, trial_key
from needlemap.placement import Builder, Frame
from needlemap.prompts import Prompt
from needlemap.registry import find
from needlemap.scorers.base import Scorer
from needlemap.settings import Settings
from needlemap.tasks.base import Item, Task
from needlemap.templates import Template, load_template
from needlemap.tokenizers.catalogue import BUNDLED, bundled_for, load
from needlemap.tokens import Tokenizer

_DIGITS = {"none": None, "round": 0, "truncate": -1}


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt to ask. key: its identity. collisions: texts that the haystack already held before the
    needle was hidden. haystack_repeated: whether documents come more than once in it."""

    key: str
    cell: Cell
    repeat: int
    item: Item
    prompt: Prompt
    collisions: tuple[str, ...]
    haystack_repeated: bool


@dataclass(frozen=True, slots=True)
class Experiment:
    """All of a run but its answers: what was resolved from the settings, and the trials, lengths outermost.

    haystacks: name and sha256 of each repeat's text.
    """

    settings: Settings
    grid: Grid
    tokenizer: Tokenizer
    task: Task
    scorer: Scorer
    template: Template
    haystacks: tuple[tuple[str, str], ...]
    trials: tuple[Trial, ...]

    @property
    def tokens_asked(self) -> int:
        """Prompt tokens of all trials."""
        return sum(trial.prompt.tokens for trial in self.trials)


def prepare(settings: Settings) -> Experiment:
    """Resolve everything and build every prompt. Raises NeedlemapError for whatever the user can mend."""
    grid = make_grid(
        settings.lengths,
        settings.depths,
        ends=settings.sigmoid_ends,
        depth_digits=_DIGITS[settings.depth_rounding],
    )
    tokenizer, task = load_tokenizer(settings), make_task(settings)
    scorer, template = make_scorer(settings, task), make_template(settings)
    source = make_source(settings)
    shared = settings_hash(settings, scorer.name, dict(scorer.options), tokenizer.fingerprint)
    haystacks: list[tuple[str, str]] = []
    trials: list[Trial] = []
    builder: Builder | None = None
    for repeat in range(settings.first_repeat, settings.first_repeat + settings.repeats):
        if builder is None or settings.order != "listed":
            haystack = _haystack(settings, source, tokenizer, max(grid.lengths), repeat)
            builder = make_builder(settings, haystack, tokenizer)
        haystacks.append((haystack.name, haystack.sha256))
        trials.extend(_trials(settings, grid, builder, tokenizer, task, template, shared, repeat))
    return Experiment(settings, grid, tokenizer, task, scorer, template, tuple(haystacks), tuple(trials))


def load_tokenizer(settings: Settings) -> Tokenizer:
    """The tokenizer that the settings name. Raises SettingsError when 'auto' cannot tell."""
    if settings.tokenizer != "auto":
        return load(settings.tokenizer)
    if settings.backend in ("baseline", "python"):
        return load("cl100k_base")
    if settings.backend == "hf" or bundled_for(settings.model_name):
        return load(settings.model_name)
    raise SettingsError(
        f"Which tokens shall lengths count for '{settings.model}'? Its vocabulary is not known here. Give "
        f"--tokenizer: a path to its tokenizer.json, a hub name, or one of {', '.join(BUNDLED)}."
    )


def make_task(settings: Settings) -> Task:
    """The task, with the settings that it takes."""
    options: dict[str, Any] = {"question": settings.question, "keywords": settings.keywords, "draw": settings.draw}
    if settings.task == "single":
        options |= {"needle": settings.needle, "answer": settings.answer}
    elif settings.task == "multi":
        if not settings.needles or settings.answer is None:
            raise SettingsError("The multi task needs --needles (twice or more) and --answer.")
        options |= {"needles": settings.needles, "answer": settings.answer}
        options |= {"spread": settings.spread, "diff": settings.diff}
    made: Task = find("tasks", settings.task)(**options)
    return made


def make_scorer(settings: Settings, task: Task) -> Scorer:
    """The scorer that the settings, or else the task, name."""
    name = task.scorer if settings.scorer == "auto" else settings.scorer
    made: Scorer = find("scorers", name)(**settings.scorer_options)
    return made


def make_template(settings: Settings) -> Template:
    """The template that the settings name; auto: chat or plain text by the model's interface."""
    if settings.template != "auto":
        return load_template(settings.template)
    plain = settings.model_options.get("api") == "completions"
    return load_template(f"{'text' if plain else 'chat'}-{settings.language[:2].replace('ch', 'zh')}")


def make_source(settings: Settings) -> Source:
    """The haystack's source, with the settings that it takes."""
    kind = find("haystacks", settings.haystack)
    if settings.haystack == "generated":
        generated: Source = kind(language=settings.language, seed=settings.seed)
        return generated
    if not settings.haystack_path:
        raise SettingsError(f"Haystack '{settings.haystack}' needs --haystack-path.")
    options = {"file_list": settings.file_list} if settings.file_list else {}
    made: Source = kind(settings.haystack_path, **options)
    return made


def make_builder(settings: Settings, haystack: Haystack, tokenizer: Tokenizer) -> Builder:
    """The builder of one haystack's prompts."""
    return Builder(
        haystack,
        tokenizer,
        placement=settings.placement,
        counts=settings.counts,
        reserve_tokens=settings.reserve,
        chained=settings.diff / 100 if settings.spread == "chain-as-coded" else None,
    )


def _haystack(
    settings: Settings, source: Source, tokenizer: Tokenizer, longest: int, repeat: int
) -> Haystack:
    return assemble(
        source,
        tokenizer,
        max(1, longest - settings.reserve),
        order=settings.order,
        joined=settings.joined,
        seed=settings.seed,
        repeat=repeat,
        repeat_allowed=settings.haystack_repeat,
    )


def _trials(
    settings: Settings,
    grid: Grid,
    builder: Builder,
    tokenizer: Tokenizer,
    task: Task,
    template: Template,
    shared: str,
    repeat: int,
) -> Iterator[Trial]:
    frames: dict[tuple[str, str], Frame] = {}
    built: list[tuple[Cell, Item, Frame, Prompt]] = []
    for cell in grid.cells:
        item = task.item(cell, repeat, settings.seed)
        salt = _salt(settings, cell, repeat) if settings.mode == "cold" else ""
        if (item.question, salt) not in frames:
            frames[item.question, salt] = _frame(settings, template, item.question, tokenizer, salt)
        frame = frames[item.question, salt]
        prompt = replace(
            builder.build(frame, item.needles, cell.length_tokens), question=item.question
        )
        built.append((cell, item, frame, prompt))
    text = builder.haystack.text
    hashes = prefix_hashes(text, [prompt.haystack_tokens for *_, prompt in built])
    found = _collisions(settings, builder.haystack, [item for _, item, _, _ in built])
    repeated = builder.haystack.repeated_from
    for cell, item, frame, prompt in built:
        stop = prompt.haystack_tokens
        yield Trial(
            trial_key(shared, hashes[stop], frame, item, prompt, repeat, (cell.length_tokens, cell.depth)),
            cell,
            repeat,
            item,
            prompt,
            tuple(word for word in _words(item) if found.get(word, len(text.data)) < int(text.offsets[stop])),
            repeated is not None and stop > repeated,
        )


def _frame(settings: Settings, template: Template, question: str, tokenizer: Tokenizer, salt: str) -> Frame:
    return make_frame(
        template,
        question,
        tokenizer,
        guide=settings.guide,
        question_first=settings.question_position == "start",
        answer_prefix=settings.answer_prefix,
        salt=salt,
    )


def _salt(settings: Settings, cell: Cell, repeat: int) -> str:
    """A first line that no other prompt of the run has."""
    text = f"{settings.seed}:{repeat}:{cell.length_tokens}:{cell.depth!r}"
    return f"Document {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"


def _words(item: Item) -> tuple[str, ...]:
    """What must not stand in the haystack: needles, keywords, and the answer."""
    texts = [needle.text.strip() for needle in item.needles]
    return tuple(dict.fromkeys([*texts, *item.reference.keywords, item.reference.answer.strip()]))


def _collisions(settings: Settings, haystack: Haystack, items: list[Item]) -> dict[str, int]:
    """The byte where each word first occurs in the haystack, in any case; an error unless they are allowed."""
    lowered = haystack.text.data.decode("utf-8", "replace").lower()
    found = {}
    for word in dict.fromkeys(word for item in items for word in _words(item)):
        place = lowered.find(word.lower()) if word else -1
        if place >= 0:
            found[word] = len(lowered[:place].encode())
    if found and settings.collisions == "error":
        word, place = next(iter(found.items()))
        raise HaystackError(
            f"The haystack '{haystack.name}' already holds '{word}' (byte {place}), so an answer could come from "
            f"there. Change the needle or the haystack, or allow it with --collisions warn."
        )
    return found
