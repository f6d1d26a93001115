"""In a notebook: the map fills in while a run is asked, and nothing shown needs a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="pip install '.[test]'")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

ASKED = """
import sys, time, needlemap

def answer(messages):
    time.sleep(0.5)
    return "no idea"

sys.modules["own"] = type(sys)("own")
sys.modules["own"].answer = answer
asked = {"lengths": [900], "depths": [0, 20, 40, 60, 80, 100], "tokenizer": "cl100k_base", "concurrency": 1}
needlemap.run(model="python/own:answer", out="r", **asked)
"""  # noqa: E501


class Watching(nbclient.NotebookClient):  # type: ignore[misc]
    """Keeps what the kernel sends while a cell runs."""

    def process_message(self, message: dict[str, Any], *more: Any) -> Any:
        self.__dict__.setdefault("seen", []).append((message["msg_type"], message["content"]))
        return super().process_message(message, *more)


def test_the_map_fills_in_and_what_stays_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ASKED)])
    client = Watching(book, timeout=120)
    client.execute()
    pictures = [
        content["data"]["text/html"]
        for kind, content in client.seen
        if kind == "update_display_data"
    ]
    assert any("<svg" in picture and re.search("[1-5]/6 scored", picture) for picture in pictures)
    progress, result = (output["data"] for output in book.cells[0].outputs if "data" in output)
    assert progress == {"text/html": "<pre>6/6 scored</pre>", "text/plain": "6/6 scored"}
    assert set(result) == {"image/svg+xml", "image/png", "text/plain"}
    assert re.findall(r"(?:src|href)=", result["image/svg+xml"]) == []
    assert set(re.findall(r"https?://[^\"]+", str(book.cells[0].outputs))) == {
        "http://www.w3.org/2000/svg"
    }
