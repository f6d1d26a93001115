"""The flags of `check`, `storm` and `ab`, and what they add to `replay`."""

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

_MOST_MINUTES = MOST_S / 60
_SERVER = "The server's model, BACKEND/NAME; by default the one that it lists."
_LONG_AB = "(default: as in suite:long-ab)"
CHECK_TEXTS = {"model": _SERVER}
GATE_TEXTS = {
    "lengths": "Tokens of prompt and answer. (default 2k,8k)",
    "depths": "Percent of the text before the needle. (default 0,25,50,75,100)",
    "repeats": "Texts; each has one prompt per length and depth. (default 5)",
    "max_answer_tokens": "Tokens of an answer, at most. (default 64)",
}
AB_TEXTS = {
    "model": "The model of an --arm that is a URL, BACKEND/NAME; by default the one that its "
    "server lists.",
    "base_url": "Not here: an arm's address stands in its --arm.",
    "max_answer_tokens": f"The answer's budget in tokens. {_LONG_AB}",
    "lengths": f"Tokens: a list as 1k,4k or min:max:count[:linear|log]. {_LONG_AB}",
    "depths": f"Percent: a list as 0,50 or min:max:count[:linear|sigmoid]. {_LONG_AB}",
    "seed": "Fixes documents, order and drawn values. (default: drawn anew)",
}
TheGauge = Annotated[
    bool | None,
    option(
        "needlemap's gauge is served; else its name says it, or its answer.",
        rich_help_panel=RARE_OPTIONS,
    ),
]
TheCache = Annotated[
    Literal["any", "exact"],
    option(
        "With needlemap's gauge: a coarser KV cache is a choice ('any', exit 5), or a fault "
        "('exact', exit 1).",
        rich_help_panel=RARE_OPTIONS,
    ),
]


@dataclass(frozen=True, slots=True)
class CheckFlags:
    """Of `check`, beside the model's and its limits."""

    max_length: str | None = flag(None, "The longest prompt, a promise; else 128k or less.")
    minutes: float | None = flag(None, "Stop asking after so long.", min=0.01, max=_MOST_MINUTES)
    load: int = rare(8, "Prompts at a time where there is load.", min=2, max=MOST_AT_A_TIME)
    reference: str = flag("", "The same weights: hf/PATH, or a server.", metavar="MODEL|URL")
    gauge: TheGauge = None
    kv: TheCache = "any"
    quick: bool = flag(False, "At most 60 prompts to 8k: is there a total loss?")
    few: bool | None = flag(
        None,
        "24 haystacks of each size and fewer questions; with needlemap's gauge unless --many.",
        "--few/--many",
    )
    probe: list[str] | None = flag(None, "Only this probe; repeat the flag.")
    require: str = flag("", "What exit 0 needs, where not all: 8k or cache,mates.")
    accept: list[str] | None = rare(
        None, "A size taken out by name, as length@128k; repeat the flag.", metavar="PROBE@SIZE"
    )
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False
    baseline: Path | None = flag(None, "A check of before: ask its prompts, judge the change.")
    tokens_per_second: float | None = rare(
        None, "With --plan: what the server computes, for minutes.", min=1
    )
    out: Out = None
    plan: PlanOnly = False
    json: Json = False
    junit: JUnit = None
    trust_run: TrustRun = False


@dataclass(frozen=True, slots=True)
class StormFlags:
    """Of `storm`, beside the model's and its limits."""

    max_length: str | None = flag(None, "The longest prompt; else 64k or the server's context.")
    minutes: float = flag(20.0, "Stop asking after so long.", min=0.01, max=_MOST_MINUTES)
    until: str = flag("rate<0.5%", "The rate of faulty families to exclude.", metavar="rate<X%")
    load: int = flag(8, "Requests at a time.", min=2, max=MOST_AT_A_TIME)
    kv_tokens: str | None = rare(None, "Tokens that the server caches, where it does not say.")
    own: bool = rare(False, "Clients may go away at an address that is not one's own.")
    without: list[str] | None = rare(
        None, "An operation to leave out, e.g. turn; may be repeated.", metavar="OPERATION"
    )
    shrink: bool = flag(False, "Find the shortest sequence that shows the fault of FOLDER.")
    command: str | None = flag(
        None,
        "With --shrink: the server's command. It is started, and again where a replay spoilt it.",
    )
    gauge: TheGauge = None
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False
    out: Out = None
    plan: PlanOnly = False
    json: Json = False
    junit: JUnit = None
    trust_run: TrustRun = False

    def __post_init__(self) -> None:
        """Raises SettingsError for a flag that shrinking, or a storm, does not read."""
        if self.command is not None and not self.shrink:
            raise SettingsError(
                "--command starts a server whose fault is shrunk: type needlemap storm FOLDER "
                "--shrink --command '...', or start the server yourself"
            )
        for each in fields(self) if self.shrink else ():
            read = each.name in ("shrink", "minutes", "own", "command", "trust_run")
            if not read and getattr(self, each.name) != each.default:
                raise SettingsError(
                    f"--shrink replays FOLDER as it was asked and writes into it: leave "
                    f"{flag_name(each.name)} out, as in: "
                    f"needlemap storm FOLDER --shrink --minutes 10"
                )


@dataclass(frozen=True, slots=True)
class AbFlags:
    """Of `ab`, beside the models' and their limits."""

    arm: list[str] | None = flag(
        None, "An arm; the reference first, then the other.", metavar="NAME=URL|MODEL"
    )
    arm_command: list[str] | None = flag(
        None, "An arm whose server is started, '... {port} ...', and ended.", metavar="NAME=COMMAND"
    )
    margin: float = flag(2.0, "The loss in points that does not matter, fixed beforehand.")
    until: str | None = flag(
        None,
        "Ask until there is a verdict, 20,000 pairs at most; or so many pairs.",
        metavar="decided|PAIRS",
    )
    scope: InScope = "these"
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False
    gauge: TheGauge = None
    weigh: bool = rare(False, "Also ask both arms how likely they find the reference's answers.")
    out: Out = None
    plan: PlanOnly = False
    json: Json = False
    junit: JUnit = None
    trust_run: TrustRun = False


@dataclass(frozen=True, slots=True)
class WorstFlags:
    """Of `replay`: the worst prompt of what a check or an ab found."""

    probe: str | None = flag(None, "Of a check: the probe that found something.")
    arm: str | None = flag(None, "Of an ab: the arm, with --worst.")
    worst: bool = flag(False, "Of a check's --probe or an ab's --arm: the prompt that shows it.")

    def find_place(self, folder: Path) -> tuple[Path, str, float, int] | None:
        """Return the family's folder, length, depth in percent and repeat; None if none of these
        flags is typed. Raises NeedlemapError."""
        from needlemap.servers.ab.file import AB, worst_of_ab
        from needlemap.servers.check.asking import worst_in

        if self.worst and (self.arm is not None or AB.is_in(folder)):
            way, place = worst_of_ab(folder, self.arm)
            return folder / way, *place
        if self.worst and self.probe is not None:
            found = worst_in(folder, self.probe)
            return folder / found.way, str(found.length_tokens), percent(found.depth), found.repeat
        if self.worst or self.probe is not None or self.arm is not None:
            raise SettingsError(
                "Which prompt? Give --probe NAME --worst of a check, or --arm NAME --worst of an "
                "ab."
            )
        return None
