"""Plug in to pytest: a server as a fixture, and what a test may claim of it.

Nothing of needlemap is imported before a test claims something, so that a collection without such a
test loads this file alone.
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
# Columns of a map.
_WIDE = 100
# In a command, the folder of the gauge.
_GAUGE = "{gauge}"
_NO_MODEL = (
    "needle_server has no model to ask: give pytest --needle-model, --needle-base-url or "
    "--needle-command, or name one in the test, as needle_server('BACKEND/NAME', base_url=...)."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the model of `needle_server`, if a test does not."""
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


class _StartedServers:
    """The servers that commands of a session started, and a folder for its runs."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._urls: dict[tuple[str, str | None], str] = {}

    def url(self, command: str, base_url: str | None) -> str:
        """Return the address of the server that a command starts. Each is started once.

        A claim's minutes start when the server answers.
        """
        from needlemap.deadline import clock
        from needlemap.models.started import started

        key = command, base_url
        if key not in self._urls:
            log = self.folder / f"server-{len(self._urls)}.log"
            if _GAUGE in command:
                command = command.replace(_GAUGE, self._gauge(command))
            with clock().stopped():
                self._urls[key] = self._stack.enter_context(started(command, log, base_url))
        return self._urls[key]

    def _gauge(self, command: str) -> str:
        """Return the folder of the gauge, quoted.

        It holds llama.cpp's file too, if the command names one.
        """
        from needlemap.servers.gauge.checkpoint import write_checkpoint

        folder = write_checkpoint(self.folder / "gauge")
        if ".gguf" in command:
            from needlemap.servers.gauge.gguf import NAME, write_gguf

            write_gguf(folder / NAME)
        return quote(str(folder))


@pytest.fixture(scope="session")
def _needle_started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_StartedServers]:
    """Yield the servers of a session. They end with it; runs stay in a temporary folder."""
    with ExitStack() as stack:
        yield _StartedServers(tmp_path_factory.mktemp("needlemap"), stack)


@pytest.fixture
def needle_server(request: pytest.FixtureRequest, _needle_started: _StartedServers) -> NeedleServer:
    """Return a server, model or command to make claims of.

    For example: `needle_server.assert_no_worse("golden/m", margin=2)`. By default it is that of
    --needle-model, --needle-base-url and --needle-command. Call it for another one:
    `needle_server("openai/m", command="my-server --port {port}")`.
    """
    names = ("model", "base_url", "command")
    typed = {name: request.config.getoption(f"needle_{name}") for name in names}
    return NeedleServer(request.path.parent, _needle_started, typed, {})


class NeedleServer:
    """The model of a test.

    Each claim passes, or fails the test with the verdict, the map and a command that shows the
    prompt again.
    """

    def __init__(
        self,
        test_folder: Path,
        servers: _StartedServers,
        model_flags: dict[str, str | None],
        settings: dict[str, Any],
    ) -> None:
        # Goldens are looked for there.
        self._test_folder = test_folder
        self._servers = servers
        self._model_flags = model_flags
        self._settings = settings

    def __call__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        command: str | None = None,
        **settings: Any,
    ) -> NeedleServer:
        """Return another model, or the same with other settings if only these are given.

        Args:
            model: BACKEND/NAME, or an address alone. By default the one that a server lists.
            base_url: The address of its server.
            command: Starts it, with {port} for a free port and {gauge} for the gauge's folder.
            settings: As `needlemap.run` takes them.
        """
        if model is not None and "://" in model:
            model, base_url = None, model
        model_flags = {"model": model, "base_url": base_url, "command": command}
        if not any(model_flags.values()):
            model_flags = self._model_flags
        return NeedleServer(
            self._test_folder, self._servers, model_flags, {**self._settings, **settings}
        )

    def assert_no_worse(
        self,
        golden: str | Path,
        margin: float = 2.0,
        lengths: str | None = None,
        *,
        on_undecided: Undecided = "skip",
    ) -> None:
        """Fail unless it is no worse than a golden by `margin` points, on the golden's prompts.

        lengths: only these of its lengths.
        """
        run, compared = self._compare_with_golden(golden, margin, lengths)
        # There is a margin, so there is a verdict.
        assert compared.verdict is not None
        settle = partial(_settle, compared.verdict, "compare", on_undecided)
        settle(lambda: _failure_text(f"beside {golden}", run, compared))

    def assert_same_answers(
        self, golden: str | Path, percent: float = 0.0, lengths: str | None = None
    ) -> None:
        """Fail if more than so many percent of its answers differ from a golden's by a letter."""
        from needlemap.commands.compare import same_answers

        run, compared = self._compare_with_golden(golden, 2.0, lengths)
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
        """Fail unless `needlemap check --quick` passes.

        With a longest length or probes, every probe of a whole check, or each of these, must pass,
        as far as so many minutes go.
        """
        from needlemap.deadline import limited_to
        from needlemap.servers.check.asking import Check, ProbesOnSchedule
        from needlemap.servers.check.command import options_on
        from needlemap.servers.flags import CheckFlags
        from needlemap.sync import run_coroutine

        quick = max_length is None and not probes
        typed = CheckFlags(
            max_length=max_length,
            minutes=minutes,
            gauge=self._serves_gauge,
            quick=quick,
            probe=list(probes or ()),
            require=",".join(probes or ()),
        )
        with _fail_in_words(), limited_to(60 * minutes, "minutes"):
            check_options = options_on(typed, self._flags())
            check = Check.of(check_options, self._folder("check", max_length, probes))
            asking = ProbesOnSchedule(check)
            checked = run_coroutine(asking.run())

        def text() -> str:
            if asking.missed:
                return asking.missed
            return _check_text(check.folder.path, checked, check.asked.reference, asking.why)

        _settle(checked.verdict, "check --quick" if quick else "check", on_undecided, text)

    @property
    def _serves_gauge(self) -> bool | None:
        """Return True if the command serves the gauge, or None if the model's name decides."""
        return _GAUGE in (self._model_flags["command"] or "") or None

    def assert_storm(
        self,
        rate: float = 0.5,
        minutes: float = 2.0,
        *,
        max_length: str | None = None,
        on_undecided: Undecided = "skip",
    ) -> None:
        """Fail unless `needlemap storm` finds no fault of serving state.

        Fewer than `rate` percent of families must have one, as far as so many minutes go.
        """
        from needlemap.deadline import limited_to
        from needlemap.reports.renderers.text import to_text
        from needlemap.servers.flags import StormFlags
        from needlemap.servers.storm.command import options_of
        from needlemap.servers.storm.report import storm_report
        from needlemap.servers.storm.storm import Storm
        from needlemap.servers.storm.storming import StormInRounds
        from needlemap.sync import run_coroutine

        with _fail_in_words(), limited_to(60 * minutes, "minutes"):
            typed = StormFlags(max_length, minutes, f"rate<{rate:g}%", gauge=self._serves_gauge)
            storm = Storm.of(options_of(typed, self._flags()), self._folder("storm", max_length))
            asking = StormInRounds(storm)
            result = run_coroutine(asking.run())
        report = storm_report(storm.folder.path, asking.document(result))
        text = asking.missed or to_text(report, _WIDE).rstrip()
        _settle(result.verdict, "storm", on_undecided, lambda: text)

    def _compare_with_golden(
        self, golden: str | Path, margin: float, lengths: str | None
    ) -> tuple[Run, Compared]:
        """Run the golden's prompts, and compare the answers.

        What was sent in this session for another claim is not sent again.
        """
        from needlemap import compare, run

        with _fail_in_words():
            golden_run = self._test_folder / golden
            if not golden_run.is_dir():
                golden_run = Path(golden)
            if golden_run.is_relative_to(Path.cwd()):
                golden_run = golden_run.relative_to(Path.cwd())
            # Wrong answers are for the verdict to judge.
            settings: dict[str, Any] = {"canary": False, **self._flags()}
            if lengths:
                settings["lengths"] = lengths
            settings |= {
                "prompts_of": str(golden_run),
                "trust_run": "prompts",
                "out": self._folder("run", str(golden_run), lengths),
            }
            test_run = run(**settings)
            return test_run, compare(golden_run, test_run, margin=margin)

    def _flags(self) -> dict[str, Any]:
        """Return model and address as settings, after starting the command if there is one.

        If neither model nor address is given, fail the test.
        """
        from needlemap.asking.discovery import listed_model
        from needlemap.settings.older_names import translate

        model, base_url, command = (
            self._model_flags[name] for name in ("model", "base_url", "command")
        )
        if command is not None:
            base_url = self._servers.url(command, base_url)
        values = {"model": model, "base_url": base_url}
        typed = {name: value for name, value in values.items() if value}
        flags = translate({**typed, "quiet": True, **self._settings}, {})
        flags |= listed_model(None, flags)
        if "model" not in flags:
            _fail(_NO_MODEL)
        return flags

    def _folder(self, *parts: object) -> Path:
        """Return a folder of this session for one experiment on one model.

        parts: what tells experiments apart, a command's name first.
        """
        from hashlib import sha256

        experiment = repr((parts, self._model_flags, sorted(self._settings.items())))
        digest = sha256(experiment.encode()).hexdigest()[:12]
        return self._servers.folder / f"{parts[0]}-{digest}"


