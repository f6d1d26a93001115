"""`needlemap --debug`: where one's own functions and plug-ins raised, each place once, without keys."""

from __future__ import annotations

import logging
import os
import re

from needlemap.secrets import hidden
from needlemap.text.printable import printable

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")  # of names in the environment


def show_tracebacks() -> None:
    """From now on print the tracebacks that `raised_by` logs to standard error."""
    log, handler = logging.getLogger("needlemap"), logging.StreamHandler()
    handler.setFormatter(_Scrubbed())
    handler.addFilter(_Once())
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)


class _Scrubbed(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The traceback alone, as a terminal may show it."""
        text = self.formatException(record.exc_info) if record.exc_info else record.getMessage()
        for name, value in os.environ.items():
            if _SECRET.search(name.upper()) and len(value) >= 6:
                text = text.replace(value, "[hidden]")
        return printable(hidden(text))


class _Once(logging.Filter):
    """Lets one exception of each kind and place pass: a run of 1,000 trials raises it 1,000 times."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[object, ...]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is new."""
        kind, _, trace = record.exc_info or (None, None, None)
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = (kind, trace and trace.tb_frame.f_code, trace and trace.tb_lineno)
        new = place not in self._seen
        self._seen.add(place)
        return new
