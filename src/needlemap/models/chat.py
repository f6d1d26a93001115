"""What a Hugging Face model wants around a text: its chat template, its first token. As token ids.

The same text as transformers' `apply_chat_template`, without importing transformers (a second and a
half, and torch with it): jinja2 in its sandbox, in a process of its own (`rendering.py`). Only the
template's own text makes special tokens; what a message says is plain text, even where it spells
one. Tools, images and reasoning are not rendered. A model's files are a stranger's: whatever they
hold is a value or an error in words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Vocabulary

from needlemap.errors import SettingsError
from needlemap.models import MARK, Traits, touch
from needlemap.models.model_files import ModelFiles, weights_fingerprint
from needlemap.prompts import TEXT, Prompt
from needlemap.rendering import RENDERER, Unbounded
from needlemap.text import printable
from needlemap.text.tokens import TokenText, join
from needlemap.tokenizers.huggingface import (
    MOST_IN_VOCABULARY,
    HuggingFace,
    encoded,
    read_vocabulary,
)

Row = tuple[str, str]  # role, text
_END = "\0end\0 "  # behind an answer's first words; its blank shows whether the template trims
_LISTED = "{'type': 'text'"  # a list as a template spells it that expects a text
_SPELT = re.compile("\0plain:(\\d{1,9})\0")


@dataclass(frozen=True, slots=True, eq=False)
class Chat:
    """A model's tokenizer and chat template (None for base models).

    template_options: further variables of the template, as {"enable_thinking": False}. opening: the
    tokens that begin a text without a template (the first token, if the tokenizer adds one).
    """

    files: ModelFiles
    vocabulary: Vocabulary
    template: str | None
    variables: Mapping[str, Any]
    plain: HuggingFace
    special: HuggingFace
    opening: TokenText
    spellings: tuple[str, ...]
    numbers: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        files: ModelFiles,
        *,
        base: bool = False,
        template_options: Mapping[str, Any] | None = None,
    ) -> Chat:
        """From a model's files. base: ignore its chat template. Raises SettingsError or
        VocabularyMissing."""
        path = files.tokenizer
        config = files.json("tokenizer_config.json")
        vocabulary = read_vocabulary(path)
        named = special_tokens(files, config, vocabulary)
        decoder = vocabulary.get_added_tokens_decoder()
        added = {number: token.content for number, token in decoder.items() if token.special}
        return cls(
            files,
            vocabulary,
            None if base else template_of(files, config),
            {**named, **(template_options or {})},
            HuggingFace(path),
            HuggingFace(path, special=True),
            opening(vocabulary),
            tuple(sorted(added.values(), key=len, reverse=True)),
            np.array(list(added), np.int64),
        )

    def traits(self, **more: Any) -> Traits:
        """What prompts its model takes: messages if it has a chat template; its own tokens,
        fed as ids."""
        folder = self.files.folder
        return Traits(
            self.template is not None,
            str(self.files.tokenizer),
            self.render,
            whole=True,
            weights=weights_fingerprint(folder) if folder else "",
            **more,
        )

    def render(self, rows: Sequence[Row]) -> tuple[TokenText, TokenText]:
        """The tokens before and after MARK; of rows without one all, and none. Raises
        SettingsError for a template that does not keep a message's text."""
        spelt: list[str] = []
        guarded = [(role, self._guarded(said, spelt)) for role, said in rows]
        text = self._text(guarded)
        head, *tails = text.split(MARK)
        longest = max((said for _, said in guarded), key=len)
        if not any(MARK in said for _, said in rows) and longest.strip() in text:
            tails = [""]
        if len(tails) != 1 or any(int(number) >= len(spelt) for number in _SPELT.findall(text)):
            raise self._unkept()
        before = self._tokens(head, spelt)
        return (join([self.opening, before]) if self.template is None else before), self._behind(
            tails[0], spelt
        )

    def whole(self, rows: Sequence[Row]) -> NDArray[np.int32]:
        """The ids of messages without a haystack, as a judge's."""
        head, tail = self.render([*rows[:-1], (rows[-1][0], rows[-1][1] + MARK)])
        return np.concatenate([head.ids, tail.ids])

    def ids(self, prompt: Prompt) -> NDArray[np.int32]:
        """A prompt's own ids; texts without ids (a judge's) are tokenised here."""
        ids = prompt.ids
        if len(ids) and int(ids.min()) >= 0:
            return ids
        return self.whole([(message.role, message.content) for message in prompt.messages])

    def answer_ids(self, prompt: Prompt, answer: str) -> NDArray[np.int32]:
        """An answer's ids as they go on behind the prompt: with a blank where two words would
        touch."""
        last = b"".join(span.data for span in prompt.spans[-1:])[-4:].decode("utf-8", "ignore")
        spelling = self.vocabulary.id_to_token(int(self.ids(prompt)[-1])) or ""
        blank = " " if touch(last, answer) and spelling not in self.spellings else ""
        return np.asarray(self.plain.index((blank + answer).encode()).ids, np.int32)

    def _text(self, rows: Sequence[Row]) -> str:
        if self.template is None:
            return ("" if rows[0][0] == TEXT else "\n\n").join(said for _, said in rows)
        turns = [("user" if role == TEXT else role, said) for role, said in rows]
        try:
            text = self._rendered(turns)
            if turns[0][0] != "system" or turns[0][1].strip() in text:
                return text
        except SettingsError as error:
            if turns[0][0] != "system" or isinstance(error, Unbounded):
                raise
        return self._rendered(merged(turns))  # no system role: refused, or left out without a word

    def _rendered(self, rows: Sequence[Row]) -> str:
        """The template's text, the answer left open: begun by the last row if that is the
        assistant's."""
        begun = rows[-1][0] == "assistant"
        if begun:
            rows = [*rows[:-1], (rows[-1][0], rows[-1][1] + _END)]
        text = self._kept(rows)
        if begun and _END.strip() not in text:
            raise self._unkept()
        return cut_open(text) if begun else text

    def _filled(self, rows: Sequence[Row], *, parts: bool) -> str:
        """The template's text. parts: each message's content is a list of one text, as
        templates of models that also take images want it."""
        messages = [
            {"role": role, "content": [{"type": "text", "text": said}] if parts else said}
            for role, said in rows
        ]
        begun = rows[-1][0] == "assistant"
        return evaluated(
            self.files.name,
            self.template or "",
            {**self.variables, "messages": messages, "add_generation_prompt": not begun},
        )

    def _kept(self, rows: Sequence[Row]) -> str:
        """The template's text, by parts where only that keeps all that is said. Raises
        SettingsError with what the template says."""
        try:
            text = self._filled(rows, parts=False)
        except Unbounded:
            raise
        except SettingsError:
            with suppress(SettingsError):
                return self._filled(rows, parts=True)
            raise
        if all(said.strip() in text for _, said in rows):
            return text
        with suppress(SettingsError):
            by_parts = self._filled(rows, parts=True)
            if all(said.strip() in by_parts for _, said in rows) and _LISTED not in by_parts:
                return by_parts
        return text

    def _unkept(self) -> SettingsError:
        return SettingsError(
            f"The chat template of '{self.files.name}' does not keep a message's text as it is, so "
            f"no "
            f"haystack can be put in. Use --model-options base=true to ask without it."
        )

    def _guarded(self, said: str, spelt: list[str]) -> str:
        """A message's text, with every spelling of a special token replaced by its number in
        `spelt`."""
        for spelling in self.spellings:
            if spelling.strip() and spelling in said:
                said = said.replace(spelling, f"\0plain:{len(spelt)}\0")
                spelt.append(spelling)
        return said

    def _tokens(self, text: str, spelt: Sequence[str]) -> TokenText:
        """The template's special tokens, and between them the plain text, each stretch of it
        as a whole."""
        first, *rest = _SPELT.split(text)
        if not rest:
            return self.special.index(first.encode())
        made: list[TokenText] = []
        stretch = b""
        for number, piece in zip([None, *rest[::2]], [first, *rest[1::2]], strict=True):
            stretch += spelt[int(number)].encode() if number is not None else b""
            read = self.special.index(piece.encode())
            marks = np.flatnonzero(np.isin(read.ids, self.numbers))
            if not len(marks):
                stretch += read.data
                continue
            begins, ends = int(marks[0]), int(marks[-1]) + 1
            made += [
                self._stretch(stretch + bytes(read.span(0, begins).data), made),
                part(read, begins, ends),
            ]
            stretch = bytes(read.span(ends).data)
        return join([*made, self._stretch(stretch, made)])

    def _stretch(self, data: bytes, before: Sequence[TokenText]) -> TokenText:
        """Plain text; no blank is put before it where something stands there."""
        behind = self.plain.index_inside(data) if before else None
        return self.plain.index(data) if behind is None else behind

    def _behind(self, text: str, spelt: Sequence[str]) -> TokenText:
        """The tokens of a text that goes on behind another: no blank is put before it."""
        if not self.plain.additive:
            whole = self._tokens("." + text, spelt)
            cut = int(np.searchsorted(whole.offsets, 1))
            if whole.data.startswith(b".") and whole.offsets[cut] == 1:
                return TokenText(whole.data[1:], whole.ids[cut:], whole.offsets[cut:] - 1)
        return self._tokens(text, spelt)


