"""Replicas of a model behind the `Model` protocol: one model that answers several prompts at a
time.

Each lane keeps to one replica, whose cache holds the lane's prefix. A replica that is lost costs
its answer in flight: the prompt is asked of another, and one that lost three is set aside. Who
starts replicas is in `cluster.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from needlemap.cluster.cluster import Cluster
from needlemap.cluster.replica import (
    Recipe,
    ReplicaReport,
    ask,
    let_go,
    load,
    packed,
    report,
)
from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.models import LANE, Answer, Decoding, Model
from needlemap.prompts import Prompt
from needlemap.text.tokens import TokenText

if TYPE_CHECKING:
    from distributed import Future

MOST_DEATHS = 3  # replicas that one prompt may take with it
_LOOK_S = 0.5
_IDLE_S = 1.0  # after which a replica's lane is believed to be done, so that another may have it
_CLOSING_S = 5.0


class Lost(Exception):
    """The replica is gone, and its answer with it."""


@dataclass(eq=False, slots=True)
class Replica:
    """One copy. held: its model, in Dask's hands. calls: under way to it. open: prompts that it
    answers now; alone: whether one wants it for itself. texts: what it has of the texts that travel
    once."""

    address: str
    name: str
    held: Future[Any]
    slots: int
    calls: set[asyncio.Future[Any]] = field(default_factory=set)
    gone: bool = False
    open: int = 0
    alone: bool = False
    used_s: float = field(default_factory=time.monotonic)
    texts: WeakKeyDictionary[TokenText, asyncio.Task[Future[Any]]] = field(
        default_factory=WeakKeyDictionary
    )

    @property
    def room(self) -> bool:
        """Whether it takes one more prompt."""
        return self.open < self.slots and not self.alone


class Replicas(Model):
    """Equal copies of one model. slots: prompts that each takes at a time.

    notes, side: what a copy knew of itself when it was loaded.
    """

    def __init__(self, recipe: Recipe, cluster: Cluster, slots: int) -> None:
        self._recipe, self._cluster, self._slots = recipe, cluster, slots
        self.replicas = cluster.count or 1
        self._client: Any = None
        self._pool: dict[str, Replica] = {}
        self._welcomes: dict[str, asyncio.Task[None]] = {}
        self._loaded = set[str]()  # names of all that ever were
        self._homes: dict[int, Replica] = {}
        self._changed = asyncio.Event()
        self._look: asyncio.Task[None] | None = None
        self._told: Callable[[str], object] = str
        self._said: Callable[[str], object] = str
        self._problem: NeedlemapError | None = None

    async def open(
        self, most: int, show_state: Callable[[str], None], show_event: Callable[[str], None]
    ) -> None:
        """Wait until a first replica is there.

        most: how many have something to do. Raises NeedlemapError when none can be had.
        """
        self._told, self._said = show_state, show_event
        if self._cluster.count is not None:
            self.replicas = min(self._cluster.count, max(most, self.replicas if self._look else 1))
        if self._look is not None:
            return
        for note in self._cluster.notes():
            show_event(f"note: {note}")
        self._client = await self._cluster.open()
        self._look = asyncio.create_task(self._watch())
        while not self._pool:
            await self._change(_LOOK_S)
        for note in self.notes:
            show_event(f"note: {note}")

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Ask the lane's replica, or another where it is gone. Raises Unmeasured."""
        return await self._ask(prompt, decoding, None)

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """How likely it finds a given answer. Raises Unmeasured."""
        return await self._ask(prompt, decoding, answer)

    async def close(self) -> None:
        """Let go of all models, and end what was started for them."""
        tasks = [each for each in (self._look, *self._welcomes.values()) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            with suppress(Exception):
                async with asyncio.timeout(_CLOSING_S):
                    await asyncio.gather(*(self._run(each, let_go) for each in self._pool.values()))
            self._pool.clear()
            self._homes.clear()
            with suppress(Exception):
                await self._client.close()
        await self._cluster.close()

    async def _ask(self, prompt: Prompt, decoding: Decoding, given: str | None) -> Answer:
        data, texts = packed(prompt)
        lost = 0
        while True:
            alone = lost > 0  # so that it takes no other answer with it
            replica = await self._taken(LANE.get(), alone=alone)
            try:
                keys = [await self._held(replica, text) for text in texts]
                said = await self._run(replica, ask, data, keys, decoding, given)
            except Lost as error:
                lost += 1
                if lost == MOST_DEATHS:
                    raise Unmeasured(
                        Failure.REPLICA,
                        f"{lost} replicas were lost while they answered it, at last {error}",
                    ) from None
                continue
            finally:
                self._left(replica, alone)
            if isinstance(said, NeedlemapError):
                raise said
            answer: Answer = said
            return answer

    async def _taken(self, lane: int, *, alone: bool) -> Replica:
        """A place at a replica: the lane's own, one that no lane has, or one whose lane is
        done."""
        while True:
            replica = self._free(lane)
            if replica is None:
                await self._change(_IDLE_S)
                continue
            self._homes[lane] = replica
            replica.open += 1
            replica.alone = alone
            try:
                while alone and replica.open > 1 and replica.address in self._pool:
                    await self._change(_IDLE_S)  # until those that it answers now are out of danger
            except BaseException:
                self._left(replica, alone)
                raise
            return replica

    def _free(self, lane: int) -> Replica | None:
        home = self._homes.get(lane)
        if home is not None and home.room and home.address in self._pool:
            return home
        homes = list(self._homes.values())
        free = [each for each in self._pool.values() if each.room]
        unclaimed = [each for each in free if homes.count(each) < each.slots]
        idle_since_s = time.monotonic() - _IDLE_S
        idle = [each for each in free if each.used_s < idle_since_s]
        return next(iter(sorted(unclaimed, key=homes.count) or idle), None)

    def _left(self, replica: Replica, alone: bool) -> None:
        replica.open -= 1
        replica.alone, replica.used_s = replica.alone and not alone, time.monotonic()
        self._changed.set()

    async def _change(self, seconds: float) -> None:
        """Until something changes, or for so long. Raises NeedlemapError when no replica can
        be had."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        if self._problem is not None:
            raise self._problem

    async def _held(self, replica: Replica, text: TokenText) -> str:
        """The key of a text that a replica holds; it is sent at most once. Raises Lost."""
        if text not in replica.texts:
            replica.texts[text] = asyncio.create_task(self._sent(replica, text))
        return str((await asyncio.shield(replica.texts[text])).key)

    async def _sent(self, replica: Replica, text: TokenText) -> Future[Any]:
        sending = self._client.scatter([text], workers=[replica.address], direct=False, hash=False)
        (sent,) = await self._reached(replica, sending)
        return sent

    async def _run(self, replica: Replica, function: Callable[..., Any], *given: Any) -> Any:
        """What a function of a replica returns. Raises Lost when the replica is gone."""
        said = await self._reached(
            replica, self._client.run(function, replica.held.key, *given, workers=[replica.address])
        )
        return said[replica.address]

    async def _reached(self, replica: Replica, call: Awaitable[Any]) -> Any:
        """What a call comes to. Raises Lost as soon as the replica is known to be gone: Dask
        would try to reach it for half a minute. Where it lives after all, it loads its model
        anew."""
        if replica.gone:
            raise Lost(replica.name)
        reaching = asyncio.ensure_future(call)
        replica.calls.add(reaching)
        try:
            return await reaching
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not replica.gone or (task is not None and task.cancelling()):
                raise
            raise Lost(replica.name) from None
        except Exception as error:
            self._forget(replica.address)
            raise Lost(f"{replica.name} ({type(error).__name__}: {error})") from None
        finally:
            replica.calls.discard(reaching)

    def _forget(self, address: str) -> None:
        replica = self._pool.pop(address, None)
        if replica is not None:
            replica.gone = True
            for call in replica.calls:
                call.cancel()
        self._homes = {lane: home for lane, home in self._homes.items() if home is not replica}
        if address in self._welcomes:
            self._welcomes.pop(address).cancel()
        self._changed.set()

    async def _watch(self) -> None:
        """See who is there, and to it that enough are, until the run is over."""
        try:
            while True:
                workers = await self._workers()
                for address in {*self._pool, *self._welcomes} - set(workers):
                    self._forget(address)
                for address in list(workers)[: self.replicas]:
                    if address not in self._pool and address not in self._welcomes:
                        self._welcomes[address] = asyncio.create_task(
                            self._welcome(address, workers[address])
                        )
                line, events = await self._cluster.keep(
                    self.replicas, self._loaded, len(self._pool)
                )
                for event in events:
                    self._said(event)
                self._told(line)
                await asyncio.sleep(_LOOK_S)
        except NeedlemapError as error:
            self._problem = error
        except Exception as error:
            self._problem = NeedlemapError(f"The cluster is gone: {type(error).__name__}: {error}")
        self._changed.set()

    async def _workers(self) -> Mapping[str, str]:
        """Addresses of the workers that are there, and their names."""
        scheduler = await self._client.scheduler.identity(n_workers=-1)
        if self._cluster.count is None and not self._pool:
            self.replicas = max(1, len(scheduler["workers"]))
        return {address: str(worker["name"]) for address, worker in scheduler["workers"].items()}

    async def _welcome(self, address: str, name: str) -> None:
        """Load the model there. An error in loading it ends the run."""
        try:
            held = self._client.submit(load, self._recipe, workers=[address], pure=False)
            found: ReplicaReport = await self._client.submit(
                report, held, workers=[address], pure=False
            )
            if found.problem:
                raise NeedlemapError(f"On {found.host}: {found.problem}")
        except NeedlemapError as error:
            self._problem = error
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            self._problem = NeedlemapError(f"Worker {name} cannot load the model: {words}")
        else:
            for what, value in found.told.items():
                setattr(self, what, value)
            self._pool[address] = Replica(address, name, held, self._slots)
            self._loaded.add(name)
            self._welcomes.pop(address, None)
        self._changed.set()
