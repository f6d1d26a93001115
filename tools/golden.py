"""A hash of every output, a line each, in two files: what must not move, and words.

tests/golden_bytes.txt  prompts, keys, references, plan and compare --json, records, run.json, CSVs,
                        the older tools' files; requests, verdicts, exit codes, JUnit, pages' JSON
tests/golden_words.txt  what people read: plan, run, compare and report on a terminal, the page

python tools/golden.py                  rewrites both files, and says which rows moved
python tools/golden.py --only passkey   compares one preset, suite or section; writes nothing
python tools/golden.py --only verdict   e.g. all verdicts; 'requests check': one command's requests
python tools/golden.py --keep FOLDER    also keeps what was hashed as text files, so that two can be
diffed

A row is KIND CASE HASH. A row of bytes must not move, except in a commit of its own that names the
reason; one of words may, with a diff shown. tests/test_golden.py compares. Every preset and suite
is asked on a tiny grid. Times, versions and what only this machine knows are blanked, numbers cut
to nine digits (verdicts' to six), and drawn seeds fixed (golden_commands.SEED), so that all of it
holds on any machine.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import golden_commands
import golden_verdicts
from golden_text import (
    as_lines,
    files_below,
    folders,
    freeze,
    lines_to,
    page_blobs,
    plain_csv,
    plain_json,
    plain_text,
    records_of,
)

TESTS = Path(__file__).parent.parent / "tests"
BYTES, WORDS = TESTS / "golden_bytes.txt", TESTS / "golden_words.txt"
KINDS_OF_WORDS = (
    *("plan", "run: terminal", "compare", "report: terminal", "page: summary", "page: trials"),
    "verdict: words",
)
SECTIONS: Mapping[str, str] = {  # by the first word of a row's kind; later work rewrites some
    "requests": "the bodies of all requests of a command, in order; the plans they follow",
    "verdict": "verdicts of stored replies: the verdict, and a hash of its numbers",
    "exit": "exit codes, by command and outcome",
    "junit": "JUnit files, by command and verdict",
    "payload": "the JSON of pages",
}
REST = "presets, suites, the older tools' files"
FROZEN = (
    "Rows of golden_bytes.txt must not move, except in a commit of its own that names the reason."
)
MODEL = ("--model", "baseline/bm25")
OTHER = (
    *MODEL,
    "--model-options",
    "window=700",
)  # sees less, so that a comparison has something to tell
GRID = ("--lengths", "1000,1600", "--depths", "0,60", "--repeats", "2")
SUITE = ("--lengths", "1000,1600", "--repeats", "2")
CDME = ("--haystack", "jsonl", "--haystack-path", "data/CDME")
ESSAYS = ("--haystack-path", "data/essays")
PUBLISHED = ("--lengths", "150,250,400,500", "--depths", "0,60", "--max-answer-tokens", "32")
LONG = ("--lengths", "2400,3000", "--repeats", "2")
OWN: Mapping[str, Sequence[str]] = {  # flags of presets that need data, more room, or another grid
    **dict.fromkeys(("scattered-counts", "scattered-counts-corrected"), LONG),
    **dict.fromkeys(("ruler-cwe", "ruler-fwe"), LONG),
    "suite:ruler": LONG,
    **dict.fromkeys(
        ("cdme-8k", "cdme-32k", "cdme-200k", "cdme-multi-3-8k", "multi-2-zh-8k"), (*GRID, *CDME)
    ),
    "needlehaystack": (*GRID, *ESSAYS, "--scorer-options", "model=baseline/bm25"),
    "needlehaystack-substring": (*GRID, *ESSAYS),
    **{
        f"published-{name}": (*PUBLISHED, "--task-options", f"path=data/{name}.json{'l' * lines}")
        for name, lines in (
            ("babilong", 0),
            ("graphwalks", 1),
            ("longbench", 0),
            ("mrcr", 1),
            ("ruler", 1),
            ("ruler-qa", 1),
        )
    },
    **dict.fromkeys(
        ("kinship", "graphwalks", "graphwalks-parents"), (*GRID, "--max-answer-tokens", "64")
    ),
    **dict.fromkeys(("ordinal-2", "ordinal-4", "ordinal-8"), (*LONG, "--depths", "0,60")),
    **dict.fromkeys(
        ("kinship-dense", "suite:needlebench-atc"), ("--depths", "0,60", "--repeats", "2")
    ),
    "suite:needlebench": (*GRID, "--max-answer-tokens", "64"),
}
UNJUDGED = ("needlehaystack",)  # its judge is a model behind a key
TOLD = ("passkey", "published-mrcr", "suite:smoke")  # whose plan is also told in words
Output = tuple[str, str]  # its name, and its text without what passes


class Row(NamedTuple):
    """A line of a file. value: what stands in it. text: what was hashed."""

    kind: str
    case: str
    value: str
    text: str

    @property
    def name(self) -> str:
        """What no other row has."""
        return f"{self.kind:<25} {self.case}"

    @property
    def file(self) -> Path:
        """The file that it stands in."""
        return file_of(self.kind)


def file_of(kind: str) -> Path:
    """The file that rows of a kind stand in."""
    return WORDS if kind in KINDS_OF_WORDS else BYTES


def group_of(kind: str, case: str) -> str:
    """What --only looks at: the preset or suite, or the section and the command."""
    first = kind.split()[0].rstrip(":")
    if first not in SECTIONS:
        return case
    return first if first in ("junit", "payload") else f"{first} {case.partition(':')[0]}"


def rows(only: str = "") -> Iterator[Row]:
    """All rows whose group holds `only`, in the order of the files."""
    with workplace():
        for group, make in makers().items():
            if only in group:
                yield from make()


def makers() -> Mapping[str, Callable[[], Iterator[Row]]]:
    """What makes the rows of each group."""
    found: dict[str, Callable[[], Iterator[Row]]] = {}
    for kind in ("presets", "suites"):
        for name in (line.split()[0] for line in typed("list", kind).splitlines()):
            flags = OWN.get(name, SUITE if kind == "suites" else GRID)
            found[name] = partial(hashed, name, partial(of_preset, name, flags))
    for name, make in (
        ("needlehaystack files", of_needlehaystack),
        ("opencompass files", of_opencompass),
    ):
        found[name] = partial(hashed, name, make)
    for command in ("plans", "run", "check", "storm", "ab"):
        found[f"requests {command}"] = partial(of_requests, command)
    for judge in ("check", "more checks", "storm", "pairs", "arms"):
        found[f"verdict {judge}"] = partial(of_verdicts, judge)
    for command in golden_commands.CODES:
        found[f"exit {command}"] = partial(of_exit_codes, command)
    return found | {"junit": of_junit, "payload": of_payloads}


def hashed(case: str, make: Callable[[], Iterator[Output]]) -> Iterator[Row]:
    """The rows of a preset, a suite or a tool: its outputs."""
    for kind, text in make():
        yield Row(kind, case, hash_of(text), text)


def hash_of(text: str) -> str:
    """What stands in a file for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def of_requests(command: str) -> Iterator[Row]:
    """The bodies of a command's requests; 'plans': what is asked, by seed alone."""
    make = golden_verdicts.plans if command == "plans" else golden_commands.requests
    for case, text in make(command):
        yield Row("requests", f"{command}: {case}", hash_of(text), text)


