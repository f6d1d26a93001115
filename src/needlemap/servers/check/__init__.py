"""`check`: is a server right at length? Asks the same in several ways that must come to the same.

Pure: `Schedule` (what is asked next), the probes and `judge` (what the replies come to). I/O:
`asking`.
"""

from needlemap.servers.check.ask import Answers, Ask, Reply
from needlemap.servers.check.finding import Finding, KnownIssue
from needlemap.servers.check.haystack import Options
from needlemap.servers.check.judge import Checked, judge
from needlemap.servers.check.probe import probes
from needlemap.servers.check.schedule import Schedule

__all__ = [
    "Answers",
    "Ask",
    "Checked",
    "Finding",
    "KnownIssue",
    "Options",
    "Reply",
    "Schedule",
    "judge",
    "probes",
]
