"""A check of an engine that has the gauge: settings settle themselves, what is lost is the engine's
fault, and the reference is this package's own engine."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needlemap.asking.discovery import Reached
from needlemap.deadline import clock, limited_to
from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.http import Sent
from needlemap.models import Answer, Decoding
from needlemap.models.walk import Engine
from needlemap.prompts import Prompt
from needlemap.servers.ab.file import Arm
from needlemap.servers.check import Answers, Schedule, haystack, known_by_answer
from needlemap.servers.check.ask import BESIDE, Ask, Reply
from needlemap.servers.check.asking import Check, CheckOptions, ProbesOnSchedule
from needlemap.servers.check.beside import counted_apart
from needlemap.servers.check.coarse import ALIKE, likeness_of_moves
from needlemap.servers.check.finding import CHECK, AtSize
from needlemap.servers.check.gauge import (
    MOVES,
    ab_settings,
    arms_of_the_gauge,
    gauge_options,
    named_gauge,
    with_reference,
)
from needlemap.servers.check.haystack import TOSSES, Amount, Options
from needlemap.servers.check.judge import Checked, judge
from needlemap.servers.check.known_by_answer import (
    ITS_ANSWER,
    answers_as_the_gauge,
    known_as_gauge,
    refuse_other_shape,
)
from needlemap.servers.check.probe import LEAST, LOSS, Paired
from needlemap.servers.check.repeats import with_toss
from needlemap.servers.gauge.cache import (
    CoarseEngine,
    eight_bits,
    four_bits,
    fp8,
    fp8_cut_off,
    rotated_rounding,
)
from needlemap.servers.gauge.checkpoint import DATA, REFERENCE, holds_tokens, write_checkpoint
from needlemap.servers.gauge.model import NAME, GaugeModel
from needlemap.stats.verdicts import exit_code

HOLDS = holds_tokens()


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("openai/gauge", True),
        ("openai//srv/models/gauge", True),
        ("hf/./gauge", True),
        ("openai/gauge.gguf", True),
        ("openai/gauge:latest", True),
        ("openai/gauges", False),
        ("openai/gauge/other", False),
    ],
)
def test_it_is_known_by_the_names_that_engines_make_of_its_folder(model: str, known: bool) -> None:
    assert named_gauge(model) is known
    assert (gauge_options(CheckOptions({"model": model}))[0].reference != "") is known


def test_its_tokenizer_lengths_and_reference_are_settled() -> None:
    made, said = gauge_options(CheckOptions({"model": "openai/gauge"}))
    assert made.flags["tokenizer"] == str(DATA)
    assert (made.reference, made.options.max_length) == ("gauge/numpy", 8_192)
    assert made.options.holds == HOLDS == 16_384
    assert said.endswith("For another model: --no-gauge")


def test_what_was_typed_stays() -> None:
    flags = {"model": "openai/gauge", "tokenizer": "cl100k_base"}
    options = Options(max_length=1_000, promised=True)
    made, _ = gauge_options(CheckOptions(flags, options, reference="hf/./m"))
    assert made.flags["tokenizer"] == "cl100k_base"
    assert (made.reference, made.options.max_length) == ("hf/./m", 1_000)


def test_a_template_of_ones_own_has_no_free_reference() -> None:
    """A chat server put it into its own template: margins moved by .2 nats, and it was blamed."""
    flags = {"model": "openai/gauge", "template": "text-en"}
    made, said = gauge_options(CheckOptions(flags))
    assert (made.reference, made.options.moves) == ("", ())
    assert "no reference beside a --template" in said
    asked = CheckOptions(flags, reference=REFERENCE)
    assert gauge_options(asked)[0].reference == REFERENCE
    plain = CheckOptions({**flags, "model_options": {"api": "completions"}})
    assert gauge_options(plain)[0].reference == REFERENCE


def test_a_library_puts_a_typed_template_into_its_own_too(tmp_path: Path) -> None:
    """transformers in this process did, and an honest one was blamed: its margins moved by .2
    nats."""
    flags = {"model": f"hf/{write_checkpoint(tmp_path / 'gauge')}", "template": "text-en"}
    plain = {**flags, "model_options": {"base": True}}
    found = [gauge_options(CheckOptions(each))[0].reference for each in (flags, plain)]
    assert found == ["", REFERENCE]


def test_by_completions_with_its_own_template_it_is_known_to_find_all() -> None:
    """It was not, so that a temperature that was left on passed there."""
    flags = {"model": "openai/gauge", "model_options": {"api": "completions"}}
    holds = {
        template: gauge_options(CheckOptions({**flags, "template": template}))[0].options.holds
        for template in ("text-en", "chat-en", "llama3")
    }
    assert holds == {"text-en": HOLDS, "chat-en": HOLDS, "llama3": 0}


@pytest.mark.parametrize("name", ["needle", "template", "haystack", "temperature"])
def test_with_a_needle_of_ones_own_nothing_is_known_of_what_it_finds(name: str) -> None:
    made, _ = gauge_options(CheckOptions({"model": "openai/gauge", name: "x"}))
    assert made.options.holds == 0


def test_a_flag_decides_before_the_name() -> None:
    asked = CheckOptions({"model": "openai/gauge"})
    assert gauge_options(asked, is_gauge=False) == (asked, "")
    assert gauge_options(replace(asked, flags={"model": "openai/x"}), is_gauge=True)[0].reference


def test_an_ab_of_one_arm_gets_the_packages_own_gauge_before_it() -> None:
    served = Arm("mine", "openai/gauge", "http://127.0.0.1:1/v1")
    arms = with_reference([served])
    assert [arm.model for arm in arms] == ["gauge/numpy", "openai/gauge"]
    assert arms_of_the_gauge(arms)
    with pytest.raises(SettingsError, match="is not named so: --gauge"):
        arms_of_the_gauge([arms[0], replace(served, model="openai/m")])
    assert arms_of_the_gauge([arms[0], replace(served, model="openai/m")], is_gauge=True)
    assert ab_settings({"depths": "50"})["depths"] == "50"


def changed(folder: Path, **config: object) -> Path:
    """The gauge for transformers, told to compute something else."""
    path = write_checkpoint(folder) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


@pytest.mark.parametrize(
    ("rotary", "code"),
    [
        ({"rope_theta": 1e12, "rope_type": "default"}, 0),
        ({"rope_theta": 2e12, "rope_type": "default"}, 1),
    ],
    ids=["as it is", "twice the base"],
)
def test_wrong_rotary_positions_are_found_without_a_second_model(
    needlemap: Callable[..., object], tmp_path: Path, rotary: dict[str, object], code: int
) -> None:
    pytest.importorskip("torch")
    folder = changed(tmp_path / "gauge", rope_parameters=rotary)
    probes = ("--probe", "reference", "--require", "reference")
    sizes = ("--max-length", "256", "--load", "2", "--model-options", "dtype=float32")
    needlemap("check", "--model", f"hf/{folder}", *probes, *sizes, "-o", "c", code=code)
    found = json.loads((tmp_path / "c" / "check.json").read_text())
    state = {each["probe"]: each["state"] for each in found["findings"]}
    assert state["reference"] == ("FAIL" if code else "PASS")
    assert found["reference"] == "gauge/numpy"
    said = found["findings"][0]["said"]
    assert ("as float32 may (to 7e-05)" in said) == (not code)


def checked(
    folder: Path,
    engine: Engine | None = None,
    *,
    exact: bool = False,
    make: Callable[[], GaugeModel] | None = None,
) -> Checked:
    """A check of the gauge in this process beside its reference, with another engine or model."""
    options = Options(256, probes=("reference",), require=("reference",), exact=exact)
    asked, _ = gauge_options(CheckOptions({"model": REFERENCE}, options), is_gauge=True)
    check = Check.of(asked, folder)
    model = make() if make else GaugeModel(NAME, engine)
    probes = ProbesOnSchedule(check, make=lambda _: model)
    return asyncio.run(probes.run())


class WithoutRunnersUp(GaugeModel):
    """Shows the log-probabilities of its own tokens alone, as servers without top_logprobs do."""

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        answer = await super().answer(prompt, decoding)
        if answer.logprobs is None:
            return answer
        nothing = (None,) * len(answer.logprobs.tokens)
        logprobs = replace(answer.logprobs, others=nothing, other_nats=nothing)
        return replace(answer, logprobs=logprobs)


def test_a_server_without_runners_up_is_not_blamed_for_its_margins(tmp_path: Path) -> None:
    """Its log-probabilities were taken for margins: 12 nats a token from the reference's."""
    options = Options(256, probes=("reference",), require=("reference",))
    asked, _ = gauge_options(CheckOptions({"model": REFERENCE}, options), is_gauge=True)
    probes = ProbesOnSchedule(Check.of(asked, tmp_path), make=lambda _: WithoutRunnersUp(NAME))
    verdict = asyncio.run(probes.run())
    (finding,) = verdict.findings
    assert finding.state == "PASS"
    assert "margins were not compared, so a coarse cache is not seen" in finding.said


