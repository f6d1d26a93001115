"""From settings to the things that they name: grid, traits, tokenizer, task, scorer, template,
source."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError, VocabularyMissing, did_you_mean
from needlemap.grid import Grid, check_size, make_grid
from needlemap.haystacks import Haystack, Source, assemble, bytes_a_token
from needlemap.http import Sent
from needlemap.http.compatible import flags_of, served
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
        *("add_generation_prompt", "add_special_tokens", "chat_template", "continue_final_message"),
        *("documents", "suffix", "tools", "truncate_prompt_tokens"),
    }
)
ANY = "o200k_base"  # counts lengths where neither we nor the server know the model's vocabulary
_DIGITS = {"none": None, "round": 0, "truncate": -1}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a run's settings come to. traits: what the model takes. tokenizer: counts lengths.
    feeder: set for a model that is fed the ids of whole texts. reader: tells which ids a server's
    model sees, if
    known."""

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
        """What makes the keys of the run's trials."""
        counted = self.tokenizer.fingerprint
        other = self.feeder if not self.feeds_counted else None
        vocabularies = f"{counted}+{other.fingerprint}" if other else counted
        shared = settings_hash(self.settings, vocabularies, self.traits.weights)
        drawn = self.settings.temperature != 0  # also where a server's own is left to it
        return Keys(shared, self.scorer, self.feeds_counted, drawn, self.stops)

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end an answer, as the template of the prompts says. None where prompts are
        as an older tool's, which scores all that a model says, unless a template was named; and
        none of prompts that exist already."""
        settings, template = self.settings, self.template
        if (lender := prompt_source_of(settings)) is not None:
            template = make_template(lender, traits_unasked(lender))
        elif self.ready:
            return ()
        older = settings.placement != "sentence" and settings.template == "auto"
        return () if older else template.stop

    @property
    def feeds_counted(self) -> bool:
        """Whether the model is fed the ids of whole texts, in the vocabulary that counts."""
        return self.feeder is not None and self.feeder.counts

    @property
    def ready(self) -> bool:
        """Whether the task's prompts exist already."""
        return self.task.ready

    @property
    def counts_own(self) -> bool:
        """Whether lengths count the tokens of the model's own vocabulary, as far as is known."""
        if self.settings.tokenizer in ("server", self.traits.tokenizer):
            return True
        foreign = foreign_vocabulary(self.settings, self.traits, self.tokenizer)
        return self.settings.tokenizer == "auto" and not foreign

    @property
    def workers(self) -> int:
        """How many prompts are asked at a time."""
        return 1 if self.traits.serial else self.settings.concurrency


def resolve(settings: Settings, *, asked: bool = True) -> Resolved:
    """Everything that the settings name. Raises NeedlemapError for whatever the user can mend.

    asked: whether the model is going to be, so that a function of the user's may be imported.
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
    lender, task = prompt_source_of(settings), make_task(settings)
    tokenizer = (
        load_tokenizer(lender, traits_unasked(lender))
        if lender
        else load_tokenizer(settings, traits)
    )
    feeder = make_feeder(settings, traits, tokenizer)
    check_depths(settings, task, grid)
    scorer, template = make_scorer(settings, task, traits), make_template(settings, traits)
    source = make_source(settings)
    reader = make_reader(settings, traits, tokenizer)
    return Resolved(
        settings, grid, traits, tokenizer, task, scorer, template, source, feeder, reader
    )


def model_traits(settings: Settings) -> Traits:
    """What the named model takes. Raises SettingsError for an unknown back end or a name
    without one."""
    if not settings.model_name:
        known = sorted(installed("models"))
        typed = f"{settings.backend}/NAME" if settings.backend in known else served(settings.model)
        raise SettingsError(
            f"'{settings.model}' is not BACKEND/NAME. Type for example --model {typed}. Back ends: "
            f"{', '.join(known)}."
        )
    flags = flags_of(settings.backend, settings.model_name)
    if flags and settings.backend not in installed("models"):
        raise SettingsError(f"'{settings.backend}' is asked at its address. Type: {flags}")
    if settings.backend not in installed("models"):
        if own := _own_name(settings.backend):
            raise SettingsError(
                f"'{settings.backend}' is called {own} here. Type: --model "
                f"{own}/{settings.model_name}"
            )
        raise SettingsError(
            f"Unknown model '{settings.backend}'. "
            f"{did_you_mean(settings.backend, installed('models'))} A server: --model "
            f"{served(settings.model_name)} --base-url http://HOST:PORT/v1"
        )
    return find_backend(settings.backend).traits(settings.model_name, model_options(settings))


def _own_name(backend: str) -> str:
    """Our name of a back end that other tools call so; '' for none."""
    names = (
        name
        for name in installed("models")
        if backend.casefold() in backend_or_default(name).also_called
    )
    return next(names, "")


def traits_unasked(settings: Settings) -> Traits:
    """As `model_traits`, without importing a user's function: its name may come from a
    stranger's file."""
    if settings.backend == "python":
        return Traits(tokenizer="cl100k_base")  # as PythonModel says of every function
    return model_traits(settings)


