"""A command's time holds in whatever it waits for: what is in flight when it ends counts as not
asked, and the same command goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from needlemap.asking import TrialObserver
from needlemap.asking.session import Session
from needlemap.deadline import TimeUp
from needlemap.errors import Failure, Unmeasured
from needlemap.models import Answer, Decoding, Model
from needlemap.prompts import Prompt
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare

GRID = ("--lengths", "300,400", "--depths", "0,50,100")


class Scripted(Model):
    """Asks a function, which hears how often it was asked."""

    def __init__(self, script: Callable[[int], Awaitable[Answer]]) -> None:
        self.script, self.asked = script, 0

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        self.asked += 1
        return await self.script(self.asked)


def session_of(folder: Path, **settings: Any) -> Session:
    """A run of six trials in this process, with time for all of them."""
    grid = {"lengths": "300,400", "depths": "0,50,100", "max_answer_tokens": 40}
    own = {"limit_time": 3600, "concurrency": 1, **grid, **settings}
    return Session.open(prepare(configure(None, own)), folder / "r")


def end_soon(session: Session) -> None:
    session.budget.limit_time_s = 3600 - session.budget.left_s() + 1


async def seven(_: int) -> Answer:
    return Answer("7")


def hanging_after(session: Session, answers: int) -> Callable[[int], Awaitable[Answer]]:
    """Answers so often, and never again."""

    async def script(number: int) -> Answer:
        if number == answers:
            end_soon(session)
        if number > answers:
            await asyncio.Event().wait()
        return Answer("7")

    return script


def test_what_is_in_flight_when_time_is_up_counts_as_not_asked(tmp_path):
    """It was waited for: 36 seconds where 8 were asked."""
    session = session_of(tmp_path)
    model = Scripted(hanging_after(session, 2))
    outcome = asyncio.run(session.run(model, TrialObserver()))
    assert outcome.stopped is not None
    assert (model.asked, outcome.scored, outcome.failures) == (3, 2, {})
    assert [record.outcome for record in session.folder.records()] == ["scored"] * 2

    again = session_of(tmp_path)
    assert (again.done, len(again.todo)) == (2, 4)
    outcome = asyncio.run(again.run(Scripted(seven), TrialObserver()))
    assert (outcome.scored, outcome.stopped) == (4, None)


def test_what_was_cut_off_may_be_billed_and_counts_over_all_starts(tmp_path):
    session = session_of(tmp_path)
    asyncio.run(session.run(Scripted(hanging_after(session, 2)), TrialObserver()))
    *_, cut = session.folder.every_record()
    assert (cut.failure, cut.unread.attempts) == ("skipped by budget", 1)
    assert session_of(tmp_path).spent().tokens > 3 * 250


def test_a_first_trial_that_never_ends_is_no_failure_of_the_model(tmp_path):
    session = session_of(tmp_path)
    end_soon(session)
    outcome = asyncio.run(session.run(Scripted(hanging_after(session, 0)), TrialObserver()))
    assert (outcome.canary, outcome.hopeless, outcome.failures) == (None, None, {})
    assert outcome.stopped is not None
    assert list(session.folder.records()) == []


@pytest.mark.parametrize("failure", [Failure.RATE_LIMITED, Failure.SERVER, Failure.TIMED_OUT])
def test_a_prompt_that_waits_to_be_asked_again_counts_as_not_asked(tmp_path, failure):
    session = session_of(tmp_path)

    async def busy(_: int) -> Answer:
        end_soon(session)
        raise Unmeasured(failure, "busy", transient=True, retry_after_s=300)

    outcome = asyncio.run(session.run(Scripted(busy), TrialObserver()))
    assert (outcome.failures, outcome.hopeless) == ({}, None)
    assert outcome.stopped is not None


def test_a_judge_that_never_ends_leaves_answers_to_the_next_start(tmp_path, wires):
    """It had a minute more, and its own time-out behind that."""
    judge = wires("--schedule", '["slow:600"]', "--cycle", "--answer", "Score: 10")
    options = {"model": "openai/judge", "judge_options": {"base_url": judge.base_url}}
    chosen = {"scorer": "judge", "scorer_options": options}
    session = session_of(tmp_path, **chosen)
    model = Scripted(hanging_after(session, 1))
    outcome = asyncio.run(session.run(model, TrialObserver()))
    assert (outcome.scored, outcome.failures) == (0, {})
    assert outcome.stopped is not None

    judge.schedule()
    again = session_of(tmp_path, **chosen)
    assert len(again.unanswered) == 5
    resumed = Scripted(seven)
    outcome = asyncio.run(again.run(resumed, TrialObserver()))
    assert (resumed.asked, outcome.scored) == (5, 6)


def test_a_verdict_that_was_cut_off_may_be_billed_and_counts_over_all_starts(tmp_path, wires):
    """A limit in dollars took it for free, as often as a start ended so."""
    judge = wires("--schedule", '["slow:600"]', "--cycle")
    options = {
        "model": "openai/judge",
        "judge_options": {"base_url": judge.base_url},
        "prices": {"input": 1000, "output": 1000},
    }
    chosen = {"scorer": "judge", "scorer_options": options}
    session = session_of(tmp_path, **chosen)
    asyncio.run(session.run(Scripted(hanging_after(session, 1)), TrialObserver()))
    (cut,) = [record for record in session.folder.every_record() if record.answer is not None]
    assert cut.judge_usd is not None
    assert cut.judge_usd >= 0.3  # 300 tokens of a verdict alone
    assert session.budget.usd >= 0.3
    assert session_of(tmp_path, **chosen).spent().usd >= 0.3


@pytest.mark.parametrize("fault", ["slow:600", "429-after:1", "500"])
def test_a_server_that_never_answers_well_ends_a_run_with_3(needlemap, wire, fault):
    wire.schedule(fault, cycle=True)
    ended = needlemap.run(wire, *GRID, "--limit-time", "2s", code=3)
    assert "limit" in ended.stderr


@pytest.fixture
def slow_prompts(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Time is up when a function is called for that time."""

    def end(name: str, number: int) -> None:
        import needlemap.asking.run
        import needlemap.asking.seek
        import needlemap.servers.ab.campaign
        import needlemap.servers.check.families

        module, _, function = name.rpartition(".")
        owner: Any = needlemap
        for part in module.split("."):
            owner = getattr(owner, part)
        plain, calls = getattr(owner, function), []

        def counted(*given: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) == number:
                raise TimeUp("The time limit ended while prompts were built.")
            return plain(*given, **named)

        monkeypatch.setattr(owner, function, counted)

    return end