@pytest.mark.long
def test_a_coarse_cache_is_a_choice_unless_it_was_said_to_be_exact(tmp_path: Path) -> None:
    """A cache of 4 bits moves every margin by a nat and loses no answer. It was called a fault."""
    engine = CoarseEngine(rotated_rounding(four_bits))
    verdict = checked(tmp_path, engine)
    (found,) = verdict.findings
    assert verdict.verdict.word == found.state == "SUSPECT"
    assert found.said.startswith(f"{found.sizes[0].size}: cache coarser than the weights by ")
    assert "] nats a token" in found.said
    exact = checked(tmp_path, engine, exact=True)  # of the same answers
    assert exact.verdict.word == exact.findings[0].state == "FAIL"


class LosesOne(GaugeModel):
    """The gauge with another engine, whose third answer is none."""

    asked = 0

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        self.asked += 1
        answer = await super().answer(prompt, decoding)
        return Answer("Not said.", "stop") if self.asked == 3 else answer


@pytest.mark.long
def test_an_answer_that_a_coarse_cache_loses_once_makes_it_no_fault(tmp_path: Path) -> None:
    """llama-server with a cache of q4_0 failed in one check of 24."""
    engine = CoarseEngine(rotated_rounding(four_bits))
    verdict = checked(tmp_path, make=lambda: LosesOne(NAME, engine))
    (found,) = verdict.findings
    assert verdict.verdict.word == found.state == "SUSPECT"
    assert "cache coarser than the weights by " in found.said
    assert ", 1 of 12 lost and found when asked again" in found.said


