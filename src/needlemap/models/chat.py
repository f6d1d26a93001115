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
from needlemap.models import MARK, Traits
from needlemap.models.model_files import ModelFiles, weights_fingerprint
from needlemap.prompts import TEXT, Prompt
from needlemap.rendering import RENDERER, Unbounded
from needlemap.text import needs_space, printable
from needlemap.text.tokens import TokenText, join
from needlemap.tokenizers.huggingface import (
    MOST_IN_VOCABULARY,
    HuggingFace,
    encoded,
    read_vocabulary,
)

# Role, text.
Row = tuple[str, str]
# Behind an answer's first words; its blank shows whether the template trims.
_END = "\0end\0 "
# A list as a template spells it that expects a text.
_LISTED = "{'type': 'text'"
_SPELT = re.compile("\0plain:(\\d{1,9})\0")


@dataclass(frozen=True, slots=True, eq=False)
class Chat:
    """A model's tokenizer and chat template (None for base models).

    Attributes:
        variables: Further variables of the template, e.g. {"enable_thinking": False}.
        opening: The tokens that start a text without a template (the first token, if the tokenizer
            adds one).
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
        """Read a model's files.

        base: whether to ignore its chat template. Raises SettingsError or VocabularyMissing.
        """
        path = files.tokenizer
        config = files.json("tokenizer_config.json")
        vocabulary = read_vocabulary(path)
        tokens = special_tokens(files, config, vocabulary)
        decoder = vocabulary.get_added_tokens_decoder()
        special_spellings = {
            number: token.content for number, token in decoder.items() if token.special
        }
        return cls(
            files=files,
            vocabulary=vocabulary,
            template=None if base else template_of(files, config),
            variables={**tokens, **(template_options or {})},
            plain=HuggingFace(path),
            special=HuggingFace(path, special=True),
            opening=opening(vocabulary),
            spellings=tuple(sorted(special_spellings.values(), key=len, reverse=True)),
            numbers=np.array(list(special_spellings), np.int64),
        )

    def traits(self, **more: Any) -> Traits:
        """Return what prompts its model takes.

        These are messages if it has a chat template, and its own tokens, fed as ids.
        """
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
        """Return the tokens before and after MARK; of rows without one all, and none.

        Raises SettingsError for a template that does not keep a message's text.
        """
        spellings: list[str] = []
        guarded = [(role, self._with_numbered_specials(words, spellings)) for role, words in rows]
        text = self._text(guarded)
        head, *tails = text.split(MARK)
        longest = max((words for _, words in guarded), key=len)
        if not any(MARK in words for _, words in rows) and longest.strip() in text:
            tails = [""]
        if len(tails) != 1 or any(int(number) >= len(spellings) for number in _SPELT.findall(text)):
            raise self._lost_text_error()

        before = self._tokens(head, spellings)
        if self.template is None:
            before = join([self.opening, before])
        return before, self._following_tokens(tails[0], spellings)

    def row_ids(self, rows: Sequence[Row]) -> NDArray[np.int32]:
        """Return the ids of messages without a haystack, e.g. a judge's."""
        head, tail = self.render([*rows[:-1], (rows[-1][0], rows[-1][1] + MARK)])
        return np.concatenate([head.ids, tail.ids])

    def ids(self, prompt: Prompt) -> NDArray[np.int32]:
        """Return a prompt's own ids; texts without ids (a judge's) are tokenised here."""
        ids = prompt.ids
        if len(ids) and int(ids.min()) >= 0:
            return ids
        return self.row_ids([(message.role, message.content) for message in prompt.messages])

    def answer_ids(self, prompt: Prompt, answer: str) -> NDArray[np.int32]:
        """Return an answer's ids as they follow the prompt.

        If two words would touch, a blank is put between them.
        """
        last = b"".join(span.data for span in prompt.spans[-1:])[-4:].decode("utf-8", "ignore")
        spelling = self.vocabulary.id_to_token(int(self.ids(prompt)[-1])) or ""
        blank = " " if needs_space(last, answer) and spelling not in self.spellings else ""
        return np.asarray(self.plain.index((blank + answer).encode()).ids, np.int32)

    def _text(self, rows: Sequence[Row]) -> str:
        if self.template is None:
            return ("" if rows[0][0] == TEXT else "\n\n").join(words for _, words in rows)
        turns = [("user" if role == TEXT else role, words) for role, words in rows]
        try:
            text = self._render_turns(turns)
            if turns[0][0] != "system" or turns[0][1].strip() in text:
                return text
        except SettingsError as error:
            if turns[0][0] != "system" or isinstance(error, Unbounded):
                raise
        # The template has no system role: it refused it, or left it out without a word.
        return self._render_turns(merged(turns))

    def _render_turns(self, rows: Sequence[Row]) -> str:
        """Return the template's text, the answer left open.

        If the last row is the assistant's, it starts the answer.
        """
        is_started = rows[-1][0] == "assistant"
        if is_started:
            rows = [*rows[:-1], (rows[-1][0], rows[-1][1] + _END)]
        text = self._render_all_messages(rows)
        if is_started and _END.strip() not in text:
            raise self._lost_text_error()
        return cut_open(text) if is_started else text

    def _fill_template(self, rows: Sequence[Row], *, parts: bool) -> str:
        """Return the template's text.

        parts: whether each message's content is a list of one text, as templates of models that
        also take images want it.
        """
        messages = [
            {"role": role, "content": [{"type": "text", "text": words}] if parts else words}
            for role, words in rows
        ]
        is_started = rows[-1][0] == "assistant"
        return evaluated(
            self.files.name,
            self.template or "",
            {**self.variables, "messages": messages, "add_generation_prompt": not is_started},
        )

    def _render_all_messages(self, rows: Sequence[Row]) -> str:
        """Return the template's text. If only contents in parts keep all messages, use these.

        Raise SettingsError with what the template reports, if it refuses the messages.
        """
        try:
            text = self._fill_template(rows, parts=False)
        except Unbounded:
            raise
        except SettingsError:
            with suppress(SettingsError):
                return self._fill_template(rows, parts=True)
            raise
        if all(words.strip() in text for _, words in rows):
            return text
        with suppress(SettingsError):
            text_by_parts = self._fill_template(rows, parts=True)
            if (
                all(words.strip() in text_by_parts for _, words in rows)
                and _LISTED not in text_by_parts
            ):
                return text_by_parts
        return text

    def _lost_text_error(self) -> SettingsError:
        return SettingsError(
            f"The chat template of '{self.files.name}' does not keep a message's text as it is, so "
            f"no haystack can be put in. Use --model-options base=true to ask without it."
        )

    def _with_numbered_specials(self, text: str, spellings: list[str]) -> str:
        """Return a message's text with each special token replaced by its number in `spellings`."""
        for spelling in self.spellings:
            if spelling.strip() and spelling in text:
                text = text.replace(spelling, f"\0plain:{len(spellings)}\0")
                spellings.append(spelling)
        return text

    def _tokens(self, text: str, spellings: Sequence[str]) -> TokenText:
        """Return the template's special tokens, and the plain text between them.

        Each stretch of plain text is tokenised as a whole.
        """
        first, *rest = _SPELT.split(text)
        if not rest:
            return self.special.index(first.encode())
        texts: list[TokenText] = []
        stretch = b""
        for number, piece in zip([None, *rest[::2]], [first, *rest[1::2]], strict=True):
            if number is not None:
                stretch += spellings[int(number)].encode()
            piece_text = self.special.index(piece.encode())
            marks = np.flatnonzero(np.isin(piece_text.ids, self.numbers))
            if not len(marks):
                stretch += piece_text.data
                continue
            first_mark, end_of_marks = int(marks[0]), int(marks[-1]) + 1
            texts += [
                self._stretch(stretch + bytes(piece_text.span(0, first_mark).data), texts),
                part(piece_text, first_mark, end_of_marks),
            ]
            stretch = bytes(piece_text.span(end_of_marks).data)
        return join([*texts, self._stretch(stretch, texts)])

    def _stretch(self, data: bytes, before: Sequence[TokenText]) -> TokenText:
        """Return the tokens of plain text. If texts stand before it, no blank is put before it."""
        inner_text = self.plain.index_inside(data) if before else None
        return self.plain.index(data) if inner_text is None else inner_text

    def _following_tokens(self, text: str, spellings: Sequence[str]) -> TokenText:
        """Return the tokens of a text that follows another: no blank is put before it."""
        if not self.plain.additive:
            whole = self._tokens("." + text, spellings)
            first_token = int(np.searchsorted(whole.offsets, 1))
            if whole.data.startswith(b".") and whole.offsets[first_token] == 1:
                return TokenText(
                    whole.data[1:], whole.ids[first_token:], whole.offsets[first_token:] - 1
                )
        return self._tokens(text, spellings)


