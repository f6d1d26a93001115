"""Compare requests of a storm with the same prompts sent alone, for models that find little.

It needs no right answer. It sends nothing: `storming` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

from needlemap.records.record import Record
from needlemap.servers.check.margins import steps_of
from needlemap.servers.ways import (
    ALONE,
    TOLERANCE,
    DataType,
    Move,
    WayReply,
    common_start,
    is_cold,
    limit_of,
    move_between,
)


@dataclass
class Equal:
    """What is known of how a server's log-probabilities move.

    Attributes:
        dtype: The data type that it computes in.
        noise: Moves between cold replies to the same prompts.
        alone: Prompts that were sent alone.
        held: Those of them of which a cache held too much all the same.
        unreported: Those of which the server does not say what a cache held.
        shared: Tokens that all prompts start with.
        texts: Compared pairs without log-probabilities.
    """

    dtype: DataType
    noise: list[Move] = field(default_factory=list)
    alone: int = 0
    held: int = 0
    unreported: int = 0
    shared: int = 0
    texts: int = 0

    @property
    def limit(self) -> float:
        """Return by how many nats an answer may move before it is in doubt."""
        return limit_of(self.noise, TOLERANCE[self.dtype])

    def compare(self, record: Record, alone: Record) -> Move | None:
        """Return how far an answer lies from that to the same prompt alone.

        If that prompt was not cold, or was another one, return None.
        """
        self.alone += 1
        self.unreported += alone.cached_tokens is None
        if not is_cold(alone.cached_tokens, alone.sent_tokens or 0, self.shared):
            self.held += 1
            return None
        if record.prompt is None or alone.prompt is None:
            return None
        if record.prompt.sha256 != alone.prompt.sha256:
            return None
        reply, yardstick = way_reply(record), way_reply(alone)
        self.texts += not (reply.steps and yardstick.steps)
        return move_between(reply, yardstick)

    def learn_start(self, alone: Sequence[Record]) -> None:
        """Note the tokens that all prompts start with.

        alone: the records of prompts that were sent alone for the first time.
        """
        self.shared = common_start([record.cached_tokens or 0 for record in alone])

    def learn_noise(self, record: Record, repeat: Record) -> Move | None:
        """Keep and return how far the answers to two cold requests of one prompt lie apart.

        If the two cannot be compared, return None.
        """
        move = self.compare(record, repeat)
        if move is not None and isfinite(move.nats):
            self.noise.append(move)
        return move


def way_reply(record: Record) -> WayReply:
    """Return an answer as the judge of ways takes it."""
    return WayReply(
        prompt=record.repeat,
        way=ALONE,
        text=record.answer or "",
        steps=steps_of(record),
    )
