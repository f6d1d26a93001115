"""Storms against sound and faulty models: what is found, who is not blamed, what is kept."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from boxed_reader import Reader, behind_answers, noisy, now_and_then, of_another

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.models import Answer, Decoding
from needlemap.prompts import Prompt
from needlemap.servers.gauge.checkpoint import REFERENCE
from needlemap.servers.storm.evidence import Evidence, Observation, OperationAnswers, Suspect
from needlemap.servers.storm.file import STORM, StormFile
from needlemap.servers.storm.judge import judge_storm
from needlemap.servers.storm.operation import Limits
from needlemap.servers.storm.outcome import RequestOutcome
from needlemap.servers.storm.plan import CALM, make_round
from needlemap.servers.storm.sending import Sender
from needlemap.servers.storm.storm import Storm, StormOptions
from needlemap.servers.storm.tally import POINTS, log_spoilt
from needlemap.servers.storm.wording import bound_words
from needlemap.stats.bets import highest_rate

LIMITS = Limits(2_000, load=4, answer_tokens=60, kv_tokens=6_000)


def test_the_same_seed_number_and_limits_give_the_same_round():
    assert make_round(3, 7, LIMITS) == make_round(3, 7, LIMITS)
    assert make_round(3, 7, LIMITS) != make_round(3, 8, LIMITS)


def test_every_operation_is_done_within_a_few_rounds_and_no_wave_is_wider_than_the_load():
    rounds = [make_round(1, number, LIMITS) for number in range(40)]
    done = {act.operation for each in rounds for act in each.acts}
    assert done >= {"fresh", "again", "turn", "rewind", "fork", "cancel", "retry", "burst"}
    assert done >= {"long", "flood", "back"}
    assert max(len(wave) for each in rounds for wave in each.waves) <= LIMITS.load


def test_nobody_goes_away_and_nothing_is_flooded_where_limits_say_so():
    calm = Limits(2_000, load=4, cancels=False, kv_tokens=None)
    done = {act.operation for number in range(40) for act in make_round(1, number, calm).acts}
    assert not done & {"cancel", "retry", "flood", "back"}


def test_a_sequence_up_to_a_turn_holds_the_answers_that_it_goes_on_behind():
    turns = (
        (each, act)
        for number in range(20)
        for each in [make_round(2, number, LIMITS)]
        for act in each.acts
        if len(act.path) > 1
    )
    made, turn = next(turns)
    paths = {act.path for act in made.of([turn]).acts}
    assert all(turn.path[:end] in paths for end in range(1, len(turn.path) + 1))


def test_a_sound_model_is_not_blamed_and_its_rate_is_told(storming):
    asking, found = storming(Reader(), rounds=4)
    assert found.verdict.word == "NOT ENOUGH DATA"
    assert found.tally.counts["right"] == len(found.tally.requests)
    assert found.verdict.claim.startswith(
        f"faulty families: 0 of {found.tally.families}: fault rate below "
    )
    file = STORM.read(asking.storm.folder.path)
    assert len(file.sequence) >= len(found.tally.requests)
    assert all(each.at_s >= 0 for each in file.sequence)


def test_a_sound_model_ends_the_storm_as_soon_as_the_rate_is_low_enough(storming):
    asking, found = storming(Reader(), wanted=0.05)
    assert found.verdict.word == "PASS"
    assert found.tally.highest < 0.05
    assert asking.number < 20


def test_one_answer_of_another_is_a_fault_at_any_rate_and_says_whose_and_how_old(storming):
    _, found = storming(Reader(now_and_then(40, of_another)), rounds=10)
    assert found.verdict.word == "FAIL"
    (first, *_) = found.tally.certain
    assert first.outcome.word == "foreign"
    assert first.outcome.ago >= 0
    assert "the secret of request" in found.said[0]


def test_what_is_lost_behind_an_own_answer_is_replayed_before_it_is_called_a_fault(storming):
    asking, found = storming(Reader(behind_answers), rounds=20)
    assert found.verdict.word == "FAIL"
    (suspect,) = [each for each in asking.evidence.suspects.values() if each.blocks]
    lost, cold, replays = suspect.replays
    assert replays >= 5
    assert (lost, cold) == (replays, 0)
    assert suspect.request.act.operation == "turn" or len(suspect.request.act.path) > 1


@pytest.mark.parametrize("seed", [1, 2])
def test_a_model_that_is_wrong_now_and_then_is_not_blamed(storming, seed):
    _, found = storming(Reader(noisy(0.03, seed)), rounds=5, seed=seed)
    assert found.verdict.word == "NOT ENOUGH DATA"
    assert found.tally.counts["lost"] > 0


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("!" * 60, "salad"),
        ("", "empty"),
        (Answer("I will go on and on", "length", completion_tokens=60), "endless"),
    ],
)
def test_what_is_wrong_with_an_answer_has_a_name(storming, said, word):
    made = now_and_then(8, lambda *_: said)
    _, found = storming(Reader(made), rounds=2)
    assert found.tally.counts[word] > 0
    assert found.verdict.word == ("FAIL" if word == "salad" else "NOT ENOUGH DATA")


def test_the_gauge_misses_nothing_so_a_few_cut_answers_are_the_servers(storming):
    """Answers cut at random show in no replay: of another model it takes many pairs."""
    cut = now_and_then(60, lambda said, _: said[:6])
    _, found = storming(Reader(cut), rounds=25, gauge=True)
    assert found.verdict.word == "FAIL"
    assert any(line.startswith("the gauge answers all prompts right") for line in found.said)
    assert not any("spoilt until" in line for line in found.said), "they are right when alone"
    _, calm = storming(Reader(), rounds=2, gauge=True, folder="calm")
    assert calm.verdict.word == "NOT ENOUGH DATA"


def test_a_server_that_serves_the_gauge_and_stays_spoilt_is_a_fault(storming):
    """Its prompts were lost alone too, which was held against the model: exit code 4, and 0 where
    --on-undecided said so."""
    spoilt = Reader(lambda said, log: said if len(log) < 30 else said[:6])
    _, found = storming(spoilt, rounds=8, gauge=True)
    assert found.verdict.word == "FAIL"
    assert found.tally.faulty > found.tally.families / 4
    assert any("is spoilt until it is started anew" in line for line in found.said), found.said
    assert not any("hard to see with it" in line for line in found.said)


def test_what_the_gauge_itself_may_lose_is_no_spoilt_server():
    assert log_spoilt(1, 100) < 0
    assert log_spoilt(0, 2_000) < log_spoilt(20, 2_000) < 0
    assert log_spoilt(20, 80) > POINTS


def test_a_model_that_misses_everything_is_told_so_before_the_storm(storming):
    asking, found = storming(Reader(lambda *_: "I do not know."))
    assert asking.missed.startswith("the first 4 prompts were all missed")
    assert not found.tally.requests


def test_a_leak_is_a_fail_though_the_first_prompts_are_all_missed(storming):
    """It was SUSPECT, exit code 5, and no line named it."""

    def leaks(_: str, log: list[Any]) -> str:
        return log[-2][1] if len(log) > 1 else "I do not know."

    asking, found = storming(Reader(leaks))
    assert asking.missed.startswith("the first 4 prompts were all missed")
    assert found.verdict.word == "FAIL"
    assert found.said[0].startswith("foreign: 6 answers; the first is request ")


def test_the_same_command_goes_on_and_asks_nothing_twice(storming):
    first, second = Reader(), Reader()
    storming(first, rounds=2)
    asked = len(first.log)
    gone_on, _ = storming(second, rounds=3)
    whole = Reader()
    at_once, _ = storming(whole, rounds=3, folder="whole")
    assert len(second.log) < len(whole.log) - asked / 2
    keys = [[each.key for each in asking.evidence.storm] for asking in (gone_on, at_once)]
    assert keys[0] == keys[1]


def test_a_folder_holds_one_storm(storming):
    storming(Reader(), rounds=1)
    with pytest.raises(NeedlemapError, match="holds a storm of openai/reader to 2,000 tokens"):
        storming(Reader(), rounds=1, max_length=4_000)


def test_short_secrets_are_refused(storming):
    short = {"needle": "The key of {x} is {n}.", "question": "What is the key of {x}?"}
    short |= {"keywords": ["{n}"], "draw": {"x": [*"abcdefghijklmnop"], "n": "100:999"}}
    with pytest.raises(SettingsError, match="by 12 characters"):
        storming(Reader(), rounds=1, flags=short)


def test_a_limit_in_tokens_ends_the_storm_and_what_was_asked_counts(storming):
    asking, found = storming(Reader(), rounds=9, flags={"limit_tokens": 24_000})
    assert "24,000 tokens" in asking.stopped
    assert found.verdict.word == "NOT ENOUGH DATA"
    assert 0 < len(found.tally.requests) < 90


def seens_of(words: list[list[str]]) -> Evidence:
    """Families of requests with these outcomes."""
    made = make_round(1, 1, LIMITS).acts[0]
    rows = [
        Observation(1_000 * family + at, family, made, RequestOutcome(word))
        for family, each in enumerate(words)
        for at, word in enumerate(each)
    ]
    return Evidence(storm=rows)


def test_a_long_storm_is_judged_anew_when_it_grew_by_a_hundredth_or_holds_a_sure_fault(storming):
    asking, _ = storming(Reader(), rounds=1)
    rows = asking.evidence.storm = seens_of([["right"]] * 1_000).storm
    known = asking.look()
    rows += rows[:5]
    assert asking.look() is known
    rows += rows[:5]
    assert len(asking.look().tally.requests) == 1_010
    rows += seens_of([["salad"]]).storm
    assert asking.look().confirmed


def test_a_run_of_faults_inside_a_family_counts_as_one_family():
    one_run = judge_storm(seens_of([["salad"] * 8, *[["right"] * 8] * 99]), 0.005)
    singly = judge_storm(seens_of([*[["salad"] + ["right"] * 7] * 8, *[["right"] * 8] * 92]), 0.005)
    assert one_run.tally.faulty == singly.tally.faulty == 1
    assert one_run.tally.highest == singly.tally.highest


def test_confirmed_faults_below_the_wanted_rate_are_no_failure_and_a_leak_always_is():
    rare = [["salad", *["right"] * 7], *[["right"] * 8] * 2_000]
    assert judge_storm(seens_of(rare), 0.005).verdict.word == "PASS"
    rare[0][0] = "foreign"
    assert judge_storm(seens_of(rare), 0.005).verdict.word == "FAIL"


def test_a_lost_answer_that_was_not_asked_again_counts_as_faulty():
    """A limit ended the storm before that, and the answer counted as the model's own miss."""
    rows = [["lost"], *[["right"]] * 999]
    unknown = judge_storm(seens_of(rows), 0.005)
    assert unknown.tally.faulty == 1
    seens = seens_of(rows)
    lost = seens.storm[0]
    seens.suspects[lost.key] = Suspect(lost, repeat_outcome=RequestOutcome("lost"))
    assert judge_storm(seens, 0.005).tally.faulty == 0


