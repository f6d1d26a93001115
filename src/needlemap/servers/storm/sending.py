"""Send the requests of a storm, wave by wave, unless they are on disk already.

What a request answers is on disk before anything is made of it, so the same command resumes where
an earlier start ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from needlemap.asking import Outcome as BatchOutcome
from needlemap.asking.campaign import Campaign, MakeModel
from needlemap.asking.discovery import sent_with
from needlemap.asking.failures import Failures, no_answer
from needlemap.asking.single import Step
from needlemap.deadline import LimitReached, without_limit
from needlemap.errors import NeedlemapError
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.servers.check.owners import Owners
from needlemap.servers.storm.act import Act, How, Round, key_of
from needlemap.servers.storm.act import Path as Conversation
from needlemap.servers.storm.evidence import Evidence, Observation
from needlemap.servers.storm.offered import other_model_maker, slot_model_maker
from needlemap.servers.storm.outcome import Hider, RequestOutcome, judge_answer
from needlemap.servers.storm.storm import ALONE, COLD, STORMED, THERE, UNCACHED, RoundAnswers, Storm
from needlemap.servers.storm.texts import LINE
from needlemap.servers.storm.uncached import uncached_model_maker

# Characters of a wrong answer from which on it is looked up in other prompts' texts.
LONG_ANSWER = 100
# Seconds after which a client goes away, at least: 0 would cancel before anything is sent.
LEAST_CANCEL_S = 0.001

KeyOf = Callable[[Act], int]


class Sender:
    """The requests that a storm sends, and why it stopped sending.

    Attributes:
        storm: The storm on disk.
        evidence: What was observed so far. Faults by themselves are added here.
        finishes: How the answers ended, in the server's words.
        stopped: Why nothing more is sent; '' while more is.
        is_limited: Whether a limit of the user is that reason.
        has_answer: Whether any request was ever answered.
        stored: All records, by family and number.
        sent: Requests by family, those on disk included.
    """

    def __init__(
        self,
        storm: Storm,
        evidence: Evidence,
        *,
        make: MakeModel,
        make_reference: MakeModel,
        on_wave: Callable[[], None],
    ) -> None:
        self.storm = storm
        self.evidence = evidence
        self.finishes = list[str | None]()
        self.stopped = ""
        self.is_limited = False
        self.has_answer = False
        self.stored = storm.records()
        self.sent = Counter[str]()

        salt = f"needlemap-{storm.seed}" if storm.is_own else ""
        models = {"": make, THERE: make_reference, ALONE: uncached_model_maker(make, salt)}
        models.update(_offered_models(storm, make))
        folders = map(storm.folder.folder, storm.folder.names)
        self.campaign = Campaign(folders, models)
        self._on_wave = on_wave
        self._failures = Failures()
        self._owners = Owners[Hider]()
        # The place of the last request among all, replays included.
        self._order = 0

    async def send(
        self,
        storm_round: Round,
        acts: Sequence[Act],
        *,
        family: str,
        round_answers: RoundAnswers,
        key: KeyOf,
    ) -> list[tuple[Act, Record | None]]:
        """Send some requests at the same time, but for those that are on disk.

        Return each act with its record, or with None if it was cancelled or a limit kept it from
        being sent. key: the number of an act's record. round_answers: the answers before them, to
        which theirs are added.
        """
        records = dict[int, Record | None]()
        unsent = list[Act]()
        for act in acts:
            self._order += 1
            record = self.stored.get((family, key(act)))
            if record is not None and (record.answer is not None or act.cancel is not None):
                records[act.number] = record
            elif not (family == STORMED and self._was_cancelled(storm_round, act)):
                unsent.append(act)
            hider = Hider(key(act), self._order)
            with without_limit():
                self._owners.add(self.storm.texts.all_secrets(storm_round.number, act), hider)
        self.sent[family] += len(acts)

        steps = self._steps(
            storm_round, unsent, family=family, round_answers=round_answers, key=key
        )
        if steps:
            answers, outcome = await self.campaign.ask_together(
                steps,
                at_a_time=self.storm.limits.load,
                scored=len(self.evidence.storm),
            )
            for act, record in zip(unsent, answers, strict=True):
                records[act.number] = record
                if record is not None:
                    self._note(record, outcome)
                elif act.cancel is None:
                    self.stop_at_limit(outcome.stopped)
        self._on_wave()

        rows = [(act, records.get(act.number)) for act in acts]
        for act, record in rows:
            if record is not None and record.answer is not None:
                self.has_answer = True
                round_answers.by_path[act.family, act.path] = record.answer
        return rows

    async def send_alone(
        self, storm_round: Round, act: Act, *, family: str, round_answers: RoundAnswers, key: int
    ) -> Record | None:
        """Send the same prompt alone, so that no cache holds anything of it.

        Return its record, or None if no answer came.
        """
        alone = replace(act, cancel=None, after=0.0, how="")
        ((_, record),) = await self.send(
            storm_round,
            [alone],
            family=family,
            round_answers=round_answers.copy(),
            key=lambda _: key,
        )
        if record is None or record.answer is None:
            return None
        return record

    def cold(self, storm_round: Round, act: Act, way: str) -> Act:
        """Return an act behind a first line of its own, which no cache holds."""
        salt = self.salt(way, storm_round.number, act.number)
        return replace(act, salt=salt, cancel=None, after=0.0, how="")

    def salt(self, *parts: object) -> str:
        """Return the first line of a prompt, digits that follow from the seed and some parts."""
        text = ":".join(map(str, (self.storm.seed, *parts)))
        return f"{int(sha256(text.encode()).hexdigest(), 16) % 10**LINE:0{LINE}}"

    @without_limit()
    def outcome_of(self, storm_round: Round, act: Act, record: Record) -> RequestOutcome:
        """Return the outcome of a request of the wave that was sent last."""
        texts = self.storm.texts
        secrets = texts.all_secrets(storm_round.number, act)
        outcome = self._judge_answer(storm_round, act, record, secrets)
        # Texts are slow to make, so only what may be another session's is looked up in them.
        is_long = len(record.answer or "") >= LONG_ANSWER
        if outcome.word in ("lost", "endless") and is_long:
            messages = texts.messages(storm_round.number, act.path, _no_answer_to, "")
            own_text = "".join(text for _, text in messages)
            known_texts = {"own": own_text, "all": texts.pool}
            outcome = self._judge_answer(storm_round, act, record, secrets, known_texts)
        return outcome.without_text if self.storm.by_ways else outcome

    def _judge_answer(
        self,
        storm_round: Round,
        act: Act,
        record: Record,
        prompt_secrets: Iterable[str],
        texts: Mapping[str, str] | None = None,
    ) -> RequestOutcome:
        return judge_answer(
            record,
            right_secrets=self.storm.texts.secrets(storm_round.number, act),
            prompt_secrets=prompt_secrets,
            owners=self._owners,
            place=self._order,
            budget=self.storm.resolved.settings.max_answer_tokens,
            texts=texts,
        )

    def keep_certain(
        self, storm_round: Round, act: Act, record: Record, outcome: RequestOutcome
    ) -> None:
        """Keep a request that is a fault by itself, but not part of the storm's sequence."""
        if outcome.is_certain:
            observation = Observation.of(storm_round.number, act, record, outcome)
            self.evidence.other_faults.append(observation)

    def stop_at_limit(self, reason: object) -> None:
        """Send nothing more, because a limit is reached. reason: the limit, if it is known."""
        self.stopped = self.stopped or str(reason or "a limit is reached")
        self.is_limited = True

    def no_answer(self) -> NeedlemapError:
        """Return the error for a server that answered no request."""
        return no_answer(self.stopped, limited=self.is_limited)

    def _steps(
        self,
        storm_round: Round,
        acts: Sequence[Act],
        *,
        family: str,
        round_answers: RoundAnswers,
        key: KeyOf,
    ) -> list[Step]:
        """Build the prompts of some requests, or none if nothing more is sent.

        If a limit ends the building, the requests of the wave that are on disk are judged still.
        """
        if self.stopped:
            return []
        try:
            return [
                self._step(
                    storm_round, act, family=family, round_answers=round_answers, key=key(act)
                )
                for act in acts
            ]
        except LimitReached as error:
            self.stopped = str(error)
            self.is_limited = True
            return []

    def _step(
        self, storm_round: Round, act: Act, *, family: str, round_answers: RoundAnswers, key: int
    ) -> Step:
        trial = self.storm.texts.trial(storm_round.number, act, key, round_answers.of(act.family))
        prompt_s, token_s = self.storm.fixed.pace if self.storm.fixed else (0.0, 0.0)
        pace_s = prompt_s + token_s * trial.prompt.tokens
        cancel_s = None
        if act.cancel is not None:
            cancel_s = max(LEAST_CANCEL_S, act.cancel * pace_s)
        is_uncached = family in UNCACHED or (family == COLD and self.storm.by_ways)
        return Step(
            family,
            trial,
            resolved=self.storm.request_settings,
            folder=RunFolder(self.storm.folder.folder(family)),
            model=ALONE if is_uncached else act.how,
            after_s=act.after * pace_s,
            cancel_s=cancel_s,
        )

    def _was_cancelled(self, storm_round: Round, act: Act) -> bool:
        """Return True if an earlier start cancelled an act.

        A cancelled request leaves no record, but a later wave of its round is on disk then.
        """
        if act.cancel is None:
            return False
        later_acts = (other for other in storm_round.acts if other.wave > act.wave)
        return any(
            (STORMED, key_of(storm_round.number, later.number)) in self.stored
            for later in later_acts
        )

    def _note(self, record: Record, outcome: BatchOutcome) -> None:
        """Stop sending if a failure says that the next requests would fail too."""
        self.finishes.append(record.finish)
        has_observed = bool(self.evidence.storm)
        self._failures.take(record, record.own_tokens, outcome.hopeless, answered=has_observed)
        if record.answer is not None:
            return
        if self._failures.refused_from is not None:
            self.stopped = (
                f"the model refused a prompt of {record.own_tokens:,} tokens ({record.error}); "
                "give a smaller --max-length"
            )
        self.stopped = self.stopped or self._failures.ended


def _offered_models(storm: Storm, make: MakeModel) -> dict[str, MakeModel]:
    """Return the makers of the models for slots and for the second model, by the act's `how`."""
    sent = sent_with({"model_options": storm.resolved.settings.model_options})
    slot_file = f"needlemap-storm-{storm.seed}.bin"
    ways: tuple[How, ...] = ("slot", "save", "restore")
    models: dict[str, MakeModel] = {
        how: slot_model_maker(make, how, slot_file, sent) for how in ways
    }
    models["other"] = other_model_maker(make, storm.file().other)
    return models


def _no_answer_to(_path: Conversation) -> str | None:
    """Leave a model's own answers out of its prompt."""
    return None
