"""One public door for extensions: what a plug-in's author imports, whatever moves behind it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from needlemap import plugins
from needlemap.registry import find

DOCS = Path(__file__).parent.parent / "docs"
IMPORTED = re.compile(r"^(?:from|import) (needlemap\S*)", re.MULTILINE)


@pytest.mark.parametrize(
    "page",
    [
        "own-task.md",
        "own-model.md",
        "own-scorer.md",
        "own-haystack.md",
        "own-tokenizer.md",
        "own-probe.md",
    ],
)
def test_pages_on_extensions_import_from_the_door_alone(page):
    assert set(IMPORTED.findall((DOCS / page).read_text("utf-8"))) <= {
        "needlemap",
        "needlemap.plugins",
    }


def test_the_door_lists_all_its_names_and_no_other():
    """What a wing adds is listed too: a probe's base class comes by an entry point."""
    named = {name for name in vars(plugins) if name.isidentifier() and name != "annotations"}
    public = {name for name in named if not name.startswith("_")}
    assert public == set(plugins.__all__)
    assert set(dir(plugins)) == public | {"AtSize", "Probe"}
    assert plugins.Probe is find("plugins", "Probe")