def test_a_leak_counts_though_a_limit_ended_its_round(storming):
    """What came of a round was thrown away where a limit ended it."""
    leaks = Reader(lambda said, log: of_another(said, log) if len(log) > 8 else said)
    asking, found = storming(leaks, rounds=9, flags={"limit_tokens": 8_000})
    assert "8,000 tokens" in asking.stopped
    assert found.tally.families == 0
    assert found.verdict.word == "FAIL"


def test_a_leak_among_the_first_prompts_counts_and_is_known_to_who_goes_on(storming):
    """They are asked before the first round, and were looked at for the server's ways alone."""

    class LeaksAtOnce(Reader):
        async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
            said = await super().answer(prompt, decoding)
            return Answer(self.log[0][1] if len(self.log) == 3 else said.text, "stop")

    _, found = storming(LeaksAtOnce(), rounds=1)
    assert found.verdict.word == "FAIL"
    _, again = storming(Reader(), rounds=1)
    assert again.said == found.said


def test_what_was_not_answered_counts_as_it_may_have_gone():
    refused = judge_storm(seens_of([*[["refused"] * 2] * 50, *[["right"]] * 1_000]), 0.005)
    assert refused.verdict.word == "NOT ENOUGH DATA"
    assert refused.tally.highest > 0.05


