"""A campaign asks what a strategy awaits, in its order, and returns how that ended. The path to
the model is short."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import needlemap as package
from needlemap.asking.campaign import Campaign, FullGrid, MakeModel
from needlemap.asking.session import Session
from needlemap.asking.single import OpenFamily, Step
from needlemap.errors import NeedlemapError
from needlemap.models import Answer, Decoding, Model
from needlemap.models.baseline import Baseline
from needlemap.prompts import Prompt
from needlemap.records.folder import RunFolder
from needlemap.settings import Settings
from needlemap.settings.reading import configure
from needlemap.trials.build import Experiment, prepare
from needlemap.trials.resolve import resolve

SOURCE = str(Path(package.__file__).parent)
SMALL = {"model": "baseline/random", "lengths": "500", "depths": "0,100", "closed_book": False}
# Four of them are of strategies: models in turn, one model, its families, a family.
MOST_FRAMES = 14


def frames_here() -> list[str]:
    """Our functions between the program's start and the caller, those that wait among them."""
    frame: FrameType | None = sys._getframe(1)
    stack = list[str]()
    while frame is not None:
        if frame.f_code.co_filename.startswith(SOURCE):
            stack.append(frame.f_code.co_qualname)
        frame = frame.f_back
    waiting = list[str]()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        waits: Any = task.get_coro()
        while waits is not None and hasattr(waits, "cr_frame"):
            if waits.cr_frame and waits.cr_frame.f_code.co_filename.startswith(SOURCE):
                waiting.append(waits.cr_frame.f_code.co_qualname)
            waits = waits.cr_await
    return [*stack[::-1], *waiting]


