"""What needlehaystack 0.1.0 does on a bad day: its own code, with a model of ours that answers
soon.

    python -m venv peer && peer/bin/pip install needlehaystack==0.1.0 'setuptools<80'
    peer/bin/python benchmarks/sides/needlehaystack_failures.py

Prints a line for each case: what happened. docs/internals/reliability.md sets it beside what
needlemap does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from typing import Any

TESTER = "needlehaystack.llm_needle_haystack_tester"
NEEDLE = " The code is 42."
GRID = {"context_lengths": [300, 400, 500, 600, 700], "document_depth_percents": [0, 30, 70, 100]}
PATIENCE_S = 20.0


class Model:
    """Answers soon; tokens are words. fails: numbers of the calls that raise."""

    def __init__(self, name: str = "m", fails: tuple[int, ...] = ()) -> None:
        self.model_name, self.fails, self.calls, self.words = name, fails, 0, list[str]()

    def generate_prompt(self, context: str, retrieval_question: str) -> str:
        """Both."""
        return context + retrieval_question

    async def evaluate_model(self, prompt: str) -> str:
        """The answer."""
        self.calls += 1
        await asyncio.sleep(0.02)
        if self.calls in self.fails:
            raise RuntimeError("429 Too Many Requests")
        return "42"

    def encode_text_to_tokens(self, text: str) -> list[int]:
        """A number a word, full stops apart."""
        words = text.replace(".", " .").split()
        self.words = sorted({*self.words, *words}, key=lambda word: (word not in self.words, word))
        places = {word: place for place, word in enumerate(self.words)}
        return [places[word] for word in words]

    def decode_tokens(self, tokens: list[int], context_length: int | None = None) -> str:
        """The words."""
        return " ".join(self.words[token] for token in tokens[:context_length])


class Judge:
    """Gives the same score always, or fails as the package's own judge does on '10' without
    brackets."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def evaluate_response(self, response: str) -> int:
        """A score."""
        if self.fails:
            raise ValueError("Invalid output: 10. Output must contain a double bracketed string")
        return 10


def ask(model: Model, judge: Judge | None = None, **more: Any) -> int:
    """Run the package's test here; the number of results it saved."""
    texts = Path("texts").resolve()
    if not texts.exists():
        texts.mkdir()
        (texts / "a.txt").write_text("All went well that day. Then it rained. " * 300)
    tester = import_module(TESTER).LLMNeedleHaystackTester
    given = (
        {"needle": NEEDLE, "haystack_dir": str(texts), "retrieval_question": "Which code?"}
        | GRID
        | more
    )
    tester(
        model, judge or Judge(), print_ongoing_status=False, save_contexts=False, **given
    ).start_test()
    return len(list(Path("results").glob("*.json")))


def one_call_fails() -> str:
    model = Model(fails=(6,))
    try:
        ask(model)
    except RuntimeError as error:
        return (
            f"{error}: the run is over, {len(list(Path('results').iterdir()))} of 20 results saved"
        )
    return "it went on"


def the_judge_says_it_otherwise() -> str:
    model = Model()
    try:
        ask(model, Judge(fails=True))
    except ValueError:
        return f"the run is over after {model.calls} paid call(s)"
    return "it went on"


def another_needle() -> str:
    ask(Model())
    again = Model()
    ask(again, needle=" The code is 43.")
    return f"{again.calls} calls for another needle: the old results stand for it"


def a_torn_result() -> str:
    ask(Model())
    file = sorted(Path("results").iterdir())[0]
    file.write_text(file.read_text()[:40])
    try:
        ask(Model())
    except json.JSONDecodeError as error:
        return f"JSONDecodeError ({error}) at every start from then on"
    return "it went on"


def a_model_with_a_slash() -> str:
    model = Model("org/model")
    try:
        ask(model)
    except FileNotFoundError:
        return f"FileNotFoundError after {model.calls} paid call(s)"
    return "it went on"


def two_near_depths() -> str:
    saved = ask(Model(), context_lengths=[300], document_depth_percents=[0.561, 0.562])
    again = Model()
    ask(again, context_lengths=[300], document_depth_percents=[0.561, 0.562])
    return f"{saved} of 2 results saved; {again.calls} asked again at every start"


def a_depth_outside() -> str:
    saved = ask(Model(), context_lengths=[300], document_depth_percents=[-20, 150])
    return f"depths -20 and 150 are taken: {saved} results"


def an_empty_haystack() -> str:
    Path("empty").mkdir()
    ask(Model(), haystack_dir=str(Path("empty").resolve()))
    return "it went on"


CASES: tuple[Callable[[], str], ...] = (
    one_call_fails,
    the_judge_says_it_otherwise,
    another_needle,
    a_torn_result,
    a_model_with_a_slash,
    two_near_depths,
    a_depth_outside,
    an_empty_haystack,
)


def in_a_folder(case: Callable[[], str], folder: str, said: Any) -> None:
    """One case in a process and a folder of its own."""
    os.chdir(folder)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    import_module(TESTER)  # its own imports take a while
    said.put("")
    said.put(case())


def main() -> None:
    """All cases."""
    processes = get_context("spawn")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            said = processes.Queue()
            process = processes.Process(target=in_a_folder, args=(case, folder, said))
            process.start()
            said.get()
            try:
                found = said.get(timeout=PATIENCE_S)
            except Empty:
                found = f"still busy after {PATIENCE_S:g} s" if process.is_alive() else "died"
            process.kill()
            process.join()
        print(f"{case.__name__.replace('_', ' ')}: {found}", flush=True)


if __name__ == "__main__":
    main()