def around(before: list[str], since: list[str], cold: str = "right") -> Evidence:
    """Fresh prompts of two rounds, one client that goes away between them, and what came of the
    latter prompts when they were asked again cold."""
    made = make_round(1, 1, LIMITS).acts[0]
    left = Observation(1_999, 2, replace(made, cancel=0.5), RequestOutcome("cancelled"))
    rows = [Observation(at, 1, made, RequestOutcome(word)) for at, word in enumerate(before)]
    late = [Observation(2_000 + at, 2, made, RequestOutcome(word)) for at, word in enumerate(since)]
    again = RequestOutcome(cold)
    lost = {
        each.key: Suspect(each, repeat_outcome=again) for each in late if each.outcome.is_doubtful
    }
    return Evidence(storm=[*rows, left, *late], suspects=lost)


def test_a_server_that_a_client_spoilt_for_all_prompts_is_found_though_they_are_lost_cold_too():
    """Each lost prompt was lost alone as well, so it counted as the model's own fault, and the
    storm ended with 0."""
    found = judge_storm(around(["right"] * 60, ["lost", "right"] * 40, cold="lost"), 0.005)
    assert found.verdict.word == "FAIL"
    assert "0 of 60 lost before the first client went away, 40 of 80 since: faults" in found.said[1]
    weak = judge_storm(around(["lost", "right"] * 30, ["lost", "right"] * 40, cold="lost"), 0.005)
    assert weak.verdict.word == "NOT ENOUGH DATA"


