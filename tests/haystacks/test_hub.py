"""A hub data set: from the cache where it is there, else an error with the steps to get it by
hand."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from needlemap.errors import HaystackError
from needlemap.haystacks.folder import Hub

NAME = "Skywork/ChineseDomainModelingEval"
BY_HAND = (
    r"Could not get data set 'Skywork/ChineseDomainModelingEval' from the hub .*nor is it in the "
    r"cache\. "
    r"By hand: open https://huggingface\.co/datasets/Skywork/ChineseDomainModelingEval/tree/main "
    r"in a "
    r"browser, put zh_finance\.jsonl into a folder, and give --haystack jsonl --haystack-path "
    r"FOLDER\."
)
FETCH = f"from needlemap.haystacks.folder import Hub; Hub('{NAME}', file_list=['zh_finance.jsonl'])"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A hub cache that holds one file of the data set."""
    folder = tmp_path / "hub" / "datasets--Skywork--ChineseDomainModelingEval"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    lines = '{"text": "一。"}\n{"text": "二。"}\n'
    (folder / "snapshots" / "abc" / "zh_finance.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path / "hub"


def offline(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))


def test_a_cached_data_set_needs_no_network(monkeypatch, cache):
    offline(monkeypatch, cache)
    hub = Hub(NAME, file_list=["zh_finance.jsonl"])
    assert [document.text for document in hub.documents()] == ["一。", "二。"]
    assert [document.text for document in Hub(NAME).documents(1)] == ["二。"]
    assert (hub.name, hub.endless) == (f"hub/{NAME}", False)


def test_a_file_that_the_cached_data_set_lacks_is_named(monkeypatch, cache):
    offline(monkeypatch, cache)
    with pytest.raises(HaystackError, match=r"zh_tech\.jsonl"):
        Hub(NAME, file_list=["zh_tech.jsonl"])


def test_offline_and_not_cached_gives_the_steps_by_hand(monkeypatch, tmp_path):
    offline(monkeypatch, tmp_path)
    with pytest.raises(HaystackError, match=BY_HAND):
        Hub(NAME, file_list=["zh_finance.jsonl"])


def test_an_unreachable_hub_is_given_up_soon(tmp_path):
    """A fresh process, so that the library reads its endpoint anew: nothing listens on port 9."""
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "PATH": ""}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", FETCH], env=environment, capture_output=True, text=True
    )
    assert "HaystackError: Could not get data set" in done.stderr
    assert "By hand: open https://huggingface.co/datasets/" in done.stderr
    assert time.monotonic() - begun < 20


def test_without_the_hub_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HaystackError, match=r"python3 \-m pip install 'huggingface\-hub>=0\.34'"):
        Hub(NAME)
