"""The needlehaystack family's testers: their calls, their files, against a real server process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import traceback
from concurrent.futures import Future
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import HaystackError, NeedlemapError, SettingsError
from needlemap.interop.needlehaystack import (
    AnthropicEvaluator,
    LLMNeedleHaystackTester,
    OpenAIEvaluator,
    context,
)

KEY = "sk-very-secret-0123456789"
NEEDLE = (
    "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny "
    "day.\n"
)
SEED_KEYS = {
    "model",
    "context_length",
    "depth_percent",
    "version",
    "needle",
    "model_response",
    "score",
    "test_duration_seconds",
    "test_timestamp_utc",
    "file_name",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a haystack in it, and no keys in the environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    essays = tmp_path / "essays"
    essays.mkdir()
    text = "".join(
        f"In year {number} somebody wrote an essay about work. " for number in range(200)
    )
    (essays / "a.txt").write_text(text, encoding="utf-8")
    return tmp_path


def built(wire: Any, kind: Any = OpenAIEvaluator, **change: Any) -> Any:
    settings: dict[str, Any] = {
        "model_name": "org/test-1.5",
        "haystack_dir": "essays",
        "context_lengths": [400, 600],
        "document_depth_percents": [0, 50.5],
        "evaluation_method": "substring_match",
        "base_url": wire.root if kind is AnthropicEvaluator else wire.base_url,
        "print_ongoing_status": False,
    }
    return kind(**settings | change)


def saved() -> dict[str, Any]:
    return {
        file.name: json.loads(file.read_text(encoding="utf-8"))
        for file in Path("results").iterdir()
    }


def prompts(wire: Any) -> list[dict[str, Any]]:
    return [asked["body"] for asked in wire.log()]


@pytest.mark.parametrize("kind", [OpenAIEvaluator, AnthropicEvaluator])
def test_results_and_contexts_are_written_as_the_originals_write_them(wire: Any, kind: Any) -> None:
    """A slash in the model's name ended their run after the first paid answer."""
    test = built(wire, kind)
    test.start_test()
    files = saved()
    name = "org_test-1_5_len_600_depth_5050"
    assert sorted(files) == sorted(
        f"org_test-1_5_len_{length}_depth_{depth}_results.json"
        for length in (400, 600)
        for depth in (0, 5050)
    )
    row = files[f"{name}_results.json"]
    assert set(row) == SEED_KEYS
    assert (row["model"], row["context_length"], row["depth_percent"]) == (
        "org/test-1.5",
        600,
        50.5,
    )
    assert (row["version"], row["needle"], row["file_name"], row["score"]) == (1, NEEDLE, name, 1)
    assert row["test_timestamp_utc"].endswith("+0000")
    assert row["test_duration_seconds"] > 0
    text = Path("contexts", f"{name}_context.txt").read_bytes().decode()
    assert text == context("essays", 600, 50.5, NEEDLE)
    assert test.get_results() == [
        files[f"{row['file_name']}_results.json"] for row in test.get_results()
    ]


def test_the_model_reads_the_context_and_then_the_question(wire: Any) -> None:
    built(wire, context_lengths=[400], document_depth_percents=[50]).start_test()
    (asked,) = prompts(wire)
    user = asked["messages"][-1]["content"]
    assert context("essays", 400, 50, NEEDLE) in user
    assert user.endswith("What is the best thing to do in San Francisco?")
    assert (asked["temperature"], asked["model"]) == (0, "org/test-1.5")


def test_cells_with_a_result_are_not_asked_again(wire: Any) -> None:
    built(wire).start_test()
    Path("results", "org_test-1_5_len_400_depth_0_results.json").unlink()
    wire.reset()
    again = built(wire)
    again.start_test()
    assert len(wire.log()) == 1
    assert len(again.get_results()) == 4


