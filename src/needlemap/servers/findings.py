"""Report the folders of a check, a storm or an ab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from needlemap.reports.kept import Finding
from needlemap.servers.ab.report import read_ab_report
from needlemap.servers.check.finding import CHECK
from needlemap.servers.check.report import check_report
from needlemap.servers.storm.file import STORM
from needlemap.servers.storm.report import storm_report

if TYPE_CHECKING:
    from needlemap.records.families import Families
    from needlemap.records.loaded import Loaded
    from needlemap.reports.report import Report


class AbFinding(Finding):
    """Whether the changed engine is no worse."""

    def report(self, families: Families, read: Mapping[str, Loaded | None]) -> Report:
        """Return the report of an ab."""
        return read_ab_report(families.path, read)


class CheckFinding(Finding):
    """Whether a server computes long prompts right."""

    def report(self, families: Families, read: Mapping[str, Loaded | None]) -> Report:
        """Return the report of a check."""
        file = CHECK.read(families.path)
        return check_report(families.path, file.model, file, file.reference)


class StormFinding(Finding):
    """Whether a server is right under use."""

    def report(self, families: Families, read: Mapping[str, Loaded | None]) -> Report:
        """Return the report of a storm."""
        return storm_report(families.path, STORM.read(families.path))
