"""`check`: is a server right at length? Asks the same in several ways that must come to the same.

Pure: `Schedule` (what is asked next), the probes and `judge` (what the replies come to). I/O:
`asking`.
"""

from needlemap.check.ask import Answers, Ask, Reply
from needlemap.check.finding import AtSize, Finding, KnownIssue, Worst, read_check
from needlemap.check.haystack import AskBatch as Batch
from needlemap.check.haystack import Options
from needlemap.check.judge import Verdict, judge
from needlemap.check.probe import Paired, Probe, probes
from needlemap.check.schedule import Schedule

__all__ = [
    "Answers",
    "Ask",
    "AtSize",
    "Batch",
    "Finding",
    "KnownIssue",
    "Options",
    "Paired",
    "Probe",
    "Reply",
    "Schedule",
    "Verdict",
    "Worst",
    "judge",
    "probes",
    "read_check",
]
