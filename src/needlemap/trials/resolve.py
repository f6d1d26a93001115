"""Resolve settings to what they name: grid, traits, tokenizer, task, scorer, template, source."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError, VocabularyMissing, did_you_mean
from needlemap.grid import Grid, check_size, make_grid
from needlemap.haystacks import Haystack, Source, assemble, bytes_a_token
from needlemap.http import Sent
from needlemap.http.compatible import flags_of, served_model
from needlemap.http.served import wait_for
from needlemap.models import MARK, Traits, backend_or_default, find_backend
from needlemap.models.chat import Chat
from needlemap.models.decoding import stop_strings
from needlemap.models.model_files import TOKENIZER, ModelFiles
from needlemap.prompts import TEXT
from needlemap.prompts.feeding import Feeder
from needlemap.prompts.placement import PromptBuilder
from needlemap.prompts.templates import Template, load_template
from needlemap.registry import find, find_kind, installed
from needlemap.scorers import Scorer, find_scorer
from needlemap.settings import Settings, prompt_source_of
from needlemap.tasks import Background, Task, make_task
from needlemap.text.tokens import Tokenizer
from needlemap.tokenizers import BUNDLED, load, path_of
from needlemap.trials import Keys, settings_hash

_SUFFIX = {"english": "en", "chinese": "zh"}
# Request fields by which a server makes other tokens of the same messages.
REWRITING = frozenset(
    {
        "add_generation_prompt",
        "add_special_tokens",
        "chat_template",
        "continue_final_message",
        "documents",
        "suffix",
        "tools",
        "truncate_prompt_tokens",
    }
)
# Counts lengths if neither we nor the server know the model's vocabulary.
ANY = "o200k_base"
_DIGITS = {"none": None, "round": 0, "truncate": -1}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a run's settings name.

    Attributes:
        settings: The settings.
        grid: The cells.
        traits: What the model takes.
        tokenizer: Counts lengths.
        task: The task.
        scorer: The scorer.
        template: Wraps the haystack and the question.
        source: Where the haystack's documents come from.
        feeder: Makes the ids of whole texts, if the model is fed these.
        reader: Makes the ids that a server's model sees, if they are known.
    """

    settings: Settings
    grid: Grid
    traits: Traits
    tokenizer: Tokenizer
    task: Task
    scorer: Scorer
    template: Template
    source: Source
    feeder: Feeder | None = None
    reader: Feeder | None = None

    @property
    def keys(self) -> Keys:
        """Return what makes the keys of the run's trials."""
        vocabularies = self.tokenizer.fingerprint
        if self.feeder is not None and not self.feeds_counted:
            vocabularies = f"{vocabularies}+{self.feeder.fingerprint}"
        return Keys(
            shared=settings_hash(self.settings, vocabularies, weights=self.traits.weights),
            scorer=self.scorer,
            ids=self.feeds_counted,
            # Without a temperature, a server takes its own.
            drawn=self.settings.temperature != 0,
            stops=self.stops,
        )

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the texts that end an answer, as the template of the prompts sets them.

        There are none for prompts that exist already. There are none for prompts like an older
        tool's, which scores all that a model writes, unless a template was named.
        """
        settings = self.settings
        template = self.template
        lender = prompt_source_of(settings)
        if lender is not None:
            template = make_template(lender, traits_unasked(lender))
        elif self.ready:
            return ()
        is_older = settings.placement != "sentence" and settings.template == "auto"
        return () if is_older else template.stop

    @property
    def feeds_counted(self) -> bool:
        """Return True if the model is fed the ids of whole texts, in the vocabulary that counts."""
        return self.feeder is not None and self.feeder.counts

    @property
    def ready(self) -> bool:
        """Return True if the task's prompts exist already."""
        return self.task.ready

    @property
    def counts_own(self) -> bool:
        """Return True if lengths count tokens of the model's own vocabulary, as far as is known."""
        if self.settings.tokenizer in ("server", self.traits.tokenizer):
            return True
        foreign = foreign_vocabulary(self.settings, self.traits, self.tokenizer)
        return self.settings.tokenizer == "auto" and not foreign

    @property
    def workers(self) -> int:
        """Return how many prompts are asked at a time."""
        return 1 if self.traits.serial else self.settings.concurrency


