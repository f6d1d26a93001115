"""An addition is one file: a task, a back end, a scorer and a probe are each made in a package
outside of this one, and are found, listed, planned, asked, priced, keyed and reported by what
stands in that file."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from needlemap.servers.check import probes
from needlemap.trials import provider_host

TASK = '''
from needlemap.plugins import Draw, Item, Needle, Reference, Task


class Ledger(Task):
    """Hides an entry of a ledger and asks for its amount."""

    name, scorer = "ledger", "substring"
    texts = {"english": "The entry for {} reads {} crowns."}

    def __init__(self, *, largest: int = 900, language: str = "english"):
        self.largest, self.text = largest, self.texts[language]

    def item(self, draw: Draw) -> Item:
        amount = str(draw.random("ledger", "repeat").randint(100, self.largest))
        text, question = self.text.format("Tobias", amount), "What does Tobias's entry read?"
        return Item((Needle(text, draw.cell.depth),), question, Reference(amount, (amount,)))
'''
MODEL = '''
import json
import os
import re
from urllib.request import Request, urlopen

from needlemap.plugins import Answer, Model, SettingsError, Traits


class Gemini(Model):
    """`gem/NAME`: Google's generateContent."""

    vendor, host = "google", "generativelanguage.googleapis.com"
    FACTS

    def __init__(self, name: str, *, base_url: str | None = None):
        self.name = name
        self.base_url = base_url or os.environ.get("GEM_BASE_URL") or f"https://{self.host}"
        if not os.environ.get("GEM_API_KEY"):
            raise SettingsError("No key. Type: export GEM_API_KEY=YOUR-KEY")

    @classmethod
    def traits(cls, name, options):
        return Traits(tokenizer="cl100k_base", remote=True)

    async def answer(self, prompt, decoding):
        text = "".join(message.content for message in prompt.messages)
        body = {"model": self.name, "messages": [{"role": "user", "content": text}]}
        request = Request(self.base_url + "/chat/completions", json.dumps(body).encode())
        request.add_header("content-type", "application/json")
        with urlopen(request, timeout=60) as reply:
            found = json.load(reply)
        usage = found["usage"]
        return Answer(
            found["choices"][0]["message"]["content"], "stop",
            usage["prompt_tokens"], 0, usage["completion_tokens"],
        )
'''
SCORER = '''
import re

from needlemap.plugins import Reference, Score, Scorer


class Amount(Scorer):
    """Whether the answer's first number is the right one."""

    name = "amount"

    def __init__(self, *, off: int = 0):
        self.options = {"off": off}

    async def score(self, answer: str, reference: Reference) -> Score:
        found = re.search("[0-9]+", answer)
        right = bool(found) and abs(int(found[0]) - int(reference.answer)) <= self.options["off"]
        return Score(share=float(right), native=float(right), why={"found": found and found[0]})
'''
PROBE = '''
from needlemap.plugins import AtSize, Probe


class Sorry(Probe):
    """Does an answer apologise?"""

    name = "sorry"
    asked = "each haystack's first prompt"
    sees = "answers that apologise"
    cannot = "apologies in other words"

    def asks(self, haystack):
        return (haystack.cold,)

    def at(self, answers, size, level):
        rows = answers.of(size, "cold", "crowded")
        count = sum("sorry" in reply.answer for reply in rows)
        state = "FAIL" if count else "PASS" if rows else "NOT ENOUGH DATA"
        said = f"{count} of {len(rows)} sorry"
        return AtSize(size, state, n=len(rows), lost=count, said=said)
