"""What a run shows while it goes on: the map filling in on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from needlemap.asking.runner import Watcher
from needlemap.maps.map import Map
from needlemap.records.record import Record
from needlemap.reports.terminal import terminal_map
from needlemap.settings.units import duration_label
from needlemap.text.printable import show
from needlemap.trials.repeat import Trial

_PLAIN_EVERY_S = 10.0
_REDRAW_EVERY_S = 0.5
_LINES_AROUND = 12  # around the depth rows: the map's own lines, the last failure, replicas, the tally


class Tally:
    """Counts of a run under way. total, already: trials in all, and those scored before this start.

    limits: what is used of the run's limits, in words; '' without limits. family: its name, if it has one.
    """

    def __init__(self, total: int, already: int, limits: Callable[[], str] = str, family: str = "") -> None:
        self.total, self.already, self._limits, self._family = total, already, limits, family
        self.scored = self.failed = self.tokens = self.cached = self.promised = 0
        self.usd: float | None = 0.0
        self.started = time.monotonic()

    def add(self, record: Record) -> None:
        """Count one record."""
        self.scored += record.scored
        self.failed += not record.scored
        self._paid(record.judge_usd)
        if record.rescored:
            return
        self.tokens += record.prompt_tokens or 0
        self.cached += record.cached_tokens or 0
        self.promised += (record.shared_tokens or 0) if record.cached_tokens is not None else 0
        if record.answer is not None or record.unread.attempts:
            self._paid(record.asked_usd)

    def _paid(self, usd: float | None) -> None:
        self.usd = None if self.usd is None or usd is None else self.usd + usd

    def line(self, *, over: bool = False) -> str:
        """Done of total, failures, tokens, money, and while it goes on rate and time left: what is known."""
        ended = self.scored + self.failed
        seconds = max(time.monotonic() - self.started, 1e-6)
        rate = ended / seconds
        left = self.total - self.already - ended
        parts = [self._family] if self._family else []
        parts += [f"{self.already + self.scored}/{self.total} scored"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens else []
        plan = f" of {self.promised:,} planned" if self.promised else ""
        parts += [f"{self.cached:,} cached{plan}"] if self.cached or plan else []
        limits = self._limits()
        parts += [limits] if limits else [f"${self.usd:.4f}"] if self.usd else []
        goes_on = ended and left and not over
        parts += [f"{rate:.1f}/s", f"{duration_label(left / rate)} left"] if goes_on else []
        return " · ".join(parts)


class View(Watcher):
    """A watcher that is entered before a run and left after it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Silent(View):
    """Shows nothing."""


class Together(Silent):
    """Several watchers as one."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def asked(self, trial: Trial) -> None:
        """Tell each."""
        for watcher in self._watchers:
            watcher.asked(trial)

    def recorded(self, record: Record) -> None:
        """Tell each."""
        for watcher in self._watchers:
            watcher.recorded(record)

    def said(self, event: str) -> None:
        """Tell each."""
        for watcher in self._watchers:
            watcher.said(event)

    def told(self, standing: str) -> None:
        """Tell each."""
        for watcher in self._watchers:
            watcher.told(standing)


class Lines(Silent):
    """A line every ten seconds, for logs; and each kind of failure once."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._last = time.monotonic()
        self._seen: set[str] = set()
        self._standing = ""

    def recorded(self, record: Record) -> None:
        """Print when it is time to."""
        self._tally.add(record)
        if record.failure and record.failure not in self._seen:
            self._seen.add(record.failure)
            show(f"{record.failure}: {record.error}", file=sys.stderr, flush=True)
        if time.monotonic() - self._last >= _PLAIN_EVERY_S:
            self._last = time.monotonic()
            show(self._tally.line(), file=sys.stderr, flush=True)

    def told(self, standing: str) -> None:
        """Print it when it changes."""
        if standing != self._standing:
            self._standing = standing
            show(standing, file=sys.stderr, flush=True)

    def said(self, event: str) -> None:
        """Print at once."""
        show(event, file=sys.stderr, flush=True)


class LiveMap(Silent):
    """The map filling in, and why the last trial failed. make: a map of the records so far."""

    def __init__(self, tally: Tally, before: list[Record], make: Callable[[list[Record]], Map]) -> None:
        self._tally, self._records, self._make = tally, list(before), make
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._drawn = 0.0
        self._failure = self._standing = ""

    def __enter__(self) -> Self:
        self._live.__enter__()
        self._draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def recorded(self, record: Record) -> None:
        """Redraw, twice a second at most."""
        self._tally.add(record)
        self._records.append(record)
        if record.failure:
            self._failure = f"{record.failure}: {record.error}"
        if time.monotonic() - self._drawn >= _REDRAW_EVERY_S:
            self._draw()

    def told(self, standing: str) -> None:
        """Redraw when it changes."""
        if standing != self._standing:
            self._standing = standing
            self._draw()

    def said(self, event: str) -> None:
        """Print above the map."""
        self._live.console.print(Text(event), soft_wrap=True)

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        rows = max(1, self._console.height - _LINES_AROUND)
        parts = [terminal_map(self._make(self._records), max_rows=rows)]
        if self._failure:
            parts.append(Text(self._failure, style="red", no_wrap=True, overflow="ellipsis"))
        if self._standing:
            parts.append(Text(self._standing, no_wrap=True, overflow="ellipsis"))
        parts.append(Text(self._tally.line(), style="bold"))
        self._live.update(Group(*parts), refresh=True)
