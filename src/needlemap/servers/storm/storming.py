"""Run a storm from start to end: rounds that follow from the seed, replays, a rate.

What was sent is on disk before anything is made of it, and all that a storm does follows from its
seed, so the same command resumes where an earlier one ended. How requests are sent is in
`sending.py`, how margins are compared in `weighing.py`, what is replayed in `replaying.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from needlemap.asking.campaign import MakeModel
from needlemap.asking.session import check_price, make_model
from needlemap.deadline import LimitReached, without_limit
from needlemap.records.families import begin_families
from needlemap.records.record import Record
from needlemap.servers.check.judge import ALL_MISSED, missed_advice
from needlemap.servers.storm.act import Act, Round, key_of
from needlemap.servers.storm.equal import Equal
from needlemap.servers.storm.evidence import FEWEST_SENT, Evidence, Observation
from needlemap.servers.storm.file import STORM, Replayed, StormFile, StormRequest
from needlemap.servers.storm.judge import StormResult, judge_storm
from needlemap.servers.storm.moves import Moves
from needlemap.servers.storm.operations import OPERATIONS
from needlemap.servers.storm.operations.flood import Flood
from needlemap.servers.storm.operations.fresh import Fresh
from needlemap.servers.storm.outcome import MOVED, UNCOMPARED, RequestOutcome
from needlemap.servers.storm.reference import ReferenceRequest
from needlemap.servers.storm.replaying import Replayer
from needlemap.servers.storm.sending import Sender
from needlemap.servers.storm.storm import (
    ALONE,
    ALONE_AGAIN,
    BESIDE,
    FIRSTS,
    STORMED,
    RoundAnswers,
    Storm,
    first_round,
)
from needlemap.servers.storm.tally import GOAL, POINTS, wealth_of
from needlemap.servers.storm.weighing import Weigher
from needlemap.stats.verdicts import PASS

# Of requests, the share whose margins are compared: the reference costs CPU.
WEIGHED_SHARE = 0.15
# Of requests, the share whose prompt is also sent cold in the same minutes.
BESIDE_SHARE = 0.3
# Times the requests that were judged, after which a storm is judged anew: judging reads them all.
GROWN = 1.01
# Characters of a wrong answer that the message about missed first prompts shows.
_SHOWN = 120

Progress = Callable[[int, int, str], None]


def show_nothing(_number: int, _requests: int, _claim: str) -> None:
    """Hear of requests that ended: the round, how many were sent by then, what is known."""


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """One of the first prompts, with what came of it."""

    act: Act
    record: Record
    outcome: RequestOutcome

    @property
    def is_single(self) -> bool:
        """Return True if it was asked for one fact alone."""
        return len(self.act.asked_facts) == 1


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """A request of a round, with its record and the answers before it, which its prompt holds."""

    observation: Observation
    record: Record | None
    earlier_answers: RoundAnswers


class StormInRounds:
    """A storm that sends round after round until the rate is known, a fault is sure, or a limit
    is met.

    Attributes:
        storm: The storm on disk.
        evidence: What was observed.
        sender: What sends its requests.
        missed: The message if the first prompts were all missed; '' if not.
        number: The number of the round.

    Args:
        make, make_reference: Makers of the model and of the reference.
        rounds: The most rounds; None for no limit.
    """

    def __init__(
        self,
        storm: Storm,
        progress: Progress = show_nothing,
        make: MakeModel = make_model,
        *,
        rounds: int | None = None,
        make_reference: MakeModel = make_model,
    ) -> None:
        self.storm = storm
        self.rounds = rounds
        self.progress = progress
        self.evidence = Evidence(
            moves=Moves() if storm.reference else None,
            equal=Equal(storm.options.dtype),
        )
        self.sender = Sender(
            storm,
            self.evidence,
            make=make,
            make_reference=make_reference,
            on_wave=self._show_progress,
        )
        self.weigher = Weigher(self.sender, self.evidence)
        self.replayer = Replayer(self.sender, self.weigher, self.evidence)
        self.missed = ""
        self.number = 0
        self._last_result: StormResult | None = None
        # Requests that were judged at the last look.
        self._judged_count = 0

    @property
    def stopped(self) -> str:
        """Return why the storm stopped early, or '' if it did not."""
        return self.sender.stopped

    @property
    def finishes(self) -> list[str | None]:
        """Return how the answers ended, in the server's words."""
        return self.sender.finishes

    async def run(self) -> StormResult:
        """Send, and return the verdict. Raises NeedlemapError if no request was answered."""
        async with self.sender.campaign:
            return await self._run_in_campaign()

    @property
    @without_limit()
    def result(self) -> StormResult:
        """Return the verdict by what was observed so far."""
        options = self.storm.options
        moves = self.evidence.moves
        if moves and wealth_of(self.evidence.moved_suspects) >= POINTS:
            moves.find_cache()
        result = judge_storm(
            self.evidence,
            options.wanted,
            gauge=options.gauge,
            left_out=options.without,
            little=self.storm.fixed.little if self.storm.fixed else None,
        )
        if not self.missed:
            return replace(result, said=(*result.said, *self._unsent_operations()))
        # A leak is one whatever the model finds.
        return result if result.tally.leaks else replace(result, verdict=ALL_MISSED)

    def _unsent_operations(self) -> list[str]:
        """Return the operations that this server or these lengths do not allow, in words."""
        limits = self.storm.limits_at(self.number)
        names = [
            operation.name
            for operation in OPERATIONS
            if operation.share and not operation.applies(limits)
        ]
        if not names:
            return []
        return [f"not sent, as the server or the lengths do not allow it: {', '.join(names)}"]

    async def _run_in_campaign(self) -> StormResult:
        storm, path = self.storm, self.storm.folder.path
        check_price(storm.resolved.settings)
        begin_families(path, "storm", storm.folder.names)
        if not STORM.is_in(path):
            STORM.write(path, storm.file())
        try:
            await self._send_first()
            while not self.stopped and not self._is_decided() and self.number != self.rounds:
                self.number += 1
                await self._send_round(self.number)
                self._leave_out_untested()
        except LimitReached as error:
            # While prompts were built.
            self.sender.stopped = str(error)
            self.sender.is_limited = True
        finally:
            result = self.result
            if storm.fixed is not None:
                STORM.write(path, self.document(result))
        if not self.sender.has_answer and not self.missed:
            raise self.sender.no_answer()
        return result

    def _show_progress(self) -> None:
        claim = self._last_result.verdict.claim if self._last_result else ""
        self.progress(self.number, self.sender.sent.total(), claim)

    def _leave_out_untested(self) -> None:
        """Send no more of an operation that the model cannot do, which would show no fault."""
        storm = self.storm
        if storm.fixed is None or storm.options.gauge or storm.by_ways:
            return
        untested = self.evidence.untested().items()
        untested_names = {name for name, answers in untested if answers.sent >= FEWEST_SENT}
        names = untested_names - set(storm.fixed.without) - {Fresh.name}
        if names:
            left_out = dict.fromkeys(sorted(names), self.number + 1)
            storm.fixed = storm.fixed.model_copy(
                update={"without": {**storm.fixed.without, **left_out}}
            )
            STORM.write(storm.folder.path, storm.fixed)

    def look(self) -> StormResult:
        """Return the last result, judged anew if GROWN times the requests or a sure fault came.

        Judging reads all requests, so it is not done after each of them.
        """
        requests = self.evidence.storm
        new_requests = (*requests[self._judged_count :], *self.evidence.other_faults)
        has_certain = any(request.outcome.is_certain for request in new_requests)
        if self._last_result is None or has_certain or len(requests) >= GROWN * self._judged_count:
            self._last_result = self.result
            self._judged_count = len(requests)
        return self._last_result

    def _is_decided(self) -> bool:
        """Return True once the rate is known, or a fault is sure."""
        result = self.look()
        return result.confirmed or result.verdict.word == PASS

    async def _send_first(self) -> None:
        """Send the first prompts one after another, and settle what they say of the server.

        They are not sent again by a storm that resumes and has settled that.
        """
        storm, sender = self.storm, self.sender
        opening = first_round(storm.seed, storm.limits)
        round_answers = RoundAnswers()
        answers = list[FirstAnswer]()
        weighed = list[ReferenceRequest]()
        for act in opening.acts:
            if storm.fixed is not None and (FIRSTS, act.number) not in sender.stored:
                continue
            ((_, record),) = await sender.send(
                opening,
                [act],
                family=FIRSTS,
                round_answers=round_answers,
                key=lambda act: act.number,
            )
            if record is not None:
                outcome = sender.outcome_of(opening, act, record)
                sender.keep_certain(opening, act, record, outcome)
                answers.append(FirstAnswer(act, record, outcome))
                request = ReferenceRequest.of(
                    storm,
                    opening,
                    act,
                    family=FIRSTS,
                    record=record,
                    outcome=outcome,
                    round_answers=round_answers,
                )
                if request is not None:
                    weighed.append(request)
            if self.stopped:
                return

        for answer in answers:
            record = answer.record
            if record.prompt_tokens is not None and record.own_tokens:
                self.evidence.counts.first_prompts.append((record.own_tokens, record.prompt_tokens))
        if storm.by_ways:
            await self._learn_noise(opening)
            return
        if storm.fixed is None:
            self._settle(answers)
        await self.weigher.weigh_alone(weighed)
        await self._choose_judge(opening, answers)

    async def _choose_judge(self, opening: Round, answers: Iterable[FirstAnswer]) -> None:
        """Judge by equal ways if the model finds little, or end if nothing can judge."""
        storm, evidence = self.storm, self.evidence
        singles = [answer for answer in answers if answer.is_single]
        right = sum(answer.outcome.word == "right" for answer in singles)
        if self._finds_little(right, len(singles)):
            storm.judge_by_ways((right, len(singles)))
            needs_nats = not (right or storm.options.ways)
            if await self._learn_noise(opening, needs_nats=needs_nats):
                # A random model may well write one letter over and over.
                evidence.other_faults = [
                    request for request in evidence.other_faults if request.outcome.foreign
                ]
                return
            storm.judge_by_ways(None)
        if singles and not right:
            text = " ".join((singles[-1].record.answer or "").split())
            self.missed = self.sender.stopped = (
                f"the first {len(singles)} prompts were all missed; the last said "
                f"{text[:_SHOWN]!r}. {missed_advice('--ways')}"
            )

    def _finds_little(self, right: int, n: int) -> bool:
        """Return True if equal ways are to judge: --ways was typed, or under half was found.

        The gauge is known to find all, so answers judge it. n: of how many prompts.
        """
        options = self.storm.options
        return n > 0 and not options.gauge and (options.ways or 2 * right < n)

    async def _learn_noise(self, opening: Round, *, needs_nats: bool = False) -> bool:
        """Send the first prompts alone twice, to learn how far log-probabilities move anyway.

        No cache holds anything of them. Returns False if there are no log-probabilities, and they
        are needed.
        """
        repeats = list[tuple[Record, Record]]()
        for act in opening.acts:
            if self.stopped:
                break
            record = await self._send_first_alone(opening, act, ALONE)
            repeat = await self._send_first_alone(opening, act, ALONE_AGAIN)
            if record is not None and repeat is not None:
                if needs_nats and record.logprobs is None:
                    return False
                repeats.append((record, repeat))
        self.evidence.equal.learn_start([record for record, _ in repeats])
        for record, repeat in repeats:
            self.evidence.equal.learn_noise(record, repeat)
        return True

    async def _send_first_alone(self, opening: Round, act: Act, family: str) -> Record | None:
        return await self.sender.send_alone(
            opening, act, family=family, round_answers=RoundAnswers(), key=act.number
        )

    def _settle(self, answers: Sequence[FirstAnswer]) -> None:
        """Write what the first prompts say of the model and its server.

        Raises NeedlemapError if none was answered.
        """
        storm = self.storm
        singles = [answer for answer in answers if answer.is_single]
        if not any(answer.record.answer is not None for answer in singles):
            raise self.sender.no_answer()
        framings = [
            answer.record.prompt_tokens - answer.record.own_tokens
            for answer in singles
            if answer.record.prompt_tokens is not None
        ]
        is_constant = len(framings) == len(singles) and len(set(framings)) == 1
        pace = pace_of(
            [(answer.record.own_tokens, answer.record.latency_s or 0.0) for answer in singles]
        )
        several = [answer.outcome.word for answer in answers[len(singles) :]]
        storm.fixed = storm.file().model_copy(
            update={
                "framing": framings[0] if is_constant else 0,
                "pace": pace,
                "many": several.count("right") * 2 > len(several),
            }
        )
        STORM.write(storm.folder.path, storm.fixed)

    async def _send_round(self, number: int) -> None:
        """Send one round, some of its prompts cold, and those in doubt again."""
        storm = self.storm
        storm_round = storm.round(number)
        round_answers = RoundAnswers()
        requests = list[RoundRequest]()
        weighed = dict[int, ReferenceRequest]()
        random = Random(f"weighed:{storm.seed}:{number}")
        chosen = {act.number for act in storm_round.acts if random.random() < WEIGHED_SHARE}
        for wave in storm_round.waves:
            if self.stopped:
                # A family counts once it is whole; a fault by itself counts at once.
                self.evidence.other_faults += [
                    request.observation
                    for request in requests
                    if request.observation.outcome.is_certain
                ]
                return
            earlier_answers = round_answers.copy()
            rows = await self.sender.send(
                storm_round,
                wave,
                family=STORMED,
                round_answers=round_answers,
                key=lambda act: key_of(number, act.number),
            )
            wave_requests = self._round_requests(storm_round, rows, earlier_answers)
            requests += wave_requests
            weighed |= self._reference_requests(
                storm_round, wave_requests, chosen, round_answers=round_answers
            )

        if storm.by_ways:
            await self._compare_with_alone(storm_round, requests)
            return
        observations = [request.observation for request in requests]
        observations = await self.weigher.with_margins(observations, weighed)
        self.evidence.storm += observations
        await self._send_cold(storm_round, observations, round_answers)
        await self._examine(storm_round, observations, round_answers)

    async def _examine(
        self, storm_round: Round, observations: Iterable[Observation], round_answers: RoundAnswers
    ) -> None:
        """Send again the requests that are in doubt."""
        for observation in observations:
            if not observation.outcome.is_doubtful:
                continue
            if self.stopped:
                return
            # Once the bet on moved margins is won, more of them say nothing new.
            if observation.outcome.is_lost or wealth_of(self.evidence.moved_suspects) < GOAL:
                await self.replayer.examine(storm_round, observation, round_answers)

    def _reference_requests(
        self,
        storm_round: Round,
        requests: Iterable[RoundRequest],
        chosen: Collection[int],
        *,
        round_answers: RoundAnswers,
    ) -> dict[int, ReferenceRequest]:
        """Return how the reference is sent the chosen requests, by the act's number."""
        weighed = dict[int, ReferenceRequest]()
        for request in requests:
            act = request.observation.act
            if act.number not in chosen or request.record is None:
                continue
            compared = ReferenceRequest.of(
                self.storm,
                storm_round,
                act,
                family=STORMED,
                record=request.record,
                outcome=request.observation.outcome,
                round_answers=round_answers,
            )
            if compared is not None:
                weighed[act.number] = compared
        return weighed

    async def _compare_with_alone(
        self, storm_round: Round, requests: Sequence[RoundRequest]
    ) -> None:
        """Compare a round's requests with the same prompts alone, and replay what moved."""
        equal = self.evidence.equal
        alone = dict[int, Record]()
        observations = list[Observation]()
        for request in requests:
            observation = request.observation
            act = observation.act
            is_left_out = act.operation == Flood.name or act.how == "other"
            is_compared = observation.outcome.word == UNCOMPARED and not is_left_out
            if not is_compared or self.stopped:
                observations.append(observation)
                continue
            # A cancelled request is not 'uncompared'.
            assert request.record is not None
            record = await self.sender.send_alone(
                storm_round,
                act,
                family=ALONE,
                round_answers=request.earlier_answers,
                key=observation.key,
            )
            move = None
            if record is not None:
                alone[act.number] = record
                move = equal.compare(request.record, record)
            observations.append(observation.with_move(move, equal.limit))

        self.evidence.storm += observations
        for request, observation in zip(requests, observations, strict=True):
            if observation.outcome.word != MOVED or self.stopped:
                continue
            assert request.record is not None
            await self.replayer.examine_by_ways(
                storm_round,
                observation,
                request.earlier_answers,
                record=request.record,
                alone=alone[observation.act.number],
            )

    def _round_requests(
        self,
        storm_round: Round,
        rows: Iterable[tuple[Act, Record | None]],
        earlier_answers: RoundAnswers,
    ) -> list[RoundRequest]:
        """Return the requests of a wave with their outcomes, in the order of sending.

        earlier_answers: those before the wave.
        """
        requests = []
        for act, record in rows:
            key = key_of(storm_round.number, act.number)
            if record is None:
                if act.cancel is not None:
                    outcome = RequestOutcome("cancelled")
                    observation = Observation(key, storm_round.number, act=act, outcome=outcome)
                    requests.append(RoundRequest(observation, None, earlier_answers))
                continue
            outcome = self.sender.outcome_of(storm_round, act, record)
            if act.how == "other" and not outcome.foreign:
                # What the second model finds is not known.
                outcome = RequestOutcome(UNCOMPARED)
            observation = Observation.of(storm_round.number, act, record, outcome)
            requests.append(RoundRequest(observation, record, earlier_answers))
            if act.how != "other":
                self.evidence.counts.check(
                    key,
                    record.own_tokens,
                    counted=record.prompt_tokens,
                    messages=2 * len(act.path),
                )
        return requests

    async def _send_cold(
        self, storm_round: Round, observations: Sequence[Observation], round_answers: RoundAnswers
    ) -> None:
        """Send some prompts of the round, which the seed chose, cold.

        In every other round they are sent one by one, because a batch that spoils answers spoils
        theirs too if they are sent at the same load.
        """
        random = Random(f"beside:{self.storm.seed}:{storm_round.number}")
        by_act = {observation.act.number: observation for observation in observations}
        chosen = [act for act in storm_round.acts if random.random() < BESIDE_SHARE]
        chosen = [
            act
            for act in chosen
            if act.number in by_act and act.cancel is None and act.how != "other"
        ]
        load = 1 if storm_round.number % 2 == 0 else self.storm.limits.load
        for start in range(0, len(chosen), load):
            if self.stopped:
                return
            acts = [
                self.sender.cold(storm_round, act, BESIDE) for act in chosen[start : start + load]
            ]
            rows = await self.sender.send(
                storm_round,
                acts,
                family=BESIDE,
                round_answers=round_answers,
                key=lambda act: key_of(storm_round.number, act.number),
            )
            for act, record in rows:
                if record is None:
                    continue
                outcome = self.sender.outcome_of(storm_round, act, record)
                self.sender.keep_certain(storm_round, act, record, outcome)
                self.evidence.pairs.append((by_act[act.number], outcome))

    @property
    def _limit_nats(self) -> float | None:
        """Return the nats beyond which what was compared is in doubt."""
        if self.storm.by_ways:
            return self.evidence.equal.limit
        return self.evidence.moves.limit if self.evidence.moves else None

    def document(self, result: StormResult) -> StormFile:
        """Return storm.json with what was found and the whole sequence."""
        requests = self.evidence.storm
        tally = result.tally
        start_s = min((request.at_s for request in requests if request.at_s), default=0.0)
        return self.storm.file().model_copy(
            update={
                "wanted": self.storm.options.wanted,
                "verdict": result.verdict,
                "said": list(result.said),
                "counts": tally.counts,
                "rounds": self.number,
                "requests": len(tally.requests),
                "families": tally.families,
                "faulty": round(tally.faulty, 6),
                "highest": tally.highest,
                "limit_nats": self._limit_nats,
                "tested": list(tally.tested),
                "suspects": [Replayed.of(suspect) for suspect in self.evidence.suspects.values()],
                "sequence": [StormRequest.of(request, start_s) for request in requests],
            }
        )


def pace_of(latencies: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return the seconds of a prompt, and of each of its tokens.

    latencies: tokens and seconds of prompts of several lengths.

    >>> pace_of([(200, 0.1), (200, 0.1), (2_200, 0.3)])
    (0.08, 0.0001)
    """
    sizes = sorted({size for size, _ in latencies})
    longest_short = sizes[len(sizes) // 3]
    short_s = median(seconds for size, seconds in latencies if size <= longest_short)
    long_s = median(seconds for size, seconds in latencies if size >= sizes[-1])
    token_s = max(0.0, (long_s - short_s) / max(1, sizes[-1] - sizes[0]))
    return round(max(1e-6, short_s - token_s * sizes[0]), 6), round(token_s, 9)
