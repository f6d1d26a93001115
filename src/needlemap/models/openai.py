"""Any server that speaks the OpenAI wire format: OpenAI, vLLM, SGLang, LMDeploy, llama.cpp, Ollama,
TGI, ...

A request is repeated here only with other fields, where a server wants them. A trailing assistant
message (an answer's first words) is passed on as it is; vLLM and SGLang continue it when `request`
holds `{"add_generation_prompt": false, "continue_final_message": true}`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from json import dumps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic_core import to_json

from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.finishes import UNTOLD, Ending, check_finish, ending_of, finish_of
from needlemap.http import JsonClient, Sent, at_home, base_url_of, faults, from_environment
from needlemap.http.compatible import is_deployment
from needlemap.http.served import ServedModels, ServerLimits, limits_in, list_models
from needlemap.http.wording import message_of
from needlemap.models import LANE, Answer, Decoding, Logprobs, Traits
from needlemap.models.likelihood import WANTED, Weighing, rows_of
from needlemap.models.responses import as_chat
from needlemap.models.servers import (
    ServedModel,
    check_request,
    choice_of,
    count,
    texts_of,
    understood,
)
from needlemap.prompts import TEXT, Message, Prompt
from needlemap.text import needs_space
from needlemap.text.tokens import Span, TokenText
from needlemap.tokenizers import bundled_for

if TYPE_CHECKING:
    from needlemap.http.client import Reader

HOST = "api.openai.com"
KEY = "OPENAI_API_KEY"
MAX_TOKENS_FIELDS = ("max_tokens", "max_completion_tokens")
OTHER_FIELD = re.compile(
    r"(?=.*max_(completion_)?tokens)(?=.*(unsupported|unrecogni[sz]ed|unknown|not supported))"
)
NO_STOP = re.compile(
    r"(?=.*\bstop\b)(?=.*(unsupported|unrecogni[sz]ed|unknown|not supported|not permitted))",
    re.IGNORECASE | re.DOTALL,
)
NO_LOGPROBS = re.compile(r"log[ _-]?prob", re.IGNORECASE)
# What servers say of a name that they do not serve: OpenAI and vLLM, Ollama, `transformers serve`.
UNKNOWN_NAME = re.compile(
    r"model.{0,250}(does not exist|not found|unknown|no such|invalid|not supported|not available)"
    r"|(unknown|invalid|no such|unsupported) model|pinned to|not a (valid model|local folder)",
    re.IGNORECASE | re.DOTALL,
)
# What they say of a name that they serve at another endpoint.
OTHER_API = re.compile(r"v1/responses|v1/completions|not a chat model", re.IGNORECASE)
PATHS = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "responses": "/responses",
}
_BUDGET_OF_RESPONSES = "max_output_tokens"
# For what a server reports of itself.
_LIMITS_S = 10.0
_GAP = TokenText.opaque(b"\n\n").span()
# Shorter texts are not worth remembering.
_LONG_BYTES = 65_536
# Bytes that escaping adds to each byte.
_GROWTH = np.zeros(256, np.int64)
_GROWTH[:32] = 5
_GROWTH[list(b'\b\t\n\f\r"\\')] = 1


class OpenAIModel(ServedModel):
    """The back end of `openai/NAME`.

    Attributes:
        api: 'chat', 'responses' for models that are served there alone, or 'completions' for base
            models, which get the prompt's text.
        base_url: Default $OPENAI_BASE_URL, else OpenAI itself.
        key_env: The variable that holds the key.
        system_role: 'system', 'developer', or 'user' for chat templates without one: the text then
            opens the first user message.
        max_tokens_field: Default 'max_completion_tokens' at OpenAI, 'max_tokens' elsewhere, and the
            other one as soon as the server reports that it needs that.
        null_finish: 'whole' for a server that sends null as the finish reason of whole answers;
            'broken' takes such an answer as broken off.
    """

    host, base_url_variable, key_variable = HOST, "OPENAI_BASE_URL", KEY
    headers_variable, renders = "OPENAI_CUSTOM_HEADERS", True
    usage_field = MappingProxyType({"stream_options": {"include_usage": True}})

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api: Literal["chat", "completions", "responses"] = "chat",
        system_role: Literal["system", "developer", "user"] = "system",
        max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None,
        key_env: str = KEY,
        null_finish: Literal["broken", "whole"] = "broken",
    ) -> None:
        url = base_url_of(base_url, self.base_url_variable, f"https://{HOST}/v1")
        # OpenAI's own completions know only the older field.
        is_openai_chat = at_home(url, HOST) and api == "chat"
        self.max_tokens_field = max_tokens_field or MAX_TOKENS_FIELDS[is_openai_chat]
        self._field_given = max_tokens_field is not None
        self._deployed = is_deployment(url)
        super().__init__(name, url, key_env, "/v1")
        self.api = api
        self.system_role = system_role
        self._json = Escaper()
        # Requested if a server knows no such name.
        self._listed: ServedModels | None = None
        self._key_env = key_env
        self._opened = False
        # Whether lane N asks llama.cpp's slot N.
        self._slotted = False
        # Whether stop strings are sent: some of OpenAI's models refuse them.
        self._sends_stops = True
        # Whether log-probabilities are requested, if the settings want them.
        self._sends_logprobs = True
        # Whether log-probabilities were requested in vain, and a note has shown it.
        self._noted_no_logprobs = False
        reader = partial(read, null_is_whole=null_finish == "whole")
        read_body = partial(_read_response, reader) if api == "responses" else reader
        self._read = partial(understood, read_body)
        self._weighing = Weighing(name, self._server, reader)

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Return its traits: chat or completions, and the vocabulary if it is known.

        It is known of OpenAI's own and of well-known open models.
        """
        return Traits(
            chat=options.get("api", "chat") != "completions",
            tokenizer=bundled_for(name),
            teacher=True,
            remote=True,
        )

    async def open(
        self, most: int, show_state: Callable[[str], None], show_event: Callable[[str], None]
    ) -> None:
        """Read how long a context the server takes, and how many slots it has."""
        if not self._opened and not at_home(self.base_url, HOST):
            self.context_tokens, self.slots = await _read_limits(self._server, self.name)
        self._opened = True

    async def prepare(self, lanes: int) -> bool:
        """Keep each lane to one slot of llama.cpp, if it has as many.

        Left to itself it gives a lane's prompt any slot that is free, and the cache of another lane
        is lost.
        """
        self._slotted = 1 < lanes <= (self.slots or 0)
        return self._slotted

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Send one request, and return its answer.

        If the server needs the other field for the budget, or takes no stop strings or
        log-probabilities, send it again without them. Raise Unmeasured if no answer comes.
        """
        check_request(decoding.request)
        for _ in range(3):
            field, sent_options = self.max_tokens_field, (self._sends_stops, self._sends_logprobs)
            try:
                return await self._ask_once(prompt, decoding)
            except Unmeasured as failure:
                self._sends_stops &= not _refuses_stops(failure, prompt, decoding)
                self._sends_logprobs &= not _refuses_logprobs(failure, decoding)
                needs_other_field = self._wants_other_field(failure, field, decoding)
                if (
                    not needs_other_field
                    and (self._sends_stops, self._sends_logprobs) == sent_options
                ):
                    await self._name_served(failure)
                    raise
        return await self._ask_once(prompt, decoding)

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """Return how likely it finds a given answer, by what the server offers.

        Raise SettingsError if the server offers nothing, Unmeasured if a request fails.
        """
        last_message, prompt_field = prompt.messages[-1], self._prompt_field(prompt)
        is_started = last_message.role == "assistant"
        if is_started and self.api == "chat":
            prompt_field += b',"add_generation_prompt":false,"continue_final_message":true'
        # Otherwise a chat's answer starts a message.
        continues = is_started or self.api == "completions"
        blank = " " if continues and needs_space(last_message.content[-4:], answer) else ""
        return await self._weighing.weigh(prompt_field, blank + answer, decoding.timeout_s)

    async def prefill(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """Return how likely it finds an answer's last token behind the rest as a prompt.

        Raise Unmeasured if a request fails, or if the server offers no such figure.
        """
        if self.api == "responses":
            return await super().prefill(prompt, answer, decoding)
        return await self._weighing.prefill(self._prompt_field(prompt), answer, decoding.timeout_s)

    async def _ask_once(self, prompt: Prompt, decoding: Decoding) -> Answer:
        async def ask(stream: Mapping[str, Any]) -> Answer:
            body = self.body(prompt, decoding, stream)
            return await self.answer_in(PATHS[self.api], body, decoding.timeout_s, self._read)

        answer = await self.stream_as_wanted(decoding, ask)
        if decoding.logprobs and answer.logprobs is None and not self._noted_no_logprobs:
            self._noted_no_logprobs = True
            verb = "sends" if self._sends_logprobs else "gives"
            words = f"{self.base_url} {verb} no log-probabilities: records lack them"
            answer = replace(answer, note=words)
        return answer

    async def _name_served(self, failure: Unmeasured) -> None:
        """Add to a refusal which names the server lists, if it seems to know no such model."""
        is_unknown = failure.status == 404 or UNKNOWN_NAME.search(str(failure))
        if (
            failure.failure is not Failure.REJECTED
            or not is_unknown
            or OTHER_API.search(str(failure))
        ):
            return
        if self._listed is None:
            with suppress(NeedlemapError):
                list_served = partial(list_models, self.base_url, Sent(self._key_env))
                self._listed = await asyncio.to_thread(list_served)
        if self._listed and self._listed.names and self.name not in self._listed.names:
            reason = str(failure).rstrip(".")
            failure.args = (f"{reason}. {self._listed.words()}",)

    def _wants_other_field(self, failure: Unmeasured, field_sent: str, decoding: Decoding) -> bool:
        """Return True if a refusal shows that the budget's field is the other one.

        From then on it is that one.
        """
        if failure.failure is not Failure.REJECTED or not OTHER_FIELD.search(str(failure).lower()):
            return False
        if self._field_given or any(field in decoding.request for field in MAX_TOKENS_FIELDS):
            return False
        self.max_tokens_field = MAX_TOKENS_FIELDS[field_sent == MAX_TOKENS_FIELDS[0]]
        return True

    def body(
        self, prompt: Prompt, decoding: Decoding, stream: Mapping[str, Any] = MappingProxyType({})
    ) -> bytes:
        """Return the request, as JSON.

        The prompt's text is put in by hand, for speed (see `Escaper`). stream: the fields that have
        the reply streamed.
        """
        fields = to_json({**stream, **self._fields(decoding, prompt.stops)})
        return b'{"model":%b,%b,%b' % (to_json(self.name), self._prompt_field(prompt), fields[1:])

    def headers(self, key: str) -> dict[str, str]:
        """Return a key, and whose account it is. Raises SettingsError."""
        return {
            "authorization": f"Bearer {key}" if key and not self._deployed else "",
            "api-key": key if self._deployed else "",
            "openai-organization": from_environment("OPENAI_ORG_ID"),
            "openai-project": from_environment("OPENAI_PROJECT_ID"),
        }

    def _prompt_field(self, prompt: Prompt) -> bytes:
        """Return the field that holds the prompt."""
        if self.api == "completions":
            return b'"prompt":' + self._json.string(spans_of(prompt.messages))
        messages = [
            b'{"role":%b,"content":%b}' % (to_json(message.role), self._json.string(message.spans))
            for message in server_messages(prompt, self.system_role)
        ]
        field = b"input" if self.api == "responses" else b"messages"
        return b'"%b":[%b]' % (field, b",".join(messages))

    def _fields(self, decoding: Decoding, stops: Sequence[str]) -> dict[str, Any]:
        """Return the other fields of a request's body. At least one is always sent."""
        fields: dict[str, Any] = {}
        if decoding.temperature is not None:
            fields["temperature"] = decoding.temperature
        if self.api == "responses":
            fields |= {_BUDGET_OF_RESPONSES: decoding.most_tokens, "store": False}
        elif not any(field in decoding.request for field in MAX_TOKENS_FIELDS):
            fields[self.max_tokens_field] = decoding.most_tokens
        if decoding.logprobs and self._sends_logprobs:
            fields |= WANTED[self.api]
        if stops and self._sends_stops and self.api != "responses":
            fields["stop"] = list(stops)
        if self._slotted:
            fields["id_slot"] = LANE.get()
        return {**fields, **decoding.request}


