"""The page as a file: whole, the same each time, and nothing in it can break out."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import needlemap.reports.page.document as document
from needlemap.records.loaded import Loaded
from needlemap.reports.page.document import compress_json, for_script, page_html
from needlemap.reports.page.summary import summary
from needlemap.reports.page.trials import trial_columns

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> {{script}} \"' & <!-- \u2028 "
    "\u202e"
)


UNSEEN = ("bdi", {"class": "unseen"})  # a letter made visible


class Elements(HTMLParser):
    """What a browser finds in the page: elements with attributes, and their text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self.open = -1
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

        self.open = len(self.found) - 1

    def handle_endtag(self, tag: str) -> None:
        self.open = -1

    def handle_data(self, data: str) -> None:
        self.texts[self.open] = self.texts.get(self.open, "") + data

    def text(self, tag: str, **attributes: str) -> str:
        """The text of the one such element."""
        (at,) = (
            at
            for at, (name, has) in enumerate(self.found)
            if name == tag and attributes.items() <= has.items() and (attributes or not has)
        )
        return self.texts[at]


def page_of(*runs: Loaded, **more: Any) -> str:
    trials = [compress_json(trial_columns(run.map)) for run in runs]
    return page_html(summary(runs, made=NOW, **more), trials)


def data_of(page: str, name: str) -> Any:
    text = Elements(page).text("script", type="application/octet-stream", id=name)
    return json.loads(gzip.decompress(b64decode(text)))


def texts_of(html: str) -> list[str]:
    """The texts of all cells of tables."""
    cells = re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", html)
    return [re.sub("<.*?>", "", cell) for cell in cells]


def test_it_holds_the_summary_and_the_trials_of_each_run(falling):
    page = page_of(falling, falling)
    whole = summary([falling, falling], made=NOW)
    assert data_of(page, "summary") == json.loads(json.dumps(for_script(whole)))
    assert data_of(page, "summary")["runs"][0]["says"] == whole["runs"][0]["says"]
    assert data_of(page, "trials-1") == trial_columns(falling.map)


def test_the_same_runs_give_the_same_bytes(falling):
    assert page_of(falling) == page_of(falling)
    assert compress_json({"a": 1})[4:8] == bytes(4)  # the compressor's clock


def test_it_allows_its_own_style_and_script_and_nothing_else(falling):
    elements = Elements(page_of(falling))
    (policy,) = (
        has["content"]
        for _, has in elements.found
        if has.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        digest = b64encode(sha256(elements.text(tag).encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert (
        rules["default-src"]
        == rules["connect-src"]
        == rules["base-uri"]
        == rules["form-action"]
        == "'none'"
    )


def test_it_fetches_nothing_and_has_no_handlers_or_styles_in_its_elements(falling):
    for _, has in Elements(page_of(falling)).found:
        assert not [name for name in has if name.startswith("on") or name == "style"]
        assert not str(has.get("src", "data:")).startswith(("http", "//", "file"))
        assert str(has.get("href", "#")).startswith(("#", "data:"))


@pytest.mark.parametrize("where", ["model", "task", "title", "path", "stored"])
def test_a_hostile_name_cannot_break_out(make_run, make_record, where):
    answer = make_record(answer=HOSTILE, question=HOSTILE, error=HOSTILE, finish=HOSTILE)
    names = {where: HOSTILE} if where in ("model", "task") else {}
    run = make_run(
        [answer],
        HOSTILE if where == "path" else "a",
        **names,
        title=HOSTILE if where == "stored" else None,
    )
    plain = page_of(make_run([make_record()], "a"))
    page = page_of(run, title=HOSTILE if where == "title" else None)
    made = [each for each in Elements(page).found if each != UNSEEN]
    assert [tag for tag, _ in made] == [tag for tag, _ in Elements(plain).found]
    assert Elements(page).text("script") == Elements(plain).text("script")
    strings = data_of(page, "trials-0")["strings"]
    assert HOSTILE in strings


def test_every_script_is_in_the_page_and_none_can_end_early(falling):
    folder = Path(document.__file__).parent
    written = sorted(file.name for file in folder.glob("*.js"))
    assert sorted(f"{name}.js" for name in document.SCRIPTS) == written
    script = Elements(page_of(falling)).text("script")
    assert not re.search(r"</script|<!--", script, re.IGNORECASE)


def test_without_scripts_there_is_a_table_of_each_run(falling):
    page = page_of(falling)
    (run,) = re.findall(r'<section id="run-0" .*?</section>', page, re.S)
    assert "<h2>openai/m</h2>" in run
    cells = texts_of(run)
    at = cells.index("1k")
    assert cells[at - 1 : at + 6] == ["", "1k", "4k", "16k", "0 %", "100.0 (5)", "100.0 (6)"]
    line = summary([falling], made=NOW)["runs"][0]["lines"][0]
    assert f"<li>{line}</li>" in run


def test_a_text_in_a_table_is_text_and_what_cannot_be_seen_is_shown(make_run, make_record):
    lost = make_record(score=None, scorer=None, failure="server error", error="<b>\x1b\u202e\u200d")
    page = page_of(make_run([lost]))
    said = '&lt;b&gt;<bdi class="unseen">U+001B</bdi><bdi class="unseen">U+202E</bdi>\u200d'
    assert f'<div class="prose" dir="auto">{said}</div>' in page


def test_settings_say_who_has_which_value_and_mark_what_differs(make_run, make_record):
    seeds = {"a": 0, "b": 1, "c": 0, "d": 0, "e": 0}
    runs = [
        make_run([make_record()], f"runs/{name}", seed=seed, repeats=6)
        for name, seed in seeds.items()
    ]
    settings = page_of(*runs).partition("<h2>Settings</h2>")[2].partition("</details>")[0]
    found = {tuple(texts_of(row)): row for row in re.findall(r"<tr .*?</tr>", settings)}
    most = found["≠ • seed", "0", "4 of 5: openai/m@a, openai/m@c, openai/m@d, …"]
    assert 'class="differs changed"' in most
    assert ("≠ • seed", "1", "1 of 5: openai/m@b") in found
    assert 'class="changed"' in found["• repeats", "6", "all"]


def test_where_lengths_have_depths_of_their_own_the_table_is_a_list(make_run, make_record):
    places = [
        (1000 * (at + 1), (7 * at + 3 * part) % 97 / 97) for at in range(6) for part in range(5)
    ]
    page = page_of(make_run([make_record(length, depth) for length, depth in places]))
    cells = texts_of(page)
    at = cells.index("Score (n)")
    assert cells[at + 1 : at + 4] == ["1k", "0 %", "100.0 (1)"]