'''
DECLARED = 'base_url_variable, key_variable = "GEM_BASE_URL", "GEM_API_KEY"'
GRID = ("--lengths", "400,600", "--depths", "0,50", "--max-answer-tokens", "40", "--no-canary")


class Package:
    """A folder of installed packages beside the real ones."""

    def __init__(self, folder: Path, needlemap: Any) -> None:
        self.folder, self.needlemap = folder, needlemap
        self.environment: dict[str, str] = {}
        folder.mkdir()

    @property
    def files(self) -> list[str]:
        """All that was written, but for what makes it a package."""
        return sorted(file.name for file in self.folder.glob("*.*") if file.is_file())

    def add(self, kind: str, name: str, target: str, source: str, package: str = "") -> None:
        """Install an extension."""
        module = target.partition(":")[0]
        (self.folder / f"{module}.py").write_text(source)
        package = package or f"my-{module}"
        info = self.folder / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[needlemap.{kind}]\n{name} = {target}\n")

    def __call__(self, *arguments: object, code: int | None = 0, **environment: str) -> Any:
        known = self.needlemap.environment
        added = {"PYTHONPATH": str(self.folder), **self.environment, **environment}
        self.needlemap.environment = known | added
        try:
            return self.needlemap.process(*arguments, code=code)
        finally:
            self.needlemap.environment = known

    def reports(self, run: str = "r") -> dict[str, str]:
        """Each face of a run's or a check's report."""
        shown = {"text": self("report", run).stdout, "json": self("report", run, "--json").stdout}
        for suffix in ("html", "md"):
            self("report", run, "-o", f"{run}.{suffix}")
            shown[suffix] = (self.needlemap.folder / f"{run}.{suffix}").read_text("utf-8")
        data = re.findall(r'octet-stream" id="[^"]*">([^<]*)<', shown["html"])
        shown["html"] += "".join(gzip.decompress(b64decode(each)).decode() for each in data)
        shown["md"] = re.sub(r"\\(.)", r"\1", shown["md"])
        return shown

    def about(self, run: str = "r") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.needlemap.folder / run / "run.json").read_text())
        return found


@pytest.fixture
def package(tmp_path_factory: pytest.TempPathFactory, needlemap: Any) -> Package:
    return Package(tmp_path_factory.mktemp("installed") / "site", needlemap)


def test_a_task_is_one_file(package):
    package.add("tasks", "ledger", "ledger:Ledger", TASK)
    assert (
        "Hides an entry of a ledger and asks for its amount. (my-ledger)"
        in package("list", "tasks").stdout
    )
    asked = ("--task", "ledger", "--task-options", "largest=200", "--model", "demo/retriever")
    assert "ledger · 2 lengths x 2 depths" in package("plan", *asked, *GRID).stdout
    described = package("list", "tasks", "ledger").stdout
    assert "--task-options  largest=900\nreads           --language\n" in described
    package("run", *asked, *GRID, "-o", "r")
    assert {face for face, text in package.reports().items() if "ledger" not in text} == set()
    priced = package("plan", *asked[:2], "--model", "openai/gpt-4o-mini", *GRID).stdout
    assert "prices: genai-prices" in priced
    keys = {record["key"] for record in package.needlemap.records()}
    package("run", *asked[:2], *asked[4:], *GRID, "-o", "other")
    assert keys.isdisjoint(record["key"] for record in package.needlemap.records("other"))
    wrong = package("plan", *asked[:2], "--task-options", "larges=2", *GRID, code=2).stderr
    assert "Unknown option 'larges' of Ledger. Did you mean 'largest'?" in wrong
    assert package.files == ["ledger.py"]


def test_a_task_without_a_languages_wording_says_so(package):
    """`KeyError: 'chinese'` with a traceback."""
    package.add("tasks", "ledger", "ledger:Ledger", TASK)
    ended = package("plan", "--task", "ledger", "--language", "chinese", *GRID, code=2)
    assert "Task 'ledger' has no wording in 'chinese'. Give another --language" in ended.stderr


@pytest.mark.long
def test_a_scorer_is_one_file(package):
    package.add("scorers", "amount", "amount:Amount", SCORER)
    assert (
        "Whether the answer's first number is the right one. (my-amount)"
        in package("list", "scorers").stdout
    )
    asked = ("--task", "passkey", "--model", "demo/retriever", "--scorer", "amount")
    assert "--scorer-options  off=0\n" in package("list", "scorers", "amount").stdout
    package("plan", *asked, *GRID)
    package("run", *asked, *GRID, "-o", "r")
    without = {face for face, text in package.reports().items() if "amount" not in text}
    assert without == {"md"}  # a map in Markdown names no scorer, whosever it is
    assert {record["scorer"]["name"] for record in package.needlemap.records()} == {"amount"}
    keys = {record["key"] for record in package.needlemap.records()}
    package("run", *asked, "--scorer-options", "off=1", *GRID, "-o", "other")
    assert keys.isdisjoint(record["key"] for record in package.needlemap.records("other"))
    assert package.files == ["amount.py"]


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(DECLARED, id="declared"),
        pytest.param("", id="read from an object of it", marks=pytest.mark.long),
    ],
)
def test_a_back_end_is_one_file(package, wire, wires, facts):
    """run.json said `"base_url": null`, so another server's answers went on under the same keys."""
    package.add("models", "gem", "gem:Gemini", MODEL.replace("FACTS", facts))
    package.environment = {"GEM_API_KEY": "sk-gem-123456789", "GEM_BASE_URL": wire.base_url}
    assert "`gem/NAME`: Google's generateContent. (my-gem)" in package("list", "models").stdout
    asked = ("--task", "passkey", "--model", "gem/gemini-2.5-flash")
    assert "prices: genai-prices" in package("plan", *asked, *GRID).stdout
    run = package("run", *asked, *GRID, "-o", "r")
    assert "no price is known" not in run.stderr
    assert {record["usd"] is not None for record in package.needlemap.records()} == {True}
    assert "reads  --base-url\n" in package("list", "models", "gem").stdout
    name = asked[-1]
    assert {face for face, text in package.reports().items() if name not in text} == set()
    assert package.about()["settings"]["base_url"] == wire.base_url
    home = {record["key"] for record in package.needlemap.records()}

    elsewhere = "http://192.0.2.7.example.org/v1"
    again = package("run", *asked, *GRID, "-o", "r", code=2, GEM_BASE_URL=elsewhere)
    assert "base_url was" in again.stderr
    package(
        "run", *asked, *GRID, "-o", "r", GEM_BASE_URL=wires().base_url
    )  # another port is no other
    assert package.files == ["gem.py"]
    assert len(home) == 4


@pytest.mark.long
def test_a_probe_is_one_file(package):
    """It stands beside all others, and has no say in them."""
    asked = ("check", "--model", "baseline/bm25", "--max-length", "300", "--max-answer-tokens")
    package.add("probes", "sorry", "sorry:Sorry", PROBE)
    assert "Does an answer apologise? (my-sorry)" in package("list", "probes").stdout
    assert "\nwhole" in package(*asked, "24", "--probe", "sorry", "--plan").stdout
    found = package(*asked, "24", "--json", "-o", "c")
    rows = {row["probe"]: row for row in json.loads(found.stdout)["probes"]}
    assert rows["sorry"]["state"] == "PASS"
    assert rows["sorry"]["said"].startswith("0 of 48 · 0 of 48 · 0 of ")
    # Two that were not tried, that of a quick check, and that of a gauge.
    assert {*rows, "ways", "reference", "total", "decode"} == {*probes(), "sorry"}
    assert "sees    answers that apologise\n" in package("list", "probes", "sorry").stdout
    assert {face for face, text in package.reports("c").items() if "sorry" not in text} == set()
    assert package.files == ["sorry.py"]


def test_a_back_ends_own_home_typed_out_is_the_same_server():
    assert provider_host("nobody-knows", "https://api.example.com") == "api.example.com"
    assert (
        provider_host("openai", "https://api.openai.com/v1") == provider_host("openai", None) == ""
    )


def test_one_name_of_two_packages_is_an_error_that_names_both(package):
    """A built-in of a new version took the place of a user's package without a word."""
    package.add("tasks", "passkey", "ledger:Ledger", TASK, package="ours-too")
    ended = package("plan", "--task", "passkey", *GRID, code=2)
    assert "Task 'passkey' is registered by two packages: needlemap " in ended.stderr
    assert "ours-too 1.0 (ledger:Ledger)" in ended.stderr
    assert "registered by two packages" in package("list", "tasks").stdout
    package("plan", "--task", "kv", *GRID)


def test_a_package_that_cannot_be_imported_is_an_error_when_it_is_named(package):
    package.add("tasks", "broken", "broken:Task", "1 / 0\n")
    assert "cannot be loaded" in package("list", "tasks").stdout
    ended = package("plan", "--task", "broken", *GRID, code=2)
    assert "Task 'broken' cannot be loaded (broken:Task): ZeroDivisionError" in ended.stderr
