"""How likely a server finds the tokens of a text: of its own answer, or of one that it is given.

Replies list log-probabilities in two forms: chat's, a list of tokens (llama.cpp's completions too),
and that of completions, in columns. A given answer is weighed in one of two ways, found out by two
short texts first:
`echo`, where the reply repeats its prompt with log-probabilities (vLLM, SGLang), in one request;
`steps`, where the server is made to say it, a token a request, by a bias that leaves the
log-probabilities as they are
(llama.cpp). Either way it is sent token ids by its own tokenizer: the answer begins where the
prompt ends.

What was generated can be set beside its prefill, one token at a time: by `echo`, or by `prompt`,
where the prompt holds all but that token and the reply tells what would follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, fsum
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import to_json

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.http import JsonClient, faults
from needlemap.http.compatible import served_model
from needlemap.models import MOST_ROWS, Answer, Forced, Logprobs, Row
from needlemap.models.servers import choice_of, understood
from needlemap.untrusted import LOWEST_NATS, clean_nats

if TYPE_CHECKING:
    from needlemap.http.client import Reader

WANTED: dict[str, dict[str, Any]] = {
    "chat": {"logprobs": True, "top_logprobs": 2},
    "completions": {"logprobs": 2},
    "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
}
_PATH = "/completions"
# The most that OpenAI's format allows; what is less likely than e^-100 scores as if it were that.
_BIAS = 100
_PROMPT, _TRIED = "The sky is blue. The grass is", (" green", " seven")
# What the shares of two answers may add up to.
_ROUNDED = 1.001
_LARGEST_ID = 2**31
# llama.cpp: compute all of a prompt. Others do not read it; with echo they read no cache either.
_COLD = {"cache_prompt": False}


class Weighing:
    """Weighs given answers on one server. read: makes an answer of a reply."""

    def __init__(self, name: str, server: JsonClient, read: Reader) -> None:
        self._name = name
        self._server = server
        self._read = read
        self._way: Literal["echo", "steps"] | None = None
        self._finding = asyncio.Lock()
        self._prefill_way: Literal["echo", "prompt"] | None = None
        self._no_prefill = ""

    async def weigh(self, prompt_field: bytes, answer: str, timeout_s: float) -> Answer:
        """Return how likely an answer is behind a prompt.

        prompt_field: the request's field that holds the prompt. Raises Unmeasured, or SettingsError
        for a server that cannot weigh.
        """
        async with self._finding:
            if self._way is None:
                self._way = await self._find_way(timeout_s)
        prompt = await self._prompt_ids(prompt_field, timeout_s)
        answer_ids = await self._text_ids(answer, timeout_s)
        if not answer_ids:
            raise Unmeasured(
                Failure.MODEL, "The reference answer is empty: there is nothing to weigh."
            )
        return await self._weigh_in_way(self._way, prompt, answer_ids, timeout_s)

    async def prefill(self, prompt_field: bytes, answer: str, timeout_s: float) -> Answer:
        """Return how likely a server finds an answer's last token behind the rest as one prompt.

        Raises Unmeasured if the server shows no log-probability of it.

        prompt_field: as `weigh` takes it.
        """
        async with self._finding:
            if self._prefill_way is None:
                self._prefill_way = await self._find_prefill(timeout_s)
        prompt = await self._prompt_ids(prompt_field, timeout_s)
        answer_ids = await self._text_ids(answer, timeout_s)
        if not answer_ids:
            raise Unmeasured(Failure.REJECTED, "The server makes no token of the answer.")
        return await self._ask_prefill(self._prefill_way, prompt + answer_ids, timeout_s)

    async def _find_prefill(self, timeout_s: float) -> Literal["echo", "prompt"]:
        """Return the way in which this server reports log-probabilities of a prompt's last token.

        Raise Unmeasured if it offers none, or if it is busy now.
        """
        if self._no_prefill:
            raise Unmeasured(Failure.REJECTED, self._no_prefill)
        reasons = []
        ways: tuple[Literal["echo", "prompt"], ...] = ("echo", "prompt")
        for way in ways:
            try:
                if way == "prompt":
                    await self._ask_prefill(
                        way, await self._text_ids(_PROMPT, timeout_s), timeout_s
                    )
                elif fsum(await self._shares(way, timeout_s)) > _ROUNDED:
                    raise faults.unreadable("Two answers are likelier than all together", way)
            except Unmeasured as failure:
                if not _is_final(failure):
                    raise
                reasons.append(f"{way}: {failure}")
                continue
            return way
        self._no_prefill = f"The server tells nothing of a prompt's tokens ({' '.join(reasons)})"
        raise Unmeasured(Failure.REJECTED, self._no_prefill)

    async def _ask_prefill(
        self, way: Literal["echo", "prompt"], ids: list[int], timeout_s: float
    ) -> Answer:
        """Return how likely the server finds the last id behind all others."""
        start = len(ids) - 1
        if way == "echo":
            read = partial(understood, partial(self._read_echo, start, 1))
            return await self._server.ask(_PATH, self._body(ids, echo=True), timeout_s, read)
        read = partial(understood, partial(self._read_next, start))
        return await self._server.ask(_PATH, self._body(ids[:-1], **_COLD), timeout_s, read)

    async def _find_way(self, timeout_s: float) -> Literal["echo", "steps"]:
        """Return the way in which this server weighs a given answer.

        Raise SettingsError if it offers none, Unmeasured if it is busy now.
        """
        reasons = []
        ways: tuple[Literal["echo", "steps"], ...] = ("echo", "steps")
        for way in ways:
            try:
                shares = await self._shares(way, timeout_s)
            except Unmeasured as failure:
                if not _is_final(failure):
                    raise
                reasons.append(f"{way}: {failure}")
                continue
            if fsum(shares) <= _ROUNDED:
                return way
            words = " and ".join(f"{share:.2f}" for share in shares)
            reasons.append(f"{way}: two different answers have probabilities of {words}.")
        raise SettingsError(
            f"'{served_model(self._name)}' at {self._server.base_url} does not say how likely "
            f"a given answer is, as scorer 'logprob' needs it ({' '.join(reasons)}). "
            f"Servers that do: vLLM, SGLang, llama.cpp's. Or use --model hf/PATH, or another "
            f"--scorer."
        )

    async def _shares(self, way: Literal["echo", "steps"], timeout_s: float) -> list[float]:
        """Return the probabilities of two different answers to one prompt."""
        prompt_ids = await self._text_ids(_PROMPT, timeout_s)
        shares: list[float] = []
        for text in _TRIED:
            answer_ids = await self._text_ids(text, timeout_s)
            answer = await self._weigh_in_way(way, prompt_ids, answer_ids, timeout_s)
            if answer.forced is not None:
                shares.append(exp(fsum(answer.forced.logprobs)))
        return shares

    async def _weigh_in_way(
        self,
        way: Literal["echo", "steps"],
        prompt: list[int],
        answer_ids: list[int],
        timeout_s: float,
    ) -> Answer:
        if way == "steps":
            return await self._weigh_step_by_step(prompt, answer_ids, timeout_s)
        read = partial(understood, partial(self._read_echo, len(prompt), len(answer_ids)))
        return await self._server.ask(
            _PATH, self._body(prompt + answer_ids, echo=True), timeout_s, read
        )

    async def _weigh_step_by_step(
        self, prompt: list[int], answer_ids: list[int], timeout_s: float
    ) -> Answer:
        """Weigh an answer token by token.

        Each stands behind those before it, which the server has in its cache.
        """
        rows: list[Row] = []
        steps: list[Answer] = []
        for index, token in enumerate(answer_ids):
            body = self._body(prompt + answer_ids[:index], logit_bias={str(token): _BIAS})
            read = partial(understood, partial(self._read_step, token, rows))
            steps.append(await self._server.ask(_PATH, body, timeout_s, read))
        answer = _weighed_answer(steps[0], rows, "steps", len(prompt))
        usage = {
            "requests": len(steps),
            "prompt_tokens": sum(step.prompt_tokens or 0 for step in steps),
            "completion_tokens": sum(step.completion_tokens or 0 for step in steps),
        }
        return replace(answer, usage=usage, latency_s=sum(step.latency_s for step in steps))

    def _read_echo(self, start: int, count: int, body: dict[str, Any], took_s: float) -> Answer:
        """Return the answer of a reply that repeats the tokens start..start + count of its prompt.

        Raises Unmeasured if the reply lacks the log-probabilities of some of them.
        """
        rows = rows_of(body, start, start + count)
        if len(rows) < count:
            words = f"{len(rows)} of {count} tokens"
            raise faults.unreadable(
                "The reply does not repeat its prompt with log-probabilities", words
            )
        return _weighed_answer(self._read(body, took_s), rows, "echo", start)

    def _read_step(
        self, token: int, rows: list[Row], body: dict[str, Any], took_s: float
    ) -> Answer:
        entry = next(iter(_entries(body, 0, 1)), {})
        if entry.get("id") != token:
            raise faults.unreadable(
                "The reply does not show the token that was wanted", str(entry.get("id"))
            )
        rows.append(_row(entry))
        return self._read(body, took_s)

    def _read_next(self, start: int, body: dict[str, Any], took_s: float) -> Answer:
        """Return the answer of a reply with the log-probabilities of the next token.

        start: the tokens of the prompt. Raises Unmeasured if the reply has no log-probabilities.
        """
        rows = rows_of(body, 0, 1)
        if not rows:
            raise faults.unreadable("The reply has no log-probabilities", str(body)[:100])
        return _weighed_answer(self._read(body, took_s), rows, "prompt", start)

    def _body(self, prompt: list[int], **fields: Any) -> bytes:
        frame = {"model": self._name, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        return to_json({**frame, **WANTED["completions"], **fields})

    async def _prompt_ids(self, prompt_field: bytes, timeout_s: float) -> list[int]:
        """Return a prompt's token ids, with all that the server puts around it."""
        if prompt_field.startswith(b'"prompt":'):
            return await self._ids(prompt_field, timeout_s, special=True)
        try:
            return await self._ids(prompt_field, timeout_s, special=False)
        except Unmeasured as failure:
            if not _is_final(failure):
                raise
        # llama.cpp's way.
        reply = await self._server.look_up("/apply-template", b"{%b}" % prompt_field, timeout_s)
        text = to_json(str(reply.get("prompt")))
        return await self._ids(b'"prompt":%b' % text, timeout_s, special=True)

    async def _text_ids(self, text: str, timeout_s: float) -> list[int]:
        return await self._ids(b'"prompt":%b' % to_json(text), timeout_s, special=False)

    async def _ids(self, field_sent: bytes, timeout_s: float, *, special: bool) -> list[int]:
        """Return the server's token ids of a field.

        special: whether its first token and special tokens count where they are spelt. vLLM and
        SGLang read `prompt` or `messages`, llama.cpp `content`: without that it gives no token.
        """
        for field in (field_sent, field_sent.replace(b'"prompt":', b'"content":', 1)):
            flags = {"model": self._name, "add_special_tokens": special}
            flags |= {"add_special": special, "parse_special": special}
            body = b"{%b,%b" % (field, to_json(flags)[1:])
            tokens = (await self._server.look_up("/tokenize", body, timeout_s)).get("tokens")
            if not isinstance(tokens, list) or not all(map(_is_id, tokens)):
                break
            if tokens:
                return tokens
        raise faults.unreadable("The server gives no token ids of a text", str(tokens)[:100])


