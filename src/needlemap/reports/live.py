"""What a run shows while it goes on: the map filling in on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from needlemap.maps.map import Map
from needlemap.reports.terminal import terminal_map
from needlemap.runs.record import Record
from needlemap.trials import Trial

_PLAIN_EVERY_S = 10.0
_REDRAW_EVERY_S = 0.5
_LINES_AROUND = 11  # what stands around the depth rows: the map's own lines, the last failure, the tally


class Tally:
    """Counts of a run under way. total, already: trials in all, and those scored before this start."""

    def __init__(self, total: int, already: int) -> None:
        self.total, self.already = total, already
        self.scored = self.failed = self.tokens = self.cached = self.promised = 0
        self.usd: float | None = 0.0
        self.started = time.monotonic()

    def add(self, record: Record) -> None:
        """Count one record."""
        self.scored += record.scored
        self.failed += not record.scored
        self.tokens += record.prompt_tokens or 0
        self.cached += record.cached_tokens or 0
        self.promised += (record.shared_tokens or 0) if record.cached_tokens is not None else 0
        if record.answer is not None:
            self.usd = None if self.usd is None or record.usd is None else self.usd + record.usd

    def line(self) -> str:
        """Done of total, failures, tokens, money, rate, time left: what is known of it."""
        ended = self.scored + self.failed
        seconds = max(time.monotonic() - self.started, 1e-6)
        rate = ended / seconds
        left = self.total - self.already - ended
        parts = [f"{self.already + self.scored}/{self.total} scored"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens else []
        plan = f" of {self.promised:,} planned" if self.promised else ""
        parts += [f"{self.cached:,} cached{plan}"] if self.cached or plan else []
        parts += [f"${self.usd:.4f}"] if self.usd else []
        parts += [f"{rate:.1f}/s", f"{_clock(left / rate)} left"] if ended and left else []
        return " · ".join(parts)


class View(Protocol):
    """A watcher that is entered before a run and left after it."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def asked(self, trial: Trial) -> None:
        """A request goes out."""
        ...

    def recorded(self, record: Record) -> None:
        """A trial ended."""
        ...


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def asked(self, trial: Trial) -> None:
        """Nothing."""

    def recorded(self, record: Record) -> None:
        """Nothing."""


class Lines(Silent):
    """A line every ten seconds, for logs; and each kind of failure once."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._last = time.monotonic()
        self._seen: set[str] = set()

    def recorded(self, record: Record) -> None:
        """Print when it is time to."""
        self._tally.add(record)
        if record.failure and record.failure not in self._seen:
            self._seen.add(record.failure)
            print(f"{record.failure}: {record.error}", file=sys.stderr, flush=True)
        if time.monotonic() - self._last >= _PLAIN_EVERY_S:
            self._last = time.monotonic()
            print(self._tally.line(), file=sys.stderr, flush=True)


class LiveMap(Silent):
    """The map filling in, and why the last trial failed. make: a map of the records so far."""

    def __init__(self, tally: Tally, before: list[Record], make: Callable[[list[Record]], Map]) -> None:
        self._tally, self._records, self._make = tally, list(before), make
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._drawn = 0.0
        self._failure = ""

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

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        rows = max(1, self._console.height - _LINES_AROUND)
        parts = [terminal_map(self._make(self._records), max_rows=rows)]
        if self._failure:
            parts.append(Text(self._failure, style="red", no_wrap=True, overflow="ellipsis"))
        parts.append(Text(self._tally.line(), style="bold"))
        self._live.update(Group(*parts), refresh=True)


def _clock(seconds: float) -> str:
    """A duration for people.

    >>> _clock(59), _clock(3700)
    ('59 s', '1 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
