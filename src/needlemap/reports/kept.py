"""The report of a folder that a command with findings of its own has left: a check, a
storm, an ab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from needlemap.check.finding import CHECK
from needlemap.records.ab import AB
from needlemap.reports.ab_report import read_ab_report
from needlemap.reports.check_report import check_report
from needlemap.reports.storm_report import storm_report
from needlemap.storm.file import STORM

if TYPE_CHECKING:
    from needlemap.records.families import Families
    from needlemap.records.loaded import Loaded
    from needlemap.reports.report import Report


def kept_report(families: Families, read: Mapping[str, Loaded | None]) -> Report | None:
    """The report; None of a run or a suite. read: its families by name. Raises
    NeedlemapError."""
    path = families.path
    if CHECK.is_in(path):
        check = CHECK.read(path)
        return check_report(path, check.model, check, check.reference)
    if STORM.is_in(path):
        return storm_report(path, STORM.read(path))
    return read_ab_report(path, read) if AB.is_in(path) else None
