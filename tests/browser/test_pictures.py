"""Pictures of the page as it looked when somebody last looked: a change of look is seen in review.

Small ones, so that letters of another machine's fonts do not matter. After a wanted change, look at
the page, then: NEEDLEMAP_PICTURES=write pytest tests/browser/test_pictures.py
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
KEPT = Path(__file__).parent / "pictures"
SMALL = 120  # pixels across
TOLERANCE = 0.035  # of the distance from black to white, on the whole; an unlike map is above 0.06
STATES = {
    "one": ("plain", {}),
    "one-dark": ("plain", {"color_scheme": "dark"}),
    "one-phone": ("plain", {"viewport": {"width": 400, "height": 800}}),
    "two": ("two", {}),
    "two-dark": ("two", {"color_scheme": "dark"}),
    "three": ("three", {}),
    "suite": ("suite", {}),
    "faulty": ("faulty", {}),
    "check": ("check", {}),
    "check-phone": ("check", {"viewport": {"width": 400, "height": 800}}),
    "ab": ("ab", {}),
    "storm": ("storm", {}),
}
SHRINK = """async ([picture, width]) => {
    const image = await createImageBitmap(await (await fetch(picture)).blob());
    const canvas = new OffscreenCanvas(width, Math.round(width * image.height / image.width));
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const bytes = new Uint8Array(await (await canvas.convertToBlob({type: "image/png"})).arrayBuffer());
    return btoa(String.fromCharCode(...bytes));
}"""  # noqa: E501
APART = """async (pictures) => {
    const [a, b] = await Promise.all(pictures.map(async (picture) => {
        const image = await createImageBitmap(await (await fetch(picture)).blob());
        const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
        context.drawImage(image, 0, 0);
        return context.getImageData(0, 0, image.width, image.height);
    }));
    if (a.width !== b.width || a.height !== b.height) return 1;
    const squares = a.data.reduce((sum, value, at) => sum + (value - b.data[at]) ** 2, 0);
    return Math.sqrt(squares / a.data.length) / 255;
}"""


@pytest.fixture(scope="module")
def desk(browser):
    """A blank page, in which pictures are made small and compared."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def as_address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def taken(page, desk) -> bytes:
    page.emulate_media(reduced_motion="reduce")
    return base64.b64decode(desk.evaluate(SHRINK, [as_address(page.screenshot()), SMALL]))


def apart(desk, one: bytes, other: bytes) -> float:
    return desk.evaluate(APART, [as_address(one), as_address(other)])


@pytest.mark.parametrize("state", STATES)
def test_it_looks_as_it_did(visit, desk, state, request, tmp_path):
    report, options = STATES[state]
    now = taken(visit(request.getfixturevalue(report), **options), desk)
    kept = KEPT / f"{state}.png"
    if os.environ.get("NEEDLEMAP_PICTURES") == "write":
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(now)
    (tmp_path / kept.name).write_bytes(now)
    found = apart(desk, now, kept.read_bytes())
    assert found <= TOLERANCE, f"{found:.3f} apart: look at {tmp_path / kept.name} and {kept}"


def test_another_look_is_seen(visit, desk, plain):
    page = visit(plain)
    kept = (KEPT / "one.png").read_bytes()
    page.select_option("#palette", "amber")
    assert apart(desk, taken(page, desk), kept) > TOLERANCE
    page.select_option("#palette", "viridis")
    page.evaluate("document.querySelector('#by-length').remove()")
    page.evaluate("document.querySelector('.more-of').remove()")
    assert apart(desk, taken(page, desk), kept) > TOLERANCE