def _refuses_stops(failure: Unmeasured, prompt: Prompt, decoding: Decoding) -> bool:
    """Return True if a server refuses a request because of the template's stop strings.

    They are not sent again: answers are then cut here.
    """
    is_sent = prompt.stops and "stop" not in decoding.request
    return bool(is_sent and failure.failure is Failure.REJECTED and NO_STOP.search(str(failure)))


def _refuses_logprobs(failure: Unmeasured, decoding: Decoding) -> bool:
    """Return True if a server refuses a request because of the log-probabilities that it asks for.

    They are not asked for again.
    """
    refusals = (Failure.REJECTED, Failure.UNAUTHORISED)
    is_sent = decoding.logprobs and "logprobs" not in decoding.request
    return bool(is_sent and failure.failure in refusals and NO_LOGPROBS.search(str(failure)))


async def _read_limits(server: JsonClient, model: str) -> ServerLimits:
    """Return how long a context a server takes, and how many slots llama.cpp has."""
    listed, props = await asyncio.gather(_look_up(server, "/v1/models"), _look_up(server, "/props"))
    return limits_in(listed, props, model)


async def _look_up(server: JsonClient, path: str) -> dict[str, Any]:
    """Return what a server reports at an address next to the API's; {} if nothing."""
    try:
        return await server.look_up(path, None, _LIMITS_S)
    except Unmeasured:
        return {}