def of_verdicts(judge: str) -> Iterator[Row]:
    """The verdicts of one function, and one row of all its sentences."""
    sentences = []
    for case, verdict, numbers, said in golden_verdicts.verdicts(judge):
        text = golden_verdicts.as_text(numbers)
        sentences.append([case, said])
        yield Row("verdict", f"{judge}: {case}", f"{verdict} {hash_of(text)}", text)
    text = golden_verdicts.as_text(sentences)
    yield Row("verdict: words", judge, hash_of(text), text)


def of_exit_codes(command: str) -> Iterator[Row]:
    """The exit code of each outcome of a command."""
    for outcome, code, text in golden_commands.exit_codes(command):
        yield Row("exit code", f"{command}: {outcome}", code, text)


def of_junit() -> Iterator[Row]:
    """JUnit files."""
    for case, text in golden_commands.junit():
        yield Row("junit", case, hash_of(text), text)


def of_payloads() -> Iterator[Row]:
    """The JSON of pages, without the trials' columns."""
    for case, page in golden_commands.pages(freeze):
        text = golden_commands.without_times(page_blobs(page)["summary"])
        yield Row("payload", case, hash_of(text), text)


def of_preset(name: str, flags: Sequence[str]) -> Iterator[Output]:
    """What prompts, plan, run, compare and report give for a preset or a suite."""
    yield from of_prompts(typed("prompts", name, *MODEL, *flags))
    yield "plan --json", plain_json(typed("plan", name, *MODEL, *flags, "--json"))
    if name in TOLD:
        yield "plan", plain_text(typed("plan", name, *MODEL, *flags))
    if name in UNJUDGED:
        return
    first, second = (folder_of(name, letter) for letter in "ab")
    yield "run: terminal", plain_text(typed("run", name, *MODEL, *flags, "-o", first))
    freeze(first)
    yield "run: records", "".join(records_of(file) for file in folders(first))
    yield (
        "run: run.json",
        "".join(plain_json((file / "run.json").read_text("utf-8")) for file in folders(first)),
    )
    typed("run", name, *OTHER, *flags, "-o", second)
    freeze(second)
    yield "compare --json", plain_json(typed("compare", first, second, "--json"))
    yield "compare", plain_text(typed("compare", first, second))
    yield "report: terminal", plain_text(typed("report", first))
    yield from of_reports(first, second)