SUITE = "families: {one: {preset: passkey}, two: {preset: passkey}, three: {preset: passkey}}\n"


def test_a_family_whose_prompts_take_too_long_ends_the_run_with_3(needlemap, wire, slow_prompts):
    """It was left out as one that cannot be asked: exit code 1, and the others were asked on."""
    (needlemap.folder / "s.yaml").write_text(SUITE)
    slow_prompts("asking.run.open_family", 2)
    typed = "run", "suite:s.yaml", *needlemap.asking(wire), *GRID, "--no-canary"
    ended = needlemap(*typed, "--limit-time", "1h", code=3)
    assert "family 'two' was not asked: The time limit ended" in ended.stderr
    assert len(wire.log()) == 6
    needlemap(*typed)
    assert len(wire.log()) == 18


def test_a_seek_whose_next_prompts_take_too_long_shows_what_is_known(needlemap, wire, slow_prompts):
    slow_prompts("asking.seek.prepare_haystacks", 2)
    typed = "--lengths", "300:2k:3", "--seek", "85", "--no-canary"
    ended = needlemap.run(wire, *typed, "--limit-time", "1h", code=3)
    assert "stopped by the budget: The time limit ended" in ended.stderr
    assert "run: r" in ended.stderr
    assert wire.log()


def test_an_ab_whose_next_prompts_take_too_long_says_what_is_known(needlemap, wire, slow_prompts):
    slow_prompts("servers.ab.campaign.prepare_haystacks", 5)
    arms = "--arm", f"a={wire.base_url}", "--arm", f"b={wire.base_url}", "--model", "openai/m"
    grid = "--tokenizer", "cl100k_base", "--lengths", "300", "--depths", "50", "--until", "20"
    typed = ("passkey", *arms, *grid, "--max-answer-tokens", "40", "--limit-time", "1h", "-o", "r")
    ended = needlemap("ab", *typed, code=4)
    assert "not all was asked: The time limit ended" in ended.stderr