def _is_final(failure: Unmeasured) -> bool:
    """Return True if a failure shows that a server can never do it; False if it cannot now."""
    if failure.failure is Failure.SERVER:
        return not failure.outage
    return failure.failure in (Failure.REJECTED, Failure.UNREADABLE)


def _is_id(token: object) -> bool:
    return isinstance(token, int) and 0 <= token < _LARGEST_ID


def _weighed_answer(
    reply: Answer, rows: Sequence[Row], way: Literal["echo", "steps", "prompt"], start: int
) -> Answer:
    """Return a reply as the answer that was given to the model, with its log-probabilities.

    rows: of the answer's tokens. start: tokens of the prompt. Raise Unmeasured if a token lacks
    its log-probability.
    """
    logprobs = Logprobs.of(rows, way, start)
    nats = [clean_nats(row[1]) for row in rows]
    known_nats = tuple(value for value in nats if value is not None)
    if logprobs is None or len(known_nats) < len(nats):
        raise faults.unreadable("The reply lacks a token's log-probability", str(rows)[:200])

    is_greedy = True
    for value, row in zip(known_nats, rows, strict=True):
        rival = clean_nats(row[3])
        if rival is not None and rival > value:
            is_greedy = False
    return replace(
        reply,
        text="",
        finish=None,
        prompt_tokens=start,
        completion_tokens=0,
        thinking=None,
        forced=Forced(known_nats, is_greedy),
        logprobs=logprobs,
    )


