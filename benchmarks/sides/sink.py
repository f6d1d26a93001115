"""A server that answers every chat request at once and keeps nothing of it: python sink.py

Prints its port as its first line. GET /count tells how many requests came, and how many bytes they
had.
"""

from __future__ import annotations

import asyncio
import json

WORD = "zorvex"  # what it says
ANSWER = {
    "id": "sink",
    "object": "chat.completion",
    "created": 0,
    "model": "sink",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": WORD}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class Sink:
    """What came in so far."""

    def __init__(self) -> None:
        self.requests = self.bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until the client hangs up."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                await self._discard(reader, int(lines.get("content-length", 0)))
                counted = head.startswith("get ")
                self.requests += not counted
                data = json.dumps(vars(self) if counted else ANSWER).encode()
                writer.write(
                    (
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
                        b"%d\r\n\r\n%b"
                    )
                    % (len(data), data)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _discard(self, reader: asyncio.StreamReader, length: int) -> None:
        while length:
            piece = await reader.read(min(length, 1 << 16))
            if not piece:
                raise ConnectionError
            length -= len(piece)
            self.bytes += len(piece)


async def main() -> None:
    """Listen on loopback until killed."""
    server = await asyncio.start_server(Sink().serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