def of_prompts(lines: str) -> Iterator[Output]:
    """The prompts' texts, their keys, and what else `prompts` says of them."""
    trials = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    texts = [trial.pop("messages", None) or trial.pop("prompt") for trial in trials]
    hashes = [trial.pop("sha256") for trial in trials]
    keys = [trial.pop("key") for trial in trials]
    yield "prompts", as_lines(zip(texts, hashes, strict=True))
    yield "keys", as_lines(keys)
    yield "questions and references", as_lines(trials)


def of_reports(first: str, second: str) -> Iterator[Output]:
    """The tables and the page of two runs."""
    for format in ("cells", "trials"):
        typed("report", first, second, "-o", "table.csv", "--format", format)
        yield f"csv: {format}", plain_csv(Path("table.csv").read_text("utf-8"))
    if len(folders(first)) == 1:
        typed("report", first, "-o", "summary.csv", "--format", "opencompass")
        yield "csv: opencompass", Path("summary.csv").read_text("utf-8")
    typed("report", first, second, "-o", "page.html")
    blobs = page_blobs(Path("page.html").read_text("utf-8"))
    yield "page: summary", blobs.pop("summary")
    yield "page: trials", "".join(blobs.values())


def of_needlehaystack() -> Iterator[Output]:
    """Contexts, grids and files of the needlehaystack family."""
    from needlemap.interop import needlehaystack

    class Parrot(needlehaystack.LLMNeedleHaystackTester):
        def get_response_from_model(self, prompt: Any) -> str:
            return str(prompt[-1]["content"])[:400]

    needle = "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park.\n"
    cells = [(length, depth) for length in (400, 700) for depth in (0, 33.3, 100)]
    yield (
        "contexts",
        as_lines(needlehaystack.context("data/essays", *cell, needle) for cell in cells),
    )
    spread = [needle, "A second fact.", "A third one."]
    yield (
        "contexts: several",
        as_lines(needlehaystack.context("data/essays", *cell, needles=spread) for cell in cells),
    )
    grids = [needlehaystack.depths(0, 100, 9, kind) for kind in ("linear", "sigmoid")]
    yield "grids", as_lines([needlehaystack.lengths(1000, 128_000, 15), *grids])
    tester = Parrot(
        model_name="parrot",
        haystack_dir="data/essays",
        context_lengths=[400, 700],
        document_depth_percents=[0, 50.5],
        evaluation_method="substring_match",
        needle=needle,
        print_ongoing_status=False,
    )
    tester.start_test()
    for folder in ("results", "contexts"):
        yield f"files: {folder}", files_below(Path(folder))