def part(text: TokenText, start: int, stop: int) -> TokenText:
    """Some tokens of a text, as a text of its own."""
    offsets = text.offsets[start : stop + 1]
    return TokenText(bytes(text.span(start, stop).data), text.ids[start:stop], offsets - offsets[0])


def merged(rows: Sequence[Row]) -> list[Row]:
    """A system message put before the first user message, for templates without a system role.

    >>> merged([("system", "Be brief."), ("user", "Who?")])
    [('user', 'Be brief.\\n\\nWho?')]
    """
    (_, order), (role, said), *rest = rows
    return [(role, f"{order}\n\n{said}"), *rest]


def cut_open(text: str) -> str:
    """A rendered text up to the end of the answer's first words."""
    end = text.rindex(_END.strip())
    return text[:end] if text.startswith(_END, end) else text[:end].rstrip()


def template_of(files: ModelFiles, config: Mapping[str, Any]) -> str | None:
    """The model's chat template, where its files keep it; None for a base model."""
    found = files.text("chat_template.jinja")
    if found is not None:
        return found
    kept = config.get("chat_template") or files.json("chat_template.json").get("chat_template")
    if isinstance(kept, list):
        named = [
            entry for entry in kept if isinstance(entry, dict) and entry.get("name") == "default"
        ]
        kept = named[-1].get("template") if named else None
    return kept if isinstance(kept, str) else None


