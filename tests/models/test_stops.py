"""A base model's answer runs on into questions of its own: only what stands before them counts."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from needlemap import run
from needlemap.errors import SettingsError
from needlemap.models import Answer, Decoding, Model
from needlemap.models.anthropic import AnthropicModel
from needlemap.models.call import call_model
from needlemap.models.openai import OpenAIModel
from needlemap.prompts import Prompt
from needlemap.prompts.templates import load_template, parse_template
from needlemap.servers.gauge.checkpoint import DATA
from needlemap.servers.gauge.model import NAME, GaugeModel
from needlemap.settings.reading import configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare

RUNS_ON = " 68.\nQuestion: What is the locker code for Turin?\nAnswer: 51328."
GRID = {"lengths": "500", "depths": "50", "canary": False, "quiet": True, "max_answer_tokens": 60}
OWN = {
    "needle": "The locker code for Turin is 51328.",
    "question": "What is the locker code for Turin?",
    "keywords": ["51328"],
}
BASE = {"model_options": {"api": "completions"}}
ENGLISH = ["\nQuestion:", "\nA question"]


def served(wire: Any, **settings: Any) -> dict[str, Any]:
    known = {"model": "openai/m", "base_url": wire.base_url, "tokenizer": "cl100k_base"}
    return {**GRID, **OWN, **known, **settings}


def trial(preset: str | None = None, **settings: Any) -> Trial:
    known = {"model": "openai/m", "base_url": "http://127.0.0.1:9/v1", "tokenizer": "cl100k_base"}
    return prepare(configure(preset, {**GRID, **known, **settings})).trials[0]


@pytest.mark.parametrize("kind", [BASE, {"template": "text-en"}], ids=["completions", "chat"])
@pytest.mark.parametrize(("said", "score"), [(RUNS_ON, 0.0), (" 51328.\n\nQuestion: 68?", 1.0)])
def test_what_a_server_says_behind_its_answer_is_not_scored(
    wire: Any, tmp_path: Path, kind: dict[str, Any], said: str, score: float
) -> None:
    """It was, so that a wrong answer counted as right; this server does not heed `stop`."""
    reply = {"message": {"content": said}, "text": said, "finish_reason": "length"}
    wire.schedule(f"reply:{json.dumps({'body': json.dumps({'choices': [reply]})})}", cycle=True)
    made = run(**served(wire, **kind), out=tmp_path / "r")
    (record,) = made.records()
    assert (record.score, record.finish) == (score, "stop")
    assert "Question" not in record.answer
    assert [request["body"]["stop"] for request in wire.log()] == [ENGLISH]


def test_a_chat_template_sends_no_stop_string_and_cuts_nothing(wire: Any, tmp_path: Path) -> None:
    wire.schedule(f"say:51328.{RUNS_ON}")
    (record,) = run(**served(wire), out=tmp_path / "r").records()
    assert record.answer == f"51328.{RUNS_ON}"
    assert "stop" not in wire.log()[0]["body"]


def test_stop_strings_of_the_users_own_are_sent_in_their_place(wire: Any, tmp_path: Path) -> None:
    wire.schedule(f"say:{RUNS_ON}")
    own = served(wire, template="text-en", request={"stop": ["###"]})
    (record,) = run(**own, out=tmp_path / "r").records()
    assert wire.log()[0]["body"]["stop"] == ["###"]
    assert "Question" not in record.answer


def test_a_server_that_refuses_stop_strings_is_asked_without_them(
    wire: Any, tmp_path: Path
) -> None:
    said = "Unsupported parameter: 'stop' is not supported with this model."
    refusal = json.dumps({"error": {"message": said, "param": "stop"}})
    wire.schedule(f"reply:{json.dumps({'status': 400, 'body': refusal})}", f"say:{RUNS_ON}")
    own = served(wire, template="text-en", depths="0,50", concurrency=1)
    made = run(**own, out=tmp_path / "r")
    assert ["stop" in request["body"] for request in wire.log()] == [True, False, False]
    assert all(record.scored for record in made.records())


class Says(Model):
    """A back end that knows no stop strings."""

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        return Answer(RUNS_ON, "length", completion_tokens=20)


def test_no_back_end_needs_to_know_of_them() -> None:
    prompt = trial(**BASE).prompt
    answer = asyncio.run(call_model(Says("m"), prompt, Decoding()))
    assert (answer.text, answer.finish, answer.completion_tokens) == (" 68.", "stop", 20)
    chat = asyncio.run(call_model(Says("m"), trial().prompt, Decoding()))
    assert (chat.text, chat.finish) == (RUNS_ON, "length")


def test_a_function_of_the_users_is_cut_too(tmp_path: Path) -> None:
    made = run(model=lambda _: RUNS_ON, template="text-en", **GRID, **OWN, out=tmp_path / "r")
    (record,) = made.records()
    assert (record.answer, record.score) == (" 68.", 0.0)


def test_a_model_in_this_process_stops_there() -> None:
    prompt = trial(template="text-en", tokenizer=str(DATA), **OWN).prompt
    assert prompt.stops == tuple(ENGLISH)
    whole, cut = (
        asyncio.run(call_model(GaugeModel(NAME), replace(prompt, stops=stops), Decoding(24)))
        for stops in ((), ("32",))
    )
    assert "51328" in whole.text
    assert (cut.text, cut.finish) == (whole.text.partition("32")[0], "stop")
    assert (cut.completion_tokens or 0) < (whole.completion_tokens or 0)


def test_anthropic_calls_them_otherwise() -> None:
    model = AnthropicModel("m", base_url="http://127.0.0.1:9")
    prompt = trial(template="text-en").prompt
    assert model._fields(prompt, Decoding())["stop_sequences"] == ENGLISH
    own = Decoding(request={"stop_sequences": ["###"]})
    assert model._fields(prompt, own)["stop_sequences"] == ["###"]
    assert "stop_sequences" not in model._fields(trial().prompt, Decoding())


def test_an_openai_body_has_them_behind_the_prompt() -> None:
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", api="completions")
    assert json.loads(model.body(trial(**BASE).prompt, Decoding()))["stop"] == ENGLISH


def test_the_key_says_so_and_the_prompt_stays(tmp_path: Path) -> None:
    """A template without them asks the same prompt otherwise."""
    plain = {"text": load_template("text-en").parts[0].text}
    (tmp_path / "mine.yaml").write_text(json.dumps(plain))
    (tmp_path / "stops.yaml").write_text(json.dumps({**plain, "stop": "\nQ:"}))
    ours, mine, stops = (
        trial(**BASE, template=name)
        for name in ("text-en", str(tmp_path / "mine.yaml"), str(tmp_path / "stops.yaml"))
    )
    assert ours.prompt.sha256 == mine.prompt.sha256 == stops.prompt.sha256
    assert len({ours.asked, mine.asked, stops.asked}) == 3
    assert (mine.prompt.stops, stops.prompt.stops) == ((), ("\nQ:",))


@pytest.mark.parametrize("preset", ["cdme-8k", "needlehaystack", "needlehaystack-substring"])
def test_the_older_tools_presets_ask_and_score_as_before(preset: str) -> None:
    grid = {"lengths": "1500", "haystack": "generated", **BASE}
    if preset == "needlehaystack":
        grid |= {"scorer": "substring", "scorer_options": {"anywhere": True}}
    assert trial(preset, **grid).prompt.stops == ()


def test_chinese_questions_end_an_answer_too() -> None:
    stops = trial(**BASE, language="chinese").prompt.stops
    assert stops == ("\n问题：", "\n问题:", "\n以下是")


def test_lent_prompts_bring_the_stop_strings_of_their_template(wire: Any, tmp_path: Path) -> None:
    run(**served(wire, **BASE), out=tmp_path / "base")
    wire.reset()
    wire.schedule(f"say:{RUNS_ON}")
    other = {"model": "openai/chat", "base_url": wire.base_url, "canary": False, "quiet": True}
    made = run(prompts_of=str(tmp_path / "base"), **other, trust_run=True, out=tmp_path / "chat")
    (record,) = made.records()
    assert wire.log()[0]["body"]["stop"] == ENGLISH
    assert "Question" not in record.answer


@pytest.mark.parametrize("stop", [7, [""], [7], {"a": 1}])
def test_a_stop_that_is_no_text_is_refused(stop: object) -> None:
    with pytest.raises(SettingsError, match="'stop' is a text or a list of texts"):
        parse_template({"text": "{haystack}{question}", "stop": stop}, "mine")
