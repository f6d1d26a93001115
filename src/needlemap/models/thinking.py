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

_TAIL_BYTES = 256  # of a prompt's end: enough to see whether its template opens the thinking
_MOST_MARKS = 10_000  # of a text; what a server sends beyond is text
_LINE = 80  # characters before a mark that are looked at for a new line


class Marks(NamedTuple):
    """How some models mark their thoughts.

    start, end: as they are spelt, any of several; letter case, attributes of a tag, and its angle
    brackets as HTML escapes them do not matter. used_by: models and gateways that write them.
    opens: where a start that nothing ends counts as one. 'anywhere': it is no text that an answer
    could quote. 'line': at the start of a line. 'text': at the start of the text, and no end counts
    without it.
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


def _known() -> Iterator[tuple[str, tuple[Marks, bool, str]]]:
    """Each mark's spelling, with its line, whether it opens a thought, and what has to be its
    end's name: of a tag with an end of its own the tag's, else the line's."""
    for marks in MARKS:
        for text in (*marks.start, *marks.end):
            tag = _TAG.fullmatch(text)
            pair = tag and {f"<{tag[2]}>", f"</{tag[2]}>"} <= {*marks.start, *marks.end}
            name = tag[2] if tag and pair else marks.name
            yield text.casefold(), (marks, text in marks.start, name)


_KNOWN = dict(_known())


def _literals() -> Iterator[str]:
    """The patterns of marks that are found as they are spelt, those of one beginning together: of a
    long text without marks each place is looked at once."""
    by_beginning: dict[str, list[str]] = {}
    for text in sorted(_KNOWN, key=len, reverse=True):
        if "<|channel|>" not in text and not _TAG.fullmatch(text):
            by_beginning.setdefault(text[:2], []).append(text[2:])
    for beginning, rest in by_beginning.items():
        yield f"{re.escape(beginning)}(?:{'|'.join(map(re.escape, rest))})"


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
    """A text's thinking (None where it has none) and its answer; none behind thinking that never
    ends."""

    thinking: str | None
    answer: str


class _Mark(NamedTuple):
    """A mark in a text. name: of the tag, or of the table's line: an end ends what has its name."""

    start: int
    stop: int
    opens: bool
    name: str
    marks: Marks


def _marks_in(text: str) -> list[_Mark]:
    """The marks in a text, in order."""
    found: list[_Mark] = []
    shown = _SHOWN.search(text)
    first = shown.start() if shown else 0
    for match in _MARK.finditer(text):
        spelling = match["text"] or f"<{match['slash']}{match['tag']}>"
        if match["channel"]:
            spelling = f"<|channel|>{match['channel']}<|message|>"
        known = _KNOWN.get(spelling.casefold())
        if known is None:
            continue
        marks, opens, name = known
        if marks.opens == "text" and not _counts(text, match, first, opens=opens, marks=marks):
            continue
        found.append(_Mark(*match.span(), opens, name, marks))
        if len(found) == _MOST_MARKS:
            break
    return found


def _counts(text: str, match: re.Match[str], first: int, *, opens: bool, marks: Marks) -> bool:
    """Whether words that an answer may hold too are a mark where they stand. first: where the
    text's own words start."""
    # `assistantfinal` is no word of any language; a sentence counts behind its start alone.
    glued = match[0].casefold().startswith("assistant") and "\n" not in match[0]
    if not opens or glued:
        return glued or text[first : first + _LINE].startswith(marks.start)
    if match.start() > first or not match[0].startswith(marks.start):
        return False
    next_letter = text[match.end() : match.end() + 1]
    return match[0] != "analysis" or next_letter.isalnum() or marks.end[0] in text


