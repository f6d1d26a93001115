"""A stranger's file at any place of a folder, and every command: nothing in it is contacted,
imported, run or sent a key."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest
import typer

import needlemap
from needlemap import api
from needlemap.asking.resume import with_prompts_of
from needlemap.cli import app
from needlemap.errors import NeedlemapError
from needlemap.records.families import SUITE, SuiteFile, families_of
from needlemap.records.origin import CheckedRun, check_origin
from needlemap.servers.ab.file import AB, AbFile, Arm, Findings
from needlemap.servers.check.finding import CHECK, CheckFile, Finding, Worst
from needlemap.servers.storm.file import STORM, Replayed, StormFile
from needlemap.settings.reading import configure

KEY = "planted-key-0123456789"
GRID = ("--lengths", "500", "--depths", "50")
AT = ("--length", "500", "--depth", "50")
TWO = (
    "settings: {lengths: [500], depths: [50], max_answer_tokens: 64}\n"
    "families: {passkey: {task: passkey}, magic: {task: magic}}\n"
)
CODE = (
    "from pathlib import Path\nPath(__file__).with_name('ran').write_text('x')\n\n\n"
    "def answer(*asked):\n    return '1'\n\n\ndef score(answer, reference):\n    return 1.0\n"
)


class Listener:
    """A server that refuses all, and counts what comes."""

    def __init__(self) -> None:
        heard = self.heard = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.append(f"{self.path} {self.headers.get('authorization')}")
                self.send_response(404)
                self.send_header("content-length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Listener, Listener]]:
    """The stranger's, and the one that is typed."""
    both = Listener(), Listener()
    yield both
    for each in both:
        each.server.shutdown()
        each.server.server_close()


ALONE = "an address alone"  # whose tokens are counted here, so that prompts are built
# What a stranger's run.json names. Each was followed once by some command.
SETTINGS: dict[str, dict[str, Any]] = {
    "a server": {
        "model": "openai/m",
        "base_url": "EVIL/v1",
        "tokenizer": "server:EVIL",
        "haystack": "txt",
        "haystack_path": "PRIVATE",
    },
    ALONE: {"model": "openai/m", "base_url": "EVIL/v1"},
    "code": {"model": "python/evil:answer", "scorer": "python/evil:score"},
}


class Strangers:
    """Folders that hold a stranger's files, beside a run of one's own."""

    def __init__(self, folder: Path, own: Path, evil: str, settings: Mapping[str, Any]) -> None:
        self.folder, self.own = folder, own
        text = json.dumps(settings).replace("EVIL", evil)
        self.settings = json.loads(text.replace("PRIVATE", str(folder / "private.txt")))
        (folder / "private.txt").write_text("Nobody else may read this sentence. " * 200)
        (folder / "evil.py").write_text(CODE)
        (folder / "two.yaml").write_text(TWO)
        shutil.copytree(own, folder / "own")

    def run(self, place: str) -> Path:
        """A stranger's run there: as one's own, with other settings."""
        path = self.folder / place
        shutil.copytree(self.own, path, dirs_exist_ok=True)
        about = json.loads((path / "run.json").read_bytes())
        about["settings"] |= self.settings
        (path / "run.json").write_text(json.dumps(about))
        return path

    def mine(self, place: str) -> Path:
        """One's own run there."""
        return Path(shutil.copytree(self.own, self.folder / place, dirs_exist_ok=True))

    def suite(self, *names: str) -> None:
        """suite.json with these families."""
        SUITE.write(self.folder / "evil", SuiteFile(suite="x", families=list(names)))

    def storm(self, **named: Any) -> None:
        """storm.json of a storm that found a fault."""
        (self.folder / "evil").mkdir(exist_ok=True)
        fault = [Replayed(key=64, outcome="lost", replayed=2, lost=2)]
        model = {"model": self.settings["model"], **named}
        file = StormFile(seed=1, max_length=2_000, load=4, suspects=fault, **model)
        STORM.write(self.folder / "evil", file)

    def check(self) -> None:
        """check.json that sends a replay to the folder cold-200."""
        worst = Worst("cold-200", 500, 0.5, 0)
        finding = Finding("cold", "FAIL", n=1, said="x", worst=worst)
        file = CheckFile(seed=1, model="openai/m", max_length=200, load=2, findings=[finding])
        file = file.model_copy(update={"reference": self.settings.get("base_url", "python/evil:f")})
        CHECK.write(self.folder / "evil", file)

    def ab(self) -> None:
        """ab.json that sends a replay to the folder b-x."""
        url = self.settings.get("base_url", "")
        arms = [Arm("a", self.settings["model"], url), Arm("b", self.settings["model"], url)]
        worst = [{"family": "x", "length": 500, "depth": 50.0, "repeat": 0}]
        found = Findings.model_validate({"worst": worst})
        file = AbFile(seed=1, margin=2.0, arms=arms, families=["x"], findings=found)
        AB.write(self.folder / "evil", file)


