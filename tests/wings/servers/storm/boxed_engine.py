"""An inference engine in a box, without weights: pages, a radix tree of prefixes, chunked prefill,
a host tier, batches whose rows move, drafts that are verified. A page holds tokens as another
engine's holds keys and values; the answer is read from a request's pages, and nowhere else.

`Engine(fault)` has one of the state faults of `FAULTS`, each after a public thread; the lines are
ours. `python boxed_engine.py --port 0 [--fault NAME]` serves it over HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

PAGE, CHUNK, DRAFTS = 16, 64, 3
TOKENS = re.compile(r" ?[^\W\d]+|\d{1,3}|\s|[^\w\s]")
FACT = re.compile(r"locker code for ([A-Z]\w+) is (\d{12})")
ASKED = re.compile(r"locker code for ([A-Z]\w+)\?")
USER, ASSISTANT, END = "<user>", "<assistant>", "<end>"
BLANK = "~"


@dataclass(frozen=True)
class Fault:
    """A state fault. rate: how often it acts where its sequence is there."""

    name: str
    thread: str
    rate: float = 1.0


FAULTS = {
    fault.name: fault
    for fault in (
        # certain, given their sequence
        Fault("trim", "mlx-lm#1494: a longer cached prompt is used for a shorter one"),
        Fault("edge", "sglang#22819: a prefix of exactly one block"),
        Fault("hit-1-mod-64", "sglang#29633: first token NaN on a hit of 1 mod 64"),
        Fault("double-free", "sglang#23392: a cancelled request frees shared pages"),
        Fault("load-back", "sglang#38031: loaded back without a part of the index"),
        Fault("turn", "llama.cpp#26185: turn 2 answers another question"),
        Fault("zero-chunk", "sglang#22688: a chunk of length zero beside others"),
        Fault("stale-page", "LMCache#4385: an evicted page is still found"),
        Fault("shared-write", "vllm-ascend#13863: two rows write one page"),
        Fault("cancelled-slot", "sglang#23392: the retry begins where the first one stood"),
        # now and then, given it
        Fault("moved-row", "vllm#53912: a row moves and its table stays", 1 / 5),
        Fault("rewound", "vllm#43559: rewound conversations see what came later", 1 / 5),
        Fault("host-hash", "Mooncake#4153: a partial hash of the host tier hits", 1 / 10),
        Fault("endless", "vllm#47087: deep conversations never end", 1 / 10),
        Fault("swap", "TensorRT-LLM#8813: two replies of one step are swapped", 1 / 20),
        # seldom
        Fault("draft-count", "vllm#51571: another row's count of accepted drafts", 1 / 50),
        Fault("chunk-race", "ik_llama.cpp#2083: a chunk is written to a neighbour", 1 / 100),
        Fault("salad", "vllm#42426: exclamation marks when the cache is nearly full", 1 / 50),
        Fault("empty", "mlx-vlm#2162: an answer ends at once beside others", 1 / 100),
        Fault("other-reply", "vllm#52617: a full hit answers with another's state", 1 / 200),
    )
}


@dataclass(eq=False)
class Page:
    """Rows of a request, or of several that share them."""

    rows: list[str] = field(default_factory=lambda: [BLANK] * PAGE)
    refs: int = 0


@dataclass(eq=False)
class Node:
    """A page in the tree, under the tokens that it was computed for."""

    key: tuple[str, ...]
    page: Page
    chain: int
    parent: Node | None = None
    children: dict[tuple[str, ...], Node] = field(default_factory=dict)
    used: int = 0
    decoded: bool = False


@dataclass(eq=False)
class Row:
    """A request in the batch. ids: its prompt. computed: how many of them have rows; hit: how many
    were found in the tree. done: gets the answer."""

    ids: list[str]
    budget: int
    done: asyncio.Future[tuple[str, str, int]]
    computed: int = 0
    hit: int = 0
    behind_answer: bool = False
    answer: list[str] = field(default_factory=list)
    ends: bool = False
    gone: bool = False
    twist: str = ""


class Engine:
    """Answers several requests at a time. pages: of the device; host: pages of the host tier, 0 for
    none. cache: whether prefixes are kept. step_s: how long a step takes at least."""

    def __init__(
        self,
        fault: str | Fault = "",
        *,
        pages: int = 1_200,
        host: int = 2_000,
        slots: int = 8,
        cache: bool = True,
        step_s: float = 0.0,
        noise: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.fault = fault if isinstance(fault, Fault) else FAULTS[fault] if fault else None
        name = self.fault.name if self.fault else ""
        self.free = [Page() for _ in range(pages)]
        self.capacity, self.most_host, self.slots, self.cache = pages, host, slots, cache
        self.step_s, self.noise, self.random = step_s, noise, Random(f"{name}:{seed}")
        self.root = Node((), Page(), 0)
        self.nodes: list[Node] = []
        self.host: OrderedDict[int, list[str]] = OrderedDict()
        self.waiting: list[Row] = []
        self.rows: list[Row] = []
        self.tables: list[list[Page]] = []
        self.clock = 0
        self.left = 0  # tokens of the last request that was cancelled
        self.last_answer: list[str] = []
        self.task: asyncio.Task[None] | None = None

    def acts(self, name: str) -> bool:
        """Whether the engine has that fault, and it acts now."""
        fault = self.fault
        return fault is not None and fault.name == name and self.random.random() < fault.rate

    async def answer(
        self, messages: list[tuple[str, str]], budget: int
    ) -> tuple[str, str, int, int]:
        """Text, finish, prompt tokens and cached tokens. Cancelled as its caller is."""
        text = "".join(f"<{role}>{said}{END}" for role, said in messages) + ASSISTANT
        row = Row(TOKENS.findall(text), budget, asyncio.get_running_loop().create_future())
        self.waiting.append(row)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self.run())
        try:
            said, finish, hit = await row.done
        except asyncio.CancelledError:
            row.gone = True
            raise
        return said, finish, len(row.ids), hit

    async def run(self) -> None:
        """Steps as long as there is anything to do."""
        while self.waiting or self.rows:
            self.step()
            await asyncio.sleep(self.step_s)

    def step(self) -> None:
        """One step: who is gone leaves, who waits comes, prompts are computed, answers written."""
        self.clock += 1
        for slot in reversed(range(len(self.rows))):
            if self.rows[slot].gone:
                self.cancel(slot)
        self.waiting = [row for row in self.waiting if not row.gone]
        while self.waiting and len(self.rows) < self.slots and self.has_room(self.waiting[0]):
            self.admit(self.waiting.pop(0))
        self.prefill()
        self.decode()

    # pages

    def has_room(self, row: Row) -> bool:
        """Whether a request's pages can be had."""
        wanted = (len(row.ids) + row.budget) // PAGE + 2
        held = sum(page.refs > 0 for table in self.tables for page in table)
        return not self.rows or held + wanted < self.capacity

    def page(self) -> Page:
        """A free page; the longest unused of the tree, where there is none."""
        while not self.free:
            self.evict()
        page = self.free.pop(0)
        page.refs = 1
        page.rows = [BLANK] * PAGE
        return page

    def evict(self) -> None:
        """The longest unused leaf goes to the host."""
        leaves = [node for node in self.nodes if not node.children and node.page.refs <= 1]
        if not leaves:
            self.free.append(Page())
            return
        node = min(leaves, key=lambda each: each.used)
        if self.most_host:
            self.host[node.chain] = list(node.page.rows)
            while len(self.host) > self.most_host:
                self.host.popitem(last=False)
        self.nodes.remove(node)
        if self.acts("stale-page"):
            node.page.refs = 0
            self.free.append(node.page)
            return  # and the tree still knows it
        if node.parent is not None:
            node.parent.children.pop(node.key, None)
        self.drop(node.page)

    def drop(self, page: Page) -> None:
        """One that held it lets go."""
        page.refs -= 1
        if page.refs <= 0 and page not in self.free:
            page.refs = 0
            self.free.append(page)

    # prefixes

    def admit(self, row: Row) -> None:
        """Into the batch, with what is known of its prompt."""
        table: list[Page] = []
        if self.cache:
            self.match(row, table)
        stood = self.left
        if stood and self.acts("cancelled-slot"):
            row.computed = max(row.computed, min(stood, len(row.ids) - 1))
        self.left = 0
        self.rows.append(row)
        self.tables.append(table)
        if row.behind_answer and self.acts("turn"):
            row.twist = "turn"
        if row.behind_answer and row.ids.count("user") > 1 and self.acts("endless"):
            row.twist = "endless"

    def match(self, row: Row, table: list[Page]) -> None:
        """Share the pages of the longest known prefix, and copy a part of the next."""
        node, at, last = self.root, 0, len(row.ids) - 1
        while at + PAGE <= last:
            key = tuple(row.ids[at : at + PAGE])
            child = node.children.get(key) or self.load(node, key)
            if child is None:
                break
            node, at = child, at + PAGE
            node.used = self.clock
            node.page.refs += 1
            table.append(node.page)
            row.behind_answer |= node.decoded
        if at and at % 64 == 0 and self.acts("edge"):
            self.drop(table[-1])
            table[-1] = self.page()
        self.part_of(node, at, row, table)
        row.computed = row.hit = max(at, row.computed)
        full = row.computed >= last - PAGE
        if full and len(row.ids) % 64 == 1 and row.computed and self.acts("hit-1-mod-64"):
            row.twist = "salad"
        if full and row.computed and self.acts("other-reply"):
            row.twist = "other"

    def part_of(self, node: Node, at: int, row: Row, table: list[Page]) -> None:
        """The next page where its first tokens are known: copied, as another row may own it."""
        rest = row.ids[at : len(row.ids) - 1]
        best, most = None, 0
        for child in node.children.values():
            same = next(
                (n for n, (a, b) in enumerate(zip(child.key, rest, strict=False)) if a != b), None
            )
            same = min(len(rest), PAGE) if same is None else same
            if same > most:
                best, most = child, same
        if best is None or most < 4:
            return
        if self.acts("rewound") and len(rest) == most:
            row.twist = "rewound"
        if at and self.acts("shared-write"):
            best.page.refs += 1
            table.append(best.page)
            row.computed = at + most
            return
        rows = list(best.page.rows)  # before a page is had: that may evict this one
        page = self.page()
        page.rows = rows[:most] + [BLANK] * (PAGE - most)
        row.computed = at + most
        if at and len(rest) > PAGE and self.acts("trim"):
            page.rows = rows
            row.computed = at + PAGE
        table.append(page)

    def load(self, node: Node, key: tuple[str, ...]) -> Node | None:
        """A page of the host tier, back in the tree."""
        chain = hash((node.chain, key))
        rows = self.host.get(chain)
        if rows is None and len(self.host) > 8 and self.acts("host-hash"):
            rows = next(iter(self.host.values()))
        if rows is None:
            return None
        made = self.put_node(node, key, self.page())
        made.page.rows = list(rows)
        if self.acts("load-back"):
            made.page.rows[PAGE // 2 :] = [BLANK] * (PAGE // 2)
        return made

    def put_node(self, parent: Node, key: tuple[str, ...], page: Page) -> Node:
        """A page into the tree."""
        node = Node(key, page, hash((parent.chain, key)), parent, used=self.clock)
        parent.children[key] = node
        self.nodes.append(node)
        return node

    def keep(self, slot: int) -> None:
        """A finished request's full pages into the tree, those of its answer too."""
        row, table, node = self.rows[slot], self.tables[slot], self.root
        ids = row.ids + row.answer
        for number in range((len(ids) - 1) // PAGE):
            key = tuple(ids[number * PAGE : (number + 1) * PAGE])
            child = node.children.get(key)
            if child is None:
                if number >= len(table) or any(page is table[number] for page in self.free):
                    break
                table[number].refs += 1
                child = self.put_node(node, key, table[number])
                child.decoded = (number + 1) * PAGE > len(row.ids)
            node = child

    # work

    def write(self, slot: int, position: int, token: str) -> None:
        """A row of a token."""
        table = self.tables[slot]
        while len(table) <= position // PAGE:
            table.append(self.page())
        table[position // PAGE].rows[position % PAGE] = token

    def prefill(self) -> None:
        """A chunk of tokens, shared by those whose prompts are not computed yet."""
        left = CHUNK
        busy = [slot for slot, row in enumerate(self.rows) if row.computed < len(row.ids)]
        for slot in busy:
            row = self.rows[slot]
            count = min(left, len(row.ids) - row.computed)
            left -= count
            others = [each for each in busy if each != slot and self.tables[each]]
            if count and count <= PAGE and row.hit and others and self.acts("zero-chunk"):
                self.tables[slot] = self.tables[others[0]]
                for page in self.tables[slot]:
                    page.refs += 1
            target = slot
            if count and others and self.acts("chunk-race"):
                target = others[0]
            for number in range(count):
                position = row.computed + number
                spoilt = target != slot and position // PAGE < len(self.tables[target])
                self.write(target if spoilt else slot, position, row.ids[position])
                if spoilt:
                    self.write(slot, position, BLANK)
            row.computed += count

    def decode(self) -> None:
        """Some tokens for each row whose prompt is computed: drafts, verified."""
        ready = [slot for slot, row in enumerate(self.rows) if row.computed >= len(row.ids)]
        accepted: dict[int, int] = {}
        for slot in ready:
            row = self.rows[slot]
            target = self.target(slot)
            at = len(row.answer)
            wanted = target[at : at + DRAFTS + 1]
            drafts = [t if self.random.random() < 0.7 else f"{t}x" for t in wanted[:DRAFTS]]
            for number, token in enumerate(drafts):
                self.write(slot, len(row.ids) + at + number, token)
            good = 0
            while good < len(drafts) and drafts[good] == wanted[good]:
                good += 1
            accepted[slot] = good
            tokens = wanted[: good + 1]
            other = [accepted[each] for each in ready if each in accepted and each != slot]
            if other and max(other) > good and self.acts("draft-count"):
                tokens = drafts[: max(other)]
            for number, token in enumerate(tokens):
                self.write(slot, len(row.ids) + at + number, token)
            row.answer += tokens
            row.ends = at + len(tokens) >= len(target) or len(row.answer) >= row.budget
        ended = [slot for slot in ready if self.rows[slot].ends]
        if len(ended) > 1 and self.acts("swap"):
            one, two = self.rows[ended[0]], self.rows[ended[1]]
            one.answer, two.answer = two.answer, one.answer
        for slot in reversed(ended):
            self.finish(slot)

    def target(self, slot: int) -> list[str]:
        """What the pages say now."""
        row = self.rows[slot]
        table, size = self.tables[slot], len(row.ids)
        text = "".join("".join(page.rows) for page in table[: -(-size // PAGE)])
        said = answer_in(
            text, row.twist, Random(hash(text)).random() if self.noise else 1.0, self.noise
        )
        pressure = len(self.free) < self.capacity // 10
        if not row.answer and not row.twist:
            if pressure and self.acts("salad"):
                row.twist = "salad"
            elif len(self.rows) > 1 and self.acts("empty"):
                row.twist = "empty"
        if row.twist == "salad":
            return ["!"] * 40
        if row.twist == "empty":
            return []
        if row.twist == "other" and self.last_answer:
            return self.last_answer
        if row.twist == "endless":
            return TOKENS.findall(said + " and so on" * row.budget)[: row.budget]
        return TOKENS.findall(said)

    def finish(self, slot: int) -> None:
        """An answer is whole: it is said, kept, and its row leaves."""
        row = self.rows[slot]
        finish = "length" if len(row.answer) >= row.budget else "stop"
        if not row.done.done():
            row.done.set_result(("".join(row.answer).strip(), finish, row.hit))
        if self.cache:
            self.keep(slot)
        self.last_answer = list(row.answer)
        self.leave(slot)

    def cancel(self, slot: int) -> None:
        """A client went away."""
        row, table = self.rows[slot], self.tables[slot]
        if self.acts("double-free"):
            for page in table:
                page.refs = 0
                if page not in self.free:
                    self.free.insert(0, page)
            table.clear()
        self.left = row.computed
        self.leave(slot)

    def leave(self, slot: int) -> None:
        """A row leaves; the last one moves into its place."""
        table, last = self.tables[slot], len(self.rows) - 1
        moved = last != slot
        if moved:
            self.rows[slot] = self.rows[last]
            unfinished = self.rows[slot].computed < len(self.rows[slot].ids)
            if unfinished and self.acts("moved-row"):
                self.rows.pop()
                self.tables.pop()
                return
            self.tables[slot] = self.tables[last]
        self.rows.pop()
        self.tables.pop()
        for page in table:
            self.drop(page)


def answer_in(text: str, twist: str, drawn: float, noise: float) -> str:
    """What a reader says who sees this text: the codes that the last turn asks for."""
    turns = text.split(USER)
    asked = turns[-1]
    if twist in ("turn", "rewound") and len(turns) > 2:
        asked = turns[-2]
    if drawn < noise:
        return "I do not know."
    codes = dict(FACT.findall(text))
    keys = ASKED.findall(asked) or ASKED.findall(text)[-1:]
    return " ".join(f"{codes[key]}." if key in codes else "I do not know." for key in keys)


async def serve(engine: Engine, port: int) -> None:
    """The engine as an OpenAI server on loopback; its port is the first line that it prints."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                path, size = line.split()[1].decode(), 0
                while (head := await reader.readline()).strip():
                    name, _, value = head.partition(b":")
                    size = int(value) if name.lower() == b"content-length" else size
                body = await reader.readexactly(size)
                if not await reply(path, body, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def reply(path: str, body: bytes, reader: Any, writer: Any) -> bool:
        if path.endswith("/chat/completions"):
            asked = json.loads(body)
            rows = [(each["role"], each["content"]) for each in asked["messages"]]
            work = asyncio.create_task(engine.answer(rows, asked.get("max_tokens", 300)))
            watch = asyncio.create_task(reader.read(1))
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():  # the client went away
                work.cancel()
                return False
            watch.cancel()
            text, finish, tokens, hit = work.result()
            usage = {"prompt_tokens": tokens, "completion_tokens": len(TOKENS.findall(text))}
            usage["prompt_tokens_details"] = {"cached_tokens": hit}
            choice = {"index": 0, "message": {"role": "assistant", "content": text}}
            told = {
                "model": "box",
                "choices": [{**choice, "finish_reason": finish}],
                "usage": usage,
            }
        else:
            told = {"object": "list", "data": [{"id": "box", "object": "model"}]}
        data = json.dumps(told).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}"
        head += "\r\nconnection: close"
        writer.write(head.encode() + b"\r\n\r\n" + data)
        await writer.drain()
        return False

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def main(make: Callable[..., Engine] = Engine, faults: Iterable[str] = tuple(FAULTS)) -> None:
    """Parse and serve what `make` makes of a fault's name."""
    parser = argparse.ArgumentParser(description="An engine in a box.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *faults])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pages", type=int, default=1_200)
    parser.add_argument("--host-pages", type=int, default=2_000)
    options = parser.parse_args()
    sizes = {"pages": options.pages, "host": options.host_pages}
    asyncio.run(serve(make(options.fault, seed=options.seed, **sizes), options.port))


if __name__ == "__main__":
    main()
