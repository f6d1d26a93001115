"""Where replies end in what a connection receives, and whether anything stands behind an end.

Bytes behind a reply are what the next request on that connection would be answered with. So the
reply is in doubt, and its connection is used no more. The HTTP library keeps such bytes for the
next reply; it is handed streams that look at them first.

A stray reply may also come while the next request is under way, and then nothing tells it from the
answer. So without TLS a connection serves one request: to make another takes less time than a
token. Under TLS, where it takes round trips, a connection serves many.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import h11
import httpcore
from httpcore import AsyncNetworkBackend, AsyncNetworkStream, NetworkBackend, NetworkStream

if TYPE_CHECKING:
    from httpx import AsyncClient, Client, Response

# A new server is listened to once, as a second reply may come late. After that a moment is enough
# for what was sent in one go, and costs no answer anything.
FIRST_LISTEN_S = 0.25
LISTEN_S = 0.002
_READ_BYTES = 65_536
# Events that end the bytes so far.
_PAUSES = (h11.NEED_DATA, h11.PAUSED)
# What a server sends as the body of these is taken for the next reply.
_NO_BODY = (204, 304)


class Manners:
    """What all connections of a client have shown about its server.

    Attributes:
        proved: Whether a connection was silent behind a reply for long enough.
        trusted: Whether no reply was in doubt so far, so that connections may be used again.
    """

    def __init__(self) -> None:
        self.proved, self.trusted = False, True

    @property
    def listen_s(self) -> float:
        """Return for how many seconds a connection is listened to after a reply."""
        return LISTEN_S if self.proved else FIRST_LISTEN_S


class Framing:
    """The replies of one connection.

    Attributes:
        doubt: Why the last one may not be the answer to what was sent; '' if nothing shows it.
        reusable: Whether the connection may be used again, as far as its replies show.
        listened_s: How long it was listened to behind the last reply.

    secure: whether it is under TLS.
    """

    def __init__(self, manners: Manners, *, secure: bool) -> None:
        self.doubt = ""
        self.reusable = True
        self.listened_s = 0.0
        self._manners = manners
        self._secure = secure
        # The reply that is being received.
        self._reply: h11.Connection | None = None

    def take_sent(self, data: bytes) -> None:
        """Take bytes that go out. The first ones behind a reply's end start a request."""
        method = data[:16].partition(b" ")[0]
        if self._reply is not None or not data or method == b"CONNECT":
            return
        self.doubt = ""
        self.listened_s = 0.0
        self._reply = h11.Connection(h11.CLIENT)
        self._reply.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        self._reply.send(h11.EndOfMessage())

    def take_received(self, data: bytes) -> bool:
        """Take bytes that came. Return True if a reply ended that leaves the connection open."""
        reply = self._reply
        if reply is None:
            return False
        try:
            reply.receive_data(data)
            while True:
                event = reply.next_event()
                if isinstance(event, h11.Response):
                    self._look_at(event)
                elif isinstance(event, h11.EndOfMessage):
                    self._reply = None
                    self.take_trailing(reply.trailing_data[0])
                    return bool(data) and reply.their_state is h11.DONE
                elif event in _PAUSES or isinstance(event, h11.ConnectionClosed):
                    return False
        except h11.RemoteProtocolError:
            # httpx reports what is wrong.
            self._reply = None
            self.reusable = False
            return False

    def take_trailing(self, behind: bytes) -> None:
        """Take bytes that stand behind a reply's end. If there are any, give the connection up."""
        self.reusable &= not behind
        # Empty lines are not a reply, so they cast no doubt on this one.
        if behind.strip(b"\r\n"):
            self._distrust("bytes stand behind its end")

    def _look_at(self, head: h11.Response) -> None:
        names = {name for name, _ in head.headers}
        self.reusable &= head.status_code not in _NO_BODY
        if {b"content-length", b"transfer-encoding"} <= names:
            self._distrust("its length is said in two ways")

    def _distrust(self, reason: str) -> None:
        self.doubt = reason
        self.reusable = False
        self._manners.trusted = False

    def take_heard(self, data: bytes | None, since_s: float) -> None:
        """Take what came while the connection was listened to behind a reply.

        data: None for silence, b'' for the connection's end.
        """
        self.listened_s = perf_counter() - since_s
        if data is None:
            self._manners.proved = True
        elif data:
            self.take_trailing(data)
        else:
            self.reusable = False

    @property
    def listen_s(self) -> float:
        """Return how long to listen behind the reply that has ended."""
        return self._manners.listen_s if self.reusable else 0.0

    @property
    def is_spent(self) -> bool:
        """Return True if the connection is not used again."""
        return not (self._secure and self.reusable and self._manners.trusted)