def resolve(settings: Settings, *, asked: bool = True) -> Resolved:
    """Resolve everything that the settings name.

    asked: whether the model is going to be asked, so that a function of the user's may be imported.
    Raises NeedlemapError for anything that the user can correct.
    """
    grid = make_grid(
        settings.lengths,
        settings.depths,
        ends=settings.sigmoid_ends,
        depth_digits=_DIGITS[settings.depth_rounding],
    )
    check_size(len(grid.lengths) * len(grid.depths) * settings.repeats)
    traits = model_traits(settings) if asked else traits_unasked(settings)
    check_request(settings, traits)
    lender = prompt_source_of(settings)
    task = make_task(settings)
    if lender:
        tokenizer = load_tokenizer(lender, traits_unasked(lender))
    else:
        tokenizer = load_tokenizer(settings, traits)
    feeder = make_feeder(settings, traits, tokenizer)
    check_depths(settings, task, grid)
    return Resolved(
        settings=settings,
        grid=grid,
        traits=traits,
        tokenizer=tokenizer,
        task=task,
        scorer=make_scorer(settings, task, traits),
        template=make_template(settings, traits),
        source=make_source(settings),
        feeder=feeder,
        reader=make_reader(settings, traits, tokenizer),
    )


def model_traits(settings: Settings) -> Traits:
    """Return what the named model takes.

    Raises SettingsError for an unknown back end, or a name without one.
    """
    backend = settings.backend
    if not settings.model_name:
        backends = sorted(installed("models"))
        example = f"{backend}/NAME" if backend in backends else served_model(settings.model)
        raise SettingsError(
            f"'{settings.model}' is not BACKEND/NAME. Type for example --model {example}. "
            f"Back ends: {', '.join(backends)}."
        )
    flags = flags_of(backend, settings.model_name)
    if backend not in installed("models"):
        if flags:
            raise SettingsError(f"'{backend}' is asked at its address. Type: {flags}")
        own_name = _own_name(backend)
        if own_name:
            raise SettingsError(
                f"'{backend}' is called {own_name} here. Type: --model "
                f"{own_name}/{settings.model_name}"
            )
        raise SettingsError(
            f"Unknown model '{backend}'. {did_you_mean(backend, installed('models'))} A server: "
            f"--model {served_model(settings.model_name)} --base-url http://HOST:PORT/v1"
        )
    return find_backend(backend).traits(settings.model_name, model_options(settings))


def _own_name(backend: str) -> str:
    """Return our name of a back end that other tools call so, or '' if there is none."""
    for name in installed("models"):
        if backend.casefold() in backend_or_default(name).also_called:
            return name
    return ""


def traits_unasked(settings: Settings) -> Traits:
    """Return what the named model takes, without importing a user's function.

    The function's name may come from a stranger's file.
    """
    if settings.backend == "python":
        # PythonModel has these traits for every function.
        return Traits(tokenizer="cl100k_base")
    return model_traits(settings)


def model_options(settings: Settings) -> dict[str, Any]:
    """Return the back end's options, with those that are settings of their own.

    Raises SettingsError if one of the latter is given as an option.
    """
    options = dict(settings.model_options)
    if "trust_remote_code" in options:
        raise SettingsError("trust_remote_code is a setting of its own. Type: --trust-remote-code")
    if settings.trust_remote_code:
        options["trust_remote_code"] = True
    return options


def check_request(settings: Settings, traits: Traits) -> None:
    """Raise SettingsError for a request field that has no effect on the model."""
    if traits.needs:
        # A model in this process reads the stop strings itself.
        stop_strings(settings.request)
    if traits.request is None:
        return
    for name in settings.request:
        if name not in traits.request:
            hint = did_you_mean(name, traits.request) if traits.request else "It takes none."
            raise SettingsError(f"'{settings.model}' does not heed --request {name}=... {hint}")


def make_feeder(settings: Settings, traits: Traits, tokenizer: Tokenizer) -> Feeder | None:
    """Return what feeds a model the ids of whole texts.

    Return None for a model that is fed text, or the ids of spans. Raises SettingsError for framing
    tokens that lengths already include.
    """
    if traits.render is None or traits.tokenizer is None:
        return None
    model_tokenizer = load(traits.tokenizer, settings.model)
    if settings.prompts_of:
        return Feeder(model_tokenizer, traits.render)
    counts = model_tokenizer.fingerprint == tokenizer.fingerprint
    if counts and settings.framing_tokens:
        raise SettingsError(
            f"'{settings.model}' is fed token ids, its chat template's too. Leave --framing-tokens "
            f"out."
        )
    if counts and not traits.whole:
        return None
    return Feeder(model_tokenizer, traits.render, counts=counts)