def test_another_version_is_asked_anew_beside_the_first(wire: Any) -> None:
    """The original overwrites version 1, and then asks that again."""
    cell = {"context_lengths": [400], "document_depth_percents": [0]}
    for version in (1, 2, 1, 2):
        built(wire, results_version=version, **cell).start_test()
    assert sorted(saved()) == [
        "org_test-1_5_len_400_depth_0_results.json",
        "org_test-1_5_len_400_depth_0_results_2.json",
    ]
    assert len(wire.log()) == 2


def test_results_of_another_needle_are_not_taken_for_this_ones(wire: Any) -> None:
    """The original takes every cell for done."""
    built(wire).start_test()
    other = "The best thing to do in San Francisco is a sandwich in Dolores Park. "
    with pytest.raises(SettingsError, match="another needle"):
        built(wire, needle=other).start_test()


def test_an_unreadable_result_is_left_out_with_a_warning(wire: Any) -> None:
    """The original could not be started again."""
    Path("results").mkdir()
    Path("results", "torn.json").write_text('{"model": "or', encoding="utf-8")
    Path("results", "foreign.json").write_text("[1]", encoding="utf-8")
    test = built(wire)
    with pytest.warns(UserWarning, match=r"torn\.json"):
        test.start_test()
    assert len(test.get_results()) == 4


def test_nothing_is_written_if_nothing_is_to_be_saved(wire: Any, folder: Path) -> None:
    test = built(wire, save_results=False, save_contexts=False)
    test.start_test()
    assert [entry.name for entry in folder.iterdir()] == ["essays"]
    assert {row["score"] for row in test.get_results()} == {1}


def test_it_works_inside_a_running_event_loop(wire: Any) -> None:
    """As in Jupyter, where the original fails."""
    test = built(wire)
    asyncio.run(_start(test))
    assert len(test.get_results()) == 4


async def _start(test: Any) -> None:
    test.start_test()


def test_errors_come_out_of_a_running_event_loop(wire: Any) -> None:
    with pytest.raises(HaystackError, match="is no folder"):
        asyncio.run(_start(built(wire, haystack_dir="missing")))


def test_an_interrupted_notebook_cell_stops_the_test_behind_it(wire: Any) -> None:
    """A worker left alone would go on asking, and paying."""
    patch = pytest.MonkeyPatch()
    patch.setattr(Future, "result", lambda *_: interrupt(patch))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(_start(built(wire, Slow)))
    assert Slow.stopped
    assert "needlemap" not in [thread.name for thread in threading.enumerate()]