def spans_of(messages: Sequence[Message]) -> list[Span]:
    """Return messages as one text, a blank line between them."""
    spans: list[Span] = []
    for index, message in enumerate(messages):
        if index:
            spans.append(_GAP)
        spans += message.spans
    return spans


def server_messages(prompt: Prompt, system_role: str = "system") -> list[Message]:
    """Return the prompt's messages with the roles that the server knows.

    A plain text becomes one user message. system_role: the role of a system message; 'user' joins
    it to the first user message.
    """
    messages = [
        Message("user", message.spans) if message.role == TEXT else message
        for message in prompt.messages
    ]
    if system_role == "user" and len(messages) > 1 and messages[0].role == "system":
        opening = messages.pop(0)
        messages[0] = Message(messages[0].role, (*opening.spans, _GAP, *messages[0].spans))
    return [
        Message(system_role, part.spans) if part.role == "system" else part for part in messages
    ]


_NULL = "If it says null of whole answers too, add --model-options null_finish=whole"


def read(body: Mapping[str, Any], latency_s: float = 0.0, *, null_is_whole: bool = False) -> Answer:
    """Return the answer in a reply to a chat or a completion.

    Raises Unmeasured if the reply holds no answer.

    null_is_whole: whether the server sends null as the finish reason of whole answers.
    """
    choice = choice_of(body)
    if choice is None:
        raise faults.unreadable("The reply holds no choice of index 0, or several", str(body))

    message = choice.get("message") or {"content": choice.get("text")}
    message = message if isinstance(message, dict) else {}
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    finish = finish_of(choice["finish_reason"]) if "finish_reason" in choice else None
    if finish == UNTOLD and null_is_whole:
        finish = None

    ending = ending_of(finish)
    refusal = _refusal(message)
    error = choice.get("error") or message.get("error")
    reason = message_of(dumps({"error": error})) if error else ""
    answer_start = _answer_start(message) or refusal
    check_finish(
        finish, answer_start, reason, _NULL if finish == UNTOLD and answer_start.strip() else ""
    )
    text = _text(message, ending, body)
    completion_tokens = usage.get("completion_tokens")
    thinking_tokens = _thinking_tokens(usage)
    if ending is Ending.CUT and not text.strip():
        unseen_tokens = _unseen_tokens(usage)
        if unseen_tokens and not thinking_tokens:
            completion_tokens = (count(usage, "completion_tokens") or 0) + unseen_tokens
            thinking_tokens = unseen_tokens
        has_thoughts = thinking_tokens or _thinking(message)
        if isinstance(completion_tokens, int) and completion_tokens <= 0 and not has_thoughts:
            # LMDeploy's way to refuse a prompt longer than its session_len: status 200, no text.
            raise Unmeasured(
                Failure.TOO_LONG, "The server wrote no token and says 'length': prompt too long."
            )
    prompt_tokens = count(usage, "prompt_tokens")
    return Answer(
        text=text,
        finish="refusal" if refusal else finish,
        prompt_tokens=prompt_tokens,
        cached_tokens=_cached(usage, body),
        completion_tokens=completion_tokens,
        usage=usage,
        model=body.get("model"),
        latency_s=latency_s,
        thinking=_thinking(message),
        thinking_tokens=thinking_tokens,
        logprobs=Logprobs.of(rows_of(body), "generated", prompt_tokens),
    )


