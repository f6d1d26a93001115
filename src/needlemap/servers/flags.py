"""Declare the flags of `check`, `storm` and `ab`, and those that they add to `replay`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from needlemap.commands.arguments import (
    RARE_OPTIONS,
    ExitZero,
    InScope,
    Json,
    JUnit,
    OnUndecided,
    Out,
    PlanOnly,
    TrustRun,
    flag,
    flag_name,
    option,
    rare,
)
from needlemap.errors import SettingsError
from needlemap.grid import percent
from needlemap.settings import MOST_AT_A_TIME, MOST_S
from needlemap.settings.flags import Shown

_MOST_MINUTES = MOST_S / 60
_LONG_AB = "(default as in suite:long-ab)"
_OF_SERVER = ("model", "base_url", "tokenizer", "wait", "limit_usd", "limit_tokens")
OF_SERVER = Shown(
    everyday=_OF_SERVER,
    texts={"model": "The server's model. By default the one that it lists."},
)
OF_GATE = Shown(
    everyday=("lengths", "depths", "repeats", "max_answer_tokens"),
    texts={
        "lengths": "Lengths in tokens, prompt and answer together. (default 2k,8k)",
        "depths": "Depths in percent. (default 0,25,50,75,100)",
        "repeats": "Texts. Each has one prompt per length and depth. (default 5)",
        "max_answer_tokens": "Most tokens of an answer. (default 64)",
    },
)
OF_AB = Shown(
    everyday=(
        *("model", "tokenizer", "lengths", "depths", "wait"),
        *("limit_usd", "limit_tokens", "limit_time"),
    ),
    # An arm's address stands in its --arm; whoever types --base-url is told so.
    nowhere=("base_url",),
    texts={
        "model": "Model of an --arm that is a URL. By default the one of its server.",
        "max_answer_tokens": f"Most tokens of an answer. {_LONG_AB}",
        "lengths": f"Lengths, e.g. 1k,4k. {_LONG_AB}",
        "depths": f"Depths, e.g. 0,50. {_LONG_AB}",
        "seed": "Seed of documents, order and drawn values. (default: drawn anew)",
    },
)
TheGauge = Annotated[
    bool | None,
    option(
        "The served model is needlemap's gauge. By default its name or its answer shows it.",
        rich_help_panel=RARE_OPTIONS,
    ),
]
TheCache = Annotated[
    Literal["any", "exact"],
    option(
        "With needlemap's gauge: a quantised KV cache is accepted (any: SUSPECT, exit 5) or a "
        "fault (exact: FAIL, exit 1).",
        rich_help_panel=RARE_OPTIONS,
    ),
]
TheDataType = Annotated[
    Literal["bfloat16", "float16", "float32"],
    option(
        "Data type that the server computes in. A finer one makes `ways` stricter.",
        rich_help_panel=RARE_OPTIONS,
    ),
]


@dataclass(frozen=True, slots=True)
class CheckFlags:
    """Of `check`, beside the model's and its limits."""

    max_length: str | None = flag(
        None,
        "Longest prompt, which the server must take (default: its context, at most 128k).",
        metavar="TOKENS",
    )
    minutes: float | None = flag(
        None,
        "Stop after this many minutes.",
        metavar="MINUTES",
        min=0.01,
        max=_MOST_MINUTES,
    )
    load: int = rare(8, "Prompts at a time under load.", min=2, max=MOST_AT_A_TIME)
    reference: str = flag(
        "", "Compare with the same weights: hf/PATH, or a server.", metavar="MODEL|URL"
    )
    gauge: TheGauge = None
    kv: TheCache = "any"
    dtype: TheDataType = "bfloat16"
    quick: bool = flag(False, "Look for a total loss only: at most 60 prompts, to 8k tokens.")
    few: bool | None = flag(
        None,
        "Fewer prompts: 24 haystacks of each size (default with the gauge).",
        "--few/--many",
    )
    probe: list[str] | None = flag(None, "Run this probe only (repeatable).", metavar="NAME")
    require: str = flag(
        "",
        "What exit code 0 needs, if not all: 8k, or cache,mates.",
        metavar="SIZE|PROBES",
    )
    accept: list[str] | None = rare(
        None,
        "Leave a size of a probe out of the verdict, e.g. length@128k (repeatable).",
        metavar="PROBE@SIZE",
    )
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False
    baseline: Path | None = flag(
        None, "Earlier check to compare with. Its prompts are sent again.", metavar="DIR"
    )
    tokens_per_second: float | None = rare(
        None, "With --plan: speed of the server, to show minutes.", metavar="N", min=1
    )
    out: Out = None
    plan: PlanOnly = False
    json: Json = False
    junit: JUnit = None
    trust_run: TrustRun = False


