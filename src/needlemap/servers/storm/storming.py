"""A storm from start to end: round by round what the seed says, what is in doubt replayed, a rate.

What was asked is on disk before anything is made of it, and all that a storm does follows from its
seed: the same command goes on where it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from math import log
from random import Random
from statistics import median

from needlemap.asking import Outcome as Asked
from needlemap.asking.campaign import Campaign, MakeModel
from needlemap.asking.failures import Failures, no_answer
from needlemap.asking.session import check_price, make_model
from needlemap.asking.single import Step
from needlemap.deadline import LimitReached, without_limit
from needlemap.records.families import begin_families
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.servers.check.owners import Owners
from needlemap.servers.storm.act import Act, Round, key_of
from needlemap.servers.storm.act import Path as Conversation
from needlemap.servers.storm.file import STORM, Replayed, StormFile, StormRequest
from needlemap.servers.storm.judge import (
    GOAL,
    POINTS,
    Seen,
    Seens,
    Stormed,
    Suspect,
    judge_storm,
)
from needlemap.servers.storm.moves import Moves, moved_by
from needlemap.servers.storm.operations.fresh import Fresh
from needlemap.servers.storm.outcome import MOVED, Hider, RequestOutcome, judge_answer
from needlemap.servers.storm.reference import SetBeside
from needlemap.servers.storm.storm import (
    BESIDE,
    COLD,
    FIRSTS,
    REPLAY,
    STORMED,
    THERE,
    Answered,
    Storm,
    first_round,
)
from needlemap.servers.storm.texts import LINE
from needlemap.stats.bets import Block, log_blocks
from needlemap.stats.verdicts import PASS, SUSPECT, Verdict

WEIGHED_SHARE = 0.15  # of requests whose margins are compared: the reference costs CPU
BESIDE_SHARE = 0.3  # of requests whose prompt is also asked cold in the same minutes
BLOCKS = (2, 3, 5, 5)  # replays of a suspect, and as many cold askings; on while they differ
REPLAYS_SHARE, REPLAYS_FREE = 0.5, 300  # requests of replays, beside those of the storm
GROWN = 1.01  # times the requests that were judged: then a storm is judged anew
_WIDE = 1_000  # askings of one kind of one request at most


Progress = Callable[[int, int, str], None]


def show_nothing(_number: int, _requests: int, _claim: str) -> None:
    """Hear of requests that ended: the round, how many were sent by then, what is known."""


class StormInRounds:
    """Round by round until the rate is known, a fault is sure, or a limit is met. Finds the
    verdict.

    make, elsewhere: of the model, and of the reference. stopped: why not all was asked. missed:
    what to say where the first prompts were all missed.
    """

    def __init__(
        self,
        storm: Storm,
        progress: Progress = show_nothing,
        make: MakeModel = make_model,
        rounds: int | None = None,
        elsewhere: MakeModel = make_model,
    ) -> None:
        self.storm, self.rounds = storm, rounds
        folders = map(storm.folder.folder, storm.folder.names)
        self._campaign = Campaign(folders, {"": make, THERE: elsewhere})
        self.progress = progress
        moves = Moves() if storm.reference else None
        self.seens, self.owners = Seens(moves=moves), Owners[Hider]()
        self.stopped = self.missed = ""
        self._limited = self._heard = False
        self._stored = storm.records()
        self._sent = Counter[str]()
        self.failing, self.finishes = Failures(), list[str | None]()
        self._order = self.number = self._judged = 0
        self._last: Stormed | None = None

    async def run(self) -> Stormed:
        """The verdict. Raises NeedlemapError where nothing could be asked."""
        async with self._campaign:
            return await self._ask_all()

    @property
    @without_limit()
    def found(self) -> Stormed:
        """What is known now."""
        options = self.storm.options
        if self.seens.moves and _wealth(self.seens.moved) >= POINTS:
            self.seens.moves.look_at_cache()
        stormed = judge_storm(
            self.seens, options.wanted, gauge=options.gauge, left_out=options.without
        )
        if not self.missed:
            return stormed
        # Nothing else was sent, and all of it was lost.
        claim, more = "the first prompts were all missed", "look at --needle and --template"
        return replace(stormed, verdict=Verdict(SUSPECT, claim, next=more))

    async def _ask_all(self) -> Stormed:
        storm, path = self.storm, self.storm.folder.path
        check_price(storm.resolved.settings)
        begin_families(path, "storm", storm.folder.names)
        if not STORM.is_in(path):
            STORM.write(path, storm.file())
        try:
            await self._begin()
            while not self.stopped and not self._ends() and self.number != self.rounds:
                self.number += 1
                await self._round(self.number)
                self._leave_out()
        except LimitReached as error:  # while prompts were built
            self.stopped, self._limited = str(error), True
        finally:
            found = self.found
            if storm.fixed is not None:
                STORM.write(path, self.document(found))
        if not self._heard:
            self._nothing()
        return found

    def _leave_out(self) -> None:
        """Send no more of an operation that the model cannot do: it would show no fault."""
        storm = self.storm
        if storm.fixed is None or storm.options.gauge:
            return
        new = sorted(set(self.seens.untested()) - set(storm.fixed.without) - {Fresh.name})
        if new:
            later = dict.fromkeys(new, self.number + 1)
            storm.fixed = storm.fixed.model_copy(
                update={"without": {**storm.fixed.without, **later}}
            )
            STORM.write(storm.folder.path, storm.fixed)

    def look(self) -> Stormed:
        """What is known now, or was a hundredth of the requests ago, unless one since then is a
        fault by itself: judging reads them all."""
        storm = self.seens.storm
        new = (*storm[self._judged :], *self.seens.elsewhere)
        certain = any(each.outcome.is_certain for each in new)
        if self._last is None or certain or len(storm) >= GROWN * self._judged:
            self._last, self._judged = self.found, len(storm)
        return self._last

    def _ends(self) -> bool:
        """Whether the rate is known, or a fault is sure."""
        found = self.look()
        return found.confirmed or found.verdict.word == PASS

    async def _begin(self) -> None:
        """The first prompts, one after another; what they settle, unless that is on disk; and
        whether all were missed."""
        storm = self.storm
        first = first_round(storm.seed, storm.limits)
        answered, rows = Answered(), list[tuple[Act, Record, RequestOutcome]]()
        alone = list[SetBeside]()
        for act in first.acts:
            if storm.fixed is not None and (FIRSTS, act.number) not in self._stored:
                continue
            found = await self._ask(first, [act], FIRSTS, answered, lambda a: a.number)
            for each, record in found:
                if record is not None:
                    outcome = self._outcome(first, each, record, self._order)
                    self._elsewhere(first, each, record, outcome)
                    rows.append((each, record, outcome))
                    weighed = SetBeside.of(
                        self.storm, first, each, FIRSTS, record, outcome, answered
                    )
                    alone += [weighed] if weighed else []
            if self.stopped:
                return
        if storm.fixed is None:
            self._settle(rows)
        await self._weigh_alone(alone)
        singles = [(record, outcome) for act, record, outcome in rows if len(act.asked_facts) == 1]
        if singles and not any(outcome.word == "right" for _, outcome in singles):
            said = " ".join((singles[-1][0].answer or "").split())
            self.missed = self.stopped = (
                f"the first {len(singles)} prompts were all missed; the last said "
                f"{said[:120]!r}. A model that knows one kind of fact is given it with --needle, "
                "--question, --keywords and --draw; one that thinks first needs --thinking-tokens"
            )

    def _settle(self, rows: Sequence[tuple[Act, Record, RequestOutcome]]) -> None:
        """Write what the first prompts tell of the model and its server."""
        storm = self.storm
        singles = [row for row in rows if len(row[0].asked_facts) == 1]
        if not singles or not any(record.answer is not None for _, record, _ in singles):
            self._nothing()
        told = [
            r.prompt_tokens - r.own_tokens for _, r, _ in singles if r.prompt_tokens is not None
        ]
        same = len(set(told)) == 1 and len(told) == len(singles)
        many = [outcome.word for _, _, outcome in rows[len(singles) :]]
        storm.fixed = storm.file().model_copy(
            update={
                "framing": told[0] if same else 0,
                "pace": pace_of([(r.own_tokens, r.latency_s or 0.0) for _, r, _ in singles]),
                "many": many.count("right") * 2 > len(many),
            }
        )
        STORM.write(storm.folder.path, storm.fixed)

    async def _round(self, number: int) -> None:
        """One round, its equals asked cold, and what is in doubt."""
        storm = self.storm
        made, answered = storm.round(number), Answered()
        seens, weighed = list[Seen](), dict[int, SetBeside]()
        random = Random(f"weighed:{storm.seed}:{number}")
        chosen = {act.number for act in made.acts if random.random() < WEIGHED_SHARE}
        for wave in made.waves:
            if self.stopped:  # a family counts once it is whole; a leak at once
                self.seens.elsewhere += [each for each in seens if each.outcome.is_certain]
                return
            found = await self._ask(
                made, wave, STORMED, answered, lambda act: key_of(number, act.number)
            )
            taken = self._take(made, found)
            records = {act.number: record for act, record in found}
            seens += taken
            for seen in taken:
                if seen.act.number in chosen and (record := records[seen.act.number]) is not None:
                    asked = seen.act, STORMED, record, seen.outcome
                    if (each := SetBeside.of(self.storm, made, *asked, answered)) is not None:
                        weighed[seen.act.number] = each
        seens = await self._moved(seens, weighed)
        self.seens.storm += seens
        await self._ask_beside(made, seens, answered)
        for seen in [each for each in seens if each.outcome.is_doubtful]:
            if self.stopped:
                return
            if seen.outcome.is_lost or _wealth(self.seens.moved) < GOAL:
                await self._suspect(made, seen, answered)

    def _take(self, made: Round, rows: Iterable[tuple[Act, Record | None]]) -> list[Seen]:
        """What came of a wave, in the order in which it was sent."""
        found = []
        for act, record in rows:
            key = key_of(made.number, act.number)
            if record is None:
                if act.cancel is not None:
                    found.append(Seen(key, made.number, act, RequestOutcome("cancelled")))
                continue
            outcome = self._outcome(made, act, record, self._order)
            found.append(seen_of(made, act, record, outcome))
        return found

    async def _ask_beside(self, made: Round, seens: Sequence[Seen], answered: Answered) -> None:
        """Some prompts of the round, which the seed chose, cold: in every other round alone, as a
        batch spoils equals too that are asked at the same load."""
        random = Random(f"beside:{self.storm.seed}:{made.number}")
        asked = {each.act.number: each for each in seens}
        chosen = [act for act in made.acts if random.random() < BESIDE_SHARE]
        chosen = [act for act in chosen if act.number in asked and act.cancel is None]
        load = 1 if made.number % 2 == 0 else self.storm.limits.load
        for start in range(0, len(chosen), load):
            if self.stopped:
                return
            part = [self._cold(made, act, BESIDE) for act in chosen[start : start + load]]
            found = await self._ask(
                made, part, BESIDE, answered, lambda act: key_of(made.number, act.number)
            )
            for act, record in found:
                if record is None:
                    continue
                outcome = self._outcome(made, act, record, self._order)
                self._elsewhere(made, act, record, outcome)
                self.seens.pairs.append((asked[act.number], outcome))

    async def _suspect(self, made: Round, seen: Seen, answered: Answered) -> None:
        """Ask a doubtful prompt again, cold; where that is right, replay its sequence."""
        moves = self.seens.moves
        limit = moves.limit if moves and seen.outcome.word == MOVED else None
        suspect = self.seens.suspects[seen.key] = Suspect(seen, limit)
        (suspect.again,) = await self._ask_cold(made, suspect, answered, range(1))
        if not suspect.is_doubtful:
            return
        sequence, done = made.until(seen.act), 0
        for count in BLOCKS:
            spent = self._sent[REPLAY] + count * len(sequence.acts)
            allowed = REPLAYS_SHARE * self._sent[STORMED] + REPLAYS_FREE
            if self.stopped or (spent > allowed and not self._is_stored(seen, done)):
                return
            lost = 0
            for number in range(done, done + count):
                outcome = await self._replay(sequence, suspect, number)
                if outcome is None:
                    return
                lost += outcome.word != "right"
            cold = await self._ask_cold(made, suspect, answered, range(1 + done, 1 + done + count))
            if None in cold:
                return
            block: Block = (lost, sum(each.word != "right" for each in cold if each), count)
            suspect.blocks.append(block)
            done += count
            if block[0] <= block[1] or log_blocks(suspect.blocks) >= GOAL + log(10):
                return

    def _is_stored(self, seen: Seen, done: int) -> bool:
        return (COLD, seen.key * _WIDE + 1 + done) in self._stored

    async def _ask_cold(
        self, made: Round, suspect: Suspect, answered: Answered, numbers: range
    ) -> list[RequestOutcome | None]:
        """The same prompt behind first lines of its own, some at a time; None where it was not
        answered."""
        seen, found = suspect.seen, list[RequestOutcome | None]()
        for number in numbers:
            act = self._cold(made, seen.act, f"{COLD}{number}")
            key = seen.key * _WIDE + number
            rows = await self._ask(made, [act], COLD, answered, partial(_same, key))
            for cold, record in rows:
                outcome = None if record is None else self._outcome(made, cold, record, self._order)
                if record is not None and outcome is not None:
                    self._elsewhere(made, cold, record, outcome)
                    weighed = SetBeside.of(self.storm, made, cold, COLD, record, outcome, answered)
                    outcome = await self._again(suspect.limit, outcome, weighed)
                is_measured = outcome is not None and outcome.word != "refused"
                found.append(outcome if is_measured else None)
        return found or [None]

    async def _replay(
        self, sequence: Round, suspect: Suspect, number: int
    ) -> RequestOutcome | None:
        """What came of a suspect when its whole sequence was asked again, behind other first
        lines."""
        seen, answered, last = suspect.seen, Answered(), None
        for wave in sequence.waves:
            if self.stopped:
                return None
            acts = [
                replace(act, salt=self._salt(f"{REPLAY}{number}", sequence.number, act.family))
                for act in wave
            ]
            found = await self._ask(
                sequence,
                acts,
                REPLAY,
                answered,
                lambda act: (seen.key * _WIDE + number) * _WIDE + act.number,
            )
            for act, record in found:
                if record is None:
                    continue
                outcome = self._outcome(sequence, act, record, self._order)
                self._elsewhere(sequence, act, record, outcome)
                if act.number == seen.act.number and outcome.word != "refused":
                    weighed = SetBeside.of(
                        self.storm, sequence, act, REPLAY, record, outcome, answered
                    )
                    last = await self._again(suspect.limit, outcome, weighed)
        return last

    async def _weigh(self, rows: Sequence[SetBeside]) -> list[float | None]:
        """By how many nats a token the margins of some answers moved from the reference's; None
        where a limit let it not be asked, or both say nothing alike."""
        left = [each for each in rows if each.key not in self._stored]
        if left and not self.stopped:
            steps = [each.step for each in left]
            records, outcome = await self._campaign.ask_together(steps, scored=1)
            for each, record in zip(left, records, strict=True):
                if record is not None:
                    self._stored[each.key] = record
                else:
                    self.stopped = self.stopped or str(outcome.stopped or "a limit is reached")
                    self._limited = True
        return [moved_by(self._stored.get(each.key), each.record) for each in rows]

    async def _weigh_alone(self, rows: Sequence[SetBeside]) -> list[float | None]:
        """The same of fresh prompts that were asked alone: it is learnt from them how far the
        server moves margins."""
        nats = await self._weigh(rows)
        if self.seens.moves:
            self.seens.moves.alone += [each for each in nats if each is not None]
        return nats

    async def _moved(self, seens: Sequence[Seen], rows: Mapping[int, SetBeside]) -> list[Seen]:
        """A round's requests, with what is known of their margins."""
        moves, found = self.seens.moves, list(seens)
        if moves is None or (limit := moves.limit) is None:
            return found
        nats = await self._weigh(list(rows.values()))
        known = dict(zip(rows, nats, strict=True))
        for at, seen in enumerate(found):
            moved = known.get(seen.act.number)
            if moved is None:
                continue
            found[at] = replace(seen, nats=round(moved, 6))
            if moved > limit and not moves.is_choice:
                found[at] = replace(found[at], outcome=RequestOutcome(MOVED))
                each = rows[seen.act.number]
                moves.suspect(*each.suspect(self._stored[each.key]))
        return found

    async def _again(
        self, limit: float | None, outcome: RequestOutcome, weighed: SetBeside | None
    ) -> RequestOutcome | None:
        """What came of a suspect once more: of one whose margins moved, whether they do again;
        None where that is not known. limit: beyond how many nats they did, None of one whose
        text was wrong."""
        if limit is None or outcome.word != "right":
            return outcome
        if weighed is None:
            return None
        is_cold = weighed.step.family == f"{THERE}{COLD}"
        (nats,) = await (self._weigh_alone if is_cold else self._weigh)([weighed])
        if nats is None:
            return None
        return RequestOutcome(MOVED) if nats > limit else outcome

    def _elsewhere(self, made: Round, act: Act, record: Record, outcome: RequestOutcome) -> None:
        """Keep what is a fault by itself, wherever it was seen."""
        if outcome.is_certain:
            self.seens.elsewhere.append(seen_of(made, act, record, outcome))

    def _cold(self, made: Round, act: Act, way: str) -> Act:
        """An act behind a first line of its own."""
        return replace(act, salt=self._salt(way, made.number, act.number), cancel=None, after=0.0)

    def _salt(self, *parts: object) -> str:
        said = ":".join(map(str, (self.storm.seed, *parts)))
        return f"{int(sha256(said.encode()).hexdigest(), 16) % 10**LINE:0{LINE}}"

    async def _ask(
        self,
        made: Round,
        acts: Sequence[Act],
        family: str,
        answered: Answered,
        key: Callable[[Act], int],
    ) -> list[tuple[Act, Record | None]]:
        """Send some requests at the same time, but for those that are on disk; what came of
        each, None where it was cancelled or a limit let it not be sent."""
        found = dict[int, Record | None]()
        left = list[Act]()
        for act in acts:
            self._order += 1
            stored = self._stored.get((family, key(act)))
            if stored is not None and (stored.answer is not None or act.cancel is not None):
                found[act.number] = stored
            elif not (family == STORMED and self._was_cancelled(made, act)):
                left.append(act)
            hider = Hider(key(act), self._order)
            with without_limit():
                self.owners.add(self.storm.texts.hidden(made.number, act), hider)
        self._sent[family] += len(acts)
        if steps := self._steps(made, left, family, answered, key):
            records, outcome = await self._campaign.ask_together(
                steps, at_a_time=self.storm.limits.load, scored=len(self.seens.storm)
            )
            for act, record in zip(left, records, strict=True):
                found[act.number] = record
                if record is None and act.cancel is None:
                    self.stopped = self.stopped or str(outcome.stopped or "a limit is reached")
                    self._limited = True
                elif record is not None:
                    self._note(record, outcome)
        claim = self._last.verdict.claim if self._last else ""
        self.progress(self.number, self._sent.total(), claim)
        rows = [(act, found.get(act.number)) for act in acts]
        for act, record in rows:
            if record is not None and record.answer is not None:
                self._heard = True
                answered.by_path[act.family, act.path] = record.answer
        return rows

    def _steps(
        self,
        made: Round,
        acts: Sequence[Act],
        family: str,
        answered: Answered,
        key: Callable[[Act], int],
    ) -> list[Step]:
        """The prompts of some requests; none where nothing more is sent. A limit that ends their
        building leaves what is on disk of the wave to be judged."""
        if self.stopped:
            return []
        try:
            return [self._step(made, act, family, answered, key(act)) for act in acts]
        except LimitReached as error:
            self.stopped, self._limited = str(error), True
            return []

    def _was_cancelled(self, made: Round, act: Act) -> bool:
        """Whether an earlier start cancelled an act: a later wave of its round is on disk."""
        later = (key_of(made.number, each.number) for each in made.acts if each.wave > act.wave)
        return act.cancel is not None and any((STORMED, key) in self._stored for key in later)

    def _step(self, made: Round, act: Act, family: str, answered: Answered, key: int) -> Step:
        trial = self.storm.texts.trial(made.number, act, key, answered.of(act.family))
        base, each = self.storm.fixed.pace if self.storm.fixed else (0.0, 0.0)
        pace_s = base + each * trial.prompt.tokens
        return Step(
            family,
            trial,
            self.storm.resolved,
            RunFolder(self.storm.folder.folder(family)),
            after_s=act.after * pace_s,
            cancel_s=None if act.cancel is None else max(0.001, act.cancel * pace_s),
        )

    @without_limit()
    def _outcome(self, made: Round, act: Act, record: Record, at: int) -> RequestOutcome:
        """What came of one request."""
        texts = self.storm.texts
        settings = self.storm.resolved.settings
        wanted, own = texts.secrets(made.number, act), texts.hidden(made.number, act)
        outcome = judge_answer(record, wanted, own, self.owners, at, settings.max_answer_tokens)
        if outcome.word in ("lost", "endless") and len(record.answer or "") >= 100:
            own_text = "".join(
                text for _, text in texts.messages(made.number, act.path, _unknown, "")
            )
            both = {"own": own_text, "all": texts.pool}
            budget = settings.max_answer_tokens
            outcome = judge_answer(record, wanted, own, self.owners, at, budget, both)
        return outcome

    def _note(self, record: Record, outcome: Asked) -> None:
        """What a failure says of all that follows."""
        self.finishes.append(record.finish)
        answered = bool(self.seens.storm)
        self.failing.take(record, record.own_tokens, outcome.hopeless, answered=answered)
        if record.answer is not None:
            return
        if self.failing.refused_from is not None:
            self.stopped = (
                f"the model refused a prompt of {record.own_tokens:,} tokens ({record.error}); "
                "give a smaller --max-length"
            )
        self.stopped = self.stopped or self.failing.ended

    def _nothing(self) -> None:
        """Raises NeedlemapError where no answer ever came."""
        if self.missed:
            return
        raise no_answer(self.stopped, limited=self._limited)

    def document(self, found: Stormed) -> StormFile:
        """storm.json with what was found and the whole sequence."""
        began = min((each.at_s for each in self.seens.storm if each.at_s), default=0.0)
        return self.storm.file().model_copy(
            update={
                "wanted": self.storm.options.wanted,
                "verdict": found.verdict,
                "said": list(found.said),
                "counts": dict(found.counts),
                "rounds": self.number,
                "requests": found.requests,
                "families": found.families,
                "faulty": round(found.faulty, 6),
                "highest": found.highest,
                "limit_nats": self.seens.moves.limit if self.seens.moves else None,
                "suspects": [_replayed(each) for each in self.seens.suspects.values()],
                "sequence": [_request(each, began) for each in self.seens.storm],
            }
        )