def test_no_client_goes_away_before_it_is_known_what_fresh_prompts_lose():
    rounds = [make_round(1, number, LIMITS) for number in range(1, 20)]
    left = [each.number for each in rounds if any(act.cancel for act in each.acts)]
    assert left
    assert min(left) > CALM


class SpoiltByAClient(Reader):
    """Loses half of all answers once a client has gone away."""

    is_spoilt = False

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        said = await super().answer(prompt, decoding)
        try:
            await asyncio.sleep(0.004)
        except asyncio.CancelledError:
            self.is_spoilt = True
            raise
        lost = self.is_spoilt and len(self.log) % 2
        return Answer("I do not know.", "stop") if lost else said


def test_a_storm_finds_a_server_that_a_client_who_went_away_has_spoilt(storming):
    _, found = storming(SpoiltByAClient(), rounds=40)
    assert found.verdict.word == "FAIL"
    assert any("since: faults of state" in line for line in found.said)


def test_cold_equals_are_asked_alone_in_every_other_round(storming, monkeypatch):
    """A batch loses of equals as many as of the storm, and no pair told that apart."""
    sizes = list[tuple[str, int, int]]()
    send = Sender.send

    def counted(self, storm_round, acts, *, family, **more):
        sizes.append((family, storm_round.number, len(acts)))
        return send(self, storm_round, acts, family=family, **more)

    monkeypatch.setattr(Sender, "send", counted)
    storming(Reader(), rounds=2)
    first, second = ({n for *at, n in sizes if at == ["beside", number]} for number in (1, 2))
    assert second == {1}
    assert max(first) > 1


def test_a_weak_model_proves_nothing():
    weak = judge_storm(seens_of([["lost", "lost", "right"]] * 1_000), 0.005)
    assert weak.verdict.word == "NOT ENOUGH DATA"
    assert any("answers 33 % right" in line for line in weak.said)


def operated(turns_right: int, alone: str = "lost", turns_sent: int = 30) -> Evidence:
    """A storm whose fresh prompts are right, and so many follow-up turns; the others were sent
    again, alone."""
    made = make_round(1, 1, LIMITS).acts[0]
    turn = replace(made, operation="turn")
    words = ["right"] * turns_right + ["lost"] * (turns_sent - turns_right)
    rows = [Observation(at, at, made, RequestOutcome("right")) for at in range(2_000)]
    turns = [
        Observation(9_000 + at, at, turn, RequestOutcome(word)) for at, word in enumerate(words)
    ]
    again = RequestOutcome(alone)
    lost = {each.key: Suspect(each, repeat_outcome=again) for each in turns if each.outcome.is_lost}
    return Evidence(storm=[*rows, *turns], suspects=lost)