def in_records(made: Strangers) -> None:
    """One's own run.json, beside records that name the stranger's model."""
    path = made.mine("evil")
    for file in path.glob("records-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        named = {"model": made.settings["model"], "answered_by": made.settings["model"]}
        file.write_text("".join(json.dumps({**row, **named}) + "\n" for row in rows))


def behind_a_link(made: Strangers) -> None:
    made.mine("evil/b")
    made.run("elsewhere")
    (made.folder / "evil" / "a").symlink_to(made.folder / "elsewhere")
    made.suite("b")


Place = Callable[[Strangers], Any]
PLACES: dict[str, list[Place]] = {
    "run.json": [lambda m: m.run("evil")],
    "run.json, suite.json names what is not there": [
        lambda m: m.run("evil"), lambda m: m.suite("nothing")],
    "run.json, suite.json names nothing": [lambda m: m.run("evil"), lambda m: m.suite()],
    "run.json, suite.json names one's own": [
        lambda m: m.run("evil"), lambda m: m.mine("evil/a"), lambda m: m.suite("a")],
    "run.json, suite.json is broken": [
        lambda m: m.run("evil"), lambda m: (m.folder / "evil/suite.json").write_text("{")],
    "a family": [lambda m: m.run("evil/a"), lambda m: m.suite("a")],
    "a family that suite.json leaves out": [
        lambda m: m.mine("evil/a"), lambda m: m.run("evil/b"), lambda m: m.suite("a")],
    "a family without suite.json": [lambda m: m.run("evil/a")],
    "a family behind a link": [behind_a_link],
    "a model of several": [
        lambda m: m.run("evil/baseline-bm25"), lambda m: m.run("evil/baseline-bm25-2")],
    "a storm's run": [lambda m: m.run("evil/storm"), lambda m: m.storm()],
    "a storm's run, suite.json leaves it out": [
        lambda m: m.run("evil/storm"), lambda m: m.storm(), lambda m: m.suite("first")],
    "storm.json": [
        lambda m: m.mine("evil/storm"),
        lambda m: m.storm(model="openai/m", reference=m.settings.get("base_url", "python/evil:f"))],
    "check.json": [lambda m: m.run("evil/cold-200"), lambda m: m.check()],
    "check.json, suite.json": [
        lambda m: m.run("evil/cold-200"), lambda m: m.check(), lambda m: m.suite("warm-200")],
    "ab.json": [lambda m: m.run("evil/b-x"), lambda m: m.ab(), lambda m: m.suite("a-x")],
    "records": [in_records],
}  # fmt: skip

OWN = (
    "--model",
    "openai/m",
    "--base-url",
    "OWN/v1",
    "--tokenizer",
    "cl100k_base",
    "--retries",
    "0",
)
BM25 = ("--model", "baseline/bm25")
AS_OWN = ("--tokenizer", "cl100k_base", "--template", "text-en")
LENT = ("--prompts-of", "AT", *BM25)
# By command what to type. AT: a folder with the stranger's files; OWN: an address that is typed.
COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "run": [
        ("bm25", *GRID, "-o", "AT"),
        ("bm25", *GRID, *AS_OWN, "--label", "x", "-o", "AT"),
        ("suite:two.yaml", *BM25, "-o", "AT"),
        (*BM25, *BM25, "--model-options", "window=300", *GRID, "-o", "AT"),
        (*LENT, "-o", "new"),
        (*LENT, "-o", "AT"),
        ("bm25", *GRID, "--until", "no-worse-than:AT", "-o", "new"),
        ("bm25", "--lengths", "500,600", "--depths", "50", "--seek", "85", "-o", "AT"),
    ],
    "check": [
        (*OWN, "--max-length", "2k", "-o", "AT"),
        (*OWN, "--max-length", "2k", "--baseline", "AT", "-o", "new"),
    ],
    "storm": [
        ("AT", "--shrink", "--minutes", "0.05"),
        (*OWN, "--max-length", "2k", "--load", "4", "--kv-tokens", "8k", "-o", "AT"),
    ],
    "ab": [
        ("bm25", "--arm", "a=baseline/bm25", "--arm", "b=baseline/bm25", *GRID, "--until", "1",
         "-o", "AT"),
    ],
    "plan": [LENT],
    "prompts": [LENT],
    "score": [
        ("AT", "--scorer", "keyword"),
        ("AT", "--scorer", "keyword", "-o", "new"),
        ("own", "--scorer", "keyword", "-o", "AT"),
    ],
    "report": [
        ("AT",), ("AT", "-o", "x.html"), ("AT", "-o", "x.csv"), ("AT", "--json"),
        ("AT", "-o", "golden", "--format", "golden"),
    ],
    "import": [("AT", "-o", "new")],
    "compare": [("AT", "AT"), ("own", "AT", "--answers"), ("own", "AT", "--json")],
    "export": [],  # reads no folder
    "help": [],  # reads none
    "gauge": [],  # reads none
    "list": [("runs", "AT"), ("runs", ".")],
    "replay": [
        ("AT", *AT), ("AT", *AT, "--ask"),
        ("AT", *AT, "--ask", "--model", "openai/m"),
        ("AT", "--probe", "cold", "--worst", "--ask"),
        ("AT", "--arm", "b", "--worst", "--ask"),
    ],
}  # fmt: skip


