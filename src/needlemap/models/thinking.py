"""What of a model's text is thinking, and what is its answer.

Reasoning models write their thoughts between marks, which many servers leave in the text; some chat
templates open them in the prompt, so that the text holds the closing mark alone. Thoughts that are
not closed used the budget up: there is no answer then. Which model writes which marks is one table,
`MARKS`; a line there is all that another model's marks need.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from needlemap.finishes import Ending, ending_of
from needlemap.models import Answer, Decoding
from needlemap.prompts import Prompt

# Of a prompt's end: enough to see whether its template opens the thinking.
_TAIL_BYTES = 256
# Of a text. What a server sends beyond is text.
_MOST_MARKS = 10_000
# Characters before a mark that are searched for a new line.
_LINE = 80


class Marks(NamedTuple):
    """How some models mark their thoughts.

    Attributes:
        start, end: As they are spelt, any of several; letter case, attributes of a tag, and its
            angle brackets as HTML escapes them do not matter.
        used_by: Models and gateways that write them.
        opens: Where a start that nothing ends counts as one. 'anywhere': it is no text that an
            answer could quote. 'line': at the start of a line. 'text': at the start of the text,
            and no end counts without it.
    """

    name: str
    start: tuple[str, ...]
    end: tuple[str, ...]
    used_by: str
    opens: Literal["anywhere", "line", "text"] = "line"


# Names of tags that prompts and fine-tunes ask for.
_WORDS = (
    "thoughts",
    "thinking_process",
    "thought_process",
    "reason",
    "rationale",
    "analysis",
    "reflection",
    "scratchpad",
    "cot",
    "chain_of_thought",
    "inner_monologue",
    "inner_thoughts",
    "internal_monologue",
    "antthinking",
)


MARKS = (
    Marks(
        "harmony",
        ("<|channel|>analysis<|message|>", "<|channel|>commentary<|message|>"),
        ("<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"),
        "gpt-oss",
        "anywhere",
    ),
    Marks(
        "harmony without its special tokens",
        ("analysis", "assistantanalysis", "assistantcommentary"),
        ("assistantfinal", "assistant\nfinal"),
        "gpt-oss behind servers that drop special tokens",
        "text",
    ),
    Marks(
        "think",
        ("<think>",),
        ("</think>",),
        "DeepSeek R1 and V3, Qwen 3, GLM, MiniMax, Nemotron, Kimi K2, Hunyuan, EXAONE 4, Ernie, "
        "SmolLM 3, OLMo 3",
    ),
    Marks("thinking", ("<thinking>",), ("</thinking>",), "Amazon Nova; gateways before Gemini"),
    Marks("thought", ("<thought>",), ("</thought>",), "EXAONE Deep; gateways before Gemini"),
    Marks("reasoning", ("<reasoning>",), ("</reasoning>",), "Bedrock, Grok"),
    Marks("seed", ("<seed:think>",), ("</seed:think>",), "Seed-OSS"),
    Marks("longcat", ("<longcat_think>",), ("</longcat_think>",), "LongCat"),
    Marks("minimax m3", ("<mm:think>",), ("</mm:think>",), "MiniMax M3"),
    Marks(
        "k2",
        ("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
        ("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
        "K2 Horizon",
    ),
    Marks(
        "other tags",
        tuple(f"<{word}>" for word in _WORDS),
        tuple(f"</{word}>" for word in _WORDS),
        "prompts and fine-tunes that ask for them",
    ),
    Marks("mistral", ("[THINK]",), ("[/THINK]",), "Magistral, Ministral and Mistral that reason"),
    Marks("kimi", ("◁think▷",), ("◁/think▷",), "Kimi VL and K1.5", "anywhere"),
    Marks(
        "cohere",
        ("<|START_THINKING|>",),
        ("<|END_THINKING|>",),
        "Command A Reasoning, Command R7B",
        "anywhere",
    ),
    Marks(
        "gemma",
        ("<|channel>thought", "<|channel>"),
        ("<channel|>",),
        "Gemma 4",
        "anywhere",
    ),
    Marks("medgemma", ("<unused94>thought",), ("<unused95>",), "MedGemma", "anywhere"),
    Marks("apertus", ("<|inner_prefix|>",), ("<|inner_suffix|>",), "Apertus", "anywhere"),
    Marks(
        "solar",
        ("<|think|>",),
        ("<|end|><|begin|>assistant<|content|>", "<|/think|>", "<|end_think|>"),
        "Solar Open",
        "anywhere",
    ),
    Marks(
        "inkling",
        ("<|content_thinking|>",),
        ("<|end_message|><|message_model|><|content_text|>", "<|content_text|>"),
        "Inkling",
        "anywhere",
    ),
    Marks(
        "open thoughts",
        ("<|begin_of_thought|>", "<|begin_of_think|>"),
        ("<|end_of_thought|>", "<|end_of_think|>"),
        "Sky-T1, OpenThinker",
        "anywhere",
    ),
    Marks(
        "plamo",
        ("<|plamo:begin_think:plamo|>",),
        ("<|plamo:end_think:plamo|>",),
        "PLaMo 3",
        "anywhere",
    ),
    Marks("pangu", ("[unused16]",), ("[unused17]",), "openPangu", "anywhere"),
    Marks(
        "granite",
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
        "Granite 3.2",
        "text",
    ),
    Marks("ollama", ("Thinking...\n",), ("...done thinking.",), "Ollama's command line", "text"),
    Marks(
        "open webui",
        ('<details type="reasoning"',),
        ("</details>",),
        "Open WebUI's API",
        "text",
    ),
)
# What stands around an answer behind thoughts. It is taken off, as it is no part of what is said.
WRAPPERS = (
    ("<answer>", "</answer>"),  # Hunyuan, GLM 4.1V
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),  # Cohere
    ("<|START_TEXT|>", "<|END_TEXT|>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),  # Sky-T1, OpenThinker
    ("<|begin_of_box|>", "<|end_of_box|>"),  # GLM 4.5V
)
# Ends of a message, where a server leaves them in the text.
_ENDS = (
    "<|return|>",
    "<|end|>",
    "<|call|>",
    "<|eom|>",
    "<|eot|>",
    "<|im_end|>",
    "<turn|>",
    "<|end_message|>",
)


_TAG = re.compile(r"<(/?)(\w(?:[\w:|]*\w)?)>")


def _mark_entries() -> Iterator[tuple[str, tuple[Marks, bool, str]]]:
    """Yield each mark's spelling, with its line in MARKS, whether it opens a thought, and a name.

    The mark that ends a thought must have the name of the one that opens it. If a tag has an end
    tag of its own, the name is the tag's, or else the line's.
    """
    for marks in MARKS:
        for text in (*marks.start, *marks.end):
            tag = _TAG.fullmatch(text)
            pair = tag and {f"<{tag[2]}>", f"</{tag[2]}>"} <= {*marks.start, *marks.end}
            name = tag[2] if tag and pair else marks.name
            yield text.casefold(), (marks, text in marks.start, name)


_MARK_BY_SPELLING = dict(_mark_entries())


def _literals() -> Iterator[str]:
    """Yield the patterns of marks that are found as they are spelt, grouped by their start.

    Thus each place of a long text without marks is looked at once.
    """
    by_start: dict[str, list[str]] = {}
    for text in sorted(_MARK_BY_SPELLING, key=len, reverse=True):
        if "<|channel|>" not in text and not _TAG.fullmatch(text):
            by_start.setdefault(text[:2], []).append(text[2:])
    for start, endings in by_start.items():
        yield f"{re.escape(start)}(?:{'|'.join(map(re.escape, endings))})"


_MARK = re.compile(
    # A header of the harmony format, with who speaks, to whom, and in what form, as far as it is
    # there; a server may have dropped its `<|message|>`.
    r"(?:<\|end\|>\s{0,9})?(?:<\|start\|>\s{0,9}assistant\b[^<\n]{0,80})?<\|channel\|>\s{0,9}"
    r"(?P<channel>analysis|commentary|final)"
    r"(?:[^<\n]{0,80}(?:<\|constrain\|>[^<\n]{0,40})?<\|message\|>)?"
    rf"|(?P<text>{'|'.join(_literals())})"
    # A tag, with blanks, attributes, and its brackets as HTML escapes them.
    r"|(?:<|&lt;)\s{0,9}(?P<slash>/?)\s{0,9}(?P<tag>\w[\w:|]{0,29})(?:\s[^<>]{0,80})?(?:>|&gt;)",
    re.IGNORECASE,
)
_SHOWN = re.compile(r"\S")
_WRAPPER = re.compile(
    "|".join(re.escape(mark) for pair in WRAPPERS for mark in pair), re.IGNORECASE
)
_ENDED = re.compile(rf"(?:\s*(?:{'|'.join(map(re.escape, _ENDS))}))+\s*\Z")


class Parted(NamedTuple):
    """A text's thinking (None if it has none) and its answer.

    There is no answer behind thinking that never ends.
    """

    thinking: str | None
    answer: str


class _Mark(NamedTuple):
    """A mark in a text.

    name: of the tag, or of the table's line: an end ends what has its name.
    """

    start: int
    stop: int
    opens: bool
    name: str
    marks: Marks


def _marks_in(text: str) -> list[_Mark]:
    """Return the marks in a text, in order."""
    marks_found: list[_Mark] = []
    first_letter = _SHOWN.search(text)
    words_start = first_letter.start() if first_letter else 0
    for match in _MARK.finditer(text):
        spelling = match["text"] or f"<{match['slash']}{match['tag']}>"
        if match["channel"]:
            spelling = f"<|channel|>{match['channel']}<|message|>"
        entry = _MARK_BY_SPELLING.get(spelling.casefold())
        if entry is None:
            continue
        marks, opens, name = entry
        is_of_text = marks.opens == "text"
        if is_of_text and not _is_text_mark(text, match, words_start, opens=opens, marks=marks):
            continue
        marks_found.append(_Mark(*match.span(), opens, name, marks))
        if len(marks_found) == _MOST_MARKS:
            break
    return marks_found


def _is_text_mark(
    text: str, match: re.Match[str], words_start: int, *, opens: bool, marks: Marks
) -> bool:
    """Return True if ordinary words are a mark, because they stand where a mark would stand.

    An answer may hold the same words elsewhere.

    words_start: the offset of the text's first visible letter. opens: True if the words would open
    a thought, and False if they would end one.
    """
    # `assistantfinal` is not a word of any language.
    if match[0].casefold().startswith("assistant") and "\n" not in match[0]:
        return True

    if not opens:
        # A sentence that ends a thought counts only if the text starts with the one that opens it.
        return text.startswith(marks.start, words_start)

    # Letter case counts here: an answer may start with "Analysis".
    if match.start() > words_start or not match[0].startswith(marks.start):
        return False

    # "analysis" may start an answer: it is a mark if it is glued to a word, or if the end follows.
    next_letter = text[match.end() : match.end() + 1]
    return match[0] != "analysis" or next_letter.isalnum() or marks.end[0] in text


def parted(text: str, *, cut: bool = False) -> Parted:
    """Return thinking and answer of a text.

    cut: whether a budget ended it, so that a thought may be left open anywhere.

    >>> (
    ...     parted("<think>Hm.</think>\\n\\n42"),
    ...     parted("Hm.</think>42").answer,
    ...     parted("<think>Hm").answer,
    ... )
    (Parted(thinking='Hm.', answer='42'), '42', '')
    >>> parted("42")
    Parted(thinking=None, answer='42')
    """
    parting = _Parting(text, cut)
    for mark in parting.marks:
        if mark.opens and parting.name is None:
            parting.open(mark)
        elif mark.opens:
            parting.quote(mark)
        elif parting.is_ended_by(mark):
            parting.end(mark)
    return parting.parted()


class _Parting:
    """A text that is being divided into thoughts and answer. name: of the thought that is open."""

    def __init__(self, text: str, cut: bool) -> None:
        self.marks = _marks_in(text)
        self.name: str | None = None
        self._text = text
        self._cut = cut
        self._position = 0
        self._last_end = {mark.name: mark.start for mark in self.marks if not mark.opens}
        self._words_end = len(text.rstrip())
        self._before = ""
        self._thoughts: list[str] = []
        self._answer: list[str] = []
        self._has_thought = False
        self._quoted: set[str] = set()

    def open(self, mark: _Mark) -> None:
        """Start a thought, unless the answer only quotes its mark."""
        piece = self._text[self._position : mark.start]
        has_end = self._last_end.get(mark.name, -1) > mark.start
        follows_thought = self._has_thought and not piece.strip()
        if not (has_end or self._cut or follows_thought or _is_open(self._text, mark)):
            return
        if self._has_thought or not has_end:
            self._answer.append(piece)
        else:
            self._before = piece
        self.name = mark.name
        self._has_thought = True
        self._position = mark.stop
        self._quoted = set()

    def quote(self, mark: _Mark) -> None:
        """Note a mark within a thought: the end of its name is no end of the thought."""
        self._quoted.add(mark.name)

    def is_ended_by(self, mark: _Mark) -> bool:
        """Return True if an end is that of the open thought, or of one that the prompt started.

        Models close a thought by other marks now and then. They count if its own never come, unless
        a budget cut it, since it may quote them then.
        """
        if self.name in (None, mark.name):
            return True
        has_own_end = self._last_end.get(self.name, -1) > mark.start
        return not (has_own_end or self._cut or mark.name in self._quoted)

    def end(self, mark: _Mark) -> None:
        """End a thought, which the prompt may have started."""
        piece = self._text[self._position : mark.start]
        if self.name is not None:
            self._thoughts.append(piece)
        elif self._has_thought and mark.stop >= self._words_end:
            # A closing mark too many, behind the answer.
            self._answer.append(piece)
        else:
            # Text between two ends belongs to the thought that the second one ends.
            self._thoughts += [*self._answer, piece]
            self._answer = []
            self._has_thought |= bool(piece.strip())
        self.name = None
        self._position = mark.stop

    def parted(self) -> Parted:
        """Return the thoughts and the answer."""
        if not self._position:
            return Parted(None, self._text)
        tail, thoughts = self._text[self._position :], self._thoughts
        if self.name is None:
            self._answer.append(tail)
        else:
            thoughts.append(tail)
        if self.name is None and not "".join(self._answer).strip():
            # It answered, and thought then.
            self._answer = [self._before]
        else:
            # The end of a thought that the prompt had begun, and the model began once more.
            thoughts.insert(0, self._before)
        answer = "\n\n".join(filter(None, map(_unwrapped, self._answer)))
        if not self._has_thought:
            return Parted(None, answer)
        return Parted("\n\n".join(filter(None, map(str.strip, thoughts))), answer)


def _is_open(text: str, mark: _Mark) -> bool:
    """Return True if a start that nothing ends opens a thought.

    If it stands in the middle of a sentence, the answer only quotes it.
    """
    if mark.marks.opens == "anywhere":
        return True

    before = text[max(0, mark.start - _LINE) : mark.start]
    if not before.strip():
        return True
    return mark.marks.opens == "line" and before.rstrip(" \t").endswith("\n")


def _unwrapped(text: str) -> str:
    """Return a part of an answer behind thoughts, without the marks around it."""
    text = _ENDED.sub("", text)
    text = _WRAPPER.sub("", text)
    return text.strip() if text.endswith("\n") else text.lstrip()


def without_specials(text: str, specials: Sequence[str]) -> str | None:
    """Return a decoded text without its special tokens, save those that mark its thoughts.

    If no special token marks a thought, return None.

    >>> without_specials("<s><|channel>thought\\nHm<channel|>42</s>", ["<s>", "</s>", "<channel|>"])
    '<|channel>thought\\nHm<channel|>42'
    """
    marks = [(mark.start, mark.stop) for mark in _marks_in(text)]
    spelt_marks = [text[start:stop] for start, stop in marks]
    if not any(special in mark for mark in spelt_marks for special in specials):
        return None
    special_pattern = re.compile("|".join(map(re.escape, sorted(specials, key=len, reverse=True))))
    pieces: list[str] = []
    place = 0
    for start, stop in [*marks, (len(text), len(text))]:
        pieces += [special_pattern.sub("", text[place:start]), text[start:stop]]
        place = stop
    return "".join(pieces)


def ends_in_thought(prompt: Prompt) -> bool:
    """Return True if a prompt ends with an open thought, which the model then continues.

    >>> ends_in_thought(Prompt.plain([("text", "<|user|>Hm<think>\\n")]))
    True
    >>> ends_in_thought(Prompt.plain([("text", "<think></think>\\n")]))
    False
    """
    data = b"".join([bytes(span.data[-_TAIL_BYTES:]) for span in prompt.spans[-1:]])
    text = data.decode("utf-8", "ignore").rstrip()
    last = next(reversed(_marks_in(text)), None)
    return last is not None and last.opens and not text[last.stop :].strip()


def split_thinking(answer: Answer, decoding: Decoding, *, opened: bool = False) -> Answer:
    """Return an answer without its thinking, which is kept next to it.

    opened: whether the prompt had started the thinking. A text that was cut off beyond the answer's
    own budget, with a thinking budget set and no mark in it, can only be thinking that the template
    had opened.
    """
    is_cut = ending_of(answer.finish) is Ending.CUT
    parts = parted(answer.text, cut=is_cut)
    if parts.thinking is None and answer.thinking is None and is_cut and answer.text:
        exceeds_budget = (answer.completion_tokens or 0) > decoding.max_answer_tokens
        if opened or (decoding.thinking_tokens and exceeds_budget):
            parts = Parted(answer.text, "")
    if parts.thinking is None and parts.answer == answer.text:
        return answer
    # A server may take out a part of the thinking itself.
    thoughts = [part for part in (answer.thinking, parts.thinking) if part]
    thinking = "\n\n".join(thoughts) if thoughts else parts.thinking
    return replace(answer, text=parts.answer, thinking=thinking)