def test_an_operation_that_the_model_cannot_do_is_not_tested_and_is_part_of_no_pass():
    """0 of 22 follow-up turns were right, and the storm ended with 0: what is lost alone too
    counted as the model's own."""
    found = judge_storm(operated(turns_right=0), 0.005)
    assert found.verdict.word == "NOT ENOUGH DATA"
    assert found.verdict.scope.startswith("not tested: turn (0 of 30 right")
    assert "--without turn" in found.verdict.next
    assert "answers that could show a fault: fresh 2000 of 2000, turn 0 of 30" in found.said
    assert judge_storm(operated(turns_right=15), 0.005).verdict.word == "PASS"


@pytest.mark.parametrize(
    ("right", "sent", "word"),
    [
        (0, 6, "NOT ENOUGH DATA"),
        (2, 14, "NOT ENOUGH DATA"),
        (0, 5, "PASS"),
        (3, 8, "PASS"),
    ],
)
def test_an_operation_of_a_short_storm_is_not_tested_from_none_of_six_on(right, sent, word):
    """A storm to 5 % has 61 families, and so 8 requests of some operations: none of these were
    right, and it ended with 0 and 'tested: turn'."""
    found = judge_storm(operated(right, turns_sent=sent), 0.005)
    assert found.verdict.word == word
    assert ("tested: fresh, turn" in found.verdict.scope) is (right == 3)


def test_what_the_user_leaves_out_or_the_gauge_misses_is_no_untested_operation():
    left_out = judge_storm(operated(turns_right=0), 0.005, left_out=["turn"])
    assert left_out.verdict.word == "PASS"
    assert left_out.verdict.scope.endswith("; tested: fresh")
    assert "--without" not in left_out.verdict.next
    assert judge_storm(operated(0), 0.005, gauge=True).verdict.scope == "tested: fresh, turn"


def test_turns_that_are_right_alone_could_show_a_fault():
    found = judge_storm(operated(turns_right=0, alone="right"), 0.005)
    assert found.tally.operations["turn"] == OperationAnswers(sent=30, able=30)


class CannotGoOn(Reader):
    """Answers no follow-up turn right."""

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        said = await super().answer(prompt, decoding)
        turns = sum(each.role == "user" for each in prompt.messages)
        return Answer("I do not know.", "stop") if turns > 1 else said


def test_no_more_is_sent_of_an_operation_that_the_model_cannot_do(storming):
    asking, result = storming(CannotGoOn(), rounds=40)
    without = asking.storm.fixed.without
    assert {"turn"} <= set(without)
    late = [each for each in asking.evidence.storm if each.round >= without["turn"]]
    assert late
    assert "turn" not in {each.act.operation for each in late}
    assert asking.evidence.untested()["turn"].able == 0
    tested = asking.document(result).tested
    assert "fresh" in tested
    assert "turn" not in tested


def at_rounds(lost_from: int, lost_until: int = 100, rounds: int = 100) -> Evidence:
    """Twenty fresh prompts a round; in some rounds all are lost, alone too; nobody goes away."""
    made = make_round(1, 1, LIMITS).acts[0]
    words = {at: "lost" if lost_from <= at < lost_until else "right" for at in range(rounds)}
    rows = [
        Observation(1_000 * at + number, at, replace(made, family=number), RequestOutcome(word))
        for at, word in words.items()
        for number in range(20)
    ]
    lost = {
        each.key: Suspect(each, repeat_outcome=RequestOutcome("lost"))
        for each in rows
        if each.outcome.is_lost
    }
    return Evidence(storm=rows, suspects=lost)


