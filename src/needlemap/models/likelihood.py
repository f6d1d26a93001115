"""How likely a server finds the tokens of a text: of its own answer, or of one that it is given.

Replies list log-probabilities in two forms: chat's, a list of tokens (llama.cpp's completions too),
and that of completions, in columns. A given answer is weighed in one of two ways, found out by two
short texts first:
`echo`, where the reply repeats its prompt with log-probabilities (vLLM, SGLang), in one request;
`steps`, where the server is made to say it, a token a request, by a bias that leaves the
log-probabilities as they are
(llama.cpp). Either way it is sent token ids by its own tokenizer: the answer begins where the
prompt ends.
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
from needlemap.http.compatible import served
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
# the most that OpenAI's format allows; what is less likely than e^-100 scores as if it were that
_BIAS = 100
_PROMPT, _TRIED = "The sky is blue. The grass is", (" green", " seven")
_ROUNDED = 1.001  # what the shares of two answers may add up to
_LARGEST_ID = 2**31


class Weighing:
    """Weighs given answers on one server. read: the answer in a reply."""

    def __init__(self, name: str, server: JsonClient, read: Reader) -> None:
        self._name, self._server, self._read = name, server, read
        self._way: Literal["echo", "steps"] | None = None
        self._finding = asyncio.Lock()

    async def weigh(self, asked: bytes, answer: str, timeout_s: float) -> Answer:
        """How likely an answer is behind a prompt. asked: the request's field that holds the
        prompt.

        Raises Unmeasured, or SettingsError for a server that cannot tell.
        """
        async with self._finding:
            if self._way is None:
                self._way = await self._found(timeout_s)
        prompt = await self._prompt_ids(asked, timeout_s)
        wanted = await self._text_ids(answer, timeout_s)
        if not wanted:
            raise Unmeasured(
                Failure.MODEL, "The reference answer is empty: there is nothing to weigh."
            )
        return await self._weighed(self._way, prompt, wanted, timeout_s)

    async def _found(self, timeout_s: float) -> Literal["echo", "steps"]:
        """The way that this server offers. Raises SettingsError if none, Unmeasured if it is
        busy now."""
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
            told = " and ".join(f"{share:.2f}" for share in shares)
            reasons.append(f"{way}: two different answers have probabilities of {told}.")
        raise SettingsError(
            f"'{served(self._name)}' at {self._server.base_url} does not say how likely a given "
            f"answer is, as "
            f"scorer 'logprob' needs it ({' '.join(reasons)}). Servers that do: vLLM, SGLang, "
            f"llama.cpp's. "
            f"Or use --model hf/PATH, or another --scorer."
        )

    async def _shares(self, way: Literal["echo", "steps"], timeout_s: float) -> list[float]:
        """Return the probabilities of two different answers to one prompt."""
        prompt_ids = await self._text_ids(_PROMPT, timeout_s)
        shares: list[float] = []
        for text in _TRIED:
            answer_ids = await self._text_ids(text, timeout_s)
            answer = await self._weighed(way, prompt_ids, answer_ids, timeout_s)
            if answer.forced is not None:
                shares.append(exp(fsum(answer.forced.logprobs)))
        return shares

    async def _weighed(
        self, way: Literal["echo", "steps"], prompt: list[int], wanted: list[int], timeout_s: float
    ) -> Answer:
        if way == "steps":
            return await self._stepped(prompt, wanted, timeout_s)
        read = partial(understood, partial(self._read_echo, len(prompt), len(wanted)))
        return await self._server.ask(
            _PATH, self._body(prompt + wanted, echo=True), timeout_s, read
        )

    async def _stepped(self, prompt: list[int], wanted: list[int], timeout_s: float) -> Answer:
        """Weigh an answer token by token, each behind those before it, which the server has in its
        cache."""
        rows: list[Row] = []
        steps: list[Answer] = []
        for place, token in enumerate(wanted):
            body = self._body(prompt + wanted[:place], logit_bias={str(token): _BIAS})
            read = partial(understood, partial(self._read_step, token, rows))
            steps.append(await self._server.ask(_PATH, body, timeout_s, read))
        answer = _given(steps[0], rows, "steps", len(prompt))
        usage = {
            "requests": len(steps),
            "prompt_tokens": sum(step.prompt_tokens or 0 for step in steps),
            "completion_tokens": sum(step.completion_tokens or 0 for step in steps),
        }
        return replace(answer, usage=usage, latency_s=sum(step.latency_s for step in steps))

    def _read_echo(self, start: int, count: int, body: dict[str, Any], took_s: float) -> Answer:
        rows = rows_of(body, start, start + count)
        if len(rows) < count:
            told = f"{len(rows)} of {count} tokens"
            raise faults.unreadable(
                "The reply does not repeat its prompt with log-probabilities", told
            )
        return _given(self._read(body, took_s), rows, "echo", start)

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

    def _body(self, prompt: list[int], **fields: Any) -> bytes:
        frame = {"model": self._name, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        return to_json({**frame, **WANTED["completions"], **fields})

    async def _prompt_ids(self, asked: bytes, timeout_s: float) -> list[int]:
        """A prompt's token ids, with all that the server puts around it."""
        if asked.startswith(b'"prompt":'):
            return await self._ids(asked, timeout_s, special=True)
        try:
            return await self._ids(asked, timeout_s, special=False)
        except Unmeasured as failure:
            if not _is_final(failure):
                raise
        reply = await self._server.look_up(
            "/apply-template", b"{%b}" % asked, timeout_s
        )  # llama.cpp
        return await self._ids(
            b'"prompt":%b' % to_json(str(reply.get("prompt"))), timeout_s, special=True
        )

    async def _text_ids(self, text: str, timeout_s: float) -> list[int]:
        return await self._ids(b'"prompt":%b' % to_json(text), timeout_s, special=False)

    async def _ids(self, asked: bytes, timeout_s: float, *, special: bool) -> list[int]:
        """The server's token ids. special: with its first token, and special tokens where they
        are spelt.

        vLLM and SGLang read `prompt` or `messages`, llama.cpp `content`: without that it gives
        no token.
        """
        for field in (asked, asked.replace(b'"prompt":', b'"content":', 1)):
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


def _given(reply: Answer, rows: Sequence[Row], way: Literal["echo", "steps"], start: int) -> Answer:
    """Return a reply as the answer that was given to the model. Raise Unmeasured if a token lacks
    its log-probability."""
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
        {"token": token, "logprob": logprob, "top_logprobs": _others(top)}
        for token, logprob, top in zip(*lists, strict=True)
    ]


def _others(top: object) -> list[Mapping[str, Any]]:
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
    best: Mapping[str, Any] = max(rivals, key=_likelihood, default={})
    return entry.get("token"), entry.get("logprob"), best.get("token"), best.get("logprob")


def _identity(entry: Mapping[str, Any]) -> list[Any]:
    # Two tokens may have the same text: half a character is written as '?' or U+FFFD.
    return [entry.get(name) for name in ("id", "token", "bytes")]


def _likelihood(entry: Mapping[str, Any]) -> float:
    nats = clean_nats(entry.get("logprob"))
    return LOWEST_NATS if nats is None else nats
