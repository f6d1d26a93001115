"""The one loop that asks: what a strategy yields is asked, in its order, and what came of it is
what the `yield` returns. The path to the model is short."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import needlemap as package
from needlemap.asking import Outcome
from needlemap.asking.campaign import (
    Batch,
    Batches,
    Campaign,
    FullGrid,
    Release,
    RunObserver,
    Strategy,
)
from needlemap.asking.session import Session
from needlemap.asking.single import OpenFamily, Step, Steps
from needlemap.errors import NeedlemapError
from needlemap.models import Answer, Decoding, Model
from needlemap.models.baseline import Baseline
from needlemap.prompts import Prompt
from needlemap.records.folder import RunFolder
from needlemap.settings import Settings
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare
from needlemap.trials.resolve import resolve

SOURCE = str(Path(package.__file__).parent)
SMALL = {"model": "baseline/random", "lengths": "500", "depths": "0,100", "closed_book": False}
MOST_FRAMES = 10


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


def test_ten_of_our_frames_lead_from_the_command_to_the_model(
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
    assert {"Campaign.run", "Session.run", "call_model"} < set(frames)
    assert len(frames) <= MOST_FRAMES, frames


class TwoModels(Strategy[list[int]]):
    """Asks a family of one model, then one of another. Finds how many each scored."""

    def __init__(self, folder: Path) -> None:
        super().__init__(RunObserver(), [folder / name for name in "ab"])

    def batches(self) -> Batches[list[int]]:
        """The first batch alone, the second as a family."""
        settings = [configure(None, {**SMALL, "seed": seed}) for seed in (1, 2)]
        first, second = (prepare(each) for each in settings)
        one: Outcome = yield Batch("a", Session.open(first, self.folders[0]), "left")
        session = Session.open(second, self.folders[1])
        two = yield from FullGrid(session, self.observer, "b", "right").batches()
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
    campaign = Campaign({"left": closing, "right": closing})
    assert asyncio.run(campaign.run(TwoModels(tmp_path))) == [2, 2]
    assert sorted(campaign.models) == ["left", "right"]
    assert closed == ["closed", "closed"]


def test_what_was_scored_is_not_asked_again(tmp_path: Path) -> None:
    asyncio.run(Campaign().run(TwoModels(tmp_path)))

    session = Session.open(prepare(configure(None, {**SMALL, "seed": 2})), tmp_path / "b")
    assert asyncio.run(Campaign().run(FullGrid(session))) is None


def test_a_strategy_that_raises_ends_the_campaign_and_its_models(
    tmp_path: Path, closed: list[str]
) -> None:
    class Broken(TwoModels):
        def batches(self) -> Batches[list[int]]:
            yield Batch("a", Session.open(prepare(configure(None, SMALL)), self.folders[0]))
            raise NeedlemapError("nothing more")

    with pytest.raises(NeedlemapError, match="nothing more"):
        asyncio.run(Campaign({"": closing}).run(Broken(tmp_path)))
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


class AtOnce(Strategy[None]):
    """Three trials at the same time, of a family that stays open."""

    def batches(self) -> Batches[None]:
        resolved = resolve(configure(None, {**SMALL, "depths": "0,50,100"}))
        trials = prepare(resolved.settings).trials
        folder = RunFolder(self.folders[0])
        yield Steps([Step("a", trial, resolved, folder) for trial in trials], 3)


def test_a_trial_that_raises_ends_those_beside_it_before_their_folder_is_closed(
    tmp_path: Path,
) -> None:
    """The others went on, and would have written to a file that was closed."""
    model = OneFails("random")
    waiting = list[int]()

    async def ask() -> None:
        with pytest.raises(NeedlemapError, match="the model is gone"):
            await Campaign({"": lambda _: model}).run(AtOnce(RunObserver(), [tmp_path / "a"]))
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
    strategy = AtOnce(RunObserver(), [tmp_path / "a"])
    with pytest.raises(OSError, match="no space left"):
        asyncio.run(Campaign({"": closing}).run(strategy))
    assert closed == ["closed"]


@pytest.mark.usefixtures("closed")
def test_a_strategy_hears_what_ended_a_batch_and_may_go_on(tmp_path: Path) -> None:
    """One of several models cannot be made: the others are asked all the same."""

    class GoesOn(TwoModels):
        def batches(self) -> Batches[list[int]]:
            settings = configure(None, SMALL)
            with pytest.raises(NeedlemapError, match="no such model"):
                yield Batch("a", Session.open(prepare(settings), self.folders[0]), "broken")
            left = yield Batch("b", Session.open(prepare(settings), self.folders[1]), "left")
            return [left.scored]

    def broken(_: Settings) -> Model:
        raise NeedlemapError("no such model")

    campaign = Campaign({"left": closing, "broken": broken})
    assert asyncio.run(campaign.run(GoesOn(tmp_path))) == [2]


def test_a_model_that_is_released_is_closed_before_the_next_is_made(
    tmp_path: Path, closed: list[str]
) -> None:
    """Two models of one command need the memory of one."""

    def made(settings: Settings) -> Model:
        closed.append("made")
        return closing(settings)

    class OneByOne(TwoModels):
        def batches(self) -> Batches[list[int]]:
            for name, folder in zip("ab", self.folders, strict=True):
                yield Batch(name, Session.open(prepare(configure(None, SMALL)), folder), name)
                yield Release(name)
            return []

    asyncio.run(Campaign({"a": made, "b": made}).run(OneByOne(tmp_path)))
    assert closed == ["made", "closed", "made", "closed"]