@pytest.mark.parametrize("start", [5, 45, 55, 90, 98])
def test_a_server_that_is_dead_from_some_round_on_is_found_though_no_client_went_away(start):
    """1,619 of 3,600 were lost, cold too, and the storm ended with 0."""
    found = judge_storm(at_rounds(start), 0.005)
    assert found.verdict.word == "FAIL"
    assert any(f"before round {start}, " in line or "since: faults" in line for line in found.said)


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (0, 30), (0, 45), (10, 20), (50, 53)])
def test_a_server_that_is_dead_up_to_some_round_or_for_a_while_is_found(start, stop):
    """Dead for the first third, cold too, and right since: 667 of 2,000 were lost, and the storm
    ended with 0."""
    found = judge_storm(at_rounds(start, stop), 0.005)
    assert found.verdict.word == "FAIL"
    assert any("prompts that share nothing: " in line for line in found.said)


def test_an_operation_that_is_left_out_later_is_no_change_of_the_server():
    """Turns that the model cannot do were lost, cold too, until no more were sent."""
    evidence = at_rounds(0, 0)
    turns = operated(turns_right=0)
    pairs = [(turn, RequestOutcome("lost")) for turn in turns.storm if turn.act.operation == "turn"]
    found = judge_storm(replace(evidence, pairs=pairs), 0.005, left_out=["turn"])
    assert not [line for line in found.said if "share nothing" in line]


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_is_as_wrong_throughout_is_not_blamed_for_the_time(seed):
    random, seens = Random(seed), at_rounds(0, 0)
    rows = [
        replace(each, outcome=RequestOutcome("lost")) if random.random() < 0.1 else each
        for each in seens.storm
    ]
    again = RequestOutcome("lost")
    lost = {each.key: Suspect(each, repeat_outcome=again) for each in rows if each.outcome.is_lost}
    assert judge_storm(Evidence(storm=rows, suspects=lost), 0.005).verdict.word == "PASS"


def test_the_document_is_json_and_holds_the_whole_sequence(storming):
    asking, _ = storming(Reader(), rounds=1)
    told = json.loads((asking.storm.folder.path / "storm.json").read_text())
    names = {"key", "session", "operation", "at_s", "seconds", "tokens", "outcome"}
    assert names <= set(told["sequence"][0])


SIDE = {"model": "openai/m", "base_url": "http://127.0.0.1:1/v1", "tokenizer": "cl100k_base"}
OTHERS = {
    "reference": ("http://127.0.0.1:9/v1", "margins are set beside 'http://127.0.0.1:9/v1'"),
    "code": ("python/evil:answer", "margins are set beside 'python/evil:answer'"),
    "none": ("", "margins are set beside nothing"),
}


@pytest.mark.parametrize(("named", "said"), OTHERS.values(), ids=OTHERS)
def test_the_reference_is_the_typed_one_and_another_of_the_file_is_refused(tmp_path, named, said):
    """storm.json is not signed: its reference got each prompt with the user's key, or ran."""
    file = StormFile(seed=1, model=SIDE["model"], max_length=2_000, load=4, reference=named)
    STORM.write(tmp_path, file)
    typed = REFERENCE if not named else ""
    options = StormOptions(SIDE, max_length=2_000, load=4, reference=typed)
    with pytest.raises(NeedlemapError, match=re.escape(said)):
        Storm.of(options, tmp_path)
    again = Storm.of(replace(options, reference=named), tmp_path)
    assert again.options.reference == named


def test_a_files_word_does_not_let_clients_go_away_at_anothers_server(tmp_path):
    """storm.json alone was enough for what only --own allows."""
    STORM.write(tmp_path, StormFile(seed=1, model=SIDE["model"], max_length=2_000, load=4))
    away = {**SIDE, "base_url": "https://models.example/v1"}
    options = StormOptions(away, max_length=2_000, load=4)
    with pytest.raises(NeedlemapError, match="type the same with --own"):
        Storm.of(options, tmp_path)
    assert Storm.of(replace(options, own=True), tmp_path).limits.cancels
    assert Storm.of(replace(options, flags=SIDE), tmp_path).limits.cancels


def test_the_sentence_of_a_storm_without_a_fault():
    said = bound_words("0", 2_310, highest_rate(0, 2_310))
    assert said == "0 of 2,310: fault rate below 0.21 %"
