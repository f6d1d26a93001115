"""The marks of all models that think: none of their thoughts is ever scored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from needlemap.models import Answer, Decoding, Model
from needlemap.models.call import call_model
from needlemap.models.decoding import Stops
from needlemap.models.openai import read
from needlemap.models.thinking import MARKS, ends_in_thought, parted
from needlemap.prompts import Prompt
from needlemap.registry import find, installed
from needlemap.scorers import Scorer
from needlemap.tasks import Reference

FACT = "The locker code for Turin is 51328."
THOUGHT = f"The question asks for a code. {FACT} Or is it \\boxed{{51328}}? Let me check."
ANSWER = "I do not know."
PAIRS = [
    pytest.param(start, end, id=f"{marks.name}: {start}")
    for marks in MARKS
    for place, start in enumerate(marks.start)
    for end in (marks.end[min(place, len(marks.end) - 1)],)
]
# Words that are a mark at the start of a text alone.
AT_THE_START = [
    start
    for marks in MARKS
    for start in marks.start
    if marks.opens == "text" and not start.startswith("assistant")
]
# Those that need another model to score, or that score no text.
ASKING = ("judge", "logprob", "recovery")


def scorers() -> list[str]:
    return sorted(set(installed("scorers")) - set(ASKING))


def reference_for(scorer: str) -> Reference:
    if scorer == "choice":
        return Reference("A", choices=("51328", "68", "7", "9"))
    return Reference("51328", ("51328",), needle=FACT, question="What is it?", decoys=("68",))


def score_of(scorer: Scorer, text: str, reference: Reference) -> float:
    return asyncio.run(scorer.score(text, reference)).share


@pytest.mark.parametrize(("start", "end"), PAIRS)
def test_a_thought_between_any_marks_is_no_part_of_the_answer(start: str, end: str) -> None:
    assert parted(f"{start}{THOUGHT}{end}{ANSWER}") == (THOUGHT, ANSWER)
    assert parted(f"\n{start}\n{THOUGHT}\n{end}\n\n{ANSWER}").answer == ANSWER
    assert parted(f"{start}{end}{ANSWER}") == ("", ANSWER)


@pytest.mark.parametrize(("start", "end"), PAIRS)
def test_several_thoughts_are_all_taken_out(start: str, end: str) -> None:
    twice = f"{start}{THOUGHT}{end}{start}{THOUGHT}{end}{ANSWER}"
    between = f"{start}Hm.{end}Let me see.\n{start}{THOUGHT}{end}{ANSWER}"
    if start in AT_THE_START:
        return
    assert parted(twice) == (f"{THOUGHT}\n\n{THOUGHT}", ANSWER)
    assert parted(between).answer == f"Let me see.\n\n{ANSWER}"


@pytest.mark.parametrize("start", [start for marks in MARKS for start in marks.start])
def test_a_thought_that_the_budget_cut_off_leaves_no_answer(start: str) -> None:
    assert parted(f"{start}{THOUGHT}") == (THOUGHT, "")
    assert parted(f"{start}{THOUGHT}", cut=True) == (THOUGHT, "")


@pytest.mark.parametrize("end", [end for marks in MARKS for end in marks.end])
def test_an_end_without_a_start_ends_what_the_prompt_had_begun(end: str) -> None:
    words = end[0].isalpha() and end != "assistantfinal"
    if words or end in ("...done thinking.", "</details>"):
        assert parted(f"{THOUGHT}{end}{ANSWER}").thinking is None
    else:
        assert parted(f"{THOUGHT}{end}{ANSWER}") == (THOUGHT, ANSWER)


@pytest.mark.parametrize("name", scorers())
@pytest.mark.parametrize(("start", "end"), PAIRS)
def test_a_thought_that_holds_the_fact_scores_nothing_by_any_scorer(
    name: str, start: str, end: str
) -> None:
    scorer, reference = find("scorers", name)(), reference_for(name)
    nothing = score_of(scorer, ANSWER, reference)
    for text in (
        f"{start}{THOUGHT}{end}{ANSWER}",
        f"{start}{THOUGHT}",
        f"{start}{THOUGHT}{end}",
    ):
        score = score_of(scorer, parted(text).answer, reference)
        assert score == score_of(scorer, "", reference) or score == nothing
    assert nothing < 0.5


class Said(Model):
    """A back end that says one text, as a stranger's may."""

    def __init__(self, text: str, thinking: str | None = None) -> None:
        self.made = Answer(text, "stop", thinking=thinking)

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        return self.made


def test_every_back_ends_answers_are_split() -> None:
    prompt = Prompt.plain([("user", "Where?")])
    answer = asyncio.run(call_model(Said(f"<thought>{FACT}</thought>No."), prompt, Decoding()))
    assert (answer.thinking, answer.text) == (FACT, "No.")


def test_what_a_server_left_of_the_thinking_is_added_to_what_it_took_out() -> None:
    said = Said(f"{FACT}</think>No.", thinking="Hm.")
    answer = asyncio.run(call_model(said, Prompt.plain([("user", "Where?")]), Decoding()))
    assert (answer.thinking, answer.text) == (f"Hm.\n\n{FACT}", "No.")