def of_opencompass() -> Iterator[Output]:
    """Prompts, scores, depth lists and files of OpenCompass."""
    from needlemap.interop import opencompass

    common = {"tokenizer_model": "gpt-4", "file_list": ["zh_finance.jsonl"], "length_buffer": 200}
    asked = {
        "retrieval_question": "小明最喜欢的实习地点是哪里？",
        "guide": True,
        "language": "Chinese",
    }
    several = {
        "needles": ["第一件事。", "第二件事。"],
        "diff": 25,
        "answer": "两件事",
        "keyword": "事",
    }
    for name, hidden in (("single", {"needle": "\n小明在实验室。\n"}), ("several", several)):
        yield (
            f"load: {name}",
            as_lines(
                opencompass.load(
                    "data/CDME", length, depth, num_repeats_per_file=2, **common, **asked, **hidden
                )
                for length in (600, 900)
                for depth in (0, 47.3, 100)
            ),
        )
    answers = ["小明最喜欢的实习的地点就是上海人工智能实验室。", "实验室", ""]
    wanted = [answers[0]] * 3
    yield (
        "score",
        as_lines(
            [opencompass.score(answers, wanted), opencompass.score(answers, wanted, "实验室")]
        ),
    )
    kinds = ("linear", "sigmoid")
    lists = [
        make(9, kind)
        for make in (opencompass.depth_percents, opencompass.script_depth_percents)
        for kind in kinds
    ]
    yield "depths", as_lines(lists)
    for layout in ("folders", "processed"):
        opencompass.generate(
            *(
                "data/CDME",
                f"script-{layout}",
                [600, 900],
                3,
                "\n小明在实验室。\n",
                "在哪里？",
                False,
                2,
            ),
            **common,
            layout=layout,
        )
        yield f"files: {layout}", files_below(Path(f"script-{layout}"))


@contextlib.contextmanager
def workplace() -> Iterator[None]:
    """A folder with the data that presets need, as the current one, without keys or a memory of
    runs."""
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        for name in [name for name in os.environ if name.endswith(("_API_KEY", "_BASE_URL"))]:
            del os.environ[name]
        os.environ |= {"XDG_STATE_HOME": f"{folder}/state", "COLUMNS": "120", "NO_COLOR": "1"}
        os.chdir(folder)
        try:
            write_data(Path("data"))
            yield
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


def write_data(folder: Path) -> None:
    """Haystacks and published rows, made up."""
    for name in ("CDME", "essays"):
        (folder / name).mkdir(parents=True)
    ends = ("船队在港口等待。", "价格比去年略高。", "工厂的产量稳定。", "夏天的雨水不多。")
    news = [
        f"第{n}号报道：{ends[n % 4]}{ends[(n + 1) % 4]}去年收成是{n * 37 % 900}吨。" * 3
        for n in range(90)
    ]
    lines_to(folder / "CDME" / "zh_finance.jsonl", [{"text": text} for text in news])
    for part in range(2):
        text = "".join(
            f"In {1900 + n} someone wrote essay {n * 7 % 83} on work. " for n in range(part, 300, 2)
        )
        (folder / "essays" / f"{part}.txt").write_text(text, encoding="utf-8")
    noise = [f"On day {n} the ferry left at {n * 7 % 24} o'clock. " for n in range(30)]
    rulers = [
        {"input": f"{''.join(noise[:n])}Code {n}.\nWhat?", "outputs": [str(n), "x"]}
        for n in (8, 14)
    ]
    lines_to(folder / "ruler.jsonl", rulers)
    lines_to(folder / "ruler-qa.jsonl", rulers)
    turns = [
        ("user", "A poem."),
        ("assistant", "".join(noise)),
        ("user", "A tale."),
        ("assistant", "Once."),
    ]
    said = [
        {"role": role, "content": text}
        for role, text in [*turns, ("user", "Repeat the tale, Zx first.")]
    ]
    asked = {"prompt": json.dumps(said), "answer": "ZxOnce.", "random_string_to_prepend": "Zx"}
    lines_to(folder / "mrcr.jsonl", [asked])
    labels = [
        {"input": "".join(noise[:n]), "question": "Where?", "target": f"room {n}"} for n in (8, 14)
    ]
    (folder / "babilong.json").write_text(json.dumps(labels), encoding="utf-8")
    choices = {f"choice_{letter}": f"At {letter}." for letter in "ABCD"}
    rest = {"question": "When?", "answer": "B", **choices}
    long = [{"context": "".join(noise[:n]), **rest} for n in (8, 14)]
    (folder / "longbench.json").write_text(json.dumps(long), encoding="utf-8")
    edges = [f"{number:04x} -> {number + 1:04x}" for number in range(28)]
    asked = "\n\nOperation:\nFind the parents of node {}."
    walks = [
        {
            "prompt": "\n".join(edges[:n]) + asked.format(edges[at][:4]),
            "answer_nodes": [edges[at - 1][:4]] if at else [],
            "problem_type": "parents",
        }
        for n, at in ((12, 5), (28, 0))
    ]
    lines_to(folder / "graphwalks.jsonl", walks)