def make_reader(settings: Settings, traits: Traits, tokenizer: Tokenizer) -> Feeder | None:
    """Return what makes the ids that a server's model sees.

    Return None if they are not known: if --tokenizer does not name the model's own files here, or
    if a request field changes what the server makes of a text.
    """
    path = path_of(settings.tokenizer)
    if path is None or not backend_or_default(settings.backend).renders or settings.prompts_of:
        return None
    if settings.model_options.get("system_role") or REWRITING & settings.request.keys():
        return None
    folder = path if path.is_dir() else path.parent
    if not (folder / TOKENIZER).is_file():
        return None
    variables = settings.request.get("chat_template_kwargs")
    options = variables if isinstance(variables, dict) else {}
    try:
        chat = Chat.of(ModelFiles(str(folder)), base=not traits.chat, template_options=options)
        chat.render([(TEXT, MARK)])
    except (SettingsError, VocabularyMissing):
        return None
    if traits.chat and chat.template is None:
        return None
    marks = tuple(mark.encode() for mark in chat.spellings if mark.strip())
    return Feeder(tokenizer, chat.render, counts=True, fed=False, marks=marks)


def load_tokenizer(settings: Settings, traits: Traits) -> Tokenizer:
    """Return the tokenizer that the settings name, or the model's own.

    If that is not known here, return the server's, or ANY if the server shows none. Raises
    NeedlemapError if a tokenizer that is named cannot be loaded.
    """
    if settings.tokenizer == "server":
        return _server_tokenizer(settings)
    if settings.tokenizer != "auto":
        return load(settings.tokenizer)
    if traits.tokenizer is None:
        return _server_tokenizer_or_any(settings)
    # The tokenizer of a model that is fed ids has the model's name in reports: its path is only
    # known on this machine.
    return load(traits.tokenizer, settings.model if traits.render is not None else None)


def _server_tokenizer_or_any(settings: Settings) -> Tokenizer:
    """Return the server's tokenizer, or ANY, for a model whose vocabulary is not known here."""
    if settings.base_url:
        with suppress(VocabularyMissing):
            return _server_tokenizer(settings)
    return load(ANY)


def foreign_vocabulary(settings: Settings, traits: Traits, tokenizer: Tokenizer) -> str:
    """Return a note if lengths count another vocabulary's tokens and nobody chose it, or ''."""
    if settings.tokenizer != "auto" or traits.tokenizer is not None or tokenizer.name != ANY:
        return ""
    return (
        f"the vocabulary of '{settings.model}' is not known here: lengths count {ANY}'s tokens, "
        f"and records keep the server's own count. For its own: --tokenizer with a path to its "
        f"tokenizer.json, or one of {', '.join(BUNDLED)}"
    )


def _server_tokenizer(settings: Settings) -> Tokenizer:
    if not settings.base_url:
        raise SettingsError("--tokenizer server needs the server's address: give --base-url.")
    backend = backend_or_default(settings.backend)
    key_env = settings.model_options.get("key_env") or backend.key_variable
    sent = Sent(str(key_env), backend.headers_variable)
    wait_for(settings.base_url, settings.wait, sent)
    # Not kept: servers change their model.
    tokenizer: Tokenizer = find("tokenizers", "server")(settings.base_url, sent)
    return tokenizer


def check_depths(settings: Settings, task: Task, grid: Grid) -> None:
    """Raise SettingsError for several depths of a task that has no use for them."""
    if task.depthless and len(grid.depths) > 1:
        raise SettingsError(
            f"Task '{settings.task}' asks about the whole text, so depths mean nothing to it. Ask "
            f"one, and more repeats: --depths 50 --repeats {len(grid.depths) * settings.repeats}"
        )


def ready_prompts(settings: Settings) -> bool:
    """Return True if the named task's prompts exist already.

    Its grid then only sets where they are shown.
    """
    return find_kind("tasks", settings.task, Task).ready


def make_scorer(settings: Settings, task: Task, traits: Traits) -> Scorer:
    """Return the scorer that the settings name, or else the task's.

    Raises SettingsError if the scorer needs what the model does not give.
    """
    name = task.scorer if settings.scorer == "auto" else settings.scorer
    options = dict(task.scorer_options) if name == task.scorer else {}
    scorer = find_scorer(name)(**(options | settings.scorer_options))
    if scorer.passes and not traits.teacher:
        raise SettingsError(
            f"Scorer '{name}' needs the model's own probabilities of an answer, which "
            f"'{settings.model}' does not give. Use --model hf/PATH or {served_model()}, or "
            f"another --scorer."
        )
    if scorer.passes[1:]:
        _refuse_one_prompt(settings, name)
    return scorer


