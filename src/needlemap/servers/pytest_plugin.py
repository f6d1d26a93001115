"""The pytest plug-in: a server as a fixture, and what a test may claim of it.

Nothing of needlemap is imported before a test claims something: a collection that has no such
test pays for this file alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pytest

if TYPE_CHECKING:
    from needlemap.reports.public_api import Compared, Run
    from needlemap.servers.check import Checked
    from needlemap.stats.verdicts import Verdict

Undecided = Literal["fail", "pass", "skip"]
_WIDE = 100  # columns of a map
_GAUGE = "{gauge}"  # in a command
_NOBODY = (
    "needle_server has no model to ask: give pytest --needle-model, --needle-base-url or "
    "--needle-command, or "
    "name one in the test, as needle_server('BACKEND/NAME', base_url=...)."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Whom `needle_server` asks, where the test does not say."""
    group = parser.getgroup("needlemap", "needlemap (fixture needle_server)")
    group.addoption("--needle-model", metavar="BACKEND/NAME", help="the model, as hf/PATH")
    group.addoption(
        "--needle-base-url", metavar="URL", help="where it is served, as http://127.0.0.1:8000/v1"
    )
    group.addoption(
        "--needle-command",
        metavar="COMMAND",
        help="starts the server; {port} is a free port, {gauge} the folder of needlemap's gauge",
    )