@contextmanager
def _fail_in_words() -> Iterator[None]:
    """Turn needlemap's errors into failures of the test, without a traceback."""
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
    verdict: Verdict, command: str, on_undecided: Undecided, text: Callable[[], str]
) -> None:
    """Fail, skip or pass a test by a verdict. text: makes the lines after the verdict's."""
    from needlemap.stats.verdicts import NOT_ENOUGH_DATA, exit_code
    from needlemap.text import printable

    line = verdict.line(command)
    if exit_code(verdict.word, on_undecided) == 0:
        return
    if verdict.word == NOT_ENOUGH_DATA and on_undecided == "skip":
        pytest.skip(printable(line, line=True))
    _fail(f"{line}\n\n{text()}")


def _failure_text(head: str, run: Run, compared: Compared) -> str:
    """Return the text of a failed comparison: report, maps, and a command for the first change."""
    from needlemap.records.families import families_of
    from needlemap.reports.comparison import comparison_report
    from needlemap.reports.renderers.text import to_text

    text = to_text(comparison_report(compared.comparison, compared.names, answers=True))
    lines = [head, "", text.rstrip()]
    families = families_of(run.path)
    for name, comparison in compared.comparison.families.items():
        folder = families.folder(name)
        lines += ["", name or "map", _map(folder)]
        if comparison.answers and comparison.answers.changed:
            repeat, length, depth = comparison.answers.changed[0].place
            where = f"--length {length} --depth {100 * depth:.10g} --repeat {repeat}"
            lines.append(f"see the first answer that differs: needlemap replay {folder} {where}")
    return "\n".join(lines)


def _map(folder: Path) -> str:
    """Return a run's map in letters."""
    from needlemap.records.loaded import load_run
    from needlemap.reports.renderers.heat import map_text

    return map_text(load_run(folder).map, _WIDE)


def _check_text(path: Path, checked: Checked, reference: str, stopped: str) -> str:
    """Return the text of a check that did not pass.

    It is why not all was sent, the report, and the maps of the deciding probes' worst prompts.
    """
    from needlemap.reports.renderers.text import to_text
    from needlemap.servers.check.report import check_report

    parts = []
    if stopped:
        parts.append(f"stopped: {stopped}")
    parts.append(to_text(check_report(path, "", checked, reference), _WIDE).rstrip())
    for finding in checked.findings:
        is_deciding = finding.decides and finding.state == checked.verdict.word
        if is_deciding and finding.worst is not None:
            parts.append(_map(path / finding.worst.way))
    return "\n\n".join(parts)
