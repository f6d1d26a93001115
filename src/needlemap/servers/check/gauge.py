"""A server that serves the gauge, checked or compared: what settles itself, as the model is known.

The gauge is known by its name or by `--gauge`. Its right answers and log-probabilities come from
this package's NumPy engine, so a reference costs no second model.
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
from needlemap.servers.gauge.checkpoint import DATA, REFERENCE, holds_tokens

ANSWER = 24  # tokens: its answers have 14
USUAL = 8_192  # tokens of the longest prompt, where nobody says: minutes on two cores
TEMPLATE = "text-en"
# Nats a token: twice what honest engines moved a prompt's margins at most, by their coarsest data
# type, at 160 to 8,000 tokens (benchmarks/RESULTS.md). The gauge's own margins are 12 and more.
MOVES = (("float32", 0.00007), ("float16", 0.03), ("q8_0", 0.11), ("bfloat16", 0.22))
# With these changed, it is not known how much the gauge finds.
CHANGING = {"needle", "question", "keywords", "draw", "haystack", "temperature"}
TAKEN = ("chat-en", "text-en")  # templates in which it finds every needle


def beside_the_gauge(asked: CheckOptions, wanted: bool | None = None) -> tuple[CheckOptions, str]:
    """A check with the gauge's tokenizer, lengths and reference where none are given, and a
    sentence that says so; as it is, and '', where the model is another one.

    wanted: whether it is the gauge; None: it is if it has that name.
    """
    model = str(asked.flags.get("model", ""))
    if not (named_gauge(model) if wanted is None else wanted):
        return asked, ""
    options = asked.options
    if not options.promised and options.max_length == Options().max_length:
        options = replace(options, max_length=USUAL)
    if options.few is None:
        options = replace(options, few=True)
    own = not is_wrapped(asked.flags) and asked.flags.get("template", TEMPLATE) in TAKEN
    if own and not CHANGING & asked.flags.keys():
        options = replace(options, holds=holds_tokens())
    reference = asked.reference or ("" if is_wrapped(asked.flags) else REFERENCE)
    if reference == REFERENCE:
        options = replace(options, moves=MOVES)
    made = replace(asked, flags={**_own(), **asked.flags}, options=options, reference=reference)
    said = f"'{model}' is taken for needlemap's gauge: its own tokenizer, "
    said += f"--reference {reference}, " if reference else "no reference beside a --template, "
    said += f"--max-length {options.max_length}. For another model: --no-gauge"
    return made, said


def is_wrapped(flags: Mapping[str, Any]) -> bool:
    """Whether a server, or a library in this process, puts a template that was typed into
    its own chat template, which the engine here does not."""
    if "template" not in flags or flags.get("model") == REFERENCE:
        return False
    backend, _, name = str(flags.get("model", "")).partition("/")
    options = flags.get("model_options") or {}
    traits = find_backend(backend).traits(name, options)
    return options.get("api") != "completions" if traits.remote else traits.chat


def gauge_flags(
    flags: Mapping[str, Any], wanted: bool | None = None
) -> tuple[dict[str, Any], str, int]:
    """Flags with the gauge's tokenizer and answers, a sentence that says so, and the tokens of the
    longest prompt where nobody says; as they are, '' and 0, where the model is another one.

    wanted: whether it is the gauge; None: it is if it has that name.
    """
    model = str(flags.get("model", ""))
    if not (named_gauge(model) if wanted is None else wanted):
        return dict(flags), "", 0
    said = f"'{model}' is taken for needlemap's gauge: its own tokenizer. For another model: "
    return {**_own(), **flags}, f"{said}--no-gauge", USUAL


def with_reference(arms: Sequence[Arm]) -> list[Arm]:
    """The arms of an ab; of one alone that is served, the package's own gauge before it."""
    if len(arms) == 1 and arms[0].base_url:
        return [Arm("numpy", REFERENCE), *arms]
    return list(arms)


def arms_of_the_gauge(arms: Sequence[Arm], wanted: bool | None = None) -> bool:
    """Whether both arms of an ab are the gauge. Raises SettingsError where only its reference was
    put before another model.

    wanted: whether they are; None: they are if they have that name.
    """
    known = [arm.model == REFERENCE or named_gauge(arm.model) for arm in arms]
    if wanted is None and arms[0] == Arm("numpy", REFERENCE) and not known[1]:
        raise SettingsError(
            f"ab has two arms, the reference first: --arm NAME=URL|MODEL --arm NAME=URL|MODEL. One "
            f"is enough for needlemap's gauge, and '{arms[1].model}' is not named so: --gauge"
        )
    return all(known) if wanted is None else wanted


def ab_settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an ab of the gauge, where none are given: its needle, three lengths to the
    usual one, two depths, and plain text, whose tokens a server and this process count alike."""
    grid = {"lengths": Lengths.of([USUAL // 8, USUAL // 2, USUAL]), "depths": Depths.of([10, 60])}
    return {**_own(), **grid, "template": TEMPLATE, **facts_for(flags), **flags}


def named_gauge(model: str) -> bool:
    """Whether a model's name is the gauge's, as engines make it of a folder or a file.

    >>> [named_gauge(f"openai/{name}") for name in ("gauge", "/tmp/gauge", "gauge.gguf", "gauger")]
    [True, True, True, False]
    """
    name = model.rpartition("/")[2].removesuffix(":latest")  # Ollama's
    return name.removesuffix(".gguf") == "gauge"


def _own() -> dict[str, Any]:
    return {"tokenizer": str(DATA), "max_answer_tokens": ANSWER}
