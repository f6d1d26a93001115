"""Let the replicas of a model answer as one model, several prompts at a time.

Each lane keeps to one replica, whose cache holds the lane's prefix. If a replica is lost, its
answers in flight are lost with it. Their prompts are sent to another replica, and a prompt that
lost three replicas is set aside. `cluster.py` starts replicas.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from needlemap.asking.session import check_price, options_of
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
from needlemap.models import LANE, Answer, Decoding, Model, find_backend
from needlemap.prompts import Prompt
from needlemap.text.tokens import TokenText

if TYPE_CHECKING:
    from distributed import Future

    from needlemap.settings import Settings

# How many replicas may be lost to one prompt.
MOST_DEATHS = 3
_LOOK_S = 0.5
# A lane whose replica was unused for so long counts as done, and another lane may take the replica.
_IDLE_S = 1.0
_CLOSING_S = 5.0


class Lost(Exception):
    """Raised for a replica that is gone, and its answers with it."""


@dataclass(eq=False, slots=True)
class Replica:
    """One copy of the model.

    Attributes:
        address: Of its Dask worker.
        name: Of its Dask worker.
        model: Its model, which Dask holds in the worker.
        slots: How many prompts it answers at a time.
        calls: The calls that it has not answered yet.
        is_gone: True once the worker is lost.
        open: How many prompts it answers now.
        is_alone: True while one prompt has it to itself.
        used_s: When its last prompt ended, or when it was loaded, on the monotonic clock.
        texts: The long texts that were sent to it; each is sent once.
    """

    address: str
    name: str
    model: Future[Any]
    slots: int
    calls: set[asyncio.Future[Any]] = field(default_factory=set)
    is_gone: bool = False
    open: int = 0
    is_alone: bool = False
    used_s: float = field(default_factory=time.monotonic)
    texts: WeakKeyDictionary[TokenText, asyncio.Task[Future[Any]]] = field(
        default_factory=WeakKeyDictionary
    )

    @property
    def has_room(self) -> bool:
        """Return True if the replica can take one more prompt."""
        return self.open < self.slots and not self.is_alone


class Replicas(Model):
    """Equal copies of one model.

    Attributes:
        replicas: How many copies are wanted.
        notes: What a copy reported of itself when it was loaded.
        side: As `notes`.
    """

    def __init__(self, recipe: Recipe, cluster: Cluster, slots: int) -> None:
        """Make copies in a cluster. slots: how many prompts each answers at a time."""
        self._recipe = recipe
        self._cluster = cluster
        self._slots = slots
        self.replicas = cluster.count or 1
        self._client: Any = None
        self._pool: dict[str, Replica] = {}
        # Tasks that load a model on a worker, by the worker's address.
        self._loading: dict[str, asyncio.Task[None]] = {}
        # Names of all workers that ever had the model.
        self._loaded = set[str]()
        # Each lane's own replica.
        self._homes: dict[int, Replica] = {}
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._show_state: Callable[[str], object] = str
        self._show_event: Callable[[str], object] = str
        self._problem: NeedlemapError | None = None

    async def open(
        self, most: int, show_state: Callable[[str], None], show_event: Callable[[str], None]
    ) -> None:
        """Wait until the first replica can answer.

        most: how many replicas have a prompt to answer. Raises NeedlemapError if there can be no
        replica.
        """
        self._show_state = show_state
        self._show_event = show_event
        if self._cluster.count is not None:
            # A later batch of prompts does not lower the number of replicas.
            earlier_count = 1 if self._watching is None else self.replicas
            self.replicas = min(self._cluster.count, max(most, earlier_count))
        if self._watching is not None:
            return
        for note in self._cluster.notes():
            show_event(f"note: {note}")
        self._client = await self._cluster.open()
        self._watching = asyncio.create_task(self._watch())
        while not self._pool:
            await self._wait_for_change(_LOOK_S)
        for note in self.notes:
            show_event(f"note: {note}")

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Return the answer of the lane's replica, or of another if it is gone.

        Raises Unmeasured.
        """
        return await self._answer(prompt, decoding, given_answer=None)

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """Return how likely the model finds a given answer.

        Raises Unmeasured if no replica returns an answer.
        """
        return await self._answer(prompt, decoding, given_answer=answer)

    async def close(self) -> None:
        """Close all copies of the model, and end what was started for them."""
        tasks = list(self._loading.values())
        if self._watching is not None:
            tasks.insert(0, self._watching)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        if self._client is not None:
            with suppress(Exception):
                async with asyncio.timeout(_CLOSING_S):
                    closing = [self._run(replica, let_go) for replica in self._pool.values()]
                    await asyncio.gather(*closing)
            self._pool.clear()
            self._homes.clear()
            with suppress(Exception):
                await self._client.close()
        await self._cluster.close()

    async def _answer(self, prompt: Prompt, decoding: Decoding, given_answer: str | None) -> Answer:
        data, texts = packed(prompt)
        losses = 0
        while True:
            # A prompt that lost a replica gets one to itself, so that it takes no other answer
            # with it.
            alone = losses > 0
            replica = await self._take(LANE.get(), alone=alone)
            try:
                keys = [await self._text_key(replica, text) for text in texts]
                result = await self._run(replica, ask, data, keys, decoding, given_answer)
            except Lost as error:
                losses += 1
                if losses == MOST_DEATHS:
                    raise Unmeasured(
                        Failure.REPLICA,
                        f"{losses} replicas were lost while they answered it, at last {error}",
                    ) from None
                continue
            finally:
                self._release(replica, alone=alone)
            if isinstance(result, NeedlemapError):
                raise result
            answer: Answer = result
            return answer

    async def _take(self, lane: int, *, alone: bool) -> Replica:
        """Wait for a replica with room, and return it with one more open prompt.

        alone: wait until it answers no other prompt.
        """
        replica = self._free_replica(lane)
        while replica is None:
            await self._wait_for_change(_IDLE_S)
            replica = self._free_replica(lane)

        self._homes[lane] = replica
        replica.open += 1
        replica.is_alone = alone
        try:
            while alone and replica.open > 1 and replica.address in self._pool:
                await self._wait_for_change(_IDLE_S)
        except BaseException:
            self._release(replica, alone=alone)
            raise
        return replica

    def _free_replica(self, lane: int) -> Replica | None:
        """Return the lane's own replica, one that no lane has, or one whose lane is done.

        Return None if all are busy.
        """
        home = self._homes.get(lane)
        if home is not None and home.has_room and home.address in self._pool:
            return home
        homes = list(self._homes.values())
        free_replicas = [replica for replica in self._pool.values() if replica.has_room]
        unclaimed = [replica for replica in free_replicas if homes.count(replica) < replica.slots]
        if unclaimed:
            return min(unclaimed, key=homes.count)
        idle_since_s = time.monotonic() - _IDLE_S
        for replica in free_replicas:
            if replica.used_s < idle_since_s:
                return replica
        return None

    def _release(self, replica: Replica, *, alone: bool) -> None:
        """Count one open prompt less. alone: True if the prompt had the replica to itself."""
        replica.open -= 1
        if alone:
            replica.is_alone = False
        replica.used_s = time.monotonic()
        self._changed.set()

    async def _wait_for_change(self, seconds: float) -> None:
        """Wait until something changes, or until the time ends.

        Raises NeedlemapError if there can be no replica.
        """
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        if self._problem is not None:
            raise self._problem

    async def _text_key(self, replica: Replica, text: TokenText) -> str:
        """Return the key of a text that a replica holds, after sending it once.

        Raises Lost if the replica is lost.
        """
        if text not in replica.texts:
            replica.texts[text] = asyncio.create_task(self._send_text(replica, text))
        future = await asyncio.shield(replica.texts[text])
        return str(future.key)

    async def _send_text(self, replica: Replica, text: TokenText) -> Future[Any]:
        call = self._client.scatter([text], workers=[replica.address], direct=False, hash=False)
        (future,) = await self._result_of(call, replica)
        return future

    async def _run(self, replica: Replica, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns in a replica. Raises Lost if the replica is gone."""
        call = self._client.run(function, replica.model.key, *arguments, workers=[replica.address])
        results = await self._result_of(call, replica)
        return results[replica.address]

    async def _result_of(self, call: Awaitable[Any], replica: Replica) -> Any:
        """Return the result of a call to a replica.

        Raises Lost as soon as the replica is known to be gone, because Dask would try to reach it
        for half a minute. If the worker lives after all, it loads its model again.
        """
        if replica.is_gone:
            raise Lost(replica.name)
        future = asyncio.ensure_future(call)
        replica.calls.add(future)
        try:
            return await future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not replica.is_gone or (task is not None and task.cancelling()):
                raise
            raise Lost(replica.name) from None
        except Exception as error:
            self._forget(replica.address)
            raise Lost(f"{replica.name} ({type(error).__name__}: {error})") from None
        finally:
            replica.calls.discard(future)

    def _forget(self, address: str) -> None:
        replica = self._pool.pop(address, None)
        if replica is not None:
            replica.is_gone = True
            for call in replica.calls:
                call.cancel()
        self._homes = {lane: home for lane, home in self._homes.items() if home is not replica}
        if address in self._loading:
            self._loading.pop(address).cancel()
        self._changed.set()

    async def _watch(self) -> None:
        """Load the model on new workers and keep enough of them, until the run is over."""
        try:
            while True:
                workers = await self._workers()
                for address in {*self._pool, *self._loading} - set(workers):
                    self._forget(address)
                for address in list(workers)[: self.replicas]:
                    if address not in self._pool and address not in self._loading:
                        loading = self._load(address, name=workers[address])
                        self._loading[address] = asyncio.create_task(loading)
                line, events = await self._cluster.keep(
                    self.replicas, self._loaded, alive=len(self._pool)
                )
                for event in events:
                    self._show_event(event)
                self._show_state(line)
                await asyncio.sleep(_LOOK_S)
        except NeedlemapError as error:
            self._problem = error
        except Exception as error:
            self._problem = NeedlemapError(f"The cluster is gone: {type(error).__name__}: {error}")
        self._changed.set()

    async def _workers(self) -> Mapping[str, str]:
        """Return the names of all workers by their addresses."""
        scheduler = await self._client.scheduler.identity(n_workers=-1)
        if self._cluster.count is None and not self._pool:
            self.replicas = max(1, len(scheduler["workers"]))
        return {address: str(worker["name"]) for address, worker in scheduler["workers"].items()}

    async def _load(self, address: str, name: str) -> None:
        """Load the model on a worker. An error in loading it ends the run."""
        try:
            model = self._client.submit(load, self._recipe, workers=[address], pure=False)
            replica_report: ReplicaReport = await self._client.submit(
                report, model, workers=[address], pure=False
            )
            if replica_report.problem:
                raise NeedlemapError(f"On {replica_report.host}: {replica_report.problem}")
        except NeedlemapError as error:
            self._problem = error
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            self._problem = NeedlemapError(f"Worker {name} cannot load the model: {words}")
        else:
            for attribute, value in replica_report.attributes.items():
                setattr(self, attribute, value)
            self._pool[address] = Replica(address, name, model=model, slots=self._slots)
            self._loaded.add(name)
            self._loading.pop(address, None)
        self._changed.set()


def make_replicas(settings: Settings, cluster: Cluster) -> Replicas:
    """Return copies of the model that the settings name, in a cluster.

    Raises SettingsError if the back end is unknown, or if dollars are limited and no price is
    known.
    """
    check_price(settings)
    options = options_of(settings)
    traits = find_backend(settings.backend).traits(settings.model_name, options)
    recipe = Recipe(
        settings.backend,
        settings.model_name,
        options=options,
        weights=traits.weights,
    )
    slots = 1 if traits.serial else settings.concurrency
    return Replicas(recipe, cluster, slots=slots)
