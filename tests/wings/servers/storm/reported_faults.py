"""Eight more state faults after public threads, written by somebody who had read those threads
and the engine, and no operation of `needlemap storm`. Each is an engine of its own; triggers and
rates are those of its thread.

`make_engine(name)` returns an engine with a fault of either file, or a sound one for "".
`python reported_faults.py --port 0 [--fault NAME]` serves it over HTTP.
"""

from __future__ import annotations

from typing import Any

from boxed_engine import BLANK, CHUNK, FAULTS, PAGE, Engine, Fault, Node, Page, Row, main

LONG, WINDOW, WARM = 1_024, 256, 150


class Handover(Engine):
    """Prefill hands pages over before they are written, more often with each request: 5 % wrong
    at first, 50 % behind 150 requests."""

    def admit(self, row: Row) -> None:
        super().admit(row)
        self.admitted = getattr(self, "admitted", 0) + 1
        share = 0.05 + 0.45 * min(1.0, self.admitted / WARM)
        row.twist = row.twist or ("late" if self.random.random() < share else "")

    def target(self, slot: int) -> list[str]:
        row, table = self.rows[slot], self.tables[slot]
        if row.twist == "late" and not row.answer and self.acts("handover"):
            for page in table[row.hit // PAGE : len(row.ids) // PAGE - 1]:
                page.rows = [BLANK] * PAGE
        return super().target(slot)


class Poisoned(Engine):
    """A prefill of more than 1,024 tokens leaves NaN in the state of its prefixes: whoever shares
    one afterwards gets exclamation marks until the server starts again. A salt helps."""

    def prefill(self) -> None:
        super().prefill()
        spoilt = self.__dict__.setdefault("spoilt", set())
        for row in self.rows:
            if row.computed >= len(row.ids) > LONG and row.computed - row.hit > LONG:
                chain = 0
                for at in range(0, len(row.ids) - PAGE, PAGE):
                    chain = hash((chain, tuple(row.ids[at : at + PAGE])))
                    spoilt.add(chain)

    def match(self, row: Row, table: list[Page]) -> None:
        super().match(row, table)
        first = hash((0, tuple(row.ids[:PAGE])))
        if table and first in getattr(self, "spoilt", ()) and self.acts("poisoned"):
            row.twist = "salad"


class Sliced(Engine):
    """A rotating cache is cut by its logical length between turns: a conversation that has grown
    beyond the window loses what stands before the window."""

    def match(self, row: Row, table: list[Page]) -> None:
        super().match(row, table)
        behind = len(table) - WINDOW // PAGE
        if behind > 0 and row.ids.count("assistant") > 1 and self.acts("sliced"):
            for number in range(behind):
                self.drop(table[number])
                table[number] = self.page()


class ThirdTier(Engine):
    """Pages of the host tier's older half stand in a third tier, which gives rows back in another
    layout."""

    def load(self, node: Node, key: tuple[str, ...]) -> Node | None:
        chain = hash((node.chain, key))
        older = list(self.host)[: len(self.host) // 2]
        made = super().load(node, key)
        if made is not None and chain in older and self.acts("third-tier"):
            made.page.rows = made.page.rows[PAGE // 2 :] + made.page.rows[: PAGE // 2]
        return made


class ReuseChunks(Engine):
    """A prompt with a reused prefix whose rest takes several chunks: the second chunk starts too
    late by what was reused of a chunk."""

    def prefill(self) -> None:
        before = [(slot, row.computed) for slot, row in enumerate(self.rows)]
        super().prefill()
        for slot, start in before:
            row = self.rows[slot]
            second = row.hit < start < row.computed and not row.gone and row.twist != "second"
            if row.hit % CHUNK and second and self.acts("reuse-chunks"):
                row.twist = "second"
                for position in range(start, min(start + row.hit % CHUNK, row.computed)):
                    self.write(slot, position, BLANK)


class DecodedRows(Engine):
    """The next turn begins at rows that decoding wrote, with the state of another step: what
    stood before them is lost. 16 of 288."""

    def match(self, row: Row, table: list[Page]) -> None:
        super().match(row, table)
        if row.behind_answer and self.acts("decoded-rows"):
            for number in range(len(table) - 1):
                self.drop(table[number])
                table[number] = self.page()


class Repeat(Engine):
    """A prompt that was asked before byte by byte: drafts of the earlier answer are accepted
    without being verified, and a token is skipped."""

    def admit(self, row: Row) -> None:
        seen = self.__dict__.setdefault("seen", set())
        key = tuple(row.ids)
        again = key in seen
        seen.add(key)
        super().admit(row)
        if again and row.hit and not row.twist and self.acts("repeat"):
            row.twist = "skipped"

    def target(self, slot: int) -> list[str]:
        tokens = super().target(slot)
        return tokens[:1] + tokens[2:] if self.rows[slot].twist == "skipped" else tokens


class FullCache(Engine):
    """At a full cache a row takes the count of another row, and with it what that row was about
    to write. 2 of 512."""

    def target(self, slot: int) -> list[str]:
        row = self.rows[slot]
        full = len(self.free) < self.capacity // 20
        others = [n for n, each in enumerate(self.rows) if n != slot]
        if full and others and not row.answer and not row.twist and self.acts("full-cache"):
            row.twist = "count"
        if row.twist == "count" and others:
            return super().target(others[0])
        return super().target(slot)


REPORTED: dict[str, tuple[Fault, type[Engine]]] = {
    fault.name: (fault, engine)
    for fault, engine in (
        (Fault("poisoned", "vllm#51039: NaN behind a long prefill until restart"), Poisoned),
        (Fault("sliced", "mlx-vlm#1715: a rotating cache sliced by logical length"), Sliced),
        (Fault("third-tier", "sglang#27504: loads of the third tier are garbled"), ThirdTier),
        (Fault("reuse-chunks", "TensorRT-LLM#12673: chunks behind reuse"), ReuseChunks),
        (Fault("handover", "sglang#23020: 95 % to 50 % over 150 requests"), Handover),
        (Fault("repeat", "vllm#50188: byte-identical repeats", 1 / 10), Repeat),
        (Fault("decoded-rows", "vllm#53912: rows that decoding wrote", 16 / 288), DecodedRows),
        (Fault("full-cache", "vllm-ascend#13863: 2 of 512 at full KV", 2 / 512), FullCache),
    )
}


def make_engine(name: str = "", **options: Any) -> Engine:
    """An engine with the fault `name`, of the engine's own or of those above; sound without."""
    if name in FAULTS or not name:
        return Engine(name, **options)
    fault, engine = REPORTED[name]
    return engine(fault, **options)


if __name__ == "__main__":
    main(make_engine, (*FAULTS, *REPORTED))
