"""A run under way as versions of its page: made when somebody asks, seldom enough not to slow the run down.

It knows neither HTTP nor HTML: `server.py` asks it from its own threads, the run adds records.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

from needlemap.reports.live import Tally
from needlemap.reports.page.document import as_json
from needlemap.runs.record import Record

AT_LEAST_S = 1.0  # from the end of one build to the next
TIMES_AS_LONG = 20  # as the last build took, so that builds take 5 % of the time at most
_LOOK_EVERY_S = 0.1
_LEVEL = 1  # of gzip: it goes no further than this machine

Payload = tuple[dict[str, Any], list[bytes]]  # summary, and of each run its trials, `packed`
Make = Callable[[list[Record], dict[str, Any]], Payload]


@dataclass(frozen=True, slots=True)
class Version:
    """The page's data after so many records. over: the run ended; data: its JSON, gzipped."""

    number: int
    over: bool
    summary: dict[str, Any]
    trials: list[bytes]
    data: bytes


class Feed:
    """Takes records from the run, gives versions to any number of readers.

    make: summary and trials of records, given also what the summary's `live` is to say. before: records of
    earlier starts.
    """

    def __init__(self, make: Make, tally: Tally, before: Sequence[Record]) -> None:
        self._make, self._tally, self._records = make, tally, list(before)
        self._adding, self._building = Lock(), Lock()
        self._over = Event()
        self._built: Version | None = None
        self._due = 0.0
        self._readers = 0
        self.seen = self.seen_over = False  # whether any version, and whether the last one, reached a reader

    def add(self, record: Record) -> None:
        """One more record; cheap, as the run calls it."""
        with self._adding:
            self._tally.add(record)
            self._records.append(record)

    def end(self) -> None:
        """Nothing follows: who waits for news gets the last version at once."""
        self._over.set()

    @property
    def delivered(self) -> bool:
        """Whether the last version reached a reader, and none is still being given anything."""
        return self.seen_over and not self._readers

    @contextmanager
    def reading(self, *, since: int = -1, patience_s: float = 0.0) -> Iterator[Version]:
        """The last version; waits up to `patience_s` for one after number `since`.

        It counts as delivered when the block ends without an error.
        """
        with self._adding:
            self._readers += 1
        try:
            version = self._newer(since, time.monotonic() + patience_s)
            yield version
            self.seen = True
            self.seen_over = self.seen_over or version.over
        finally:
            with self._adding:
                self._readers -= 1

    def _newer(self, since: int, until: float) -> Version:
        while (version := self._latest()).number <= since:
            if self._over.is_set() or time.monotonic() >= until:
                break
            self._over.wait(_LOOK_EVERY_S)
        return version

    def _latest(self) -> Version:
        """The last version built, or a new one where that is due; readers that come meanwhile wait."""
        with self._building:
            over = self._over.is_set()
            fresh = self._built is not None and self._built.number == self._number(over)
            if self._built is None or (not fresh and (over or time.monotonic() >= self._due)):
                start = time.monotonic()
                self._built = self._build(over)
                now = time.monotonic()
                self._due = now + max(AT_LEAST_S, TIMES_AS_LONG * (now - start))
            return self._built

    def _number(self, over: bool) -> int:
        return len(self._records) + over

    def _build(self, over: bool) -> Version:
        with self._adding:
            records, number, line = list(self._records), self._number(over), self._tally.line(over=over)
        state, shown = ("ended", f"run ended · {line}") if over else ("running", line)
        live = {"state": state, "line": shown, "version": number}
        summary, trials = self._make(records, live)
        rest = as_json({"version": number, "summary": summary}).removesuffix(b"}")
        data = b'%s,"trials":[%s]}' % (rest, b",".join(map(gzip.decompress, trials)))
        return Version(number, over, summary, trials, gzip.compress(data, _LEVEL))
