"""Replicas behind the Model protocol, as processes of this machine: who answers what, and who is
lost."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from needlemap import __version__
from needlemap.cluster import Processes, cluster, replica
from needlemap.cluster.cluster import Cluster, OwnCluster
from needlemap.cluster.pool import Replicas
from needlemap.cluster.replica import Recipe, packed, unpacked
from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.models import LANE, Decoding
from needlemap.prompts import Message, Prompt
from needlemap.tokenizers import load

pytest.importorskip("distributed", reason="needs distributed: python3 -m pip install '.[cluster]'")
# Dask leaves what it was connecting to a lost replica to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

FUNCTIONS = """
import os, signal, time
def who(messages):
    return f"{os.getpid()} {messages[-1]['content'][-20:]}"
def slow(messages):
    time.sleep(1.5)
    return who(messages)
def deadly(messages):
    if "die" in messages[-1]["content"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return who(messages)
def wrong(messages):
    raise ValueError("no such thing")
"""
Make = Callable[..., Replicas]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """make("who", count=2, slots=1): replicas of a function."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FUNCTIONS)

    def made(name: str, count: int = 2, slots: int = 1, **recipe: Any) -> Replicas:
        own = OwnCluster(Processes(tmp_path / "replicas", count), tmp_path / "replicas", count)
        return Replicas(Recipe("python", f"mine:{name}", {}, **recipe), own, slots)

    return made


def asked(
    replicas: Replicas, use: Callable[[], Awaitable[Any]], said: list[str] | None = None
) -> Any:
    """What comes of using replicas that are open."""

    async def whole() -> Any:
        try:
            await replicas.open(8, lambda _: None, (said if said is not None else []).append)
            return await use()
        finally:
            await replicas.close()

    return asyncio.run(whole())


async def lane(replicas: Replicas, number: int, *texts: str) -> list[str]:
    """The answers to prompts that one lane asks."""
    LANE.set(number)
    return [(await replicas.answer(prompt(text), Decoding())).text for text in texts]


def prompt(text: str) -> Prompt:
    tokens = load("cl100k_base").index(text.encode())
    return Prompt((Message("user", (tokens.span(),)),), tokens=len(tokens))


def living(replicas: Replicas) -> list[int]:
    """The process numbers of those that live."""
    children = replicas._cluster._jobs._children.values()  # type: ignore[attr-defined]
    return [child.pid for child in children if child.poll() is None]


def test_a_prompt_travels_without_its_long_texts_and_is_the_same_there():
    haystack = load("cl100k_base").index(b"The grass is green. " * 1000)
    question = load("cl100k_base").index(b"What is green?")
    whole = Prompt(
        (
            Message(
                "user",
                (haystack.span(0, 900), question.span(), haystack.span(950)),
            ),
        )
    )
    data, texts = packed(whole)
    assert texts == [haystack]
    assert len(data) < 2000
    again = unpacked(data, texts)
    assert again.sha256 == whole.sha256
    assert again.ids.tolist() == whole.ids.tolist()
    assert again.messages[0].spans[0].text is haystack


@pytest.mark.long
def test_each_lane_keeps_to_one_replica(make):
    replicas = make("who")

    async def use() -> list[list[str]]:
        while len(replicas._pool) < 2:
            await asyncio.sleep(0.1)
        return await asyncio.gather(*(lane(replicas, number, *"abcdefgh") for number in (0, 1)))

    first, second = asked(replicas, use)
    assert [text.split()[1] for text in first] == list("abcdefgh")
    who = {text.split()[0] for text in first}, {text.split()[0] for text in second}
    assert [len(each) for each in who] == [1, 1]
    assert who[0] != who[1]


def test_what_a_lost_replica_answered_is_asked_of_another_and_a_new_one_is_started(make):
    replicas, said = make("slow"), list[str]()

    async def use() -> str:
        question = asyncio.create_task(lane(replicas, 0, "x"))
        while not (busy := [each for each in replicas._pool.values() if each.open]):
            await asyncio.sleep(0.05)
        (pid,) = [
            pid
            for pid in living(replicas)
            if busy[0].name in Path(f"/proc/{pid}/environ").read_text()
        ]
        os.kill(pid, signal.SIGKILL)
        (text,) = await question
        assert text.split()[0] != str(pid)
        while len(replicas._pool) < 2:
            await asyncio.sleep(0.1)
        return busy[0].name

    lost = asked(replicas, use, said)
    assert said == [f"{lost}: killed by SIGKILL; log: {Path.cwd() / 'replicas' / lost}.log"]


@pytest.mark.long
def test_a_prompt_that_takes_three_replicas_with_it_is_set_aside_and_others_they_answered_are_not_blamed(  # noqa: E501
    make,
):
    replicas = make("deadly", count=1, slots=3)

    async def use() -> list[Any]:
        lanes = (
            lane(replicas, number, *texts) for number, texts in enumerate((["die"], "abc", "def"))
        )
        return await asyncio.gather(*lanes, return_exceptions=True)

    deadly, *others = asked(replicas, use)
    assert isinstance(deadly, Unmeasured)
    assert deadly.failure is Failure.REPLICA
    assert "3 replicas were lost while they answered it" in str(deadly)
    assert [[text.split()[1] for text in each] for each in others] == [list("abc"), list("def")]


def test_what_a_model_raises_there_is_raised_here(make):
    replicas = make("wrong", count=1)
    with pytest.raises(Unmeasured, match="mine:wrong: ValueError: no such thing") as caught:
        asked(replicas, lambda: lane(replicas, 0, "x"))
    assert caught.value.failure is Failure.MODEL


def test_what_a_replica_finds_wrong_ends_the_run_in_words(make):
    replicas = make("nowhere", count=1)
    with pytest.raises(NeedlemapError, match=r"On .*: .*'mine' has no 'nowhere'"):
        asked(replicas, lambda: lane(replicas, 0, "x"))


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"version": "0.0.1"}, f"needlemap is {__version__} there, and 0.0.1 here. Install one."),
        ({"weights": "other"}, "The files of 'mine:who' differ there from those here."),
    ],
)
def test_another_version_and_other_weights_are_wrong(tmp_path, monkeypatch, recipe, words):
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with patch.dict(sys.modules):  # the function's module is not the next test's
        held = replica.load(Recipe("python", "mine:who", {}, **recipe))
    assert (held.model, held.problem) == (None, words)


