"""Wording is data: built-in or a user's own, checked when it is read."""

from __future__ import annotations

import pytest

from needlemap.errors import SettingsError
from needlemap.prompts.templates import fill, guided, load_template, parse_template
from needlemap.shelves import TEMPLATES

USER = {"role": "user", "text": "{haystack} {question}"}


@pytest.mark.parametrize("name", TEMPLATES.texts)
def test_every_built_in_template_loads_and_can_guide_and_ask_first(name):
    template = load_template(name)
    assert template.chat == name.startswith("chat")
    assert template.guide
    assert template.question_first
    for parts in (template.parts, template.question_first):
        text = "".join(part.text for part in parts)
        assert (text.index("{haystack}") < text.index("{question}")) == (parts is template.parts)


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("text: '{haystack} 请问：{question}{{}}'\nguide: 想一想。\n", encoding="utf-8")
    template = load_template(str(file))
    assert template.parts[0].filled("A.", "B?") == "A. 请问：B?{}"
    assert template.parts[0].around("B?") == ("", " 请问：B?{}")
    assert (template.chat, template.guide, template.answer_prefix) == (False, "想一想。", "")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"text": "{haystack}"}, r"must hold \{question\} exactly once, it holds it 0 times"),
        ({"text": "{haystack} {haystack} {question}"}, r"must hold \{haystack\} exactly once"),
        (
            {"text": "{haystak} {question}"},
            r"unknown placeholder \{haystak\}. Did you mean 'haystack'\?",
        ),
        ({"text": "{haystack} {question} {}"}, "unknown placeholder {}"),
        ({"text": "{haystack!r} {question:>9}"}, "takes no ':' or '!' inside"),
        ({"text": "{haystack} {question} {"}, "Write {{ and }} for braces"),
        ({"text": "x", "messages": []}, "needs either 'messages' .* or 'text'"),
        ({"guide": "x"}, "needs either 'messages' .* or 'text'"),
        ({"text": 3}, "'text' a text, got 3"),
        ({"messages": None}, "'messages' must be a list"),
        ({"messages": ["x"]}, "each message needs 'role' and 'text'"),
        ({"messages": [USER | {"name": "x"}]}, "each message needs 'role' and 'text'"),
        ({"messages": [USER | {"role": "usr"}]}, r"unknown role 'usr'. Did you mean 'user'\?"),
        ({"messages": [USER | {"role": "text"}]}, "unknown role 'text'"),
        ({"messages": [USER], "guid": "x"}, r"unknown key 'guid'. Did you mean 'guide'\?"),
        ({"messages": [USER], 1: "x"}, "unknown key '1'"),
        ({"messages": [USER], "question_first": [{"role": "user", "text": "x"}]}, "exactly once"),
    ],
)
def test_what_is_wrong_in_a_template_is_named(data, words):
    with pytest.raises(SettingsError, match=words) as caught:
        parse_template(data, "mine.yaml")
    assert "Template 'mine.yaml'" in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"text: [", "not readable YAML"),
        (b"- x", "must be a mapping"),
        (b"text: \xff", "not readable YAML"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path, raw, words):
    (tmp_path / "mine.yaml").write_bytes(raw)
    with pytest.raises(SettingsError, match=words):
        load_template(str(tmp_path / "mine.yaml"))


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(
        SettingsError, match=r"Unknown template 'chat-eng'. Did you mean 'chat-en'\?"
    ):
        load_template("chat-eng")
    with pytest.raises(SettingsError, match=r"No template file at 'nowhere.yaml'.*chat-en"):
        load_template("nowhere.yaml")


@pytest.mark.parametrize(
    ("question", "guide", "marker", "asked"),
    [
        (
            "Who? Please answer so. More.",
            "Think. ",
            "Please answer",
            "Who? Think. Please answer so. More.",
        ),
        ("Who?", "Think. ", "Please answer", "Who? Think."),
        ("谁？请按照格式回答。", "想一想。", "请按照", "谁？想一想。请按照格式回答。"),
        ("谁？", "想一想。", "请按照", "谁？想一想。"),
        ("A M b M c", "G ", "M", "A G M b "),  # OpenCompass drops a second marker and what follows
        ("Who?", "Think.", "", "Who? Think."),
    ],
)
def test_a_guide_goes_before_its_marker_or_behind_the_question(question, guide, marker, asked):
    assert guided(question, guide, marker) == asked


def test_placeholders_are_filled_and_braces_kept():
    assert fill("{city} has {{x}}", {"city": "Oslo"}, "needle") == "Oslo has {x}"


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        ("{cty}", {"city": "Oslo"}, r"needle: unknown placeholder \{cty\}. Did you mean 'city'\?"),
        ("{city}", {}, r"It has none; write \{\{ \}\} for braces"),
        ("{city:>5}", {"city": "Oslo"}, "takes no ':'"),
        ("}", {}, "Write {{ and }}"),
    ],
)
def test_an_unknown_placeholder_is_an_error(text, values, words):
    with pytest.raises(SettingsError, match=words):
        fill(text, values, "needle")
