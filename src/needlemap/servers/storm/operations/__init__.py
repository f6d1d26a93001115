"""All operations of a storm. An addition is one file, named here."""

from needlemap.servers.storm.operation import Operation
from needlemap.servers.storm.operations.again import Again
from needlemap.servers.storm.operations.burst import Burst
from needlemap.servers.storm.operations.cancel import Cancel
from needlemap.servers.storm.operations.flood import Flood
from needlemap.servers.storm.operations.fork import Fork
from needlemap.servers.storm.operations.fresh import Fresh
from needlemap.servers.storm.operations.long_answer import LongAnswer
from needlemap.servers.storm.operations.models import Models
from needlemap.servers.storm.operations.rewind import Rewind
from needlemap.servers.storm.operations.slots import Slots
from needlemap.servers.storm.operations.talk import Talk
from needlemap.servers.storm.operations.turn import GoOn

OPERATIONS: tuple[Operation, ...] = (
    *(Fresh(), Again(), GoOn(), Rewind(), Fork(), Cancel(), Burst(), LongAnswer(), Flood()),
    *(Talk(), Slots(), Models()),
)

__all__ = ["OPERATIONS"]