def test_a_check_whose_next_prompts_take_too_long_says_what_is_known(needlemap, wire, slow_prompts):
    slow_prompts("servers.check.families.Asker.experiment", 6)
    typed = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    own = "--max-length", "2k", "--max-answer-tokens", "40", "--minutes", "60", "-o", "r"
    ended = needlemap("check", *typed, *own, code=None)
    assert ended.returncode in (4, 5)
    assert "not all was asked: The time limit ended" in ended.stderr


@pytest.mark.parametrize("command", ["run", "two models", "suite", "ab"])
def test_time_that_ends_before_a_server_says_what_it_serves_ends_with_3(needlemap, command):
    """Of a suite's family, of one of two models and of an arm the limit was named with them, and
    ended with 2."""
    (needlemap.folder / "s.yaml").write_text(SUITE)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, says nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        asked = "--model", "openai/m", "--base-url", url
        typed = {
            "run": ("run", *asked),
            "two models": ("run", *asked, "--model", "openai/n"),
            "suite": ("run", "suite:s.yaml", *asked),
            "ab": ("ab", "--arm", f"a={url}", "--arm", f"b={url}/b"),
        }[command]
        ended = needlemap(*typed, *GRID, "--limit-time", "1s", "-o", "r", code=3)
    last = ended.stderr.strip().splitlines()[-1]
    assert "The time limit ended before" in last
    assert last.startswith(f"NO RESULT {typed[0]}: ")


def test_a_check_that_a_limit_ends_before_any_answer_ends_with_3(needlemap, wire):
    wire.schedule("slow:600", cycle=True)
    typed = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    own = "--max-length", "2k", "--max-answer-tokens", "40", "--minutes", "0.05", "-o", "r"
    ended = needlemap("check", *typed, *own, code=3)
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("NO RESULT check: ")
    assert "--minutes" in last


def test_answers_that_a_judge_has_no_time_for_are_scored_by_the_next_score(needlemap, wires):
    judge = wires("--schedule", '["slow:600"]', "--cycle", "--answer", "Score: 10")
    needlemap("run", "bm25", "--lengths", "500", "--depths", "0,100", "--repeats", "1", "-o", "r")
    chosen = f"judge_options={{base_url: '{judge.base_url}'}}", "model=openai/judge"
    options = [part for each in chosen for part in ("--scorer-options", each)]
    typed = "score", "r", "--scorer", "judge", *options
    ended = needlemap(*typed, "--limit-time", "3s", code=3)
    assert "The time limit ended" in ended.stderr
    judge.schedule()
    assert "2 answers scored anew" in needlemap(*typed).stderr


def test_lines_that_a_judge_has_no_time_for_say_so(needlemap, wires):
    judge = wires("--schedule", '["slow:600"]', "--cycle")
    (needlemap.folder / "a.jsonl").write_text('{"answer": "7", "reference": "7"}\n')
    chosen = f"judge_options={{base_url: '{judge.base_url}'}}", "model=openai/judge"
    options = [part for each in chosen for part in ("--scorer-options", each)]
    ended = needlemap(
        "score", "a.jsonl", "--scorer", "judge", *options, "--limit-time", "1", code=3
    )
    assert "skipped by budget" in ended.stdout


@pytest.mark.parametrize("says", ["nothing", "no HTTP"])
def test_a_hub_that_never_answers_or_talks_nonsense_ends_in_time_and_in_words(needlemap, says):
    """A hub's silence outlasted --limit-time, and what its client cannot read was a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as hub:
        url = f"http://127.0.0.1:{hub.getsockname()[1]}"
        if says == "no HTTP":
            Thread(target=_talk_nonsense, args=(hub,), daemon=True).start()
        needlemap.environment |= {"HF_ENDPOINT": url, "HF_HOME": str(needlemap.folder / "hf")}
        typed = "--model", "openai/m", "--base-url", f"{url}/v1", "--tokenizer", "some/model"
        plan = "plan", *typed, *GRID, "--limit-time", "3s" if says == "nothing" else "60s"
        ended = needlemap.process(*plan, code=3 if says == "nothing" else 2)
    words = "fetched from the hub" if says == "nothing" else "No tokenizer for 'some/model'"
    assert words in ended.stderr


def _talk_nonsense(hub: socket.socket) -> None:
    with suppress(OSError):
        while True:
            asked, _ = hub.accept()
            with asked:
                asked.recv(65536)
                asked.sendall(b"{} no HTTP at all\r\n\r\n")