@pytest.mark.long
def test_replicas_that_end_before_they_load_are_not_started_for_ever(make, tmp_path):
    (tmp_path / "mine.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    replicas = make("who", count=1)
    with pytest.raises(
        NeedlemapError, match=r"Replicas end before their model is loaded. process-1.* SIGKILL"
    ):
        asked(replicas, lambda: lane(replicas, 0, "x"))


def test_closing_ends_the_processes_and_leaves_no_certificate(make, tmp_path):
    replicas, pids = make("who"), list[int]()

    async def use() -> None:
        (file,) = (tmp_path / "replicas").glob("connect-*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "PRIVATE KEY" in file.read_text()
        pids.extend(living(replicas))

    asked(replicas, use)
    assert len(pids) == 2
    assert not living(replicas)
    assert not list((tmp_path / "replicas").glob("connect-*"))


def test_nobody_without_the_runs_certificate_reaches_scheduler_or_replica_and_no_page_is_served(
    make,
):
    replicas = make("who", count=1)

    async def use() -> None:
        from distributed import Security
        from distributed.comm import connect

        scheduler = replicas._cluster._scheduler  # type: ignore[attr-defined]
        assert scheduler.services == {}
        (worker,) = replicas._pool
        for address in (scheduler.address, worker):
            assert address.startswith("tls://127.0.0.1:")
            stranger = Security.temporary().get_connection_args("client")
            with pytest.raises(OSError, match=r"(?i)certificate|timed out"):
                await connect(address, timeout=2, **stranger)
            with pytest.raises(OSError, match=r"(?i)closed|timed out"):
                await connect(address.replace("tls", "tcp"), timeout=2)

    asked(replicas, use)


def test_a_borrowed_clusters_workers_stay_and_its_model_is_let_go_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FUNCTIONS)

    async def whole() -> None:
        from distributed import LocalCluster

        options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1}
        options["dashboard_address"] = "127.0.0.1:0"  # any free port
        async with LocalCluster(processes=True, asynchronous=True, **options) as there:
            replicas = Replicas(
                Recipe("python", "mine:who", {}), Cluster(there.scheduler_address), 1
            )
            await replicas.open(8, lambda _: None, lambda _: None)
            assert replicas.replicas == 2
            assert await lane(replicas, 0, "x")
            before = set(there.scheduler.workers)
            await replicas.close()
            assert set(there.scheduler.workers) == before
            for _ in range(100):
                if not there.scheduler.tasks:
                    break
                await asyncio.sleep(0.05)
            assert not there.scheduler.tasks  # models and haystacks

    asyncio.run(whole())


def test_a_scheduler_that_is_not_there_is_said_in_words(monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT_S", 1)
    replicas = Replicas(Recipe("python", "mine:who", {}), Cluster("tcp://127.0.0.1:1"), 1)
    with pytest.raises(
        NeedlemapError, match=r"No Dask scheduler can be reached at 'tcp://127\.0\.0\.1:1'"
    ):
        asked(replicas, lambda: lane(replicas, 0, "x"))
