"""All operations of a storm. An addition is one file, named here."""

from needlemap.storm.operation import Operation
from needlemap.storm.operations.again import Again
from needlemap.storm.operations.burst import Burst
from needlemap.storm.operations.cancel import Cancel
from needlemap.storm.operations.flood import Flood
from needlemap.storm.operations.fork import Fork
from needlemap.storm.operations.fresh import Fresh
from needlemap.storm.operations.long_answer import LongAnswer
from needlemap.storm.operations.rewind import Rewind
from needlemap.storm.operations.turn import GoOn

OPERATIONS: tuple[Operation, ...] = (
    *(Fresh(), Again(), GoOn(), Rewind(), Fork(), Cancel(), Burst(), LongAnswer(), Flood()),
)

__all__ = ["OPERATIONS"]