class _Started:
    """Servers that commands of this session started, by their commands, and folders for
    runs."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self._urls: dict[tuple[str, str | None], str] = {}

    def url(self, command: str, base_url: str | None) -> str:
        """Where a command serves; it is started once."""
        from needlemap.models.started import started

        known = command, base_url
        if known not in self._urls:
            log = self.folder / f"server-{len(self._urls)}.log"
            command = (
                command.replace(_GAUGE, self._gauge(command)) if _GAUGE in command else command
            )
            self._urls[known] = self._stack.enter_context(started(command, log, base_url))
        return self._urls[known]

    def _gauge(self, command: str) -> str:
        """The folder of the gauge, quoted; with llama.cpp's file where the command names
        one."""
        from needlemap.servers.gauge.checkpoint import write_checkpoint

        folder = write_checkpoint(self.folder / "gauge")
        if ".gguf" in command:
            from needlemap.servers.gauge.gguf import NAME, write_gguf

            write_gguf(folder / NAME)
        return quote(str(folder))


@pytest.fixture(scope="session")
def _needle_started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Started]:
    """Servers end with the session; runs stay, as pytest keeps temporary folders."""
    with ExitStack() as stack:
        yield _Started(tmp_path_factory.mktemp("needlemap"), stack)


@pytest.fixture
def needle_server(request: pytest.FixtureRequest, _needle_started: _Started) -> NeedleServer:
    """A server, model or command to make claims of: `needle_server.assert_no_worse("golden/m",
    margin=2)`.

    By default that of --needle-model, --needle-base-url and --needle-command; called, it is
    another one: `needle_server("openai/m", command="my-server --port {port}")`.
    """
    names = ("model", "base_url", "command")
    typed = {name: request.config.getoption(f"needle_{name}") for name in names}
    return NeedleServer(request.path.parent, _needle_started, typed, {})


class NeedleServer:
    """Whom a test asks. Each claim passes, or fails the test with the verdict, the map and a
    command that shows the prompt again."""

    def __init__(
        self, here: Path, running: _Started, asked: dict[str, str | None], settings: dict[str, Any]
    ) -> None:
        self._here, self._running, self._asked, self._settings = here, running, asked, settings

    def __call__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        command: str | None = None,
        **settings: Any,
    ) -> NeedleServer:
        """Another one; the same, asked otherwise, where only settings are given. model:
        BACKEND/NAME, or an address alone; of a server the one that it lists, if none is named.
        command: starts it, with {port} for a free port and {gauge} for the gauge's folder.
        settings: as `needlemap.run` takes them."""
        if model is not None and "://" in model:
            model, base_url = None, model
        asked = {"model": model, "base_url": base_url, "command": command}
        asked = asked if any(asked.values()) else self._asked
        return NeedleServer(self._here, self._running, asked, {**self._settings, **settings})

    def assert_no_worse(
        self,
        golden: str | Path,
        margin: float = 2.0,
        lengths: str | None = None,
        *,
        on_undecided: Undecided = "skip",
    ) -> None:
        """That it is no worse than a golden by `margin` points, on its prompts. lengths: only
        these of its lengths."""
        run, compared = self._compared(golden, margin, lengths)
        assert compared.verdict is not None  # there is a margin
        settle = partial(_settle, compared.verdict, "compare", on_undecided)
        settle(lambda: _failure_text(f"beside {golden}", run, compared))

    def assert_same_answers(
        self, golden: str | Path, percent: float = 0.0, lengths: str | None = None
    ) -> None:
        """That at most so many percent of its answers differ from a golden's, letter for
        letter."""
        from needlemap.commands.compare import same_answers

        run, compared = self._compared(golden, 2.0, lengths)
        verdict = same_answers(compared.comparison, percent)
        settle = partial(_settle, verdict, "compare", "fail")
        settle(lambda: _failure_text(f"beside {golden}", run, compared))

    def assert_checked(
        self,
        minutes: float = 2.0,
        *,
        max_length: str | None = None,
        probes: tuple[str, ...] | None = None,
        on_undecided: Undecided = "skip",
    ) -> None:
        """That `needlemap check --quick` passes; with a longest length or probes that every probe
        of a whole check, or each of these, passes, as far as so many minutes go."""
        from dataclasses import replace

        from needlemap.deadline import limited_to
        from needlemap.servers.check.asking import Check, CheckOptions, ProbesOnSchedule
        from needlemap.servers.check.command import longest_of
        from needlemap.servers.check.gauge import beside_the_gauge
        from needlemap.servers.check.haystack import QUICK_LENGTH, Options
        from needlemap.sync import run_coroutine

        with _failing():
            flags = {**self._flags(), "limit_time": 60 * minutes}
            quick = max_length is None and not probes
            longest = longest_of(max_length, quick=False)
            options = Options(QUICK_LENGTH if quick else longest, quick=quick)
            options = replace(options, probes=probes or (), require=probes or ())
            with limited_to(60 * minutes, "minutes"):
                served = _GAUGE in (self._asked["command"] or "") or None
                asked, _ = beside_the_gauge(CheckOptions(flags, options), served)
                check = Check.of(asked, self._folder("check", max_length, probes))
                asking = ProbesOnSchedule(check)
                found = run_coroutine(asking.run())
        told = partial(_found, check.folder.path, found, check.asked.reference, asking.why)
        _settle(
            found.verdict,
            "check --quick" if quick else "check",
            on_undecided,
            lambda: asking.missed or told(),
        )

    def assert_storm(
        self,
        rate: float = 0.5,
        minutes: float = 2.0,
        *,
        max_length: str | None = None,
        on_undecided: Undecided = "skip",
    ) -> None:
        """That `needlemap storm` finds no fault of serving state, and fewer than `rate`
        percent of families have one, as far as so many minutes go."""
        from needlemap.deadline import limited_to
        from needlemap.reports.renderers.text import to_text
        from needlemap.servers.flags import StormFlags
        from needlemap.servers.storm.command import asked_of
        from needlemap.servers.storm.report import storm_report
        from needlemap.servers.storm.storm import Storm
        from needlemap.servers.storm.storming import StormInRounds
        from needlemap.sync import run_coroutine

        with _failing(), limited_to(60 * minutes, "minutes"):
            served = _GAUGE in (self._asked["command"] or "") or None
            typed = StormFlags(max_length, minutes, f"rate<{rate:g}%", gauge=served)
            storm = Storm.of(asked_of(typed, self._flags()), self._folder("storm", max_length))
            asking = StormInRounds(storm)
            found = run_coroutine(asking.run())
        report = storm_report(storm.folder.path, asking.document(found))
        text = asking.missed or to_text(report, _WIDE).rstrip()
        _settle(found.verdict, "storm", on_undecided, lambda: text)

    def _compared(
        self, golden: str | Path, margin: float, lengths: str | None
    ) -> tuple[Run, Compared]:
        """The golden's prompts, asked of this one, and the comparison. What was asked in this
        session for another claim is not asked again."""
        from needlemap import compare, run

        with _failing():
            place = self._here / golden
            place = place if place.is_dir() else Path(golden)
            if place.is_relative_to(Path.cwd()):
                place = place.relative_to(Path.cwd())
            out = self._folder("run", str(place), lengths)
            part = {"lengths": lengths} if lengths else {}
            lent = {"prompts_of": str(place), "trust_run": "prompts", "out": out}
            asked = {"canary": False, **self._flags()}  # wrong answers are for the verdict to judge
            made = run(**{**asked, **part, **lent})
            return made, compare(place, made, margin=margin)

    def _flags(self) -> dict[str, Any]:
        """Model and address as settings; a command is started. Fails the test if neither is
        given."""
        from needlemap.asking.discovery import listed_model
        from needlemap.settings.older_names import translate

        model, base_url, command = (self._asked[name] for name in ("model", "base_url", "command"))
        if command is not None:
            base_url = self._running.url(command, base_url)
        asked = {"model": model, "base_url": base_url}
        typed = {name: value for name, value in asked.items() if value}
        flags = translate({**typed, "quiet": True, **self._settings}, {})
        flags |= listed_model(None, flags)
        if "model" not in flags:
            _fail(_NOBODY)
        return flags

    def _folder(self, *what: object) -> Path:
        """A folder of this session for one experiment on one model."""
        from hashlib import sha256

        digest = sha256(
            repr((what, self._asked, sorted(self._settings.items()))).encode()
        ).hexdigest()[:12]
        return self._running.folder / f"{what[0]}-{digest}"


@contextmanager
def _failing() -> Iterator[None]:
    """Errors in words fail a test without a traceback of needlemap's."""
    from needlemap.errors import NeedlemapError, in_python

    try:
        yield
    except NeedlemapError as error:
        _fail(f"needlemap: {in_python(str(error))}")


