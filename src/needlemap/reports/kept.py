"""The report of a folder that a command with findings of its own has left.

A package registers a `Finding` by an entry point of group `needlemap.findings`. Its name is that
of the command and of the document in the folder: `check` for check.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from needlemap.registry import find_kind

if TYPE_CHECKING:
    from needlemap.records.families import Families
    from needlemap.records.loaded import Loaded
    from needlemap.reports.report import Report


class Finding:
    """What a command found out, as its document in a run's folder has it."""

    def report(self, families: Families, read: Mapping[str, Loaded | None]) -> Report:
        """Return its report.

        read: the families by name, None for a family that was not started. If the document cannot
        be read, NeedlemapError is raised.
        """
        raise NotImplementedError


def finding_report(
    families: Families, runs_by_family: Mapping[str, Loaded | None]
) -> Report | None:
    """Return the report of a folder with findings, or None for a run or a suite.

    runs_by_family: None for a family that was not started. If the findings cannot be read,
    NeedlemapError is raised.
    """
    if not families.has_findings:
        return None
    return find_kind("findings", families.kind, Finding)().report(families, runs_by_family)