@pytest.mark.long
def test_a_cache_in_8_bit_floats_is_a_choice_and_mantissas_cut_off_are_a_fault(
    tmp_path: Path,
) -> None:
    """An engine wrote its fp8 cache without rounding: every key and value was 4 % too small."""
    rounded = checked(tmp_path / "rounded", CoarseEngine(fp8))
    assert rounded.verdict.word == rounded.findings[0].state == "SUSPECT"
    assert "cache coarser than the weights by " in rounded.findings[0].said
    cut = checked(tmp_path / "cut", CoarseEngine(fp8_cut_off))
    assert cut.verdict.word == cut.findings[0].state == "FAIL"
    assert "the cache's mantissas are cut off: margins move by " in cut.findings[0].said


def test_each_cache_keeps_the_numbers_that_its_format_has() -> None:
    values = np.array([[0.0, 0.30, 1.19, -1.19, 500.0, -0.001] + [0.0] * 26], np.float32)
    assert fp8(values)[0, :6].tolist() == [0, 0.3125, 1.25, -1.25, 448, -0.001953125]
    assert fp8_cut_off(values)[0, :6].tolist() == [0, 0.28125, 1.125, -1.125, 448, 0]
    values[0, 4] = 8
    assert four_bits(values)[0, :6].tolist() == [0, 0, 1, -1, 8, 0]
    assert eight_bits(values)[0, :6] == pytest.approx([0, 0.315, 1.197, -1.197, 8, 0], abs=1e-3)
    assert not four_bits(np.zeros((1, 32), np.float32)).any()


class TimeGone(GaugeModel):
    """The gauge with another engine, whose command has no time left after so many answers."""

    def __init__(self, engine: Engine, answers: int) -> None:
        super().__init__(NAME, engine)
        self.left = answers

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        self.left -= 1
        if self.left == 0:
            clock().began_s -= 2 * HOUR_S
        return await super().answer(prompt, decoding)


HOUR_S = 3600