class WatchedStream(AsyncNetworkStream):
    """A connection of asynchronous code, with its framing."""

    def __init__(
        self, stream: AsyncNetworkStream, manners: Manners, *, secure: bool = False
    ) -> None:
        self._stream, self._manners = stream, manners
        self.framing = Framing(manners, secure=secure)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return bytes as they come in.

        The last ones of a reply are returned once its connection was listened to.
        """
        data = await self._stream.read(max_bytes, timeout)
        framing = self.framing
        if framing.take_received(data) and framing.listen_s:
            since_s = perf_counter()
            try:
                behind = await self._stream.read(_READ_BYTES, framing.listen_s)
            except httpcore.ReadTimeout:
                framing.take_heard(None, since_s)
            except httpcore.ReadError:
                framing.take_heard(b"", since_s)
            else:
                framing.take_heard(behind, since_s)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        self.framing.take_sent(buffer)
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **kwargs: Any) -> AsyncNetworkStream:
        """Return the same connection under TLS."""
        stream = await self._stream.start_tls(*args, **kwargs)
        return WatchedStream(stream, self._manners, secure=True)

    def get_extra_info(self, info: str) -> Any:
        """Return what the library asks of a connection.

        It asks an idle one whether it is readable, and closes it if so.
        """
        if info == "is_readable" and self.framing.is_spent:
            return True
        return self._stream.get_extra_info(info)


class SyncWatchedStream(NetworkStream):
    """A connection of code that waits, with its framing.

    It asks for counts, one after the other: what comes late is seen before the next, and nothing is
    listened for.
    """

    def __init__(self, stream: NetworkStream, manners: Manners, *, secure: bool = False) -> None:
        self._stream, self._manners = stream, manners
        self.framing = Framing(manners, secure=secure)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return bytes as they come in."""
        data = self._stream.read(max_bytes, timeout)
        self.framing.take_received(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        self.framing.take_sent(buffer)
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(self, *args: Any, **kwargs: Any) -> NetworkStream:
        """Return the same connection under TLS."""
        stream = self._stream.start_tls(*args, **kwargs)
        return SyncWatchedStream(stream, self._manners, secure=True)

    def get_extra_info(self, info: str) -> Any:
        """Return what the library asks of a connection, as `WatchedStream` does."""
        if info == "is_readable" and self.framing.is_spent:
            return True
        return self._stream.get_extra_info(info)


class WatchedBackend(AsyncNetworkBackend):
    """Makes connections of asynchronous code."""

    def __init__(self, backend: AsyncNetworkBackend, manners: Manners) -> None:
        self._backend, self._manners = backend, manners

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> AsyncNetworkStream:
        """Return a connection."""
        return WatchedStream(await self._backend.connect_tcp(*args, **kwargs), self._manners)

    async def sleep(self, seconds: float) -> None:
        """Sleep between two attempts."""
        await self._backend.sleep(seconds)


class SyncWatchedBackend(NetworkBackend):
    """Makes connections of code that waits."""

    def __init__(self, backend: NetworkBackend, manners: Manners) -> None:
        self._backend, self._manners = backend, manners

    def connect_tcp(self, *args: Any, **kwargs: Any) -> NetworkStream:
        """Return a connection."""
        return SyncWatchedStream(self._backend.connect_tcp(*args, **kwargs), self._manners)


def watch(client: AsyncClient | Client) -> None:
    """Let a client's later connections look for bytes after the end of a reply.

    All connections of the client share what they learn about the server, those through proxies
    too. httpx offers no way to do this, so the network backends of its pools are replaced before
    they make a connection.
    """
    manners = Manners()
    for transport in (client._transport, *client._mounts.values()):
        # Addresses that go past a proxy have no transport of their own.
        if transport is None:
            continue

        pool = transport._pool
        if isinstance(pool._network_backend, NetworkBackend):
            pool._network_backend = SyncWatchedBackend(pool._network_backend, manners)
        else:
            pool._network_backend = WatchedBackend(pool._network_backend, manners)


def framing_of(response: Response) -> Framing:
    """Return the framing of the connection that a reply came by."""
    framing: Framing = response.extensions["network_stream"].framing
    return framing