def test_every_command_is_walked() -> None:
    """A new command wants an entry: what does it do with a stranger's folder?"""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert COMMANDS.keys() == commands.keys()


def test_settings_of_a_run_are_followed_through_one_door() -> None:
    """What makes Settings of a run.json's takes a CheckedRun, which only `of` makes."""
    source = Path(needlemap.__file__).parent
    makers = ("checked", "Settings", "Settings.model_validate", "configure", "CheckedRun")
    for file in source.rglob("*.py"):
        calls = [each for each in ast.walk(ast.parse(file.read_text())) if type(each) is ast.Call]
        for call in (each for each in calls if ast.unparse(each.func) in makers):
            of_a_run = "about" in ast.unparse(call) or ast.unparse(call.func) == "CheckedRun"
            assert not of_a_run or file == source / "records" / "origin.py", ast.unparse(call)


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that this user signed."""
    path = tmp_path_factory.mktemp("signed") / "own"
    flags = {"lengths": "500", "depths": "50", "tokenizer": "cl100k_base"}
    needlemap.run("bm25", out=path, template="text-en", quiet=True, **flags)
    return path


@pytest.fixture
def strangers(
    tmp_path: Path, own_run: Path, servers: tuple[Listener, Listener], request: Any
) -> Strangers:
    """Folders to be filled."""
    place, named = request.param
    made = Strangers(tmp_path, own_run, servers[0].url, SETTINGS[named])
    for fill in PLACES[place]:
        fill(made)
    return made


def everywhere() -> list[Any]:
    return [
        pytest.param((place, named), id=f"{place}-{named}")
        for place in PLACES
        for named in SETTINGS
        if named != ALONE or "suite.json" not in place
    ]


def places(made: Strangers) -> list[str]:
    """The folder, and all in it that hold a run."""
    root = made.folder / "evil"
    inner = {file.parent for file in root.rglob("run.json")} | set(root.iterdir())
    found = [root, *sorted(each for each in inner if each.is_dir() and each != root)]
    return [str(each.relative_to(made.folder)) for each in found]


def state_of(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """When each file of a folder was written, how large it is, and whether it is the same one."""
    found = ((path, path.lstat()) for path in folder.rglob("*"))
    return {path: (stat.st_mtime_ns, stat.st_size, stat.st_ino) for path, stat in found}


@pytest.mark.parametrize("strangers", everywhere(), indirect=True)
def test_no_command_follows_a_strangers_file(
    typed: Any, strangers: Strangers, servers: tuple[Listener, Listener]
) -> None:
    evil, own = servers
    evil.heard.clear()
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), KEY)
    whole, folder = strangers.folder / "evil", strangers.folder
    shutil.copytree(whole, folder / "kept", symlinks=True)
    state = state_of(whole)
    for command, ways in COMMANDS.items():
        for way in ways:
            for place in places(strangers) if "AT" in " ".join(way) else [""]:
                words = [word.replace("AT", place).replace("OWN", own.url) for word in way]
                environment = {**os.environ, **keys}
                ended = typed(command, *words, code=None, folder=folder, environment=environment)
                shown = (command, *words, ended.stdout, ended.stderr)
                assert evil.heard == [], shown
                assert not (folder / "ran").exists(), shown
                if state_of(whole) != state:
                    shutil.rmtree(whole)
                    shutil.copytree(folder / "kept", whole, symlinks=True)
                    state = state_of(whole)
                shutil.rmtree(folder / "new", ignore_errors=True)


PYTHON: dict[str, Callable[[str], Any]] = {
    "run": lambda at: needlemap.run("bm25", lengths="500", depths="50", out=at, quiet=True),
    "several": lambda at: needlemap.run(
        model=["baseline/bm25", {"model": "baseline/bm25", "model_options": {"window": 300}}],
        lengths="500", depths="50", out=at, quiet=True),
    "prompts_of": lambda at: needlemap.run(
        prompts_of=at, model="baseline/bm25", out="new", quiet=True),
    "a golden's prompts": lambda at: needlemap.run(
        prompts_of=at, model="baseline/bm25", out="new", quiet=True, trust_run="prompts"),
    "make_plan": lambda at: needlemap.make_plan(prompts_of=at, model="baseline/bm25"),
    "load": lambda at: needlemap.load(at).records(),
    "compare": lambda at: needlemap.compare("own", at),
    "curves": lambda at: api.curves(["own", at]),
}  # fmt: skip


@pytest.mark.parametrize("strangers", everywhere(), indirect=True)
def test_nothing_in_python_follows_a_strangers_file(
    strangers: Strangers, servers: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    evil, _ = servers
    evil.heard.clear()
    monkeypatch.syspath_prepend(strangers.folder)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    with chdir(strangers.folder), patch.dict(os.environ, {"OPENAI_API_KEY": KEY}):
        for name, call in PYTHON.items():
            for place in places(strangers):
                with suppress(NeedlemapError):
                    call(place)
                assert evil.heard == [], (name, place)
                assert not (strangers.folder / "ran").exists(), (name, place)
                shutil.rmtree("new", ignore_errors=True)


@pytest.mark.parametrize(
    "strangers", [("a family that suite.json leaves out", "code")], indirect=True
)
def test_a_run_is_checked_by_its_own_file_whatever_lies_beside_it(strangers: Strangers) -> None:
    evil = strangers.folder / "evil"
    assert CheckedRun.of(evil / "a").is_ours
    with pytest.raises(NeedlemapError, match="was not begun by you on this machine"):
        CheckedRun.of(evil / "b")
    assert not CheckedRun.of(evil / "b", trusted=True).is_ours
    assert families_of(evil).names == ("a",)
    check_origin(evil, names=("a",))
    with pytest.raises(NeedlemapError, match="evil/b' was not begun by you"):
        check_origin(evil, names=("a", "b"))


def test_ones_own_settings_beside_another_runs_files_are_still_ones_own_alone(
    tmp_path: Path, own_run: Path
) -> None:
    """A signature is of settings: where run.json is copied to, they are the ones that were
    typed. With any of them changed it is a stranger's."""
    shutil.copytree(own_run, tmp_path / "copy")
    assert CheckedRun.of(tmp_path / "copy").settings() == CheckedRun.of(own_run).settings()
    file = tmp_path / "copy" / "run.json"
    about = json.loads(file.read_bytes())
    for name in about["settings"]:
        changed = {**about["settings"], name: "changed"}
        file.write_text(json.dumps({**about, "settings": changed}))
        with pytest.raises(NeedlemapError):
            CheckedRun.of(tmp_path / "copy")