@pytest.mark.parametrize("answers", [30, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_limit_that_ends_a_check_leaves_its_verdict_on_moved_margins(
    tmp_path: Path, answers: int
) -> None:
    """Prompts are built again to compare their margins with those of coarse caches. There was no
    time left for that: exit code 3, and no verdict."""
    options = Options(256, probes=("reference",), require=("reference",))
    asked, _ = gauge_options(CheckOptions({"model": REFERENCE}, options), is_gauge=True)
    with limited_to(HOUR_S, "--minutes"):
        check = Check.of(asked, tmp_path)
        probes = ProbesOnSchedule(
            check, make=lambda _: TimeGone(CoarseEngine(rotated_rounding(four_bits)), answers)
        )
        verdict = asyncio.run(probes.run())
    with limited_to(HOUR_S, "--minutes"):
        again = Check.of(asked, tmp_path)
        clock().began_s -= 2 * HOUR_S
        same = asyncio.run(ProbesOnSchedule(again).run())
    (found,) = verdict.findings
    assert "cache coarser than the weights by " in found.said
    assert verdict.verdict.word == "SUSPECT"
    assert same.findings == verdict.findings
    assert CHECK.read(tmp_path).verdict.word == "SUSPECT"


def test_margins_that_all_move_alike_are_no_coarse_cache() -> None:
    """Values 1.05 times as large move all margins by a nat, as a cache of 4 bits does in the mean;
    what is computed with that cache is not like it."""
    cache = np.array([-1.3, -0.7, -1.5, -0.9])
    values = np.array([-1.01, -1.0, -1.0, -1.01])
    assert (
        likeness_of_moves(values, cache) < ALIKE < likeness_of_moves(cache + 0.05 * values, cache)
    )


def test_thresholds_grow_by_data_type() -> None:
    limits = [most for _, most in MOVES]
    assert limits == sorted(limits)


def test_a_template_that_adds_tokens_is_named() -> None:
    pairs = [(reply_of(at, tokens=100), reply_of(at, tokens=109)) for at in range(LEAST)]
    assert counted_apart(pairs).endswith(
        "109 tokens where the model has 100: another chat template"
    )
    assert counted_apart([(one, one) for one, _ in pairs]) == ""
    assert counted_apart(pairs[1:]) == ""


def reply_of(number: int, tokens: int) -> Reply:
    return Reply(Ask("cold", 200, 200, 0.5, number), prompt_tokens=tokens)


def test_kv_exact_is_of_the_gauge_alone(needlemap: Callable[..., object]) -> None:
    ended = needlemap("check", "--model", "demo/retriever", "--kv", "exact", "--plan", code=2)
    assert "--kv exact judges a server of needlemap's gauge" in str(getattr(ended, "stderr", ""))


LOSES = {  # a way in which a server loses all answers, by the probe that is meant for it
    "cache": "warm",
    "onset": "cold",
    "load": "loaded",
    "reference": "cold",
}


def few_asked(lost: str = "", size: int = 0, most: int = 99) -> tuple[Schedule, Checked, Answers]:
    """A check of the gauge by a server that loses answers of one way at one size: all, or those of
    the first haystacks."""
    asked, _ = gauge_options(CheckOptions({"model": "openai/gauge"}))
    schedule = Schedule(replace(asked.options, reference=True), seed=7)
    answers, first = Answers(), schedule.sizes
    while (batch := schedule.next_batch(answers)) is not None:
        for ask in batch.asks:
            is_lost = ask.way.partition("-again")[0] == lost and ask.size == first[size]
            is_lost = is_lost and ask.repeat < most
            answers.add(Reply.of(ask, "Not said." if is_lost else ask.secret))
    return schedule, judge(schedule, answers), answers


def test_the_gauge_is_asked_half_as_much_and_a_pass_excludes_as_much() -> None:
    schedule, verdict, answers = few_asked()
    assert {reply.ask.round for reply in answers.by_key.values()} == {1}  # none is left undecided
    many = Schedule(replace(schedule.options, few=False), seed=7)
    assert schedule.first_round_cost.prompts < many.first_round_cost.prompts / 2 + 100
    found = {each.probe: each for each in verdict.findings}
    for name, probe in schedule.probes.items():
        if isinstance(probe, Paired):
            assert found[name].state == "PASS", name
            for row in found[name].sizes:
                assert row.n >= 12, name
                assert row.upper < 100 * LOSS, name
    assert {found[name].state for name in ("length", "pattern", "same", "mates")} == {"PASS"}


@pytest.mark.parametrize(
    ("serial", "most", "undecided"),
    [(False, 15, False), (False, 14, True), (True, 12, False), (True, 11, True)],
)
def test_fifteen_haystacks_of_each_size_are_enough_where_time_ends_a_check(
    serial: bool, most: int, undecided: bool
) -> None:
    """All 24 were needed, so a check that half of its time was left for passed nothing. Of a model
    that answers one prompt at a time, twelve are enough."""
    asked, _ = gauge_options(CheckOptions({"model": "openai/gauge"}))
    known = replace(asked.options, max_length=8_000, reference=True, logprobs=True)
    options = replace(known, serial=serial)
    schedule, answers, begun = Schedule(options, seed=7), Answers(), Counter[int]()
    for each in schedule.first_round:
        begun[each.size] += 1
        if each.is_short or begun[each.size] <= most:
            for ask in (ask for batch in each.batches for ask in batch.asks):
                margins = tuple(("7", 12.0) for _ in range(12))
                answers.add(replace(Reply.of(ask, ask.secret), margins=margins))
    verdict = judge(schedule, answers)
    assert verdict.verdict.word == ("NOT ENOUGH DATA" if undecided else "PASS")
    assert any(each.is_open for each in verdict.findings) is undecided
    for found in verdict.findings:
        if isinstance(schedule.probes[found.probe], Paired):
            assert all(row.upper < 100 * LOSS for row in found.sizes if row.state == "PASS")


@pytest.mark.parametrize("size", [0, 1, 2])
@pytest.mark.parametrize(("probe", "way"), LOSES.items())
def test_what_half_as_many_prompts_lose_is_found_at_each_size(
    probe: str, way: str, size: int
) -> None:
    schedule, verdict, _ = few_asked(way, size)
    (found,) = (each for each in verdict.findings if each.probe == probe)
    assert verdict.verdict.word == "FAIL"
    assert [row.state == "FAIL" for row in found.sizes] == [at == size for at in range(3)]
    assert found.sizes[size].size == schedule.sizes[size]


def test_a_few_answers_that_only_the_server_loses_are_a_fault_of_it() -> None:
    """The gauge finds all, so nothing is gained to set a loss against: four of thirteen long
    prompts that only the reference answers were undecided."""
    _, verdict, _ = few_asked("cold", 2, most=16)  # every second first prompt is asked alone
    (found,) = (each for each in verdict.findings if each.probe == "reference")
    assert found.sizes[2].lost == 4
    assert found.sizes[2].state == "FAIL"


def test_many_asks_more_of_the_gauge_and_few_less_of_others(
    needlemap: Callable[..., object],
) -> None:
    flags = ("check", "--model", "gauge/numpy", "--gauge", "--plan", "--max-length", "2k")
    few, many, other, few_others = (
        json.loads(str(getattr(needlemap(*flags, "--json", *more), "stdout", "")))["total"]
        for more in ((), ("--many",), ("--no-gauge",), ("--no-gauge", "--few"))
    )
    assert few["prompts"] < many["prompts"] / 1.5
    assert few_others["prompts"] < other["prompts"] / 1.5


def test_the_reference_is_computed_while_a_server_computes_the_same_prompt() -> None:
    options = Options(512, answer_tokens=24, around=90, reference=True, moves=MOVES)
    for serial, together in ((False, True), (True, False)):
        schedule = Schedule(replace(options, serial=serial), seed=7)
        (haystack,) = (
            each for each in schedule.first_round if (each.size, each.repeat) == (512, 0)
        )
        first = [ask.way for ask in haystack.batches[0].asks]
        assert (first == ["cold", "reference-cold"]) is together


class Heated(GaugeModel):
    """Samples, whatever temperature was asked for."""

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        self.asked = getattr(self, "asked", 0) + 1
        heated = replace(decoding, temperature=1.0, seed=self.asked)
        return await super().answer(prompt, heated)


@pytest.mark.long
@pytest.mark.parametrize(("model", "code"), [(GaugeModel, 0), (Heated, 1)])
def test_a_temperature_that_was_left_on_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: type[GaugeModel], code: int
) -> None:
    """The gauge is so sure that a temperature of 2 changed no answer. With six values of one key
    it is not, and the same question has another answer."""
    monkeypatch.setattr(haystack, "FEW", Amount((12, 12, 12), (1, 1, 1), (1, 1, 1), 2, TOSSES))
    options = Options(256, probes=("same",), require=("same",))
    asked, _ = gauge_options(CheckOptions({"model": REFERENCE}, options), is_gauge=True)
    check = Check.of(asked, tmp_path)
    verdict = asyncio.run(ProbesOnSchedule(check, make=lambda _: model(NAME)).run())
    (found,) = verdict.findings
    assert exit_code(verdict.verdict.word) == code, found.said
    assert ("a temperature or another sampling is on" in found.said) == bool(code)
    assert found.known == ()


def test_ties_that_rounding_tips_are_no_temperature() -> None:
    row = AtSize(160, "PASS", said="0 of 24 change")
    ask = Ask("toss", 121, 249, 0.5, 0)
    same, other = (Reply(ask, "1."), Reply(ask, "1.")), (Reply(ask, "1."), Reply(ask, "2."))
    found = [with_toss(row, [other] * n + [same] * (TOSSES - n), 1e-4) for n in (0, 3, 11, 14)]
    assert [each.state for each in found] == ["PASS", "PASS", "SUSPECT", "FAIL"]
    assert found[0].said == row.said
    assert "3 of 24 give another one" in found[1].said


def test_its_question_goes_to_addresses_of_ones_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object, **__: object) -> None:
        raise AssertionError("it was asked")

    monkeypatch.setattr(known_by_answer.SyncJsonClient, "ask", ask)
    assert not answers_as_the_gauge("https://api.example.com/v1", "mine", Sent("NONE"))
    assert answers_as_the_gauge("https://api.example.com/v1", "gauge", Sent("NONE"))
    with pytest.raises(AssertionError, match="it was asked"):
        answers_as_the_gauge("http://127.0.0.1:1/v1", "mine", Sent("NONE"))


