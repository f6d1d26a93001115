"""Other styles of a map, which packages register by entry points of group `needlemap.styles`."""

from __future__ import annotations

from needlemap.registry import find_kind, installed
from needlemap.reports.figures.heat import Scale
from needlemap.stats.means import Map


class MapStyle:
    """How a map is drawn in place of our own way."""

    def title(self, map: Map) -> str:
        """Return the title of a map that has none of its own."""
        raise NotImplementedError

    def draw(
        self, map: Map, title: str, scale: Scale, width: float, y: float
    ) -> tuple[list[str], float]:
        """Return the SVG parts of a map, and the y at which it ends.

        width, y: the width of the map and its upper edge, in points. Raises SettingsError for a map
        that this style cannot show.
        """
        raise NotImplementedError


def find_style(name: str) -> MapStyle:
    """Return a style by its registered name, or raise SettingsError if it is unknown."""
    return find_kind("styles", name, MapStyle)()


def is_other(name: str | None) -> bool:
    """Return True if a style is another package's."""
    return name in installed("styles")