def model_options(settings: Settings) -> dict[str, Any]:
    """The back end's options, those that are settings of their own included. Raises
    SettingsError."""
    options = dict(settings.model_options)
    if "trust_remote_code" in options:
        raise SettingsError("trust_remote_code is a setting of its own. Type: --trust-remote-code")
    if settings.trust_remote_code:
        options["trust_remote_code"] = True
    return options


def check_request(settings: Settings, traits: Traits) -> None:
    """Raises SettingsError for a request field that the model would not heed."""
    if traits.needs:  # it is asked in this process
        stop_strings(settings.request)
    if traits.request is None:
        return
    for name in settings.request:
        if name not in traits.request:
            known = did_you_mean(name, traits.request) if traits.request else "It takes none."
            raise SettingsError(f"'{settings.model}' does not heed --request {name}=... {known}")


def make_feeder(settings: Settings, traits: Traits, tokenizer: Tokenizer) -> Feeder | None:
    """What feeds a model the ids of whole texts; None for one that is fed text, or the ids of
    spans.

    Raises SettingsError for tokens that lengths already hold.
    """
    if traits.render is None or traits.tokenizer is None:
        return None
    own = load(traits.tokenizer, settings.model)
    if settings.prompts_of:
        return Feeder(own, traits.render)
    counts = own.fingerprint == tokenizer.fingerprint
    if counts and settings.framing_tokens:
        raise SettingsError(
            f"'{settings.model}' is fed token ids, its chat template's too. Leave --framing-tokens "
            f"out."
        )
    return Feeder(own, traits.render, counts) if traits.whole or not counts else None


def make_reader(settings: Settings, traits: Traits, tokenizer: Tokenizer) -> Feeder | None:
    """What a server's model sees, where --tokenizer names the model's own files here; None
    where it does not.

    Fields that change what the server makes of a text leave nothing to know.
    """
    path = path_of(settings.tokenizer)
    folder = None if path is None else path if path.is_dir() else path.parent
    unlike = settings.model_options.get("system_role") or REWRITING & settings.request.keys()
    if (
        not backend_or_default(settings.backend).renders
        or settings.prompts_of
        or unlike
        or folder is None
        or not (folder / TOKENIZER).is_file()
    ):
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
    """The tokenizer that the settings name, or the model's own; where that is not known here
    the server's, and ANY where the server shows none. Raises NeedlemapError."""
    if settings.tokenizer == "server":
        return _server_tokenizer(settings)
    if settings.tokenizer != "auto":
        return load(settings.tokenizer)
    if traits.tokenizer is None:
        return _asked_for(settings)
    # reports name the tokenizer of a model fed with ids by its model: its path is of this machine
    # only
    return load(traits.tokenizer, settings.model if traits.render is not None else None)


def _asked_for(settings: Settings) -> Tokenizer:
    """The tokenizer of the server itself, else ANY, for a model whose vocabulary is not known
    here."""
    if settings.base_url:
        with suppress(VocabularyMissing):
            return _server_tokenizer(settings)
    return load(ANY)