def test_the_signature_of_an_imported_run_is_of_no_other(typed: Any) -> None:
    """Its settings are another tool's words, and who imported them signed run.json."""
    (typed.folder / "results.csv").write_text(
        "model,context_length,depth_percent,score\nm,1000,50,10\nm,2000,50,1\n"
    )
    typed("import", "results.csv", "--scale", "1:10", "-o", "i")
    with pytest.raises(NeedlemapError, match="was imported"):
        CheckedRun.of(typed.folder / "i")
    file = typed.folder / "i" / "run.json"
    about = json.loads(file.read_bytes())
    del about["imported"]
    file.write_text(json.dumps(about))
    with pytest.raises(NeedlemapError, match="was not begun by you"):
        CheckedRun.of(typed.folder / "i")


def test_code_of_a_run_whose_prompts_are_asked_is_typed_too(typed: Any) -> None:
    """Its scorer is taken over with its prompts; `plan` imports nothing of it."""
    (typed.folder / "evil.py").write_text(CODE)
    scored = ("--scorer", "python/evil:score")
    typed("run", "bm25", *GRID, *scored, "-o", "r")
    (typed.folder / "ran").unlink()
    lent = ("--prompts-of", "r", *BM25)
    ended = typed("run", *lent, "-o", "new", code=2)
    assert "scorer 'python/evil:score' is code, which stands in 'r' only" in ended.stderr
    typed("prompts", *lent, code=2)
    typed("plan", *lent)
    assert not (typed.folder / "ran").exists()
    typed("run", *lent, *scored, "-o", "new")
    typed("run", *lent, "--trust-run", "-o", "third")