def _read_response(read: Reader, body: dict[str, Any], latency_s: float = 0.0) -> Answer:
    """Return the answer in a reply of the Responses API, by the reader of chat completions."""
    return read(as_chat(body), latency_s)


# Ends that need no text.
_NO_TEXT = (Ending.CUT, Ending.FILTERED, Ending.REFUSED)


def _answer_start(message: Mapping[str, Any]) -> str:
    """Return the text of a message, which may be broken off."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(_answer_texts(content))
    return content if isinstance(content, str) else ""


def _text(message: Mapping[str, Any], ending: Ending | None, body: Mapping[str, Any]) -> str:
    content = message.get("content", None if message else 0)
    # Mistral's thinking models send parts.
    if isinstance(content, list):
        texts = _answer_texts(content)
        content = "".join(texts) if texts or not content or _thinking(message) else 0
    for text in (content, _refusal(message)):
        if isinstance(text, str) and text:
            return text
    # Empty, cut off, withheld, or only thought: that is the model's answer.
    if content == "" or (content is None and (ending in _NO_TEXT or _thinking(message))):
        return ""
    raise faults.unreadable("The reply holds no text", str(body))


def _refusal(message: Mapping[str, Any]) -> str:
    """Return OpenAI's refusal, which stands in place of an answer."""
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) and not message.get("content") else ""


