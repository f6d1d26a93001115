"""Compare margins of a storm's answers with the reference's, which costs this machine's CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from needlemap.servers.check.margins import margins_of
from needlemap.servers.storm.evidence import Evidence, Observation
from needlemap.servers.storm.moves import nats_moved
from needlemap.servers.storm.outcome import MOVED, RequestOutcome
from needlemap.servers.storm.reference import ReferenceRequest
from needlemap.servers.storm.sending import Sender
from needlemap.servers.storm.storm import COLD, THERE


class Weigher:
    """Sends prompts of right answers to the reference, and compares margins."""

    def __init__(self, sender: Sender, evidence: Evidence) -> None:
        self._sender = sender
        self._evidence = evidence

    async def weigh(self, requests: Sequence[ReferenceRequest]) -> list[float | None]:
        """Send requests to the reference, and return how far each answer's margins moved.

        Moves are in nats a token. If a limit kept a request from being sent, or the two answers
        have nothing in common, its move is None.
        """
        sender = self._sender
        unsent = [request for request in requests if request.key not in sender.stored]
        if unsent and not sender.stopped:
            steps = [request.step for request in unsent]
            records, outcome = await sender.campaign.ask_together(steps, scored=1)
            for request, record in zip(unsent, records, strict=True):
                if record is not None:
                    sender.stored[request.key] = record
                else:
                    sender.stop_at_limit(outcome.stopped)
        return [nats_moved(sender.stored.get(request.key), request.record) for request in requests]

    async def weigh_alone(self, requests: Sequence[ReferenceRequest]) -> list[float | None]:
        """Weigh fresh prompts that were sent alone, and learn how far the server moves margins."""
        nats = await self.weigh(requests)
        if self._evidence.moves:
            self._evidence.moves.alone += [move for move in nats if move is not None]
        return nats

    async def with_margins(
        self,
        observations: Sequence[Observation],
        requests: Mapping[int, ReferenceRequest],
    ) -> list[Observation]:
        """Return a round's observations with the moves of their margins, if these are known.

        requests: those to compare, by the act's number.
        """
        moves = self._evidence.moves
        limit = moves.limit if moves else None
        if moves is None or limit is None:
            return list(observations)

        nats = await self.weigh(list(requests.values()))
        nats_by_act = dict(zip(requests, nats, strict=True))
        weighed = list[Observation]()
        for observation in observations:
            number = observation.act.number
            move = nats_by_act.get(number)
            if move is None:
                weighed.append(observation)
                continue
            observation = replace(observation, nats=round(move, 6))
            if move > limit and not moves.is_choice:
                observation = replace(observation, outcome=RequestOutcome(MOVED))
                request = requests[number]
                moves.add_suspect(
                    request.step.trial.prompt,
                    request.record.answer or "",
                    reference_margins=margins_of(self._sender.stored[request.key]),
                    server_margins=margins_of(request.record),
                )
            weighed.append(observation)
        return weighed

    async def outcome_again(
        self,
        limit: float | None,
        outcome: RequestOutcome,
        request: ReferenceRequest | None,
    ) -> RequestOutcome | None:
        """Return the outcome of a suspect that was sent again, with its margins if they had moved.

        If its margins had moved and cannot be compared again, return None. limit: nats a token
        beyond which they moved; None if its text was wrong, so that the outcome says all.
        """
        if limit is None or outcome.word != "right":
            return outcome
        if request is None:
            return None
        is_cold = request.step.family == f"{THERE}{COLD}"
        (nats,) = await (self.weigh_alone([request]) if is_cold else self.weigh([request]))
        if nats is None:
            return None
        return RequestOutcome(MOVED) if nats > limit else outcome