def test_a_new_label_does_not_sign_what_a_stranger_wrote(typed: Any, own_run: Path) -> None:
    """A run that is whole keeps its settings, and was signed with all that stood there."""
    shutil.copytree(own_run, typed.folder / "r")
    file = typed.folder / "r" / "run.json"
    about = json.loads(file.read_bytes())
    about["settings"]["scorer"] = "python/evil:score"
    file.write_text(json.dumps(about))
    named = (
        "--tokenizer",
        "cl100k_base",
        "--template",
        "text-en",
        "--label",
        "x",
        "-o",
        "r",
        "--trust-run",
    )
    typed("run", "bm25", *GRID, *named)
    with pytest.raises(NeedlemapError, match="was not begun by you"):
        CheckedRun.of(typed.folder / "r")


def test_ones_own_and_trusted_runs_are_followed(own_run: Path, typed: Any) -> None:
    shutil.copytree(own_run, typed.folder / "r")
    SUITE.write(typed.folder / "r", SuiteFile(suite="x", families=["nothing"]))
    assert "the same bytes" in typed("replay", "r", *AT).stderr
    (typed.folder / "r" / "suite.json").unlink()
    typed("score", "r", "--scorer", "keyword", "-o", "s")
    typed("run", "--prompts-of", "r", *BM25, "--model-options", "window=300", "-o", "lent")
    file = typed.folder / "r" / "run.json"
    about = json.loads(file.read_bytes())
    file.write_text(json.dumps({**about, "signed": ""}))
    typed("replay", "r", *AT, code=2)
    typed("replay", "r", *AT, "--trust-run")
    typed("score", "r", "--scorer", "keyword", "--trust-run", "-o", "t")
    typed("report", "r")
    asker = configure(None, {"model": "baseline/bm25"})
    assert with_prompts_of(asker, typed.folder / "r", trusted=True).prompts_of
