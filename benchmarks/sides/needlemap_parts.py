"""needlemap's side of prompts.py: a whole grid from a cold start, through the parts that do the
work.

    python needlemap_parts.py FOLDER LENGTHS DEPTHS [PASSES]

Prints the bytes of all prompts; with PASSES also, as JSON, the CPU seconds of placing, of building
alone and of a plain copy of as many bytes, each pass measuring all three, in this one process.
"""

from __future__ import annotations

import sys
from time import process_time

from needlemap.grid import Depths, Lengths, make_grid
from needlemap.haystacks import Haystack, assemble
from needlemap.haystacks.folder import Folder
from needlemap.prompts import Prompt
from needlemap.prompts.placement import PromptBuilder
from needlemap.prompts.templates import make_frame, parse_template
from needlemap.tasks import Needle
from needlemap.tokenizers import Bundled

RESERVE_TOKENS = 200
NEEDLE = (
    "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny "
    "day.\n"
)
QUESTION = "What is the best thing to do in San Francisco?"
TEMPLATE = {
    "messages": [
        {
            "role": "system",
            "text": "Answer the user's question from the text. Be short and direct.",
        },
        {"role": "user", "text": "{haystack}"},
        {"role": "user", "text": "{question} Use nothing but the text above."},
    ]
}


class Side:
    """Everything that is done once: vocabulary, haystack, template; then prompts of any length and
    depth."""

    def __init__(self, folder: str, lengths: str, depths: str) -> None:
        self.tokenizer = Bundled("cl100k_base")
        grid = make_grid(Lengths.parse(lengths), Depths.parse(depths), depth_digits=0)
        self.cells = grid.cells
        longest = max(cell.length_tokens for cell in self.cells)
        self.haystack: Haystack = assemble(Folder(folder), self.tokenizer, longest, joined="text")
        self._builder = PromptBuilder(self.haystack, self.tokenizer, reserve_tokens=RESERVE_TOKENS)
        self._frame = make_frame(
            parse_template(TEMPLATE, "benchmark"), QUESTION, self.tokenizer.index
        )

    def build_prompts(self) -> list[Prompt]:
        """Every prompt as spans: needle placed, length exact."""
        return [
            self._builder.build(self._frame, [Needle(NEEDLE, cell.depth)], cell.length_tokens)
            for cell in self.cells
        ]


def build(prompts: list[Prompt]) -> int:
    """Every prompt's text, as bytes; how many they are."""
    size = 0
    for prompt in prompts:
        for message in prompt.messages:
            size += len(message.data)
    return size


def copy(data: bytes, sizes: list[int]) -> int:
    """As many bytes as the prompts have, copied plainly, prompt by prompt."""
    view, size = memoryview(data), 0
    for wanted in sizes:
        size += len(bytes(view[:wanted]))
    return size


def main() -> None:
    """Cold: all texts once. With PASSES: what the stages cost when everything is loaded."""
    folder, lengths, depths, *passes = sys.argv[1:]
    side = Side(folder, lengths, depths)
    prompts = side.build_prompts()
    size = build(prompts)
    if not passes:
        print(size)
        return
    sizes = [sum(len(message.data) for message in prompt.messages) for prompt in prompts]
    data = max((message.data for prompt in prompts for message in prompt.messages), key=len).ljust(
        max(sizes)
    )
    seconds: dict[str, list[float]] = {"place": [], "build": [], "copy": []}
    for _ in range(int(passes[0])):
        for stage, work in (
            ("place", side.build_prompts),
            ("build", lambda: build(prompts)),
            ("copy", lambda: copy(data, sizes)),
        ):
            start = process_time()
            done = work()
            seconds[stage].append(process_time() - start)
            if stage != "place" and done != size:
                raise RuntimeError(f"{stage} made {done} bytes, not {size}")
    import json

    print(json.dumps({"bytes": size, **seconds}))


if __name__ == "__main__":
    main()
