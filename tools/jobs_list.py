"""The jobs of tools/jobs.py: what people want, what they type, and what they must see.

Jobs 1 to 45 are those of the first hour of an engineer who had never seen the project; the rest
are jobs of people who have used it for a week. Lines stand in README or are shown by `needlemap
help`, with other folders, and with smaller grids where a job would take long. `<good>` is the
address of a stub server in that mode: see `jobs_stub.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from needlemap.commands.pages import all_pages


@dataclass(frozen=True, slots=True)
class Job:
    """A job. fact: a pattern that the output of its lines holds. code: the last line's.

    files: what lies in its folder, by name. needs: packages; a job without them is not run, and
    so is one with a reason in `not_run`.
    """

    number: int
    text: str
    lines: Sequence[str] = ()
    fact: str = ""
    code: int = 0
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    needs: Sequence[str] = ()
    not_run: str = ""

    def missing(self) -> str:
        """Return why it cannot be done here; '' if it can."""
        lacking = [name for name in self.needs if find_spec(name) is None]
        return self.not_run or (f"needs {', '.join(lacking)}" if lacking else "")

    def typed(self, addresses: Mapping[str, str]) -> list[str]:
        """Return its lines, with addresses of servers."""
        return [re.sub(r"<(\w+)>", lambda found: addresses[found[1]], line) for line in self.lines]


def shown(topic: str, name: str) -> str:
    """Return a file that a page shows. Raises ValueError if it shows none of that name."""
    text = all_pages()[topic].read_text("utf-8")
    for block in re.findall(r"^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if block.startswith(f"# {name}\n"):
            return str(block)
    raise ValueError(f"needlemap help {topic} shows no {name}")


def pdf(pages: Sequence[str]) -> bytes:
    """Return a PDF with a line of text on each page."""
    parts = ["<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    parts.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    parts.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, text in enumerate(pages):
        parts.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 2000 200] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        stream = f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET"
        parts.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    document, offsets = "%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        offsets.append(len(document))
        document += f"{number} 0 obj\n{part}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer << /Size {len(parts) + 1} /Root 1 0 R >>\nstartxref\n{len(document)}\n"
    head = f"xref\n0 {len(parts) + 1}\n0000000000 65535 f \n"
    return (document + head + table + trailer + "%%EOF\n").encode("latin-1")


NOTES = {
    "notes/a.md": "The tide table hangs by the door. It is wrong on Sundays.\n" * 40,
    "notes/b.md": "Nobody has repaired the clock. The keeper reads the sun instead.\n" * 40,
}
PAPER = [
    f"Chapter {n}. The survey of {1900 + n} counted {7 * n} boats in bay {n}." for n in range(12)
]
BOOK = {
    "papers/survey.pdf": pdf(PAPER),
    "papers/torn.pdf": b"%PDF-1.4 this file was torn in half",
}
SETTINGS = """# mine.yaml
preset: bm25
lengths: [500, 1k]
depths: {min: 0, max: 100, count: 3}
repeats: 2
"""
OLD_RESULT = {"model": "gpt-4", "context_length": 1000, "depth_percent": 50.0, "score": 7}
NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "id": "first",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": "import needlemap\nneedlemap.run(model='baseline/bm25', lengths='500,900', "
            "depths='0,50,100', repeats=2, out='r', quiet=True)",
        }
    ],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
INSTALLED = {  # as `python3 -m pip install -e .` leaves it
    "my_ledger.py": shown("own-task", "my_ledger.py"),
    "my_ledger-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: my-ledger\nVersion: 1.0\n",
    "my_ledger-1.0.dist-info/entry_points.txt": "[needlemap.tasks]\nledger = my_ledger:Ledger\n",
}
LLAMA_SERVER = os.environ.get("NEEDLEMAP_LLAMA_SERVER", "")
SMALL = "--lengths 500,1k --depths 0,50,100"

JOBS = (
    Job(
        1,
        "See a first map without a key, a GPU or a download",
        ["needlemap run"],
        r"overall \d",
    ),
    Job(
        2,
        "Run the tests as README says",
        ["python3 -m pip install '.[test]' && python3 -m pytest"],
        not_run="takes twelve CPU minutes; CI types this line",
    ),
    Job(
        3,
        "Draw a map of the model behind my server",
        [
            "needlemap run --base-url <good> --lengths 1k,2k,4k --depths 0:100:5 --repeats 5 "
            "-o own",
            "needlemap report own -o report.html",
        ],
        r"overall 100\.0 \(n=75, 0 missing\)",
    ),
    Job(
        4,
        "Name a model of Ollama, of vLLM, and of OpenAI without its back end",
        [
            "needlemap run --model ollama/llama3.1:8b; needlemap run --model vllm/my-model; "
            "needlemap run --model gpt-4o"
        ],
        r"(?s)11434.*--base-url.*--model openai/gpt-4o",
        code=2,
    ),
    Job(
        5,
        "Measure GPT-4o and its small sister for two dollars at most, with no key set",
        [
            "needlemap run --model openai/gpt-4o --model openai/gpt-4o-mini --lengths 1k,4k "
            "--depths 0,50,100 --limit-usd 2 -o gpt"
        ],
        r"export OPENAI_API_KEY=",
        code=2,
    ),
    Job(
        6,
        "See what a map of GPT-4o to 128k tokens costs",
        [
            "needlemap plan --model openai/gpt-4o --lengths 1k:128k:15 --depths 0:100:15 "
            "--max-answer-tokens 50"
        ],
        r"bins +225 +225 +14\.5M +1\.96M",
    ),
    Job(
        7,
        "Hide my own fact and ask my own question",
        [
            'needlemap run --base-url <good> --needle "The spare key is under the blue pot." '
            '--question "Under which pot is the spare key?" --keywords blue '
            f"{SMALL} -o mine"
        ],
        r"overall 100\.0",
    ),
    Job(
        8,
        "Use my folder of Markdown as the haystack",
        [
            "needlemap run --base-url <good> --haystack-path notes --haystack-repeat "
            f"{SMALL} -o mine"
        ],
        r"overall 100\.0",
        files=NOTES,
    ),
    Job(
        9,
        "Use a PDF of twelve pages, and learn that another one is broken",
        [
            "needlemap run --base-url <good> --haystack-path papers --haystack-repeat "
            f"{SMALL} -o papers-run"
        ],
        r"torn\.pdf.*(?s:.*)overall 100\.0",
        files=BOOK,
        needs=["pypdf"],
    ),
    Job(
        10,
        "Measure in Chinese",
        [f"needlemap run --base-url <good> --language chinese {SMALL} -o chinese"],
        r"overall 100\.0",
    ),
    Job(
        11,
        "Hide several facts at once",
        [
            'needlemap run --base-url <good> --task multi --needle "The red key is in Bonn." '
            '--needle "The blue key is in Ulm." --question "Where is the red key?" '
            f"--keywords Bonn {SMALL} -o several"
        ],
        r"overall 100\.0",
    ),
    Job(
        12,
        "Get RULER's thirteen numbers, whatever the suite is called",
        [
            "needlemap run ruler --base-url <good>; "
            "needlemap run suite:ruler --base-url <good> --lengths 4k --depths 50 -o ruler"
        ],
        r"(?s)Type: needlemap run suite:ruler.*niah-multikey-3 .*mean over families, 95 %",
    ),
    Job(
        13,
        "Make a figure for a paper, as wide as a column",
        [
            f"needlemap run bm25 {SMALL} -o r --quiet",
            "needlemap report r -o paper.pdf --width column && head -c 5 paper.pdf",
        ],
        r"%PDF-",
        needs=["vl_convert"],
    ),
    Job(
        14,
        "Put a table into a pull request",
        [
            f"needlemap run bm25 {SMALL} -o r --quiet",
            "needlemap report r -o table.md && cat table.md",
        ],
        r"\| *-",
    ),
    Job(
        15,
        "Fail a CI job below 90 %, with JUnit",
        [
            "needlemap run --base-url <weak> --lengths 2k --depths 0:100:6 --repeats 5 "
            "--fail-under 90 --junit gate.xml -o gate",
        ],
        r"FAIL run",
        code=1,
    ),
    Job(
        16,
        "Measure before and after a change, and learn that it broke something",
        [
            "needlemap run --base-url <good> --lengths 1k,2k --depths 0:100:6 --repeats 20 "
            "--label before -o before",
            "needlemap run --base-url <weak> --lengths 1k,2k --depths 0:100:6 --repeats 20 "
            "--label after -o after",
            "needlemap compare before after --margin 2",
        ],
        r"FAIL compare: after loses 2\d",
        code=1,
    ),
    Job(
        17,
        "Compare two runs with other lengths, and learn why that does not work",
        [
            "needlemap run bm25 --lengths 500 --depths 0,50,100 -o a --quiet",
            "needlemap run bm25 --lengths 900 --depths 0,50,100 -o b --quiet",
            "needlemap compare a b",
        ],
        r"'a' has lengths 500, 'b' 900",
        code=2,
    ),
    Job(
        18,
        "Stop a run with Ctrl-C, and continue it",
        [
            "timeout --preserve-status -s INT 12 needlemap run --base-url <slow> --lengths 1k,2k "
            "--depths 0:100:6 --repeats 5 --concurrency 1 -o stopped; test $? -eq 130",
            "needlemap run --base-url <slow> --lengths 1k,2k --depths 0:100:6 --repeats 5 "
            "--concurrency 8 -o stopped",
        ],
        r"overall 100\.0 \(n=60, 0 missing\)",
    ),
    Job(
        19,
        "Keep settings in YAML, add cells later, and be refused another seed",
        [
            "needlemap run mine.yaml -o first",
            "needlemap run mine.yaml --depths 0,25,50,75,100 -o first",
            "needlemap run mine.yaml --seed 3 -o first",
        ],
        r"(?s)n=20.*seed",
        code=2,
        files={"mine.yaml": SETTINGS},
    ),
    Job(
        20,
        "Measure my own Python function",
        ["needlemap run --model python/my_model:answer --lengths 1k,4k --depths 0,50,100 -o mine"],
        r"overall 100\.0",
        files={"my_model.py": shown("own-model", "my_model.py")},
    ),
    Job(
        21,
        "Score answers by my own Python function",
        [
            "needlemap run bm25 --scorer python/rules:polite --lengths 1k --depths 0,50,100 "
            "-o polite"
        ],
        r"overall 100\.0",
        files={"rules.py": shown("own-scorer", "rules.py")},
    ),
    Job(
        22,
        "Copy the task of the page, and run it",
        [
            "PYTHONPATH=.:$PYTHONPATH needlemap run --task ledger --model baseline/bm25 "
            "--lengths 1k,2k --depths 0,50,100 --repeats 2 --max-answer-tokens 50 -o r"
        ],
        r"ledger(?s:.*)overall \d",
        files=INSTALLED,
    ),
    Job(
        23,
        "See a map in a notebook",
        ["jupyter execute --inplace first.ipynb && cat first.ipynb"],
        r"image/svg\+xml",
        files={"first.ipynb": json.dumps(NOTEBOOK)},
        needs=["nbclient", "ipykernel"],
    ),
    Job(
        24,
        "Watch a run, also where its output is piped",
        [
            "needlemap run --base-url <slow> --lengths 1k,2k --depths 0:100:6 --repeats 10 "
            "--concurrency 2 -o watched 2>&1 | cat"
        ],
        r"\d+/120",
    ),
    Job(
        25,
        "Open the page of a run that is still running",
        [
            "needlemap run --base-url <slow> --lengths 1k,2k --depths 0:100:6 --repeats 5 "
            "--concurrency 1 -o live --quiet & sleep 12; needlemap report live; "
            "needlemap report live -o page.html; kill $!; wait; grep -c '<html' page.html"
        ],
        r"missing(?s:.*)\n1\n",
    ),
    Job(
        26,
        "See the batch script for Slurm before it is submitted",
        [
            "needlemap run demo --slurm -p gpu --gpus-per-worker 1 --max-num-workers 8 -o many "
            "--dry-run"
        ],
        r"#SBATCH",
        needs=["distributed", "cryptography"],
    ),
    Job(
        27,
        "Import old results of needlehaystack, and draw them",
        [
            "needlemap import results -o old --dataset-length 128K",
            "needlemap report old && needlemap report old -o old.png && ls old.png",
        ],
        r"gpt-4(?s:.*)old\.png",
        files={"results/gpt-4_len_1000_depth_5000_results.json": json.dumps(OLD_RESULT)},
    ),
    Job(
        28,
        "Take the numbers into pandas, CSV, Parquet and JSON",
        [
            f"needlemap run bm25 {SMALL} --repeats 5 -o r --quiet",
            "needlemap report r -o cells.csv && needlemap report r -o cells.parquet && "
            "needlemap report r --json > r.json && head -1 cells.csv",
            "python3 -c \"import needlemap; print(needlemap.load('r').cells()"
            "[['length_tokens', 'score', 'n', 'low', 'high']])\"",
        ],
        r"length_tokens +score +n +low +high(?s:.*)100\.0 +5 +56",
        needs=["pandas", "pyarrow"],
    ),
    Job(
        29,
        "Log a run to Weights & Biases, without a login",
        [
            f"needlemap run bm25 {SMALL} -o r --quiet",
            "WANDB_MODE=offline WANDB_SILENT=true needlemap report r --log wandb:needles",
        ],
        r"wandb",
        needs=["wandb"],
    ),
    Job(
        30,
        "Stop at a number of tokens, and continue later",
        [
            "needlemap run bm25 --lengths 1k,2k --depths 0,50,100 --limit-tokens 4000 -o again; "
            "test $? -eq 3",
            "needlemap run bm25 --lengths 1k,2k --depths 0,50,100 -o again",
        ],
        r"overall 100\.0 \(n=12, 0 missing\)",
    ),
    Job(
        31,
        "Let a model on my own server judge",
        [
            "needlemap run --base-url <good> --scorer judge --scorer-options "
            "model=openai/my-judge --scorer-options 'judge_options={base_url: \"<good>\"}' "
            "--lengths 1k --depths 0,100 -o judged"
        ],
        r"overall 100\.0 \(n=2, 0 missing\)",
    ),
    Job(
        32,
        "See two models in one table",
        [
            "needlemap run --model baseline/bm25 --model baseline/random --lengths 1k,4k "
            "--depths 0,50,100 --limit-tokens 1M -o models"
        ],
        r"baseline/bm25 +\S.*(?s:.*)baseline/random",
    ),
    Job(
        33,
        "Put three runs on one page, and their curves into a picture",
        [
            "for window in 6000 2000 800; do needlemap run bm25 --lengths 500,1k,2k "
            "--depths 0,50,100 --model-options window=$window -o w$window --quiet; done",
            "needlemap report w6000 w2000 w800 -o page.html && "
            "needlemap report w6000 w2000 w800 -o curves.png --curves && ls page.html curves.png",
        ],
        r"curves\.png\s+page\.html",
    ),
    Job(
        34,
        "Find the length up to which the mean is 85 %",
        [
            "needlemap run --model baseline/bm25 --model-options window=3000 --lengths 500,8k "
            "--seek 85 -o sought"
        ],
        r"effective length at 85 %: \d",
    ),
    Job(
        35,
        "Check a server that is right",
        ["needlemap check --base-url <good> --max-length 4k -o check"],
        r"PASS check",
    ),
    Job(
        36,
        "Check a server that loses the first half of long prompts, without a reference",
        ["needlemap check --base-url <weak> --max-length 4k --few -o check"],
        # Without the same weights elsewhere it may be the model's loss, so it is no FAIL.
        r"SUSPECT check: something looks wrong: .*cut",
        code=5,
    ),
    Job(
        37,
        "Try a server under use",
        ["needlemap storm --base-url <good> --max-length 4k --until 'rate<5%' -o storm"],
        r"(PASS|NOT ENOUGH DATA) storm",
    ),
    Job(
        38,
        "A/B-test a good server and one that loses facts",
        [
            "needlemap ab --arm bf16=<good> --arm fp8=<weak> --lengths 1k,4k --margin 10 "
            "--until decided -o ab"
        ],
        r"FAIL ab",
        code=1,
    ),
    Job(
        39,
        "Test my engine with the gauge, in llama-server",
        [
            "needlemap gauge -o gauge --gguf",
            f"'{LLAMA_SERVER}' -m gauge/gauge.gguf --alias gauge -c 16384 -np 2 --port 8899 "
            "> server.log 2>&1 & needlemap check --base-url http://127.0.0.1:8899/v1 "
            "--quick --max-length 2k --wait 2m; code=$?; kill $!; exit $code",
        ],
        r"PASS check --quick: no total loss at 500 and 2k",
        needs=["gguf"],
        not_run="" if LLAMA_SERVER else "needs llama-server: set NEEDLEMAP_LLAMA_SERVER",
    ),
    Job(
        40,
        "See one prompt of the map again, by the length that the map shows",
        [
            "needlemap run bm25 --lengths 600,2438 --depths 0,50,100 -o r --quiet",
            "needlemap replay r --length 2.4k --depth 50",
        ],
        r"the same bytes as recorded",
    ),
    Job(
        41,
        "Put a claim about my server into my pytest suite",
        [
            "needlemap run --base-url <good> --lengths 1k --depths 0:100:5 --repeats 16 "
            "-o reference --quiet",
            "needlemap report reference --format golden --margin 5 -o golden/model",
            "python3 -m pytest -q -p no:cacheprovider --needle-base-url <good>",
        ],
        r"1 passed",
        files={
            "test_long_context.py": "def test_no_answer_is_lost(needle_server):\n"
            '    needle_server.assert_no_worse("golden/model", margin=5)\n'
        },
    ),
    Job(
        42,
        "Find the manual of the installed package",
        ["needlemap help", "needlemap help tasks"],
        r"# Tasks",
    ),
    Job(
        43,
        "Install it from a package index",
        ["python3 -m pip install needlemap"],
        not_run="not published: README says how to install from a checkout",
    ),
    Job(
        44,
        "Point it at eight broken servers, and be told what is wrong in one line each",
        [
            "for url in http://127.0.0.1:1/v1 <html> <empty> <missing> <broken> <busy> <silent> "
            "<bare>; do needlemap run --model openai/my-model --base-url $url --lengths 600 "
            "--depths 0 --timeout-s 4 --retries 1 --limit-time 20s -o $RANDOM; echo code $?; done"
        ],
        r"(?s)(code [23].*){8}",
    ),
    Job(
        45,
        "Find what a paper must name: settings, versions, the hash of the prompts",
        [f"needlemap run bm25 {SMALL} -o r --quiet", "cat r/run.json"],
        r"(?s)\"needlemap\": .*\"identity\": .*\"fingerprint\": ",
    ),
    Job(
        46,
        "Learn in two minutes whether a server loses everything",
        ["needlemap check --base-url <good> --quick -o quick"],
        r"PASS check --quick: no total loss at 2k and 8k",
    ),
    Job(
        47,
        "Keep a reference in my repository, and compare today's server with it",
        [
            "needlemap run --base-url <good> --lengths 1k --depths 0:100:5 --repeats 16 "
            "-o reference --quiet",
            "needlemap report reference --format golden -o golden/reference",
            "needlemap run --prompts-of golden/reference --base-url <good> --trust-run -o today "
            "--quiet",
            "needlemap compare golden/reference today --margin 5",
        ],
        r"PASS compare",
    ),
    Job(
        48,
        "Show that a refactoring changes no answer",
        [
            f"needlemap run bm25 {SMALL} --repeats 5 -o before --quiet",
            f"needlemap run bm25 {SMALL} --repeats 5 -o after --quiet",
            "needlemap compare before after --fail-if-answers-differ 0",
        ],
        r"30 of 30 pairs identical",
    ),
    Job(
        49,
        "Copy a test into an engine's suite that installs nothing",
        [
            "needlemap export gate long_context_gate.py --lengths 2k --repeats 10 --fail-under 90",
            "python3 -I long_context_gate.py --base-url <good>",
        ],
        r"PASS gate",
    ),
    Job(
        50,
        "Write the prompts, and ask my model myself",
        [
            "needlemap prompts --lengths 1k --depths 0,50,100 --repeats 1 -o prompts.jsonl && "
            "wc -l prompts.jsonl"
        ],
        r"3 prompts\.jsonl",
    ),
    Job(
        51,
        "Score kept answers by another rule, without asking again",
        [
            f"needlemap run bm25 {SMALL} -o own --quiet",
            "needlemap score own --scorer exact -o exact",
            "needlemap report exact",
        ],
        r"scorer exact",
    ),
    Job(
        52,
        "Look up what exit code 5 means",
        ["needlemap help verdicts"],
        r"SUSPECT \| 5 \|",
    ),
    Job(
        53,
        "Look up which options a task has",
        ["needlemap list tasks multikey"],
        r"--task-options.*keys",
    ),
    Job(
        54,
        "Plan with prices of my own",
        [
            "needlemap plan --model openai/my-model --base-url <good> --lengths 1k,4k "
            "--prices input=0.5 --prices output=2"
        ],
        r"dollars",
    ),
    Job(
        55,
        "List the runs of a folder, with their scores",
        [f"needlemap run bm25 {SMALL} -o own --quiet", "needlemap list runs ."],
        r"own .*100",
    ),
    Job(
        56,
        "See what a check would send, and how long it takes",
        ["needlemap check --base-url <good> --max-length 4k --plan --tokens-per-second 5000"],
        r"min",
    ),
    Job(
        57,
        "Point it at a server with two models",
        ["needlemap run --base-url <two> --lengths 600 --depths 0"],
        r"--model openai/my-model",
        code=2,
    ),
    Job(
        58,
        "Mistype a flag, a task and a setting in YAML",
        [
            "needlemap run --lenghts 1k; needlemap run --task multikeys; needlemap run wrong.yaml",
        ],
        r"(?s)--lengths.*Did you mean 'multikey'.*Did you mean 'lengths'",
        code=2,
        files={"wrong.yaml": "preset: bm25\nlenghts: [1k]\n"},
    ),
    Job(
        59,
        "Find the flag for a proxy that only streams",
        [
            "needlemap run --help-all",
            f"needlemap run --base-url <streams> --stream {SMALL} -o streamed",
        ],
        r"--stream / --no-stream(?s:.*)overall 100\.0",
    ),
    Job(
        60,
        "Replay the worst prompt of a failed check, and ask it again",
        [
            "needlemap check --base-url <weak> --max-length 2k --probe cut -o check; "
            "test $? -eq 1 -o $? -eq 5",
            "needlemap replay check --probe cut --worst --ask",
        ],
        r"cannot find that",
    ),
)