def _fail(message: str) -> NoReturn:
    """Fail the test with these words alone."""
    from needlemap.text import printable

    raise pytest.fail.Exception(printable(message), pytrace=False) from None


def _settle(
    verdict: Verdict, command: str, on_undecided: Undecided, told: Callable[[], str]
) -> None:
    """End a test by a verdict, with its line before what else is known."""
    from needlemap.stats.verdicts import NOT_ENOUGH_DATA, exit_code
    from needlemap.text import printable

    line = verdict.line(command)
    if exit_code(verdict.word, on_undecided) == 0:
        return
    if verdict.word == NOT_ENOUGH_DATA and on_undecided == "skip":
        pytest.skip(printable(line, line=True))
    _fail(f"{line}\n\n{told()}")


def _failure_text(head: str, run: Run, compared: Compared) -> str:
    """What a failed comparison shows: all that is known, the map, and the first prompt again."""
    from needlemap.records.families import families_of
    from needlemap.reports.comparison import comparison_report
    from needlemap.reports.renderers.text import to_text

    text = to_text(comparison_report(compared.comparison, compared.names, answers=True))
    lines = [head, "", text.rstrip()]
    families = families_of(run.path)
    for name, each in compared.comparison.families.items():
        folder = families.folder(name)
        lines += ["", name or "map", _map(folder)]
        if each.answers and each.answers.changed:
            repeat, length, depth = each.answers.changed[0].place
            where = f"--length {length} --depth {100 * depth:.10g} --repeat {repeat}"
            lines.append(f"see the first answer that differs: needlemap replay {folder} {where}")
    return "\n".join(lines)


def _map(folder: Path) -> str:
    """A run's map in letters."""
    from needlemap.records.loaded import load_run
    from needlemap.reports.renderers.heat import map_text

    return map_text(load_run(folder).map, _WIDE)


def _found(path: Path, found: Checked, reference: str, stopped: str) -> str:
    """What a check that did not pass shows: why not all was asked, its report, and the maps of what
    the probes that decide it missed."""
    from needlemap.reports.renderers.text import to_text
    from needlemap.servers.check.report import check_report

    bad = [
        each.worst.way
        for each in found.findings
        if each.decides and each.state == found.verdict.word and each.worst is not None
    ]
    text = to_text(check_report(path, "", found, reference), _WIDE).rstrip()
    parts = [f"stopped: {stopped}"] if stopped else []
    return "\n\n".join([*parts, text, *(_map(path / way) for way in bad)])