def _wealth(suspects: Iterable[Suspect]) -> float:
    return log_blocks(block for each in suspects for block in each.blocks)


def _same(key: int, _act: Act) -> int:
    return key


def _unknown(_path: Conversation) -> str | None:
    return None


def _replayed(suspect: Suspect) -> Replayed:
    replays, lost, cold = suspect.askings
    seen = suspect.seen
    return Replayed(
        key=seen.key, outcome=seen.outcome.word, replayed=replays, lost=lost, cold_lost=cold
    )


def _request(seen: Seen, began: float) -> StormRequest:
    act, outcome = seen.act, seen.outcome
    return StormRequest(
        key=seen.key,
        round=seen.round,
        wave=act.wave,
        family=act.family,
        session=act.session,
        operation=act.operation,
        at_s=round(max(0.0, seen.at_s - began), 3) if seen.at_s else 0.0,
        seconds=round(seen.seconds, 3),
        tokens=seen.tokens,
        cached=seen.cached,
        outcome=outcome.word,
        foreign=outcome.foreign,
        whose=outcome.whose,
        ago=outcome.ago,
        nats=seen.nats,
    )


def seen_of(made: Round, act: Act, record: Record, outcome: RequestOutcome) -> Seen:
    """A request by its record."""
    ended = datetime.fromisoformat(record.finished_at).timestamp() if record.finished_at else 0.0
    seconds = record.latency_s or 0.0
    return Seen(
        key_of(made.number, act.number),
        made.number,
        act,
        outcome,
        record.answer or "",
        ended - seconds if ended else 0.0,
        seconds,
        record.sent_tokens or 0,
        record.cached_tokens,
    )


def pace_of(rows: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Seconds of a prompt, and of each of its tokens, by prompts of several lengths.

    >>> pace_of([(200, 0.1), (200, 0.1), (2_200, 0.3)])
    (0.08, 0.0001)
    """
    sizes = sorted({size for size, _ in rows})
    low = median(seconds for size, seconds in rows if size <= sizes[len(sizes) // 3])
    high = median(seconds for size, seconds in rows if size >= sizes[-1])
    each = max(0.0, (high - low) / max(1, sizes[-1] - sizes[0]))
    return round(max(1e-6, low - each * sizes[0]), 6), round(each, 9)