def typed(*arguments: str) -> str:
    """What the command line prints, both streams. Raises RuntimeError unless it ends well."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line()(list(arguments))
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"{' '.join(arguments)}: {ended.code}\n{err.getvalue()}") from None
    return err.getvalue() + out.getvalue() if "--json" not in arguments else out.getvalue()


@cache
def command_line() -> Any:
    """Made once: each making takes a tenth of a second."""
    from typer.main import get_command

    from needlemap.cli import app

    return get_command(app)


def folder_of(name: str, letter: str) -> str:
    return f"{letter}-{name.replace(':', '-')}"


def table(found: Sequence[Row]) -> str:
    """A file: a line a row, each section behind its heading."""
    lines, before = [], ""
    for row in found:
        heading = SECTIONS.get(row.kind.split()[0].rstrip(":"), REST)
        if heading != before:
            lines += ["", f"# {heading}"]
        before = heading
        lines.append(f"{row.name:<72}  {row.value}")
    return "\n".join(lines).lstrip("\n") + "\n"


def stored(file: Path, only: str = "") -> dict[str, str]:
    """The values of a file's rows by their names, of those whose group holds `only`."""
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    found = {}
    for line in lines:
        if line and not line.startswith("#"):
            kind, case, value = re.split("  +", line)
            if only in group_of(kind, case):
                found[f"{kind:<25} {case}"] = value
    return found


def moved(found: Sequence[Row], only: str = "") -> list[str]:
    """The rows that are not as the files have them, with their file; and what that means."""
    lines = []
    for file in (BYTES, WORDS):
        before = stored(file, only)
        now = {row.name: row.value for row in found if row.file == file}
        for name in {**before, **now}:
            was, made = before.get(name, "no row"), now.get(name, "no row")
            if was != made:
                lines.append(f"{file.name}: {' '.join(name.split())}: {was} -> {made}")
    return [*lines, FROZEN] if any(line.startswith(BYTES.name) for line in lines) else lines


def keep(found: Sequence[Row], folder: Path) -> None:
    """Write what was hashed, a file each."""
    for row in found:
        name = f"{group_of(row.kind, row.case)}/{row.kind} {row.case}".replace(":", "_")
        file = folder / re.sub(r"[^\w./-]+", "-", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(row.text, encoding="utf-8")


def main() -> None:
    """Rewrite both files, or compare a part of them."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", default="", metavar="NAME")
    options.add_argument("--keep", type=Path, metavar="FOLDER")
    asked = options.parse_args()
    found = list(rows(asked.only))
    if asked.keep:
        keep(found, asked.keep)
    differ = moved(found, asked.only)
    if asked.only:
        sys.exit("\n".join(differ) if differ else 0)
    for file in (BYTES, WORDS):
        file.write_text(table([row for row in found if row.file == file]), encoding="utf-8")
    print("\n".join(differ) if differ else "No row moved.")


if __name__ == "__main__":
    main()
