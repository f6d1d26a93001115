"""Replay what is in doubt: does its sequence show it again, more often than the prompt alone?

A suspect's sequence is replayed in blocks behind first lines of its own, which no cache holds, each
block beside as many cold requests of the same prompt, as long as the two differ.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import log

from needlemap.records.record import Record
from needlemap.servers.storm.act import Act, Round
from needlemap.servers.storm.evidence import Evidence, Observation, Suspect
from needlemap.servers.storm.outcome import MOVED, RequestOutcome, outcome_of_move
from needlemap.servers.storm.reference import ReferenceRequest
from needlemap.servers.storm.sending import Sender
from needlemap.servers.storm.storm import (
    ALONE_AGAIN,
    ALONE_BEHIND,
    COLD,
    COLD_AGAIN,
    REPLAY,
    STORMED,
    RoundAnswers,
)
from needlemap.servers.storm.tally import GOAL
from needlemap.servers.storm.weighing import Weigher
from needlemap.stats.bets import Block, log_blocks

# Replays of a suspect, and as many cold requests; a block is sent if the ones before it differ.
BLOCKS = (2, 3, 5, 5)
# Requests of replays: a share of the storm's, and some more.
REPLAYS_SHARE = 0.5
REPLAYS_FREE = 300
# Requests of one kind for one suspect, at most: record numbers are made with it.
_WIDE = 1_000


class Replayer:
    """Sends the prompts and sequences of suspects again."""

    def __init__(self, sender: Sender, weigher: Weigher, evidence: Evidence) -> None:
        self._sender = sender
        self._weigher = weigher
        self._evidence = evidence

    async def examine(
        self, storm_round: Round, request: Observation, round_answers: RoundAnswers
    ) -> None:
        """Send a doubtful prompt again, cold. If that is right, replay its sequence.

        round_answers: the answers of the round.
        """
        moves = self._evidence.moves
        limit = moves.limit if moves and request.outcome.word == MOVED else None
        suspect = self._evidence.suspects[request.key] = Suspect(request, limit)
        (suspect.repeat_outcome,) = await self._send_cold(
            storm_round, suspect, round_answers, range(1)
        )
        if suspect.is_doubtful:
            await self._replay_blocks(storm_round, suspect, round_answers)

    async def examine_by_ways(
        self,
        storm_round: Round,
        request: Observation,
        round_answers: RoundAnswers,
        *,
        record: Record,
        alone: Record,
    ) -> None:
        """Send a prompt that moved alone once more. If it is steady there, replay its sequence.

        Each replay is compared with the same prompt alone, and there is a pair of cold requests for
        it. record: of the request. alone: of the same prompt alone.
        """
        equal = self._evidence.equal
        limit = equal.limit
        suspect = self._evidence.suspects[request.key] = Suspect(request, limit)
        repeat = await self._sender.send_alone(
            storm_round,
            request.act,
            family=ALONE_AGAIN,
            round_answers=round_answers,
            key=request.key,
        )
        if repeat is None:
            return
        noise = equal.learn_noise(alone, repeat)
        move = equal.compare(record, repeat)
        is_moved = noise and move and noise.nats <= limit < move.nats
        suspect.repeat_outcome = RequestOutcome("right" if is_moved else MOVED)
        if suspect.is_doubtful:
            await self._replay_blocks(storm_round, suspect, round_answers)

    async def _replay_blocks(
        self, storm_round: Round, suspect: Suspect, round_answers: RoundAnswers
    ) -> None:
        """Replay a suspect's sequence, beside as many cold requests, while they differ."""
        sender = self._sender
        send_cold = self._send_cold_pairs if sender.storm.by_ways else self._send_cold
        sequence = storm_round.until(suspect.request.act)
        replays = 0
        for count in BLOCKS:
            planned_requests = sender.sent[REPLAY] + count * len(sequence.acts)
            most_requests = REPLAYS_SHARE * sender.sent[STORMED] + REPLAYS_FREE
            is_stored = (COLD, suspect.request.key * _WIDE + 1 + replays) in sender.stored
            if sender.stopped or (planned_requests > most_requests and not is_stored):
                return
            lost = 0
            for number in range(replays, replays + count):
                outcome = await self._replay(sequence, suspect, number)
                if outcome is None:
                    return
                lost += not outcome.is_sound
            numbers = range(1 + replays, 1 + replays + count)
            cold_outcomes = await send_cold(storm_round, suspect, round_answers, numbers)
            if None in cold_outcomes:
                return
            lost_cold = sum(not outcome.is_sound for outcome in cold_outcomes if outcome)
            block: Block = (lost, lost_cold, count)
            suspect.blocks.append(block)
            replays += count
            if lost <= lost_cold or log_blocks(suspect.blocks) >= GOAL + log(10):
                return

    async def _send_cold(
        self, storm_round: Round, suspect: Suspect, round_answers: RoundAnswers, numbers: range
    ) -> list[RequestOutcome | None]:
        """Send the same prompt behind first lines of its own.

        Return the outcome of each request, None for one that was not answered.
        """
        sender = self._sender
        outcomes = list[RequestOutcome | None]()
        for number in numbers:
            act = sender.cold(storm_round, suspect.request.act, f"{COLD}{number}")
            rows = await sender.send(
                storm_round,
                [act],
                family=COLD,
                round_answers=round_answers,
                key=partial(_constant, suspect.request.key * _WIDE + number),
            )
            for cold_act, record in rows:
                outcome = None
                if record is not None:
                    outcome = sender.outcome_of(storm_round, cold_act, record)
                    sender.keep_certain(storm_round, cold_act, record, outcome)
                    outcome = await self._outcome_again(
                        storm_round,
                        cold_act,
                        suspect,
                        family=COLD,
                        record=record,
                        outcome=outcome,
                        round_answers=round_answers,
                    )
                is_measured = outcome is not None and outcome.word != "refused"
                outcomes.append(outcome if is_measured else None)
        return outcomes or [None]

    async def _send_cold_pairs(
        self, storm_round: Round, suspect: Suspect, round_answers: RoundAnswers, numbers: range
    ) -> list[RequestOutcome | None]:
        """Send the same prompt behind first lines of its own, each twice.

        Return whether each second answer moved from the first, None if the two cannot be compared.
        """
        sender = self._sender
        outcomes = list[RequestOutcome | None]()
        for number in numbers:
            send = partial(
                sender.send_alone,
                storm_round,
                sender.cold(storm_round, suspect.request.act, f"{COLD}{number}"),
                round_answers=round_answers,
                key=suspect.request.key * _WIDE + number,
            )
            record = await send(family=COLD)
            repeat = await send(family=COLD_AGAIN)
            move = None
            if record and repeat:
                move = self._evidence.equal.learn_noise(record, repeat)
            outcomes.append(outcome_of_move(move, suspect.limit or 0.0))
        return outcomes or [None]

    async def _replay(
        self, sequence: Round, suspect: Suspect, number: int
    ) -> RequestOutcome | None:
        """Send a suspect's whole sequence again, behind other first lines.

        Return the outcome of the suspect, or None if it is not known.
        """
        sender = self._sender
        round_answers = RoundAnswers()
        suspect_outcome: RequestOutcome | None = None
        first_key = (suspect.request.key * _WIDE + number) * _WIDE
        for wave in sequence.waves:
            if sender.stopped:
                return None
            acts = [
                replace(act, salt=sender.salt(f"{REPLAY}{number}", sequence.number, act.family))
                for act in wave
            ]
            earlier_answers = round_answers.copy()
            rows = await sender.send(
                sequence,
                acts,
                family=REPLAY,
                round_answers=round_answers,
                key=lambda act: first_key + act.number,
            )
            for act, record in rows:
                if record is None:
                    continue
                outcome = sender.outcome_of(sequence, act, record)
                sender.keep_certain(sequence, act, record, outcome)
                if act.number != suspect.request.act.number or outcome.word == "refused":
                    continue
                if sender.storm.by_ways:
                    key = first_key + act.number
                    suspect_outcome = await self._moved_alone(
                        sequence,
                        act,
                        suspect,
                        record=record,
                        round_answers=earlier_answers,
                        key=key,
                    )
                else:
                    suspect_outcome = await self._outcome_again(
                        sequence,
                        act,
                        suspect,
                        family=REPLAY,
                        record=record,
                        outcome=outcome,
                        round_answers=round_answers,
                    )
        return suspect_outcome

    async def _moved_alone(
        self,
        sequence: Round,
        act: Act,
        suspect: Suspect,
        *,
        record: Record,
        round_answers: RoundAnswers,
        key: int,
    ) -> RequestOutcome | None:
        """Send a replay's prompt alone, and return whether the replay moved from that.

        If the two cannot be compared, return None.
        """
        alone = await self._sender.send_alone(
            sequence,
            act,
            family=ALONE_BEHIND,
            round_answers=round_answers,
            key=key,
        )
        move = self._evidence.equal.compare(record, alone) if alone is not None else None
        return outcome_of_move(move, suspect.limit or 0.0)

    async def _outcome_again(
        self,
        storm_round: Round,
        act: Act,
        suspect: Suspect,
        *,
        family: str,
        record: Record,
        outcome: RequestOutcome,
        round_answers: RoundAnswers,
    ) -> RequestOutcome | None:
        """Return the outcome of a suspect sent again, with its margins if they had moved."""
        request = ReferenceRequest.of(
            self._sender.storm,
            storm_round,
            act,
            family=family,
            record=record,
            outcome=outcome,
            round_answers=round_answers,
        )
        return await self._weigher.outcome_again(suspect.limit, outcome, request)


def _constant(key: int, _act: Act) -> int:
    """Return the key of the only act that is sent."""
    return key