def part(text: TokenText, start: int, stop: int) -> TokenText:
    """Return some tokens of a text, as a text of its own."""
    offsets = text.offsets[start : stop + 1]
    return TokenText(bytes(text.span(start, stop).data), text.ids[start:stop], offsets - offsets[0])


def merged(rows: Sequence[Row]) -> list[Row]:
    """Put a system message before the first user message, for templates without a system role.

    >>> merged([("system", "Be brief."), ("user", "Who?")])
    [('user', 'Be brief.\\n\\nWho?')]
    """
    (_, instruction), (role, words), *rest = rows
    return [(role, f"{instruction}\n\n{words}"), *rest]


def cut_open(text: str) -> str:
    """Return a rendered text up to the end of the answer's first words."""
    end = text.rindex(_END.strip())
    return text[:end] if text.startswith(_END, end) else text[:end].rstrip()


def template_of(files: ModelFiles, config: Mapping[str, Any]) -> str | None:
    """Return the model's chat template from its files, or None for a base model."""
    jinja = files.text("chat_template.jinja")
    if jinja is not None:
        return jinja
    template = config.get("chat_template") or files.json("chat_template.json").get("chat_template")
    if isinstance(template, list):
        defaults = [
            entry
            for entry in template
            if isinstance(entry, dict) and entry.get("name") == "default"
        ]
        template = defaults[-1].get("template") if defaults else None
    return template if isinstance(template, str) else None