# DeepSeek, SGLang and older vLLM; newer vLLM and OpenRouter; Ollama; gateways.
_THINKING_FIELDS = (
    "reasoning_content",
    "reasoning",
    "thinking",
    "thoughts",
    "thinking_content",
    "reasoning_text",
    "reasoning_details",
)
_THOUGHT_PART = re.compile("think|thought|reason|summary", re.IGNORECASE)


def _thinking(message: Mapping[str, Any]) -> str | None:
    """Return thinking that the server keeps apart, in each server's dialect, or None."""
    for name in _THINKING_FIELDS:
        text = _flat(message.get(name))
        if text:
            return text
    parts = message.get("content")
    thoughts = [part for part in parts if _is_thought(part)] if isinstance(parts, list) else []
    return "".join(map(_flat, thoughts)) or None


def _is_thought(part: Any) -> bool:
    """Return True if a part of an answer is thinking: by its type, or as Gemini marks it."""
    if not isinstance(part, dict):
        return False
    has_type = isinstance(part.get("type"), str) and _THOUGHT_PART.search(part["type"])
    return bool(has_type or part.get("thought") or ("thinking" in part and "text" not in part))


def _answer_texts(parts: list[Any]) -> list[str]:
    """Return the texts of an answer's parts, without its thinking."""
    return texts_of([part for part in parts if not _is_thought(part)])