def test_a_server_that_does_not_answer_in_time_is_said_to_be_taken_for_another_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cold vLLM on a CPU needed a minute, and was asked as an unknown model without a word."""

    def ask(*_: object, **__: object) -> None:
        raise Unmeasured(Failure.TIMED_OUT, "no reply")

    monkeypatch.setattr(known_by_answer.SyncJsonClient, "ask", ask)
    assert known_by_answer.LONGEST_S >= 60
    assert not answers_as_the_gauge("http://127.0.0.1:1/v1", "mine", Sent("NONE"))
    assert "'mine' did not answer a question within 120 s" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [ITS_ANSWER[:-1], "Nobody."])
def test_a_server_with_another_answer_is_another_model(wires: Any, answer: str) -> None:
    server = wires("--answer", answer)
    assert not answers_as_the_gauge(server.base_url, "mine", Sent("NONE"))


@pytest.mark.parametrize(("signs", "known"), [("?", True), ("?!", False), ("!", False)])
def test_a_server_is_known_by_the_very_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], signs: str, known: bool
) -> None:
    """Only the shape qwen3, whose reference is another one, takes "!" for a question, too."""

    def answer_to(question: str, *_: object) -> str:
        return ITS_ANSWER if question[-1] in signs else "Nobody."

    monkeypatch.setattr(known_by_answer, "answer_to", answer_to)
    assert answers_as_the_gauge("http://127.0.0.1:1/v1", "mine", Sent("NONE")) is known
    assert ("serve it as gauge-qwen3" in capsys.readouterr().err) == (signs == "?!")


def test_the_shape_qwen3_under_the_name_of_the_others_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was compared with other weights, and failed without a fault."""
    monkeypatch.setattr(known_by_answer, "answer_to", lambda *_: ITS_ANSWER)
    with pytest.raises(SettingsError, match="serve it as gauge-qwen3"):
        refuse_other_shape("http://127.0.0.1:1/v1", "gauge", Sent("NONE"))
    served = Reached("http://127.0.0.1:1/v1", Sent("NONE"), None)
    with pytest.raises(SettingsError, match="serve it as gauge-qwen3"):
        known_as_gauge(True, {"model": "openai/mine"}, served)
    refuse_other_shape("http://127.0.0.1:1/v1", "gauge-qwen3", Sent("NONE"))
    refuse_other_shape("https://api.example.com/v1", "gauge", Sent("NONE"))
    monkeypatch.setattr(known_by_answer, "answer_to", lambda *_: "Nobody.")
    refuse_other_shape("http://127.0.0.1:1/v1", "gauge", Sent("NONE"))


@pytest.mark.parametrize(("far", "state"), [(0, "PASS"), (1, "PASS"), (5, "SUSPECT"), (10, "FAIL")])
def test_margins_beyond_every_data_type_are_no_rounding(far: int, state: str) -> None:
    """One tensor through fp8 moved 10 of 24 prompts by more than twice what bfloat16 does, and
    passed: of an unknown model one in five may."""
    asked, _ = gauge_options(CheckOptions({"model": "openai/gauge"}))
    schedule = Schedule(replace(asked.options, reference=True), seed=7)
    size, answers = schedule.sizes[-1], Answers()
    for made in (each for each in schedule.first_round if each.size == size):
        here = made.cold
        there = replace(here, way=f"{BESIDE}{here.way}")
        moved = 0.25 if made.repeat < far else 0.05
        answers.add(replace(Reply.of(there, there.secret), margins=(("1", 15.0),)))
        answers.add(replace(Reply.of(here, here.secret), margins=(("1", 15.0 + moved),)))
    probe = schedule.probes["reference"]
    assert probe.row(schedule, answers, size, probe.level(1, 3)).state == state