def special_tokens(
    files: ModelFiles, config: Mapping[str, Any], vocabulary: Vocabulary
) -> dict[str, str]:
    """bos_token, eos_token, ... as templates know them; else by their numbers in
    config.json."""
    kept = {**files.json("special_tokens_map.json"), **config}
    named = {name: _text_of(token) for name, token in kept.items() if name.endswith("_token")}
    for name in ("bos_token", "eos_token"):
        number = files.json("config.json").get(f"{name}_id")
        if not named.get(name) and type(number) is int and 0 <= number < MOST_IN_VOCABULARY:
            named[name] = vocabulary.id_to_token(number) or ""
    return {name: token for name, token in named.items() if token}


def opening(vocabulary: Vocabulary) -> TokenText:
    """The tokens that the tokenizer's own rules put before a text."""
    encoding = encoded(vocabulary, "a", "tokenizer.json")
    found = encoding.ids[: [*encoding.special_tokens_mask, 0].index(0)]
    texts = [(vocabulary.id_to_token(number) or "").encode() for number in found]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return TokenText(b"".join(texts), np.array(found, np.int32), ends)


def evaluated(name: str, template: str, variables: dict[str, Any]) -> str:
    """A chat template's text. Raises SettingsError with what the template says."""
    try:
        return RENDERER.render(template, variables)
    except SettingsError as error:
        said = printable(str(error), line=True)
        raise type(error)(
            f"The chat template of '{name}' refuses these messages: {said} Use another --template, "
            f"or "
            f"--model-options base=true to ask without it."
        ) from None


def _text_of(token: Any) -> str:
    said = token.get("content") if isinstance(token, dict) else token
    return said if isinstance(said, str) else ""