@dataclass(frozen=True, slots=True)
class StormFlags:
    """Of `storm`, beside the model's and its limits."""

    max_length: str | None = flag(
        None, "Longest prompt (default: the server's context, at most 64k).", metavar="TOKENS"
    )
    minutes: float = flag(
        20.0,
        "Stop after this many minutes.",
        metavar="MINUTES",
        min=0.01,
        max=_MOST_MINUTES,
    )
    until: str = flag(
        "rate<0.5%", "Stop once the fault rate is known to be lower.", metavar="rate<X%"
    )
    load: int = flag(8, "Requests at a time.", min=2, max=MOST_AT_A_TIME)
    kv_tokens: str | None = rare(
        None, "Tokens that the server's cache holds, if it does not report it.", metavar="TOKENS"
    )
    own: bool = rare(
        False, "The server is yours: break off requests though its address is not local."
    )
    without: list[str] | None = rare(
        None, "Leave out an operation, e.g. turn (repeatable).", metavar="OPERATION"
    )
    shrink: bool = flag(False, "Find the shortest sequence that shows the fault of FOLDER.")
    command: str | None = flag(
        None,
        "With --shrink: command that starts the server, and restarts it.",
        metavar="COMMAND",
    )
    gauge: TheGauge = None
    ways: bool = flag(
        False, "Judge by equal ways of asking, whatever the model finds: each prompt also alone."
    )
    dtype: TheDataType = "bfloat16"
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False
    out: Out = None
    plan: PlanOnly = False
    json: Json = False
    junit: JUnit = None
    trust_run: TrustRun = False

    def __post_init__(self) -> None:
        """Raise SettingsError for a flag that shrinking, or a storm, does not read."""
        if self.command is not None and not self.shrink:
            raise SettingsError(
                "--command starts a server whose fault is shrunk: type needlemap storm FOLDER "
                "--shrink --command '...', or start the server yourself"
            )
        if not self.shrink:
            return
        for field in fields(self):
            is_read = field.name in ("shrink", "minutes", "own", "command", "trust_run")
            if not is_read and getattr(self, field.name) != field.default:
                raise SettingsError(
                    f"--shrink replays FOLDER as it was asked and writes into it: leave "
                    f"{flag_name(field.name)} out, as in: "
                    f"needlemap storm FOLDER --shrink --minutes 10"
                )


@dataclass(frozen=True, slots=True)
class AbFlags:
    """Of `ab`, beside the models' and their limits."""

    arm: list[str] | None = flag(
        None, "One side: the reference first, then the other.", metavar="NAME=URL|MODEL"
    )
    arm_command: list[str] | None = flag(
        None,
        "One side, by the command that starts its server: '... {port} ...'.",
        metavar="NAME=COMMAND",
    )
    margin: float = flag(2.0, "Largest loss that you accept, fixed beforehand.", metavar="POINTS")
    until: str | None = flag(
        None,
        "Stop at a verdict (20,000 pairs at most), or after this many pairs.",
        metavar="decided|PAIRS",
    )
    scope: InScope = "these"
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False
    gauge: TheGauge = None
    weigh: bool = rare(False, "Also compare how likely each side finds the reference's answers.")
    out: Out = None
    plan: PlanOnly = False
    json: Json = False
    junit: JUnit = None
    trust_run: TrustRun = False


@dataclass(frozen=True, slots=True)
class WorstFlags:
    """Of `replay`: the worst prompt of what a check or an ab found."""

    probe: str | None = flag(None, "Of a check: probe, with --worst.", metavar="NAME")
    arm: str | None = flag(None, "Of an ab: side, with --worst.", metavar="NAME")
    worst: bool = flag(False, "The prompt that shows the fault of --probe or --arm best.")

    def find_place(self, folder: Path) -> tuple[Path, str, float, int] | None:
        """Return the family's folder, length, depth in percent and repeat of the worst prompt.

        If none of these flags is typed, return None. Raises NeedlemapError if the folder has no
        such prompt.
        """
        from needlemap.servers.ab.file import AB, worst_of_ab
        from needlemap.servers.check.asking import worst_in

        if self.worst and (self.arm is not None or AB.is_in(folder)):
            way, place = worst_of_ab(folder, self.arm)
            return folder / way, *place
        if self.worst and self.probe is not None:
            worst = worst_in(folder, self.probe)
            return folder / worst.way, str(worst.length_tokens), percent(worst.depth), worst.repeat
        if self.worst or self.probe is not None or self.arm is not None:
            raise SettingsError(
                "Which prompt? Give --probe NAME --worst of a check, or --arm NAME --worst of an "
                "ab."
            )
        return None