def interrupt(patch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches who waits for the test, a moment after its start; whoever waits then is left
    alone."""
    patch.undo()
    Slow.asked.wait(10)
    raise KeyboardInterrupt


def test_one_failure_ends_no_other_cell(wire: Any) -> None:
    """The original dies of the first."""
    wire.schedule("400")
    test = built(wire)
    with pytest.raises(NeedlemapError, match="1 of 4 cells could not be measured"):
        test.start_test()
    assert len(saved()) == 3
    test.start_test()
    assert len(saved()) == len(test.get_results()) == 4


def test_a_passing_failure_is_asked_again(wire: Any) -> None:
    wire.schedule("429:0.01", "503")
    built(wire).start_test()
    assert len(saved()) == 4
    assert len(wire.log()) == 6


def test_a_refused_key_ends_the_test_at_once(wire: Any) -> None:
    wire.schedule("401", cycle=True)
    with pytest.raises(NeedlemapError, match="401"):
        built(wire).start_test()
    assert len(wire.log()) == 1


def test_a_server_that_refuses_all_is_not_asked_for_a_whole_grid(wire: Any) -> None:
    """1,225 cells were sent to a server that took none, six times each where it was down."""
    wire.schedule("400", cycle=True)
    with pytest.raises(NeedlemapError, match=r"3 of 4 cells .* The others were not asked"):
        built(wire).start_test()
    assert len(wire.log()) == 3


def test_a_verdict_that_cannot_be_read_is_asked_for_again(wire: Any, wires: Any) -> None:
    judge = wires("--schedule", '["say:Hm.", "503", "say:7.5"]', "--answer", "Score: 7")
    cell = {"context_lengths": [400], "document_depth_percents": [0]}
    options = {"evaluation_method": "gpt4", "judge_base_url": judge.base_url}
    test = built(wire, **options, **cell)
    test.start_test()
    assert [row["score"] for row in test.get_results()] == [7]
    assert (len(wire.log()), len(judge.log())) == (1, 4)


def test_the_judge_scores_from_one_to_ten(wire: Any, wires: Any) -> None:
    judge = wires("--answer", "Score: 7")
    for kind in (OpenAIEvaluator, AnthropicEvaluator):
        test = built(
            wire, kind, evaluation_method="gpt4", judge_base_url=judge.base_url, save_results=False
        )
        test.start_test()
        assert [row["score"] for row in test.get_results()] == [7] * 4
    assert {asked["model"] for asked in prompts(judge)} == {"gpt-4"}


def run(test: Any, *, inside: bool) -> None:
    """Start a test, also as a notebook does."""
    if inside:
        asyncio.run(_start(test))
    else:
        test.start_test()


def keys_sent(server: Any) -> set[str]:
    return {asked["key_sha256"] for asked in server.log()}


@pytest.mark.parametrize(
    ("method", "given", "inside"),  # inside: a running loop
    [
        ("gpt4", "argument", False),
        ("gpt4", "argument", True),
        ("gpt4", "environment", True),
        ("gpt4", "both", False),
        ("gpt4", "padded", False),
        ("substring_match", "argument", False),
        ("substring_match", "environment", True),
    ],
)
@pytest.mark.parametrize("kind", [OpenAIEvaluator, AnthropicEvaluator])
def test_a_key_reaches_the_model_and_the_judge_and_nothing_else(
    wire: Any,
    wires: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: Any,
    given: str,
    method: str,
    inside: bool,
) -> None:
    """The judge read the key when it was gone again: the test died after the first paid answer."""
    judge = wires("--answer", "Score: 7")
    keys = {"openai": f"{KEY}-o", "anthropic": f"{KEY}-a"}
    for name, key in keys.items():
        if given in ("environment", "both"):
            monkeypatch.setenv(
                f"{name.upper()}_API_KEY", key if given == "environment" else "sk-other-key-1"
            )
    pad = " \n" if given == "padded" else ""
    options: dict[str, Any] = (
        {}
        if given == "environment"
        else {f"{name}_api_key": key + pad for name, key in keys.items()}
    )
    before = dict(os.environ)
    test = built(
        wire,
        kind,
        evaluation_method=method,
        judge_base_url=judge.base_url,
        print_ongoing_status=True,
        context_lengths=[400],
        document_depth_percents=[0],
        **options,
    )
    run(test, inside=inside)
    assert {row["score"] for row in saved().values()} == {7 if method == "gpt4" else 1}
    used = keys["openai" if kind is OpenAIEvaluator else "anthropic"]
    assert keys_sent(wire) == {sha256(used.encode()).hexdigest()}
    assert keys_sent(judge) == (
        {sha256(keys["openai"].encode()).hexdigest()} if method == "gpt4" else set()
    )
    assert dict(os.environ) == before
    printed = "".join(capsys.readouterr())
    assert KEY not in printed + repr(test)
    assert not any(
        KEY.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file()
    )


@pytest.mark.parametrize(
    "fault",
    [
        "echo:401",
        "echo:200",
        "401",
        "429:0.01",
    ],
)
@pytest.mark.parametrize("at", ["model", "judge"])
def test_no_error_says_a_key(wire: Any, wires: Any, folder: Path, at: str, fault: str) -> None:
    """A server may say back what it was sent."""
    judge = wires("--answer", "Score: 7")
    (wire if at == "model" else judge).schedule(fault)
    test = built(
        wire,
        evaluation_method="gpt4",
        judge_base_url=judge.base_url,
        openai_api_key="own-server-key-0123456789",
        context_lengths=[400],
        document_depth_percents=[0],
    )
    said = ""
    try:
        test.start_test()
    except NeedlemapError as error:
        said = "".join(traceback.format_exception(error))
    assert "own-server-key" not in said
    assert "NEEDLEMAP_KEY" not in said
    files = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    assert not any(b"own-server-key" in data for data in files)


@pytest.mark.parametrize(
    ("key", "words"),
    [(b"sk-own-secret", "must be text, got bytes"), ("sk-own–secret", "no key has")],
)
def test_a_key_that_is_none_is_refused_without_being_shown(key: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        OpenAIEvaluator(model_name="gpt-4", openai_api_key=key)
    assert "secret" not in "".join(traceback.format_exception(refused.value))


def test_a_blank_key_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="export OPENAI_API_KEY"):
        OpenAIEvaluator(model_name="gpt-4", openai_api_key=" ")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    OpenAIEvaluator(model_name="gpt-4", openai_api_key=" ")


def test_a_judge_without_a_key_is_said_before_the_first_paid_answer() -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        AnthropicEvaluator(model_name="claude-2.1", anthropic_api_key=KEY)


def test_a_lent_key_is_gone_even_after_an_error() -> None:
    before = dict(os.environ)
    with pytest.raises(SettingsError, match="no base URL"):
        OpenAIEvaluator(model_name="gpt-4", openai_api_key=KEY, base_url="nowhere")
    assert dict(os.environ) == before


def test_what_is_printed_is_the_originals(wire: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Their banner as their README shows it, and per test six lines with the whole response."""
    long = "eat a sandwich and sit in Dolores Park. " * 8
    wire.schedule(f"say:{long}\x1b[2J second")
    built(wire, print_ongoing_status=True, context_lengths=[400, 600]).start_test()
    printed = capsys.readouterr().out
    assert (
        "Starting Needle In A Haystack Testing...\n"
        "- Model: org/test-1.5\n"
        "- Context Lengths: 2, Min: 400, Max: 600\n"
        "- Document Depths: 2, Min: 0%, Max: 50.5%\n"
        f"- Needle: {NEEDLE.strip()}\n"
        "- 0 cells done before, 4 to ask; tokens of cl100k_base\n"
    ) in printed
    first = printed.split("-- Test Summary --\n")[1].splitlines()
    assert re.fullmatch(r"Duration: \d+\.\d seconds", first[0])
    assert first[1:5] == [
        "Context: 400 tokens",
        "Depth: 0%",
        "Score: 1",
        f"Response: {long}[2J second",
    ]
    assert printed.count("-- Test Summary --") == 4
    assert "\nDepth: 50.5%\n" in printed


class Parrot(LLMNeedleHaystackTester):
    """A tester of one's own, in ten lines: another prompt, another model, another score."""

    def generate_prompt(self, context: str) -> str:
        return f"{context}\n\n{self.retrieval_question}"

    async def get_response_from_model(self, prompt: str) -> str:
        return "sandwich" if "sandwich" in prompt else "nothing"

    def evaluate_response(self, response: str) -> int:
        return 10 if response == "sandwich" else 1


class Slow(LLMNeedleHaystackTester):
    """A tester whose model takes a minute."""

    asked, stopped = threading.Event(), False

    async def get_response_from_model(self, prompt: Any) -> str:
        Slow.asked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            Slow.stopped = True
            raise
        return ""


class Forked(LLMNeedleHaystackTester):
    """As the forks wrote theirs: attributes before the base class, a vocabulary by two methods."""

    def __init__(self, **kwargs: Any) -> None:
        self.model_name = self.model_to_test_description = kwargs.pop("model_name")
        self.tokenizer = Words()
        kwargs["document_depth_percents"] = [0, 50, 100]
        super().__init__(**kwargs)

    def get_encoding(self, context: str) -> list[int]:
        return self.tokenizer.encode(context)

    def get_decoding(self, encoded_context: list[int]) -> str:
        return self.tokenizer.decode(encoded_context)

    def get_prompt(self, context: str) -> str:
        return context

    async def get_response_from_model(self, prompt: str) -> str:
        return prompt


class Words:
    """A vocabulary of words and full stops."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def encode(self, text: str) -> list[int]:
        pieces = re.findall(r"\.|[^.\s]+|\s+", text)
        self.known += [piece for piece in dict.fromkeys(pieces) if piece not in self.known]
        return [self.known.index(piece) for piece in pieces]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.known[number] for number in ids)


GRID = {"haystack_dir": "essays", "context_lengths": [400], "document_depth_percents": [0, 50]}


@pytest.mark.parametrize("inside", [False, True])
def test_a_tester_of_ones_own_is_ten_lines(inside: bool) -> None:
    test = Parrot(model_name="parrot", evaluation_method="substring_match", **GRID)
    run(test, inside=inside)
    assert [row["score"] for row in test.get_results()] == [10, 10]
    assert {row["model_response"] for row in saved().values()} == {"sandwich"}


def test_a_forks_class_runs_as_it_is() -> None:
    """The two methods for tokens count: the needle stands behind a full stop of that vocabulary."""
    options = {**GRID, "final_context_length_buffer": 20, "context_lengths": [300]}
    test = Forked(model_name="own", evaluation_method="substring_match", **options)
    test.start_test()
    names = [f"own_len_300_depth_{depth}_context.txt" for depth in (0, 5000, 10000)]
    contexts = [Path("contexts", name).read_text(encoding="utf-8") for name in names]
    assert {len(test.get_encoding(text)) for text in contexts} <= {
        279,
        280,
    }  # white space may merge
    assert contexts[0].startswith(NEEDLE)
    assert contexts[1].split(NEEDLE)[0].endswith("work.")
    assert contexts[2].endswith(NEEDLE)
    assert [row["score"] for row in test.get_results()] == [1, 1, 1]


def test_one_method_may_be_changed_and_the_rest_kept(wire: Any) -> None:
    class Harsh(OpenAIEvaluator):
        def get_prompt(self, context: str) -> Any:
            return [{"role": "system", "content": "Be brief."}, *super().get_prompt(context)]

        def evaluate_response(self, response: str) -> int:
            return min(0, super().evaluate_response(response))

    class Kind(Harsh):
        async def evaluate_response(self, response: str) -> int:  # type: ignore[override]
            return 1 + await super(Harsh, self).evaluate_response(response)

    cell = {"context_lengths": [400], "document_depth_percents": [50], "save_results": False}
    for own, score in ((Harsh, 0), (Kind, 2)):
        wire.reset()
        test = built(wire, own, **cell)
        test.start_test()
        assert [row["score"] for row in test.get_results()] == [score]
        assert prompts(wire)[0]["messages"][0]["content"] == "Be brief."


class Asked(LLMNeedleHaystackTester):
    """A tester that keeps what it is asked, and finds what is there."""

    def get_response_from_model(self, prompt: Any) -> str:  # type: ignore[override]
        vars(self).setdefault("seen", []).append(prompt)
        return "Dolores Park, a sandwich" if "sandwich" in prompt else "nothing"

    def get_prompt(self, context: str) -> str:
        return context


CELL = {"haystack_dir": "essays", "context_lengths": [400], "document_depth_percents": [50]}


def asked_by(kind: Any, **options: Any) -> Any:
    return kind(model_name="own", evaluation_method="substring_match", **{**CELL, **options})


def test_an_own_haystack_and_an_own_insertion_are_what_the_model_reads() -> None:
    """Both were passed over once: the model read the folder's essays, and a map came of it."""

    class Own(Asked):
        def read_context_files(self) -> str:
            assert max(self.context_lengths) == 400  # a list, also where it was given by intervals
            return "My own hay. " * 400

        def insert_needle(self, context: str, depth_percent: float, context_length: int) -> str:
            assert (depth_percent, context_length) == (50, 400)
            return f"{context[:1000]}<{self.needle.strip()}>"

    test = asked_by(Own, context_lengths=None, context_lengths_min=400, context_lengths_max=400)
    test.start_test()
    (seen,) = test.seen
    assert seen.startswith("My own hay. My own hay.")
    assert seen.endswith(f"<{NEEDLE.strip()}>")


@pytest.mark.parametrize("buffer", [0, 200])
@pytest.mark.parametrize("depth", [0, 33, 50, 100])
def test_a_class_that_calls_the_originals_methods_has_the_same_contexts(
    buffer: int, depth: int
) -> None:
    class Own(Asked):
        def read_context_files(self) -> str:
            return super().read_context_files()

        def encode_and_trim(self, context: str, context_length: int) -> str:
            return super().encode_and_trim(context, context_length)

        def insert_needle(self, context: str, depth_percent: float, context_length: int) -> str:
            return super().insert_needle(context, depth_percent, context_length)

        async def generate_context(self, context_length: int, depth_percent: float) -> str:
            return await super().generate_context(context_length, depth_percent)

    options = {"document_depth_percents": [depth], "final_context_length_buffer": buffer}
    test = asked_by(Own, **options)
    test.start_test()
    assert test.seen == [context("essays", 400, depth, NEEDLE, None, buffer)]


def test_an_own_schedule_is_the_depths_that_are_asked() -> None:
    class Own(Asked):
        def logistic(self, x: float) -> float:
            return x / 2

    test = asked_by(
        Own,
        document_depth_percents=None,
        document_depth_percent_intervals=3,
        document_depth_percent_interval_type="sigmoid",
    )
    test.start_test()
    assert [row["depth_percent"] for row in test.get_results()] == [0, 25, 50]
    assert test.document_depth_percents == [0, 25, 50]


def test_an_own_scoring_of_words_or_by_a_judge_is_called() -> None:
    class Own(Asked):
        def evaluate_response_substring_match(self, response: str) -> int:
            return 5 + super().evaluate_response_substring_match(response)

        def evaluate_response_gpt4(self, response: str) -> int:
            return len(response)

    for method, score in (("substring_match", 6), ("gpt4", 24)):
        test = Own(model_name="own", evaluation_method=method, save_results=False, **CELL)
        test.start_test()
        assert [row["score"] for row in test.get_results()] == [score]


def test_an_own_course_of_a_test_is_the_course() -> None:
    """As forks do: another order, cells chosen by themselves, results kept in their own way."""

    class Own(Asked):
        async def run_test(self) -> None:
            gate = asyncio.Semaphore(2)
            for depth in (90, 10):
                await self.bound_evaluate_and_log(gate, 400, depth)

        def result_exists(self, context_length: int, depth_percent: float) -> bool:
            return depth_percent == 90

    test = asked_by(Own)
    test.start_test()
    assert [row["depth_percent"] for row in test.get_results()] == [10]

    class Logs(Asked):
        async def evaluate_and_log(self, context_length: int, depth_percent: float) -> None:
            text = await self.generate_context(context_length, depth_percent)
            response = self.get_response_from_model(self.get_prompt(text))
            score = self.evaluate_response(response)
            self.testing_results.append({"score": score, "cell": (context_length, depth_percent)})

    test = asked_by(Logs)
    test.start_test()
    assert test.get_results() == [{"score": 1, "cell": (400, 50)}]


def test_the_originals_coroutine_runs_a_test() -> None:
    test = asked_by(Asked)
    asyncio.run(test.run_test())
    assert [row["score"] for row in test.get_results()] == [1]
    assert test.result_exists(400, 50)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("insert_needles", "'insert_needles', which is never called here. Define insert_needle"),
        ("evaluate_model", "Define get_response_from_model"),
        ("get_encoding", "defines 'get_encoding' without 'get_decoding'"),
        ("decode_tokens", "defines 'decode_tokens' without 'encode_text_to_tokens'"),
    ],
)
def test_a_method_that_would_not_be_called_is_refused_by_name(method: str, words: str) -> None:
    own = type("Own", (Asked,), {method: lambda *_: []})
    with pytest.raises(SettingsError, match=words):
        asked_by(own)


