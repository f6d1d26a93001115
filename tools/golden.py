"""tests/golden.txt: a hash of every output of every preset and suite on a tiny grid, a line each.

python tools/golden.py                  rewrites the table
python tools/golden.py --only passkey   compares the rows whose name holds that word; writes nothing
python tools/golden.py --keep FOLDER    also keeps what was hashed as text files, so that two can be
diffed

A line that moved says which preset and which output. tests/test_golden.py compares. Times, versions
and what only this machine knows are blanked, and numbers cut to nine digits, which hold on any
machine.
"""

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "tests" / "golden.txt"
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
PASSING = (  # names in JSON whose values time or machine decide
    *("needlemap", "created", "python", "packages", "signed", "made", "version"),
    *("finished_at", "latency_s", "test_duration_seconds", "test_timestamp_utc"),
)
AT = "2026-01-01T00:00:00+00:00"
MOMENT = {"created": AT, "needlemap": "", "python": "", "packages": {}}
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
BLOB = re.compile(r'<script type="application/octet-stream" id="([\w-]+)">([^<]*)</script>')
Output = tuple[str, str]  # its name, and its text without what passes


def rows(only: str = "") -> Iterator[tuple[str, str, str]]:
    """(preset or tool, output, text) of all whose name holds `only`, in the order of the table."""
    makers: dict[str, Callable[[], Iterator[Output]]] = {}
    for kind in ("presets", "suites"):
        for name in (line.split()[0] for line in typed("list", kind).splitlines()):
            makers[name] = partial(
                of_preset, name, OWN.get(name, SUITE if kind == "suites" else GRID)
            )
    makers |= {"needlehaystack files": of_needlehaystack, "opencompass files": of_opencompass}
    with workplace():
        for name, make in makers.items():
            if only in name:
                for output, text in make():
                    yield name, output, text


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
    page = Path("page.html").read_text("utf-8")
    blobs = {
        name: plain_json(gzip.decompress(b64decode(data)).decode())
        for name, data in BLOB.findall(page)
    }
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


def lines_to(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.write_text(
        "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8"
    )


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


def folders(path: str) -> list[Path]:
    """A run's folders: one a family."""
    return sorted(file.parent for file in Path(path).rglob("run.json"))


def freeze(path: str) -> None:
    """Rewrite a run's files as if all had been asked at once: by cell and repeat, whatever ended
    first."""
    for folder in folders(path):
        about = json.loads((folder / "run.json").read_text("utf-8"))
        (folder / "run.json").write_text(json.dumps(about | MOMENT), encoding="utf-8")
        files = sorted(folder.glob("records-*.jsonl"))
        lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
        found = [{**json.loads(line), "finished_at": AT, "latency_s": 0.5} for line in lines]
        found.sort(key=lambda row: (row["length_tokens"], row["depth"], row["repeat"]))
        for file in files[1:]:
            file.unlink()
        lines_to(files[0], found)


def records_of(folder: Path) -> str:
    (file,) = folder.glob("records-*.jsonl")
    return as_lines(map(json.loads, file.read_text("utf-8").splitlines()))


def files_below(folder: Path) -> str:
    """All files below a folder, each behind its name."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return "".join(f"{file.as_posix()}\n{plain_text(file.read_text('utf-8'))}\n" for file in files)


def as_lines(values: Any) -> str:
    return "".join(f"{json.dumps(plain(value), ensure_ascii=False)}\n" for value in values)


def plain_json(text: str) -> str:
    return json.dumps(plain(json.loads(text)), ensure_ascii=False, indent=1) + "\n"


def plain(value: Any) -> Any:
    """JSON's values without what passes, floats cut to nine digits."""
    if isinstance(value, dict):
        return {name: None if name in PASSING else plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def plain_csv(text: str) -> str:
    """A table without the columns of time, numbers cut."""
    import csv

    head, *rest = csv.reader(io.StringIO(text))
    kept = [at for at, name in enumerate(head) if name not in PASSING]
    return as_lines([[cut(row[at]) for at in kept] for row in [head, *rest]])


def plain_text(text: str) -> str:
    """A text without times, its long numbers cut."""
    return re.sub(r'("test_(?:duration_seconds|timestamp_utc)": )[^,}]+', r"\1null", cut(text))


def cut(text: str) -> str:
    return NUMBER.sub(
        lambda number: f"{float(number[0]):.9g}" if len(number[0]) > 10 else number[0], text
    )


def table(found: Sequence[tuple[str, str, str]]) -> str:
    """The file: preset, output, hash; a line each."""
    hashes = [
        (name, output, hashlib.sha256(text.encode()).hexdigest()[:12])
        for name, output, text in found
    ]
    return "".join(f"{name:<27} {output:<25} {hash}\n" for name, output, hash in hashes)


def moved(made: str, only: str = "") -> list[str]:
    """Lines of the table that this version does not make, and those that it makes instead."""
    before = [line for line in FILE.read_text("utf-8").splitlines() if only in line[:27]]
    now = made.splitlines()
    return [f"- {line}" for line in before if line not in now] + [
        f"+ {line}" for line in now if line not in before
    ]


def keep(found: Sequence[tuple[str, str, str]], folder: Path) -> None:
    """Write what was hashed, a file each."""
    for name, output, text in found:
        file = folder / re.sub(r"[^\w.-]+", "-", f"{name}/{output}".replace("/", "__"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def main() -> None:
    """Rewrite the table, or compare a part of it."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", default="", metavar="NAME")
    options.add_argument("--keep", type=Path, metavar="FOLDER")
    asked = options.parse_args()
    found = list(rows(asked.only))
    if asked.keep:
        keep(found, asked.keep)
    if not asked.only:
        FILE.write_text(table(found), encoding="utf-8")
        return
    differ = moved(table(found), asked.only)
    sys.exit("\n".join(differ) if differ else 0)


if __name__ == "__main__":
    main()