def test_few_of_our_frames_lead_from_the_command_to_the_model(
    needlemap: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[list[str]]()

    async def answer(*_: Any) -> Answer:
        found.append(frames_here())
        return Answer("x")

    monkeypatch.setattr(Baseline, "answer", answer)
    small = ("--model", "baseline/random", "--lengths", "500", "--depths", "0")
    needlemap("run", *small, "-o", "r", "--quiet")
    frames = found[0][found[0].index("run") :]  # behind the parsing of flags
    assert {"Campaign.ask", "Session.run", "call_model"} < set(frames)
    assert len(frames) <= MOST_FRAMES, frames


def small(seed: int = 0) -> Experiment:
    return prepare(configure(None, {**SMALL, "seed": seed}))


async def ask_two_models(campaign: Campaign, folder: Path) -> list[int]:
    """Ask a batch of one model, then a family of another; how many each scored."""
    async with campaign:
        one = await campaign.ask(Session.open(small(1), folder / "a"), "a", "left")
        two = await FullGrid(Session.open(small(2), folder / "b")).ask(campaign, "b", "right")
        assert two is not None
        return [one.scored, two.scored]


class Closing(Baseline):
    """Tells when it is closed."""

    closed: list[str]

    async def close(self) -> None:
        self.closed.append("closed")


@pytest.fixture
def closed() -> list[str]:
    Closing.closed = []
    return Closing.closed


def closing(settings: Settings) -> Model:
    return Closing(settings.model_name)


def test_a_strategy_hears_how_each_of_its_batches_ended(tmp_path: Path, closed: list[str]) -> None:
    campaign = Campaign(make={"left": closing, "right": closing})
    assert asyncio.run(ask_two_models(campaign, tmp_path)) == [2, 2]
    assert sorted(campaign.models) == ["left", "right"]
    assert closed == ["closed", "closed"]


def test_what_was_scored_is_not_asked_again(tmp_path: Path) -> None:
    asyncio.run(ask_two_models(Campaign(), tmp_path))
    family = FullGrid(Session.open(small(2), tmp_path / "b"))
    assert asyncio.run(family.ask(Campaign())) is None


def test_a_strategy_that_raises_ends_the_campaign_and_its_models(
    tmp_path: Path, closed: list[str]
) -> None:
    async def broken() -> None:
        async with Campaign(make={"": closing}) as campaign:
            await campaign.ask(Session.open(small(), tmp_path))
            raise NeedlemapError("nothing more")

    with pytest.raises(NeedlemapError, match="nothing more"):
        asyncio.run(broken())
    assert closed == ["closed"]


class OneFails(Baseline):
    """Cannot answer any more once two others wait for their answers, which never come."""

    waiting = 0

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        if self.waiting == 2:
            raise NeedlemapError("the model is gone")
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
        raise AssertionError


async def ask_at_once(make: MakeModel, folder: Path) -> None:
    """Ask three trials at the same time, of a family that stays open."""
    resolved = resolve(configure(None, {**SMALL, "depths": "0,50,100"}))
    trials = prepare(resolved.settings).trials
    steps = [Step("a", trial, resolved, RunFolder(folder)) for trial in trials]
    async with Campaign([folder], {"": make}) as campaign:
        await campaign.ask_together(steps, at_a_time=3)


def test_a_trial_that_raises_ends_those_beside_it_before_their_folder_is_closed(
    tmp_path: Path,
) -> None:
    """The others went on, and would have written to a file that was closed."""
    model = OneFails("random")
    waiting = list[int]()

    async def ask() -> None:
        with pytest.raises(NeedlemapError, match="the model is gone"):
            await ask_at_once(lambda _: model, tmp_path / "a")
        waiting.append(len(asyncio.all_tasks()) - 1)

    asyncio.run(ask())
    assert waiting == [0]
    assert model.waiting == 0


def test_a_folder_that_cannot_be_closed_keeps_no_model_open(
    tmp_path: Path, closed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(family: OpenFamily) -> None:
        close(family)
        raise OSError("no space left on device")

    close = OpenFamily.close
    monkeypatch.setattr(OpenFamily, "close", full)
    with pytest.raises(OSError, match="no space left"):
        asyncio.run(ask_at_once(closing, tmp_path / "a"))
    assert closed == ["closed"]


@pytest.mark.usefixtures("closed")
def test_a_strategy_hears_what_ended_a_batch_and_may_go_on(tmp_path: Path) -> None:
    """One of several models cannot be made: the others are asked all the same."""

    def broken(_: Settings) -> Model:
        raise NeedlemapError("no such model")

    async def goes_on() -> int:
        async with Campaign(make={"left": closing, "broken": broken}) as campaign:
            with pytest.raises(NeedlemapError, match="no such model"):
                await campaign.ask(Session.open(small(), tmp_path / "a"), "a", "broken")
            left = await campaign.ask(Session.open(small(), tmp_path / "b"), "b", "left")
            return left.scored

    assert asyncio.run(goes_on()) == 2


def test_a_strategy_that_is_cancelled_closes_its_models(tmp_path: Path, closed: list[str]) -> None:
    """Ctrl-C reaches a strategy where it awaits: what it holds is written, and models close."""

    class Waits(Closing):
        async def answer(self, *_: Any) -> Answer:
            waiting.set()
            await asyncio.Event().wait()
            raise AssertionError

    async def asked() -> None:
        try:
            async with Campaign(make={"": lambda _: Waits("random")}) as campaign:
                await campaign.ask(Session.open(small(), tmp_path))
        finally:
            closed.append("written")

    async def cancel() -> None:
        task = asyncio.create_task(asked())
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    waiting = asyncio.Event()
    asyncio.run(cancel())
    assert closed == ["closed", "written"]


def test_a_model_that_is_released_is_closed_before_the_next_is_made(
    tmp_path: Path, closed: list[str]
) -> None:
    """Two models of one command need the memory of one."""

    def made(settings: Settings) -> Model:
        closed.append("made")
        return closing(settings)

    async def one_by_one() -> None:
        async with Campaign(make={"a": made, "b": made}) as campaign:
            for name in "ab":
                await campaign.ask(Session.open(small(), tmp_path / name), name, name)
                await campaign.release(name)

    asyncio.run(one_by_one())
    assert closed == ["made", "closed", "made", "closed"]
