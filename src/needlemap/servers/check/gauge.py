"""Settle what is known if a server serves the gauge, for `check`, `storm`, `ab` and `run`.

The gauge is known by its name, by its answer (`known_by_answer.py`) or by `--gauge`. Its right
answers and log-probabilities come from this package's NumPy engine, so a reference costs no second
model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from needlemap.errors import SettingsError
from needlemap.grid import Depths, Lengths
from needlemap.models import find_backend
from needlemap.servers.ab.file import Arm
from needlemap.servers.check.asking import CheckOptions
from needlemap.servers.check.families import facts_for
from needlemap.servers.check.haystack import Options
from needlemap.servers.gauge.checkpoint import DATA, REFERENCE
from needlemap.servers.gauge.copies import LONGEST
from needlemap.servers.gauge.shapes import QWEN3, config_of

# Tokens of an answer's budget: the gauge's answers have 14.
ANSWER = 24
# Tokens of the longest prompt if nobody says: minutes on two cores.
USUAL = 8_192
TEMPLATE = "text-en"
# Nats a token: twice what honest engines moved a prompt's margins at most, by their coarsest data
# type, at 160 to 8,000 tokens (benchmarks/RESULTS.md). The gauge's own margins are 12 and more.
MOVES = (("float32", 0.00007), ("float16", 0.03), ("q8_0", 0.11), ("bfloat16", 0.22))
# With these changed, it is not known how much the gauge finds.
CHANGING = {"needle", "question", "keywords", "draw", "haystack", "temperature"}
# Names of served gauges, and the reference of each: the shape qwen3 has weights of its own.
WEIGHTS = {"gauge": REFERENCE, f"gauge-{QWEN3}": f"gauge/{QWEN3}"}
REFERENCES = tuple(WEIGHTS.values())
# Templates in which it finds every needle.
TAKEN = ("chat-en", "text-en")


def gauge_options(asked: CheckOptions, is_gauge: bool | None = None) -> tuple[CheckOptions, str]:
    """Return a check's options with the gauge's defaults, and a note that says so.

    The defaults are its tokenizer, lengths and reference. If the model is not the gauge, the
    options are unchanged and the note is ''.

    is_gauge: whether the model is the gauge; None if its name decides.
    """
    model = str(asked.flags.get("model", ""))
    if not is_taken_for_gauge(model, is_gauge):
        return asked, ""

    is_wrapped_prompt = is_wrapped(asked.flags)
    options = asked.options
    if not options.promised and options.max_length == Options().max_length:
        options = replace(options, max_length=USUAL)
    if options.few is None:
        options = replace(options, few=True)

    has_own_template = asked.flags.get("template", TEMPLATE) in TAKEN and not is_wrapped_prompt
    own_reference = reference_of(model)
    if has_own_template and not CHANGING & asked.flags.keys():
        config = config_of(own_reference.partition("/")[2])
        copies = LONGEST if own_reference != REFERENCE else 0
        options = replace(options, holds=config["holds_tokens"], copies=copies)
    reference = asked.reference
    if not reference and not is_wrapped_prompt:
        reference = own_reference
    if reference == own_reference:
        options = replace(options, moves=MOVES)

    note = (
        f"'{model}' is taken for needlemap's gauge: its own tokenizer, "
        f"{f'--reference {reference}' if reference else 'no reference beside a --template'}, "
        f"--max-length {options.max_length}. For another model: --no-gauge"
    )
    flags = {**_gauge_settings(), **asked.flags}
    return replace(asked, flags=flags, options=options, reference=reference), note


def is_wrapped(flags: Mapping[str, Any]) -> bool:
    """Return True if a typed template is put into another chat template.

    A server, or a library in this process, does that, which the engine here does not.
    """
    if "template" not in flags or flags.get("model") in REFERENCES:
        return False
    backend, _, name = str(flags.get("model", "")).partition("/")
    options = flags.get("model_options") or {}
    traits = find_backend(backend).traits(name, options)
    if traits.remote:
        return options.get("api") != "completions"
    return traits.chat


def gauge_flags(
    flags: Mapping[str, Any], is_gauge: bool | None = None
) -> tuple[dict[str, Any], str, int]:
    """Return flags with the gauge's defaults, a note, and the default tokens of longest prompts.

    The defaults are its tokenizer and its answers' budget. If the model is not the gauge, the flags
    are unchanged, the note is '', and the tokens are 0.

    is_gauge: whether the model is the gauge; None if its name decides.
    """
    model = str(flags.get("model", ""))
    if not is_taken_for_gauge(model, is_gauge):
        return dict(flags), "", 0
    note = (
        f"'{model}' is taken for needlemap's gauge: its own tokenizer. For another model: "
        "--no-gauge"
    )
    return {**_gauge_settings(), **flags}, note, USUAL


def settings_of_the_gauge(model: str) -> tuple[dict[str, Any], str]:
    """Return the gauge's tokenizer and answer budget for a run, and a note that says so.

    If the model is not the gauge, the results are {} and ''. The budget of other models, 300
    tokens, would leave short prompts no room.
    """
    if not named_gauge(model):
        return {}, ""
    note = (
        f"'{model}' is taken for needlemap's gauge: its own tokenizer, {ANSWER} tokens an answer. "
        "For others: --tokenizer, --max-answer-tokens"
    )
    return _gauge_settings(), note


def with_reference(arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms of an ab. Before a single one that is served comes the package's gauge."""
    if len(arms) == 1 and arms[0].base_url:
        return [_reference_arm(reference_of(arms[0].model)), *arms]
    return list(arms)