def raising(_self: Any, _asked: str) -> Any:
    raise ValueError("no such city")


@pytest.mark.parametrize(
    ("method", "body", "words"),
    [
        ("get_response_from_model", raising, "raising raised ValueError: no such city"),
        ("get_response_from_model", lambda *_: None, "must return a text, it returned NoneType"),
        ("evaluate_response", lambda *_: "good", "must return a number, it returned 'good'"),
        ("generate_prompt", raising, "raised ValueError"),
        ("insert_needle", lambda *_: None, "A context must be a text, it is NoneType"),
        ("read_context_files", lambda _: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_what_an_own_method_does_wrong_is_that_cells_failure(
    method: str, body: Any, words: str
) -> None:
    own = type("Own", (Parrot,), {method: body})
    with pytest.raises(NeedlemapError, match="2 of 2 cells could not be measured") as failed:
        own(model_name="own", evaluation_method="substring_match", **GRID).start_test()
    assert words in str(failed.value)


def test_a_tester_that_asks_nobody_is_refused() -> None:
    with pytest.raises(SettingsError, match="get_response_from_model"):
        LLMNeedleHaystackTester(model_name="own", evaluation_method="substring_match", **GRID)


def test_methods_outside_a_test_say_so(wire: Any) -> None:
    with pytest.raises(NeedlemapError, match="start_test"):
        built(wire, evaluation_method="gpt4", openai_api_key=KEY).evaluate_response("sandwich")


def test_defaults_are_the_forks() -> None:
    test = OpenAIEvaluator(model_name="gpt-4-1106-preview", openai_api_key=KEY)
    assert (len(test.cells), test.lengths[-1], test.depths[:3]) == (1225, 200_000, [0, 3, 6])
    assert (test.needle, test.tokenizer_name, test.judge_model) == (
        NEEDLE,
        "cl100k_base",
        "openai/gpt-4",
    )


def test_cells_that_occur_twice_are_asked_once(wire: Any) -> None:
    test = built(wire, document_depth_percents=None, document_depth_percent_intervals=200)
    assert len(test.cells) == 2 * 101


def test_concurrent_requests_give_the_same_results(wire: Any) -> None:
    test = built(wire, num_concurrent_requests=4, seconds_to_sleep_between_completions=0.01)
    test.start_test()
    assert sorted(row["score"] for row in test.get_results()) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"modelname": "x"}, "Did you mean 'model_name'"),
        ({"context_length": [1]}, "Did you mean 'context_lengths'"),
        ({"model_name": ""}, "model_name is missing"),
        ({"evaluation_method": "gpt5"}, "evaluation_method"),
        ({"document_depth_percents": [101]}, "0..100"),
        ({"document_depth_percents": [0.561, 0.562]}, "share a result file"),
        (
            {"document_depth_percents": None, "document_depth_percent_interval_type": None},
            "interval type",
        ),
        ({"context_lengths": [210]}, "leaves no room"),
        ({"substr_validation_words": ["bagel"]}, "bagel"),
        ({"substr_validation_words": []}, "lacks: any"),
        ({"num_concurrent_requests": 0}, "at least 1"),
        ({"seconds_to_sleep_between_completions": -1}, "negative"),
        ({"base_url": "localhost"}, "no base URL"),
    ],
)
def test_what_cannot_work_is_said_before_the_first_call(
    wire: Any, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        built(wire, **change)


def test_a_missing_key_is_said_before_the_first_call() -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        OpenAIEvaluator(model_name="gpt-4")
    with pytest.raises(SettingsError, match="ANTHROPIC_API_KEY"):
        AnthropicEvaluator(model_name="claude-2.1")