def parted(text: str, *, cut: bool = False) -> Parted:
    """Thinking and answer of a text. cut: whether a budget ended it, so that a thought may be left
    open anywhere.

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
    """A text on its way into thoughts and answer. name: of the thought that is open."""

    def __init__(self, text: str, cut: bool) -> None:
        self.marks = _marks_in(text)
        self._text, self._cut, self._place = text, cut, 0
        self._last_end = {mark.name: mark.start for mark in self.marks if not mark.opens}
        self._words_end = len(text.rstrip())
        self._before, self._thoughts, self._said = "", list[str](), list[str]()
        self._thought = False
        self._quoted = set[str]()
        self.name: str | None = None

    def open(self, mark: _Mark) -> None:
        """A thought starts, unless the answer only quotes its mark."""
        piece = self._text[self._place : mark.start]
        ends = self._last_end.get(mark.name, -1) > mark.start
        behind_thought = self._thought and not piece.strip()
        if not (ends or self._cut or behind_thought or _is_open(self._text, mark)):
            return
        if self._thought or not ends:
            self._said.append(piece)
        else:
            self._before = piece
        self.name, self._thought, self._place = mark.name, True, mark.stop
        self._quoted = set()

    def quote(self, mark: _Mark) -> None:
        """A mark starts within a thought. The end of its name is no end of the thought."""
        self._quoted.add(mark.name)

    def is_ended_by(self, mark: _Mark) -> bool:
        """Whether an end is that of the open thought, or of one that the prompt began.

        Models close a thought by other marks now and then. They count if its own never come, unless
        a budget cut it, since it may quote them then.
        """
        if self.name in (None, mark.name):
            return True
        comes = self._last_end.get(self.name, -1) > mark.start
        return not (comes or self._cut or mark.name in self._quoted)

    def end(self, mark: _Mark) -> None:
        """A thought ends, which the prompt may have begun."""
        piece = self._text[self._place : mark.start]
        if self.name is not None:
            self._thoughts.append(piece)
        elif self._thought and mark.stop >= self._words_end:
            self._said.append(piece)  # a closing mark too many, behind the answer
        else:
            # Text between two ends belongs to the thought that the second one ends.
            self._thoughts += [*self._said, piece]
            self._said = []
            self._thought |= bool(piece.strip())
        self.name, self._place = None, mark.stop

    def parted(self) -> Parted:
        """What came of it."""
        if not self._place:
            return Parted(None, self._text)
        rest, thoughts = self._text[self._place :], self._thoughts
        (self._said if self.name is None else thoughts).append(rest)
        if self.name is None and not "".join(self._said).strip():
            self._said = [self._before]  # it answered, and thought then
        else:
            # The end of a thought that the prompt had begun, and the model began once more.
            thoughts.insert(0, self._before)
        answer = "\n\n".join(filter(None, map(_unwrapped, self._said)))
        if not self._thought:
            return Parted(None, answer)
        return Parted("\n\n".join(filter(None, map(str.strip, thoughts))), answer)


def _is_open(text: str, mark: _Mark) -> bool:
    """Whether a start that nothing ends opens a thought: one in the middle of a sentence is quoted
    by an answer."""
    if mark.marks.opens == "anywhere":
        return True
    before = text[max(0, mark.start - _LINE) : mark.start]
    if not before.strip():
        return True
    return mark.marks.opens == "line" and before.rstrip(" \t").endswith("\n")


def _unwrapped(text: str) -> str:
    """A part of an answer behind thoughts, without the marks around it."""
    text = _ENDED.sub("", text)
    text = _WRAPPER.sub("", text)
    return text.strip() if text.endswith("\n") else text.lstrip()


def without_specials(text: str, specials: Sequence[str]) -> str | None:
    """A decoded text without its special tokens, save those that mark its thoughts; None where none
    of them does.

    >>> without_specials("<s><|channel>thought\\nHm<channel|>42</s>", ["<s>", "</s>", "<channel|>"])
    '<|channel>thought\\nHm<channel|>42'
    """
    marks = [(mark.start, mark.stop) for mark in _marks_in(text)]
    marked = [text[start:stop] for start, stop in marks]
    if not any(special in mark for mark in marked for special in specials):
        return None
    found = re.compile("|".join(map(re.escape, sorted(specials, key=len, reverse=True))))
    kept, place = list[str](), 0
    for start, stop in [*marks, (len(text), len(text))]:
        kept += [found.sub("", text[place:start]), text[start:stop]]
        place = stop
    return "".join(kept)


def opened_in(prompt: Prompt) -> bool:
    """Whether a prompt ends with an opened thought, so that the model begins inside it.

    >>> [opened_in(Prompt.plain([("text", end)])) for end in ("<|user|>Hm<think>\\n", "<think></think>\\n")]
    [True, False]
    """  # noqa: E501
    data = b"".join([bytes(span.data[-_TAIL_BYTES:]) for span in prompt.spans[-1:]])
    text = data.decode("utf-8", "ignore").rstrip()
    last = next(reversed(_marks_in(text)), None)
    return last is not None and last.opens and not text[last.stop :].strip()


def split_thinking(answer: Answer, decoding: Decoding, *, opened: bool = False) -> Answer:
    """An answer without its thinking, which is kept beside it. opened: the prompt had begun
    the thinking.

    A text that was cut off beyond the answer's own budget, with a thinking budget set and no
    mark in it, can only be thinking that the template had opened.
    """
    cut = ending_of(answer.finish) is Ending.CUT
    found = parted(answer.text, cut=cut)
    if found.thinking is None and answer.thinking is None and cut and answer.text:
        beyond = (answer.completion_tokens or 0) > decoding.max_answer_tokens
        if opened or (decoding.thinking_tokens and beyond):
            found = Parted(answer.text, "")
    if found.thinking is None and found.answer == answer.text:
        return answer
    # A server may take out a part of the thinking itself.
    thoughts = [part for part in (answer.thinking, found.thinking) if part]
    thinking = "\n\n".join(thoughts) if thoughts else found.thinking
    return replace(answer, text=found.answer, thinking=thinking)
