"""The page in a real Firefox: it is drawn and can be walked. Chromium's tests have the details."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long
NAMES = ("firefox-esr", "firefox")
START_S = 90
THEME = """
const menu = document.querySelector("#theme");
menu.value = "{}";
menu.dispatchEvent(new Event("change"));
"""
LOOK = """
const count = (selector) => document.querySelectorAll(selector).length;
return {
    title: document.querySelector("h1").innerText,
    cells: count("#grid [role=gridcell]"),
    curves: count("#sheet .chart text[font-weight=bold]"),
    sheet: !document.querySelector("#sheet").hidden,
    colours: new Set([...document.querySelectorAll("#grid .cell")].map((box) =>
        getComputedStyle(box).fill)).size,
    trial: document.querySelector("#trial").innerText,
    wide: document.documentElement.scrollWidth - innerWidth,
};
"""


class Firefox:
    """A browser told what to do by Marionette, its own protocol: JSON with its length before it."""

    def __init__(self, program: str, profile: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (profile / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
        self._process = subprocess.Popen(
            [program, "--headless", "--marionette", "--no-remote", "--profile", str(profile)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
        )
        self._socket = self._connected(port)
        self._read()  # who it is
        self.send("WebDriver:NewSession", strictFileInteractability=False)
        self.send("WebDriver:SetWindowRect", width=1400, height=1000)

    def send(self, command: str, **parameters: Any) -> Any:
        text = json.dumps([0, 1, command, parameters]).encode()
        self._socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, result = self._read()
        assert error is None, error
        return result

    def open(self, page: Path) -> None:
        self.send("WebDriver:Navigate", url=page.resolve().as_uri())
        self.wait("return !document.querySelector('#page').hidden")

    def run(self, script: str) -> Any:
        return self.send("WebDriver:ExecuteScript", script=script, args=[])["value"]

    def wait(self, script: str) -> None:
        until = time.monotonic() + START_S
        while not self.run(script):
            assert time.monotonic() < until, script
            time.sleep(0.1)

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(timeout=60)

    def _connected(self, port: int) -> socket.socket:
        until = time.monotonic() + START_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=START_S)
            except OSError:
                assert time.monotonic() < until, "Firefox does not answer."
                time.sleep(0.2)

    def _read(self) -> Any:
        size = b""
        while not size.endswith(b":"):
            size += self._socket.recv(1)
        data = b""
        while len(data) < int(size[:-1]):
            data += self._socket.recv(65536)
        return json.loads(data)


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    """Firefox as it is installed, in a profile of its own."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Firefox: apt-get install firefox-esr")
    started = Firefox(program, tmp_path_factory.mktemp("firefox"))
    yield started
    started.close()


def test_a_run_is_drawn_and_a_cell_opens(firefox, plain):
    firefox.open(plain)
    # An element of SVG has no click().
    event = "new MouseEvent('click', {bubbles: true})"
    firefox.run(f"document.querySelector(\"#grid [data-cell='7']\").dispatchEvent({event})")
    firefox.wait("return document.querySelector('#trial').innerText")
    seen = firefox.run(LOOK)
    assert seen["title"] == "openai/plain"
    assert seen["cells"] == 20
    assert seen["colours"] >= 2
    assert "Question" in seen["trial"]
    assert seen["wide"] <= 0


def test_two_runs_open_with_their_difference_in_colours_of_the_theme(firefox, two):
    firefox.open(two)
    assert firefox.run(LOOK)["title"] == "openai/better against openai/plain"
    light = firefox.run(LOOK)["colours"]
    ground = "return getComputedStyle(document.querySelector('#grid .cell')).fill"
    before = firefox.run(ground)
    firefox.run(THEME.format("dark"))
    assert firefox.run(ground) != before
    assert firefox.run(LOOK)["colours"] == light
    firefox.run(THEME.format("auto"))


def test_several_runs_and_a_suite_open_with_their_sheet(firefox, three, suite):
    for page, curves in ((three, 3), (suite, 9)):
        firefox.open(page)
        seen = firefox.run(LOOK)
        assert (seen["sheet"], seen["curves"]) == (True, curves)
        assert seen["wide"] <= 0
        firefox.run("document.querySelector('#sheet .link').click()")
        assert firefox.run(LOOK)["cells"] > 0


def test_what_a_check_and_a_storm_found_opens_with_the_answer(firefox, check, storm):
    for page, answer in ((check, "! SUSPECT length"), (storm, "✗ FAIL")):
        firefox.open(page)
        said = firefox.run("return document.querySelector('#answer').innerText")
        assert said.startswith(answer)
        assert firefox.run(LOOK)["wide"] <= 0