def arms_of_the_gauge(arms: Sequence[Arm], is_gauge: bool | None = None) -> bool:
    """Return True if both arms of an ab are the gauge.

    is_gauge: whether they are; None if their names decide. Raises SettingsError if only the
    reference was put before another model.
    """
    if is_gauge is not None:
        return is_gauge
    are_gauges = [arm.model in REFERENCES or named_gauge(arm.model) for arm in arms]
    if arms[0] in map(_reference_arm, REFERENCES) and not are_gauges[1]:
        raise SettingsError(
            f"ab has two arms, the reference first: --arm NAME=URL|MODEL --arm NAME=URL|MODEL. One "
            f"is enough for needlemap's gauge, and '{arms[1].model}' is not named so: --gauge"
        )
    return all(are_gauges)


def _reference_arm(reference: str) -> Arm:
    return Arm(reference.partition("/")[2], reference)


def ab_settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an ab of the gauge, if none are given.

    They are its needle, three lengths to the usual one, two depths, and plain text, whose tokens a
    server and this process count alike.
    """
    return {
        **_gauge_settings(),
        "lengths": Lengths.of([USUAL // 8, USUAL // 2, USUAL]),
        "depths": Depths.of([10, 60]),
        "template": TEMPLATE,
        **facts_for(flags),
        **flags,
    }


def is_taken_for_gauge(model: str, is_gauge: bool | None) -> bool:
    """Return True if a model is the gauge, by what was typed or else by its name."""
    return named_gauge(model) if is_gauge is None else is_gauge


def named_gauge(model: str) -> bool:
    """Return True if a model's name is the gauge's, as engines make it of a folder or a file.

    >>> [named_gauge(f"openai/{name}") for name in ("gauge", "/tmp/gauge", "gauge.gguf", "gauger")]
    [True, True, True, False]
    """
    return _stem(model) in WEIGHTS


def reference_of(model: str) -> str:
    """Return the reference of a gauge by the name that it is served under.

    >>> reference_of("openai/gauge-qwen3"), reference_of("openai/mine")
    ('gauge/qwen3', 'gauge/numpy')
    """
    return WEIGHTS.get(_stem(model), REFERENCE)


def _stem(model: str) -> str:
    # Ollama adds ':latest'.
    name = model.rpartition("/")[2].removesuffix(":latest")
    return name.removesuffix(".gguf")


def _gauge_settings() -> dict[str, Any]:
    return {"tokenizer": str(DATA), "max_answer_tokens": ANSWER}