def special_tokens(
    files: ModelFiles, config: Mapping[str, Any], vocabulary: Vocabulary
) -> dict[str, str]:
    """Return bos_token, eos_token, ... as templates know them.

    Tokens that are not named are found by their numbers in config.json.
    """
    tokens = {**files.json("special_tokens_map.json"), **config}
    spellings = {name: _text_of(token) for name, token in tokens.items() if name.endswith("_token")}
    for name in ("bos_token", "eos_token"):
        number = files.json("config.json").get(f"{name}_id")
        if not spellings.get(name) and type(number) is int and 0 <= number < MOST_IN_VOCABULARY:
            spellings[name] = vocabulary.id_to_token(number) or ""
    return {name: token for name, token in spellings.items() if token}


def opening(vocabulary: Vocabulary) -> TokenText:
    """Return the tokens that the tokenizer's own rules put before a text."""
    encoding = encoded(vocabulary, "a", "tokenizer.json")
    first_ids = encoding.ids[: [*encoding.special_tokens_mask, 0].index(0)]
    texts = [(vocabulary.id_to_token(number) or "").encode() for number in first_ids]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return TokenText(b"".join(texts), np.array(first_ids, np.int32), ends)


def evaluated(name: str, template: str, variables: dict[str, Any]) -> str:
    """Return a chat template's text. Raises SettingsError with what the template reports."""
    try:
        return RENDERER.render(template, variables)
    except SettingsError as error:
        reason = printable(str(error), line=True)
        raise type(error)(
            f"The chat template of '{name}' refuses these messages: {reason} Use another "
            f"--template, or --model-options base=true to ask without it."
        ) from None


def _text_of(token: Any) -> str:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""