def _refuse_one_prompt(settings: Settings, scorer: str) -> None:
    """Raise SettingsError for a flag that has one prompt, with a scorer that needs several."""
    flag = ""
    if settings.closed_book:
        flag = "--closed-book"
    elif settings.seek is not None:
        flag = "--seek"
    if flag:
        raise SettingsError(
            f"Scorer '{scorer}' gives the model each answer behind several prompts, and {flag} "
            f"asks one. Leave {flag} out, or give another --scorer."
        )


def make_template(settings: Settings, traits: Traits) -> Template:
    """Return the template that the settings name.

    'auto' is a chat template for a model that takes messages, and plain text for others.
    """
    if settings.template != "auto":
        return load_template(settings.template)
    kind = "chat" if traits.chat else "text"
    return load_template(f"{kind}-{_SUFFIX[settings.language]}")


def make_source(settings: Settings) -> Source:
    """Return the haystack's source, with the settings that it takes.

    Raises SettingsError if the kind of haystack is unknown, or if its path is missing.
    """
    if settings.haystack not in installed("haystacks") and Path(settings.haystack).exists():
        raise SettingsError(
            f"--haystack names a kind, and '{settings.haystack}' is a path. "
            f"Type: --haystack-path {settings.haystack}"
        )
    if settings.haystack not in installed("haystacks"):
        raise SettingsError(
            f"Unknown haystack '{settings.haystack}'. "
            f"{did_you_mean(settings.haystack, installed('haystacks'))} A folder of yours: "
            f"--haystack-path FOLDER"
        )
    kind = find("haystacks", settings.haystack)
    if settings.haystack == "generated":
        generated: Source = kind(language=settings.language, seed=settings.seed)
        return generated
    if not settings.haystack_path:
        raise SettingsError(f"Haystack '{settings.haystack}' needs --haystack-path.")
    options = {"file_list": settings.file_list} if settings.file_list else {}
    source: Source = kind(settings.haystack_path, **options)
    return source


def make_builder(
    resolved: Resolved, repeat: int, background: Background | None = None
) -> PromptBuilder:
    """Return the builder of one repeat's prompts, over as much haystack as the longest one needs.

    background: the haystack that the task brings along; None for the settings'.
    """
    settings = resolved.settings
    haystack = make_haystack(resolved, repeat, background=background)
    has_units = background is not None and background.unit != "sentence"
    options: dict[str, Any] = {
        "counts": settings.counts,
        "reserve_tokens": settings.reserve,
        "reserved_by": "--reserve-tokens",
        "ids": resolved.traits.render is not None and resolved.feeder is None,
        "ends": background is not None and not background.source.endless,
    }
    if settings.reserve_tokens is None:
        options["reserved_by"] = "--max-answer-tokens"
    if has_units or settings.placement == "sentence":
        anchor = resolved.task.anchor_tokens(repeat, settings.seed)
        return PromptBuilder(
            haystack, resolved.tokenizer, units=has_units, anchor=anchor, **options
        )

    is_chain = settings.spread == "chain-as-coded"
    options["chained"] = settings.diff / 100 if is_chain else None
    builder = find_kind("builders", settings.placement, PromptBuilder)
    return builder(haystack, resolved.tokenizer, **options)


def make_haystack(resolved: Resolved, repeat: int, background: Background | None) -> Haystack:
    """Return the text of one repeat: the task's own, or the settings'."""
    settings = resolved.settings
    tokenizer = resolved.tokenizer
    needed = max(1, max(resolved.grid.lengths) - settings.reserve)
    if background is not None:
        source = background.source
        return assemble(
            source,
            tokenizer,
            # A source that ends is read whole.
            needed if source.endless else 1,
            joined="text",
            unit=background.unit,
            bytes_a_token=bytes_a_token(source, tokenizer),
        )
    return assemble(
        resolved.source,
        tokenizer,
        needed,
        order=settings.order,
        joined=settings.joined,
        seed=settings.seed,
        repeat=repeat,
        repeat_allowed=settings.haystack_repeat,
        shuffle=settings.shuffle,
        # OpenCompass lets haystacks end.
        may_end=settings.placement == "token" and settings.joined == "tokens",
    )
