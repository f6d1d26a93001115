"""A template and a question become the tokenised surroundings of a context."""

from __future__ import annotations

import pytest

from needlemap.errors import SettingsError
from needlemap.models import MARK
from needlemap.prompts import TEXT
from needlemap.prompts.placement import Frame
from needlemap.prompts.templates import Template, load_template, make_frame, parse_template
from needlemap.tokenizers import load

TOKENIZER = load("cl100k_base")
CHAT = {
    "messages": [
        {"role": "system", "text": "Be brief."},
        {"role": "user", "text": "Read: {haystack} Asked: {question}"},
    ],
    "question_first": [{"role": "user", "text": "Asked: {question} Read: {haystack}"}],
    "guide": "Think. ",
    "guide_marker": "Answer",
}
PLAIN = {"text": "{haystack}\nQ: {question}\nA:"}


def template(data: dict) -> Template:
    return parse_template(data, "mine.yaml")


def rows(frame: Frame) -> list[tuple[str, str]]:
    """Roles and texts, the context as <...>."""
    before, after = (
        b"".join(bytes(span.data) for span in spans).decode()
        for spans in (frame.before, frame.after)
    )
    found = [(message.role, message.content) for message in frame.messages]
    found[frame.context] = (found[frame.context][0], f"{before}<...>{after}")
    return found


def test_chat_messages_stand_around_the_context():
    frame = make_frame(template(CHAT), "Who?", TOKENIZER.index)
    assert rows(frame) == [("system", "Be brief."), ("user", "Read: <...> Asked: Who?")]
    assert frame.outside_tokens == TOKENIZER.count(b"Be brief.")


def test_the_question_may_come_first():
    frame = make_frame(template(CHAT), "Who?", TOKENIZER.index, question_first=True)
    assert rows(frame) == [("user", "Asked: Who? Read: <...>")]
    assert (frame.outside_tokens, frame.after) == (0, ())


def test_a_plain_text_is_one_run():
    frame = make_frame(template(PLAIN), "Who?", TOKENIZER.index)
    assert rows(frame) == [(TEXT, "<...>\nQ: Who?\nA:")]


def test_the_guide_goes_into_the_question():
    frame = make_frame(template(CHAT), "Who? Answer in a word.", TOKENIZER.index, guide=True)
    assert rows(frame)[1][1].endswith("Who? Think. Answer in a word.")


def test_an_answer_prefix_is_an_assistants_message_in_chat_and_the_end_of_a_plain_text():
    chat = make_frame(template(CHAT), "Who?", TOKENIZER.index, answer_prefix="It is")
    assert rows(chat)[-1] == ("assistant", "It is")
    assert chat.outside_tokens == TOKENIZER.count(b"Be brief.") + TOKENIZER.count(b"It is")
    plain = make_frame(template(PLAIN), "Who?", TOKENIZER.index, answer_prefix=" It is")
    assert rows(plain) == [(TEXT, "<...>\nQ: Who?\nA: It is")]


def test_the_templates_own_answer_prefix_serves_where_none_is_given():
    made = template(PLAIN | {"answer_prefix": " Well,"})
    assert rows(make_frame(made, "Who?", TOKENIZER.index))[0][1].endswith("A: Well,")
    assert rows(make_frame(made, "Who?", TOKENIZER.index, answer_prefix=" No,"))[0][1].endswith(
        "A: No,"
    )


def test_a_salt_is_the_very_first_text():
    assert rows(make_frame(template(CHAT), "Who?", TOKENIZER.index, salt="Document 7\n"))[0] == (
        "system",
        "Document 7\nBe brief.",
    )
    assert rows(make_frame(template(PLAIN), "Who?", TOKENIZER.index, salt="Document 7\n"))[0][
        1
    ].startswith("Document 7\n<...>")


def test_braces_and_special_tokens_in_a_question_are_text():
    frame = make_frame(template(PLAIN), "{haystack} <|endoftext|>?", TOKENIZER.index)
    assert rows(frame) == [(TEXT, "<...>\nQ: {haystack} <|endoftext|>?\nA:")]


def test_a_guide_or_a_question_first_without_words_for_it_is_an_error():
    with pytest.raises(SettingsError, match=r"Template 'mine.yaml' has no 'guide'"):
        make_frame(template(PLAIN), "Who?", TOKENIZER.index, guide=True)
    with pytest.raises(
        SettingsError, match="has no 'text_question_first' for --question-position start"
    ):
        make_frame(template(PLAIN), "Who?", TOKENIZER.index, question_first=True)


def test_a_model_that_is_fed_ids_renders_the_messages_itself():
    seen = []

    def render(messages):
        seen.extend(messages)
        return TOKENIZER.index(b"<head>"), TOKENIZER.index(b"<tail>")

    frame = make_frame(
        load_template("chat-en"), "Who?", TOKENIZER.index, answer_prefix="It is", render=render
    )
    assert [role for role, _ in seen] == ["system", "user", "assistant"]
    assert seen[1][1].count(MARK) == 1
    assert seen[1][1].endswith("Who?")
    assert rows(frame) == [(TEXT, "<head><...><tail>")]