@pytest.mark.parametrize(
    "answer",
    [
        "Write <think> to begin.",
        "Analysis: the code is 51328.",
        "analysis of the text: 51328",
        "The assistant is in the final.",
        "Here is my response: 51328",
        "x < think and y > 3",
        "<details>51328</details>",
        "It is 51328 <51328@example.org>.",
        "He says [thinking] 51328",
    ],
)
def test_an_answer_that_is_like_a_mark_is_an_answer(answer: str) -> None:
    assert parted(answer) == (None, answer)


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        # A mark's name in capitals, with blanks or attributes, or as HTML escapes it.
        ("<Think>a</Think>b", "a", "b"),
        ("< thinking >a</ thinking >b", "a", "b"),
        ('<reasoning effort="high">a</reasoning>b', "a", "b"),
        ("&lt;think&gt;a&lt;/think&gt;b", "a", "b"),
        # Thoughts inside a thought.
        ("<thinking>a<reflection>b</reflection>c</thinking>d", "a<reflection>b</reflection>c", "d"),
        ("<think>I use <think> tags. </think>b", "I use <think> tags.", "b"),
        ("<think>a<think>b</think>c</think>d", "a<think>b\n\nc", "d"),
        # What stands around an answer.
        ("<think>\na\n</think>\n<answer>\nb\n</answer>", "a", "b"),
        ("<think>a</think><|begin_of_box|>b<|end_of_box|>", "a", "b"),
        (
            "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>",
            "a",
            "b",
        ),
        # One closing mark too many; an answer before its thought.
        ("<think>a</think>b</think>", "a", "b"),
        ("b<reason>a</reason>", "a", "b"),
        # The template had opened it, and the model once more.
        ("a<think>b</think>c", "a\n\nb", "c"),
        # Harmony: a call of a tool between, a header in another form, without parts of it.
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
            "to=functions.x <|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>"
            "final <|constrain|>text<|message|>b<|return|>",
            None,
            "b",
        ),
        ("<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b", "a", "b"),
        ("<|channel|>analysisa<|end|><|start|>assistant<|channel|>finalb<|end|>", "a", "b"),
        ("<|channel|>final<|message|>b<|return|>", None, "b"),
        ("analysisWe look.assistantcommentary to=x{}assistantfinalb", None, "b"),
        ("analysis\nWe look.\nassistantfinal\nb", "We look.", "b"),
        ("We look.assistantfinalb", "We look.", "b"),
        # Two formats.
        ("<reasoning>a</reasoning><think>b</think>c", "a\n\nb", "c"),
    ],
)
def test_marks_in_other_forms(text: str, thinking: str | None, answer: str) -> None:
    found = parted(text)
    assert found.answer == answer
    assert thinking in (None, found.thinking)


@pytest.mark.parametrize(
    "end",
    [
        "<|start|>assistant<|channel|>analysis<|message|>",
        "<|turn>model\n<|channel>thought\n",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>",
        "[THINK]",
    ],
)
def test_a_prompt_that_opens_a_thought_is_seen_in_any_format(end: str) -> None:
    assert ends_in_thought(Prompt.plain([("text", f"Where?{end}")]))
    assert not ends_in_thought(Prompt.plain([("text", f"Where?{end}Hm.")]))


SPECIALS = ("<s>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|channel>", "<channel|>")


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    words = [
        "analysis",
        "final",
        "assistant",
        "The",
        "code",
        "may",
        "be",
        "12345",
        ".",
        "I",
        "do",
        "not",
        "know",
        "thought",
    ]
    made = Tokenizer(WordLevel({word: at for at, word in enumerate(["?", *words])}, "?"))
    made.pre_tokenizer = Whitespace()
    made.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    return made


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|> analysis <|message|> The code may be 12345 . <|end|> <|start|> assistant "
        "<|channel|> final <|message|> I do not know",
        "<|channel> thought The code may be 12345 . <channel|> I do not know",
    ],
)
def test_marks_that_are_special_tokens_are_kept_until_the_thinking_is_split(
    vocabulary: Tokenizer, text: str
) -> None:
    """gpt-oss in `hf` lost its marks with the special tokens, and the thought was scored."""
    ids = vocabulary.encode(f"<s>{text}<s>").ids
    found = parted(Stops((), vocabulary).text(ids))
    assert (found.thinking or "").replace(" ", "").endswith("Thecodemaybe12345.")
    assert found.answer.strip() == "I do not know"


def test_other_special_tokens_are_left_out_as_ever(vocabulary: Tokenizer) -> None:
    ids = vocabulary.encode("<s>I do not know<|end|>").ids
    assert Stops((), vocabulary).text(ids) == "I do not know"


@pytest.mark.parametrize(
    "message",
    [
        {"content": ANSWER, "reasoning_details": [{"type": "reasoning.text", "text": FACT}]},
        {"content": ANSWER, "thinking": FACT},
        {"content": ANSWER, "reasoning": {"content": FACT}},
        {"content": [{"type": "reasoning", "text": FACT}, {"type": "text", "text": ANSWER}]},
        {"content": [{"text": FACT, "thought": True}, {"text": ANSWER}]},
        {"content": [{"type": "thinking", "thinking": [{"text": FACT}]}, {"text": ANSWER}]},
    ],
)
def test_thinking_in_fields_and_parts_of_any_server_is_kept_apart(message: Any) -> None:
    answer = read({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert (answer.thinking, answer.text) == (FACT, ANSWER)


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        (f"<think>{FACT}</thinking>No.", FACT, "No."),
        (f"<think>{FACT}<|/think|>No.", FACT, "No."),
        (f"<think>a<reasoning>b</reasoning>{FACT}", f"a<reasoning>b</reasoning>{FACT}", ""),
        (f"<think>a</thinking>{FACT}</think>No.", f"a</thinking>{FACT}", "No."),
        (f"<think>{FACT}</think><Answer>No.</ANSWER>", FACT, "No."),
    ],
)
def test_a_thought_may_be_ended_by_another_mark_if_its_own_never_comes(
    text: str, thinking: str, answer: str
) -> None:
    assert parted(text) == (thinking, answer)


def test_a_thought_that_a_budget_cut_only_quotes_other_ends() -> None:
    assert parted("<think>Close it by </thinking> then", cut=True).answer == ""
