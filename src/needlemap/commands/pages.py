"""Run `needlemap help`: print pages of the documentation, which an installed package has too."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from needlemap.errors import SettingsError, did_you_mean
from needlemap.text import show

# A wheel keeps the pages in another folder than a checkout.
INSTALLED = Path(__file__).parents[1] / "pages"
CHECKOUT = Path(__file__).parents[3] / "docs"
INDEX = "README"
# The last line of a page of a wing names it: the page goes where its wing goes.
PART = re.compile(r"\n<!-- part: (\w+) -->\s*\Z")


def help_command(topic: str, commands: Collection[str] = ()) -> None:
    """Print a page of the documentation as Markdown, or all topics with their titles.

    commands: names that are not topics, and have help of their own. Raises SettingsError for an
    unknown topic.
    """
    pages = all_pages()
    if not topic:
        width = max(map(len, pages))
        for name, path in pages.items():
            show(f"{name:{width}}  {title_of(path)}")
        show("\nA page: needlemap help verdicts. The flags of a command: needlemap run --help")
    elif topic in pages:
        show(PART.sub("", pages[topic].read_text("utf-8")).rstrip())
        if topic in commands:
            show(f"\nAll flags: needlemap {topic} --help-all")
    else:
        raise SettingsError(f"Unknown topic '{topic}'. {did_you_mean(topic, {*pages, *commands})}")


def all_pages() -> Mapping[str, Path]:
    """Return the pages by topic. Raises SettingsError if there are none."""
    folder = INSTALLED if INSTALLED.is_dir() else CHECKOUT
    paths = sorted(folder.glob("**/*.md"))
    if not paths:
        raise SettingsError(
            "The documentation is not there. Install again: python3 -m pip install ."
        )
    return {path.stem: path for path in paths if path.stem != INDEX and is_installed(path)}


def is_installed(page: Path) -> bool:
    """Return True if the package holds the part that a page is about."""
    part = PART.search(page.read_text("utf-8"))
    if part is None:
        return True
    return (Path(__file__).parents[1] / part[1]).is_dir()


def title_of(path: Path) -> str:
    """Return a page's first heading, or '' if it has none."""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("# "):
            return line.lstrip("# ")
    return ""