def _flat(thought: Any) -> str:
    """Return the text of a thought: a text, a list of parts, or a part that holds either."""
    if isinstance(thought, list):
        return "".join(map(_flat, thought))
    if isinstance(thought, dict):
        names = ("thinking", "text", "content", "summary", "reasoning")
        return next(filter(None, (_flat(thought.get(name)) for name in names)), "")
    return thought if isinstance(thought, str) else ""


def _thinking_tokens(usage: Mapping[str, Any]) -> int | None:
    """Return the thinking's tokens among those of the completion.

    0 may mean that the server does not report them.
    """
    tokens = count(usage, "completion_tokens_details", "reasoning_tokens")
    if not tokens:
        # SGLang's place for it.
        tokens = count(usage, "reasoning_tokens") or tokens
    return tokens


def _unseen_tokens(usage: Mapping[str, Any]) -> int:
    """Return the tokens of a report's total that are neither the prompt's nor the completion's.

    Some gateways bill hidden thinking in this way.
    """
    total, prompt_tokens = count(usage, "total_tokens"), count(usage, "prompt_tokens")
    if total is None or prompt_tokens is None:
        return 0
    return max(0, total - prompt_tokens - (count(usage, "completion_tokens") or 0))


def _cached(usage: Mapping[str, Any], body: Mapping[str, Any]) -> int | None:
    """Return prompt tokens that were not computed again, in each server's dialect."""
    reports = (
        (usage, ("prompt_tokens_details", "cached_tokens")),
        # DeepSeek.
        (usage, ("prompt_cache_hit_tokens",)),
        # llama.cpp.
        (body, ("timings", "cache_n")),
    )
    for report, path in reports:
        tokens = count(report, *path)
        if tokens is not None:
            return tokens
    return None


class Escaper:
    """Prompts as JSON strings.

    A long text is escaped once, and every prompt is joined from slices of it. Escaping every prompt
    (0.4 ms at 128k tokens) would be a sixth of what a request costs; this is a copy.
    """

    def __init__(self) -> None:
        self._known: dict[TokenText, TokenText] = {}

    def string(self, spans: Iterable[Span]) -> bytes:
        """Return the joined spans as a JSON string in UTF-8, quotation marks included."""
        spans = tuple(spans)
        # Half a character, in presets that cut as older tools do, is U+FFFD.
        if any(map(_splits, spans)):
            return to_json(b"".join([span.data for span in spans]).decode("utf-8", "replace"))
        return b'"%b"' % b"".join([self._escaped(span) for span in spans])

    def _escaped(self, span: Span) -> bytes | memoryview:
        if len(span.text.data) < _LONG_BYTES:
            return to_json(bytes(span.data))[1:-1]
        if span.text not in self._known:
            self._known[span.text] = escaped(span.text)
        return Span(self._known[span.text], span.start, span.stop).data


def escaped(text: TokenText) -> TokenText:
    """Return a text as the inside of a JSON string, cut into the same tokens.

    Its ids are the unescaped text's.

    >>> escaped(TokenText(b'a"b', np.arange(2, dtype=np.int32), np.array([0, 2, 3]))).offsets.tolist()
    [0, 3, 4]
    """  # noqa: E501
    grown = np.concatenate([[0], np.cumsum(_GROWTH[np.frombuffer(text.data, np.uint8)])])
    return TokenText(to_json(text.data)[1:-1], text.ids, text.offsets + grown[text.offsets])


def _splits(span: Span) -> bool:
    """Return True if a span starts or ends inside a character."""
    data, offsets = span.text.data, span.text.offsets
    ends = (offsets[span.start], offsets[span.stop])
    return any(end < len(data) and data[end] & 0xC0 == 0x80 for end in ends)