def rows_of(body: Mapping[str, Any], start: int = 0, stop: int = MOST_ROWS) -> list[Row]:
    """Return the tokens from start to stop that a reply lists, in either form; [] if none."""
    return [_row(entry) for entry in _entries(body, start, stop)]


def _entries(body: Mapping[str, Any], start: int, stop: int) -> list[Mapping[str, Any]]:
    """Return the tokens that a reply lists in the form of chat completions."""
    logprobs = (choice_of(body) or {}).get("logprobs")
    if not isinstance(logprobs, Mapping):
        return []
    content = logprobs.get("content")
    if isinstance(content, list):
        is_valid = all(isinstance(entry, Mapping) for entry in content)
        return content[start:stop] if is_valid else []

    # Completions list columns.
    columns = [logprobs.get(name) for name in ("tokens", "token_logprobs", "top_logprobs")]
    lists = [column[start:stop] for column in columns if isinstance(column, list)]
    if len(lists) < len(columns) or len(set(map(len, lists))) != 1:
        return []
    return [
        {"token": token, "logprob": logprob, "top_logprobs": _candidates(top)}
        for token, logprob, top in zip(*lists, strict=True)
    ]


def _candidates(top: object) -> list[Mapping[str, Any]]:
    """Return the likely tokens of completions in the form of chat completions."""
    if not isinstance(top, Mapping):
        return []
    return [{"token": token, "logprob": logprob} for token, logprob in top.items()]


def _row(entry: Mapping[str, Any]) -> Row:
    """Return a token and the likeliest other one in its place."""
    top = entry.get("top_logprobs")
    rivals: list[Mapping[str, Any]] = []
    for candidate in top if isinstance(top, list) else ():
        if isinstance(candidate, Mapping) and _identity(candidate) != _identity(entry):
            rivals.append(candidate)
    rival: Mapping[str, Any] = max(rivals, key=_likelihood, default={})
    return entry.get("token"), entry.get("logprob"), rival.get("token"), rival.get("logprob")


def _identity(entry: Mapping[str, Any]) -> list[Any]:
    # Two tokens may have the same text: half a character is written as '?' or U+FFFD.
    return [entry.get(name) for name in ("id", "token", "bytes")]


def _likelihood(entry: Mapping[str, Any]) -> float:
    nats = clean_nats(entry.get("logprob"))
    return LOWEST_NATS if nats is None else nats