def foreign_vocabulary(settings: Settings, traits: Traits, tokenizer: Tokenizer) -> str:
    """What to say where lengths count another vocabulary's tokens, and nobody chose it; ''
    where they do not."""
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
    made: Tokenizer = find("tokenizers", "server")(settings.base_url, sent)
    return made


def check_depths(settings: Settings, task: Task, grid: Grid) -> None:
    """Raises SettingsError for several depths of a task to which they mean nothing."""
    if task.depthless and len(grid.depths) > 1:
        raise SettingsError(
            f"Task '{settings.task}' asks about the whole text, so depths mean nothing to it. Ask "
            f"one, and "
            f"more repeats: --depths 50 --repeats {len(grid.depths) * settings.repeats}"
        )


def ready_prompts(settings: Settings) -> bool:
    """Whether the named task's prompts exist already: its grid then only says where they are
    shown."""
    return find_kind("tasks", settings.task, Task).ready


def make_scorer(settings: Settings, task: Task, traits: Traits) -> Scorer:
    """The scorer that the settings, or else the task, name. SettingsError if the model cannot
    feed it."""
    name = task.scorer if settings.scorer == "auto" else settings.scorer
    own = task.scorer_options if name == task.scorer else {}
    made = find_scorer(name)(**{**own, **settings.scorer_options})
    if made.passes and not traits.teacher:
        raise SettingsError(
            f"Scorer '{name}' needs the model's own probabilities of an answer, which "
            f"'{settings.model}' "
            f"does not give. Use --model hf/PATH or {served()}, or another --scorer."
        )
    one_prompt = {
        "--closed-book": settings.closed_book,
        "--seek": settings.seek is not None,
    }
    if made.passes[1:] and any(one_prompt.values()):
        flag = next(flag for flag, given in one_prompt.items() if given)
        raise SettingsError(
            f"Scorer '{name}' gives the model each answer behind several prompts, and {flag} "
            f"asks one. Leave {flag} out, or give another --scorer."
        )
    return made


def make_template(settings: Settings, traits: Traits) -> Template:
    """The template that the settings name; auto: chat or plain text as the model takes it."""
    if settings.template != "auto":
        return load_template(settings.template)
    return load_template(f"{'chat' if traits.chat else 'text'}-{_SUFFIX[settings.language]}")


def make_source(settings: Settings) -> Source:
    """The haystack's source, with the settings that it takes."""
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
    made: Source = kind(settings.haystack_path, **options)
    return made


def make_builder(
    resolved: Resolved, repeat: int, background: Background | None = None
) -> PromptBuilder:
    """The builder of one repeat's prompts, over as much haystack as the longest one needs."""
    settings = resolved.settings
    haystack = make_haystack(resolved, repeat, background)
    units = background is not None and background.unit != "sentence"
    options: dict[str, Any] = {
        "counts": settings.counts,
        "reserve_tokens": settings.reserve,
        "reserved_by": "--max-answer-tokens"
        if settings.reserve_tokens is None
        else "--reserve-tokens",
        "ids": resolved.traits.render is not None and resolved.feeder is None,
        "ends": background is not None and not background.source.endless,
    }
    if units or settings.placement == "sentence":
        anchor = resolved.task.anchor_tokens(repeat, settings.seed)
        return PromptBuilder(haystack, resolved.tokenizer, units=units, anchor=anchor, **options)
    chained = settings.diff / 100 if settings.spread == "chain-as-coded" else None
    options["chained"] = chained
    return find_kind("builders", settings.placement, PromptBuilder)(
        haystack, resolved.tokenizer, **options
    )


def make_haystack(resolved: Resolved, repeat: int, background: Background | None) -> Haystack:
    """The text of one repeat: the task's own, or the settings'."""
    settings, tokenizer = resolved.settings, resolved.tokenizer
    needed = max(1, max(resolved.grid.lengths) - settings.reserve)
    if background is not None:
        source, unit = background.source, background.unit
        guess, needed = bytes_a_token(source, tokenizer), needed if source.endless else 1
        return assemble(source, tokenizer, needed, joined="text", unit=unit, bytes_a_token=guess)
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
        may_end=settings.placement == "token" and settings.joined == "tokens",  # as OpenCompass
    )
