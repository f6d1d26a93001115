"""Define the command line: parse, call, print. What a command does is elsewhere."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from needlemap.commands import KINDS, arguments, complete_kinds, complete_scorers
from needlemap.commands.arguments import option, run_argument
from needlemap.commands.command import (
    COMPARE,
    LOOK_UP,
    MAP,
    Command,
    CommandGroup,
    Commands,
    declared,
    limited_by,
    refuse_strangers,
)
from needlemap.deadline import LimitReached, limited_to
from needlemap.env_file import use_env_file
from needlemap.errors import NeedlemapError, os_error_words
from needlemap.secrets import Secrets, hidden
from needlemap.settings import Settings
from needlemap.settings.flags import Shown
from needlemap.text import end_output, show, sound_streams, tell
from needlemap.version import __version__

# Names in the environment.
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
OWN = dict[str, Command]()


class OwnCommands(CommandGroup):
    """The core's commands before those of wings and other packages."""

    own = OWN


app = typer.Typer(
    name="needlemap",
    cls=OwnCommands,
    help="Where in its context does a language model find a fact, and where does it lose it?\n\n"
    "\b\nExamples:\n"
    "  needlemap run --base-url http://127.0.0.1:8000/v1 --lengths 1k,4k -o own\n"
    "  needlemap check --base-url http://127.0.0.1:8000/v1 --quick -o quick\n"
    "  needlemap compare before after --margin 2",
    epilog="Flags of a command: needlemap run --help. Pages: needlemap help, and for example "
    "needlemap help verdicts",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # The import of rich would double the time that --help takes.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
command = partial(declared, OWN)
settings_command = partial(command, group=MAP, settings=tuple(Settings.model_fields))


def _version(wanted: bool) -> None:
    if wanted:
        show(f"needlemap {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, option("Print the version and exit.", "--version", is_eager=True, callback=_version)
    ] = False,
    debug: Annotated[
        bool,
        option("Show where your own functions and plug-ins raised. With any command.", "--debug"),
    ] = False,
    env_file: Annotated[
        Path | None,
        option(
            "Read keys and addresses from this file too. With any command.",
            "--env-file",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """What stands before any command."""
    if env_file:
        use_env_file(env_file)
    if debug:
        log = logging.getLogger("needlemap")
        log.addHandler(_Tracebacks())
        log.setLevel(logging.DEBUG)


@settings_command(shown=Shown(everyday=arguments.OF_RUN, texts=arguments.RUN_TEXTS), extended=True)
def run(
    typed: arguments.RunFlags,
    preset: arguments.Preset = None,
    added: Sequence[Any] = (),
    **flags: Any,
) -> int:
    """Measure how far a model's context holds, and draw a map. Without arguments: of a small
    model that comes with needlemap.

    \b
    Examples:
      needlemap run
      needlemap run --base-url http://127.0.0.1:8000/v1 --lengths 1k,4k -o own
      needlemap run --model openai/gpt-4o --lengths 1k,4k --limit-usd 2 -o gpt
    """
    from needlemap.asking.chosen import find_models_to_ask, folders_of

    with limited_by(preset, flags):
        chosen_by_model = find_models_to_ask(
            preset, flags, trusted=typed.trust_run, skip=typed.skip
        )
        refuse_strangers(typed.out, typed.trust_run, folders_of(chosen_by_model))
        from needlemap.commands.run import run_command

        return run_command(chosen_by_model, typed, added)


@settings_command(shown=Shown(everyday=arguments.OF_PLAN, texts=arguments.RUN_TEXTS))
def plan(typed: arguments.PlanFlags, preset: arguments.Preset = None, **flags: Any) -> None:
    """Show what a run would send and cost. It sends no prompt and needs no key.

    \b
    Examples:
      needlemap plan --model openai/gpt-4o --lengths 1k:128k:15
      needlemap plan --model openai/gpt-4o --lengths 1k,4k --repeats 5 --json
      needlemap plan suite:ruler-niah --model openai/gpt-4o
    """
    from needlemap.asking.chosen import find_models_to_ask
    from needlemap.commands.plan import plan_command

    with limited_by(preset, flags):
        chosen_by_model = find_models_to_ask(
            preset, flags, asks=False, planned=True, skip=typed.skip
        )
        plan_command(chosen_by_model, typed)


@settings_command(
    shown=Shown(
        everyday=arguments.OF_PROMPTS,
        nowhere=arguments.NOT_OF_PROMPTS,
        texts=arguments.PROMPTS_TEXTS,
    )
)
def prompts(
    preset: arguments.Preset = None,
    out: Annotated[
        Path | None,
        option("File to write. By default standard output.", "-o", "--out", metavar="FILE"),
    ] = None,
    **flags: Any,
) -> None:
    """Write the prompts of a run as JSON Lines. It sends none of them.

    \b
    Examples:
      needlemap prompts --lengths 1k --depths 0,50,100
      needlemap prompts --lengths 1k,4k --tokenizer qwen3 -o prompts.jsonl
      needlemap prompts kv-json --lengths 1k -o kv.jsonl
    """
    from needlemap.asking.chosen import find_models_to_ask
    from needlemap.commands.plan import prompts_command

    with limited_by(preset, flags):
        prompts_command(find_models_to_ask(preset, flags, asks=False), out)


@command(group=MAP)
def score(
    file: Annotated[
        Path,
        run_argument(
            "A run's folder, or JSON Lines with answer and reference (and keywords, question).",
            "FILE|RUN",
        ),
    ],
    scorer: Annotated[
        str,
        option(
            "Scoring rule; see needlemap list scorers.",
            metavar="NAME",
            autocompletion=complete_scorers,
        ),
    ],
    scorer_options: Annotated[
        list[str] | None,
        option("Options of the scorer (needlemap help options).", metavar="KEY=VALUE"),
    ] = None,
    out: Annotated[
        Path | None,
        option("Folder of the new run, or file for scored lines.", "-o", "--out", metavar="PATH"),
    ] = None,
    trust_run: arguments.TrustRun = False,
    limit_time: Annotated[
        str | None,
        option("Stop after this long, e.g. 90s. The same command resumes it.", metavar="DURATION"),
    ] = None,
) -> int:
    """Score answers again with another scorer. The model is not asked again.

    \b
    Examples:
      needlemap score own --scorer exact -o exact
      needlemap score own --scorer substring
      needlemap score answers.jsonl --scorer levenshtein -o scored.jsonl
    """
    from needlemap.asking.discovery import limit_of
    from needlemap.commands.score import score_command

    with limited_to(None if limit_time is None else limit_of(limit_time)):
        return score_command(file, scorer, scorer_options or [], out, trusted=trust_run)


@command(group=MAP, extended=True)
def report(
    typed: arguments.ReportFlags,
    runs: Annotated[
        list[Path],
        run_argument("Run folders, a folder of runs, or results of other tools.", "RUN"),
    ],
    added: Sequence[Any] = (),
) -> None:
    """Show finished or running runs, or write them to a file.

    \b
    Examples:
      needlemap report own
      needlemap report own -o report.html
      needlemap report before after -o change.png
    """
    from needlemap.commands.report import report_command

    report_command(runs, typed, added)


@command(group=COMPARE)
def compare(
    typed: arguments.CompareFlags,
    first: Annotated[
        Path, run_argument("The reference: folder of a run or a suite, or a log.", "RUN_A")
    ],
    second: Annotated[Path, run_argument("The run to judge, of the same kind.", "RUN_B")],
) -> int:
    """Compare two runs prompt by prompt. Shows the loss and its interval; with --margin a verdict.

    \b
    Examples:
      needlemap compare before after
      needlemap compare before after --margin 2 --junit compare.xml
      needlemap compare before after --answers
    """
    from needlemap.commands.compare import compare_command

    return compare_command(first, second, typed)


@command(name="list", group=LOOK_UP)
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help=f"{', '.join(KINDS)}.",
            metavar="KIND",
            autocompletion=complete_kinds,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            help="One task, model, scorer, haystack or probe: what it does and its options. "
            "For runs: their folder (default runs).",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """List presets, tasks, models and other names, or your runs.

    \b
    Examples:
      needlemap list presets
      needlemap list probes cache
      needlemap list runs .
    """
    from needlemap.commands.listing import list_command

    list_command(kind, name)


@command(group=MAP, extended=True)
def replay(
    typed: arguments.ReplayFlags,
    folder: Annotated[Path, run_argument("Folder of the run.", "RUN")],
    added: Sequence[Any] = (),
) -> None:
    """Show one prompt of a run again, byte for byte. With --ask also a new answer.

    \b
    Examples:
      needlemap replay own --length 1k --depth 50
      needlemap replay own --length 1k --depth 50 --ask
    """
    from needlemap.commands.replay import replay_command

    replay_command(folder, typed, added)


@command(name="help", group=LOOK_UP)
def help_(
    topic: Annotated[
        str,
        typer.Argument(
            help="A page or a command. By default all pages are listed.", metavar="TOPIC"
        ),
    ] = "",
) -> None:
    """Print a page of the documentation, or list all pages.

    \b
    Examples:
      needlemap help
      needlemap help verdicts
    """
    from needlemap.commands.pages import help_command

    help_command(topic, tuple(Commands(OWN)))


class _Tracebacks(logging.Handler):
    """Prints what `raised_by` logs, without keys, once of each kind and place.

    A run of 1,000 trials may raise the same error 1,000 times.
    """

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._seen: set[tuple[object, ...]] = set()
        self._secrets = Secrets(
            value for name, value in os.environ.items() if _SECRET.search(name.upper())
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record if it is new."""
        kind, _, trace = record.exc_info or (None, None, None)
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = (kind, trace and trace.tb_frame.f_code, trace and trace.tb_lineno)
        if place not in self._seen:
            tell(hidden(self._secrets.hide(self.format(record).strip())))
        self._seen.add(place)


def _without_help(words: Sequence[str]) -> list[str]:
    """Return the words of `needlemap help score` as those of `needlemap score --help`.

    That is for commands without a page.
    """
    if words[:1] != ["help"] or len(words) != 2:
        return list(words)
    from needlemap.commands.pages import all_pages

    topic = words[1]
    if topic in Commands(OWN) and topic not in all_pages():
        return [topic, "--help"]
    return list(words)


def _common_first(words: Sequence[str]) -> list[str]:
    """Return the words with the flags of all commands first, wherever they are typed."""
    common: list[str] = []
    others: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if (word == "--debug" and word not in common) or word.startswith("--env-file="):
            common.append(word)
        elif word == "--env-file":
            common += [word, *islice(remaining, 1)]
        elif word != "--debug":
            others.append(word)
    return [*common, *others]


def _limit_blas_threads() -> None:
    """Keep numpy's BLAS to one thread, unless the user or a model in this process may want more.

    Nothing here multiplies large matrices, and idle BLAS threads cost a quarter of a start's CPU
    time.
    """
    if not any(argument.startswith(("hf/", "lmdeploy/", "python/")) for argument in sys.argv):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main() -> None:
    """Run a command and exit with its code.

    `stats/verdicts.py` has the codes of verdicts. 130 and 143 are those of signals.
    """
    _limit_blas_threads()
    sound_streams()
    words = _common_first(_without_help(sys.argv[1:]))
    try:
        try:
            app(words, prog_name="needlemap")
        finally:
            end_output()
    except LimitReached as error:
        sys.exit(_tell_no_result(words, error))
    except NeedlemapError as error:
        message = str(error)
    except OSError as error:
        # A folder that cannot be written, or a full disk.
        message = os_error_words(error)
    tell(f"needlemap: {hidden(message)}")
    sys.exit(2)


def _tell_no_result(words: Sequence[str], error: LimitReached) -> int:
    """Print the verdict of a command that a limit ended before an answer, and return its code."""
    from needlemap.stats.verdicts import NO_RESULT, Verdict, exit_code

    command = next((word for word in words if word in Commands(OWN)), "needlemap")
    tell(Verdict(NO_RESULT, hidden(str(error))).line(command))
    return exit_code(NO_RESULT)
