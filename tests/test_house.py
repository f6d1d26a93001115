"""What holds for the whole house; `python tools/house.py` prints its figures."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "house.py"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


@pytest.fixture(scope="module")
def house(tool: dict[str, Any]) -> Any:
    return tool["House"].read(tool["SOURCE"])


def test_no_file_imports_itself_through_others(house: Any) -> None:
    """Late imports and those for types count: what two files need of each other is a third."""
    assert house.with_types.circles() == []


def test_no_benchmark_imports_itself_through_others(tool: dict[str, Any]) -> None:
    assert tool["House"].read(tool["ROOT"] / "benchmarks").with_types.circles() == []


def test_a_circle_is_seen_whether_its_imports_are_late_or_for_types(
    tmp_path: Path, tool: dict[str, Any]
) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "a.py").write_text("def late():\n    from p.b import x\n")
    (package / "b.py").write_text("from p import a\nx = a\n")
    (package / "c.py").write_text("from p import d\n")
    (package / "d.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.c import d\n"
    )
    found = tool["House"].read(tmp_path)
    assert found.circles() == [["p.a", "p.b"]]
    assert found.with_types.circles() == [["p.a", "p.b"], ["p.c", "p.d"]]
    assert found.graph["p.d"] == set()
    assert found.with_types.graph["p.d"] == {"p.c"}
    assert len(found.longest_chain()) == 2


def test_types_docstrings_and_wrapping_are_no_syntax_nodes(
    tmp_path: Path, tool: dict[str, Any]
) -> None:
    (tmp_path / "plain.py").write_text("def f(x):\n    return x\n")
    (tmp_path / "told.py").write_text(
        '"""A."""\ndef f(x: int) -> int:\n    """B."""\n    return (\n        x\n    )\n'
    )
    (tmp_path / "more.py").write_text("def f(x):\n    return x + 1\n")
    more, plain, told = tool["House"].read(tmp_path).sources
    assert plain.nodes() == told.nodes() < more.nodes()


def test_a_house_beside_that_of_a_commit_shows_what_changed(tool: dict[str, Any]) -> None:
    rows = tool["compared"]({"files": 3, "new": 1}, {"files": 2, "gone": 4})
    assert [row.split() for row in rows] == [
        ["files", "2", "3", "+50.0", "%"],
        ["new", "0", "1"],
        ["gone", "4", "0", "-100.0", "%"],
    ]


def asks_a_model(tree: ast.AST) -> bool:
    """Whether something is called that a model answers by. A back end that calls its own base
    class's is none."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("answer", "force")
        and not (isinstance(of := node.func.value, ast.Call) and ast.unparse(of) == "super()")
        for node in ast.walk(tree)
    )


def test_one_module_awaits_the_answer_of_a_model(tool: dict[str, Any]) -> None:
    files = (tool["SOURCE"] / "needlemap").rglob("*.py")
    found = [str(file.name) for file in files if asks_a_model(ast.parse(file.read_text("utf-8")))]
    assert found == ["call.py"]


def test_a_second_caller_would_be_seen() -> None:
    assert asks_a_model(ast.parse("async def f(m):\n    return await m.answer(prompt, decoding)"))
    assert asks_a_model(ast.parse("asked = self.model.force(prompt, given, decoding)"))
    assert not asks_a_model(ast.parse("said = await super().answer(prompt, decoding)"))
    assert not asks_a_model(ast.parse("text = record.answer"))


DRAWN = ("rich", "xml", "html")  # what a terminal, JUnit and a page are made with
FINDINGS = (
    *("servers", "asking", "commands", "plan"),
    *("stats.comparison", "stats.judging"),
)
RENDERERS = "needlemap.reports.renderers."
OF_MAPS = {  # draw maps, as they fill in, in the browser and as pictures
    "needlemap.reports.live",
    "needlemap.reports.page.document",
    "needlemap.reports.figures.shapes",
    "needlemap.reports.figures.drawing",
}
OF_TABLES = {"needlemap.interop.trackers"}  # settings and cells, for TensorBoard


def imported(tree: ast.AST) -> set[str]:
    """The modules that a file imports, late and for types too."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def draws(source: Any) -> bool:
    """Whether a file makes what a terminal, JUnit or a page shows, outside the renderers."""
    tops = {each.split(".")[0] for each in imported(source.tree)}
    return not source.module.startswith(RENDERERS) and bool(tops & {*DRAWN})


def knows_a_finding(source: Any) -> bool:
    """Whether a renderer imports what finds something, or the command that asks for it."""
    known = tuple(f"needlemap.{each}" for each in FINDINGS)
    return source.module.startswith(RENDERERS) and any(
        each.startswith(known) for each in imported(source.tree)
    )


def writes_markdown(source: Any) -> bool:
    """Whether a file makes a Markdown table, by itself or by the function for it."""
    by_hand = any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and "| ---" in node.value
        for node in ast.walk(source.tree)
    )
    borrowed = "needlemap.reports.table.markdown_table" in imported(source.tree)
    return not source.module.startswith(RENDERERS) and (by_hand or borrowed)


def test_findings_meet_terminal_page_junit_and_markdown_in_renderers_alone(house: Any) -> None:
    assert {source.module for source in house.sources if draws(source)} == OF_MAPS
    assert [source.module for source in house.sources if knows_a_finding(source)] == []
    assert {source.module for source in house.sources if writes_markdown(source)} == OF_TABLES


@pytest.mark.parametrize(
    ("file", "code", "seen"),
    [
        ("servers/check/judge.py", "from rich.table import Table", draws),
        ("servers/ab/command.py", "def late():\n    from xml.etree import ElementTree", draws),
        ("servers/ab/report.py", "import html", draws),
        ("reports/renderers/page.py", "from needlemap.servers import check", knows_a_finding),
        ("reports/renderers/text.py", "from needlemap.servers import storm", knows_a_finding),
        ("servers/check/command.py", "head = '| a | b |\\n| --- | --- |'", writes_markdown),
        (
            "servers/check/judge.py",
            "from needlemap.reports.table import markdown_table",
            writes_markdown,
        ),
    ],
)
def test_a_finding_that_is_drawn_elsewhere_would_be_seen(
    tmp_path: Path, tool: dict[str, Any], file: str, code: str, seen: Any
) -> None:
    path = tmp_path / "needlemap" / file
    path.parent.mkdir(parents=True)
    path.write_text(code)
    (source,) = tool["House"].read(tmp_path).sources
    assert seen(source)


PROVIDERS = ("openai", "anthropic")
OF_PROVIDERS = {  # what is known of them: their classes and names, their prices, and older tools'
    *("needlemap.models.openai", "needlemap.models.anthropic", "needlemap.http.compatible"),
    *("needlemap.settings.prices", "needlemap.settings.older_names"),
}
OLDER_TOOLS = "needlemap.interop.needlehaystack"  # one of its classes is for each of them
NO_PROVIDER = {"openai-gpt"}  # an architecture of Hugging Face's


def names_a_provider(tree: ast.AST) -> list[str]:
    """Strings and names of code, docstrings apart, that hold a provider's name."""
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found = []
    for node in ast.walk(tree):
        said = [getattr(node, part, None) for part in ("value", "id", "attr", "name", "arg")]
        words = [word for word in said if isinstance(word, str) and id(node) not in prose]
        found += [word for word in words if any(each in word.lower() for each in PROVIDERS)]
    return [word for word in found if word not in NO_PROVIDER]


def test_no_providers_name_stands_outside_what_is_known_of_it(house: Any) -> None:
    """A new provider was ten tables; it is a class."""
    found = {source.module: names_a_provider(source.tree) for source in house.sources}
    left = {
        name: words
        for name, words in found.items()
        if words and name not in OF_PROVIDERS and not name.startswith(OLDER_TOOLS)
    }
    assert left == {}


def test_a_providers_name_would_be_seen() -> None:
    for code in ("x = 'openai/NAME'", "OPENAI = 1", "f(anthropic_api_key=k)", "f'{x} OpenAI'"):
        assert names_a_provider(ast.parse(code)), code
    assert not names_a_provider(ast.parse('"""Asks OpenAI."""\nclass A:\n    """Of OpenAI."""'))


VAGUE = {"asked", "told", "place", "said"}  # they say neither what is done nor what is returned


def vague_names(source: Any) -> set[str]:
    return {
        name for name, _, _ in source.functions() if name.rpartition(".")[2].strip("_") in VAGUE
    }


def test_functions_are_verbs_with_an_object_or_the_noun_that_they_return(house: Any) -> None:
    assert set().union(*map(vague_names, house.sources)) == set()


def test_a_vague_name_would_be_seen(tmp_path: Path, tool: dict[str, Any]) -> None:
    (tmp_path / "a.py").write_text("class A:\n    def _asked(self): ...\ndef asked_at(): ...\n")
    (source,) = tool["House"].read(tmp_path).sources
    assert vague_names(source) == {"a._asked"}


# Where a person types one number of tokens: a setting, a flag of a command. Nothing behind parses.
TYPED_NUMBERS = {
    "needlemap.settings",
    "needlemap.commands.replay",
    "needlemap.servers.check.command",
    "needlemap.servers.check.judge",
    "needlemap.servers.storm.command",
}
GRID = "needlemap.grid"
# RULER's tables name a size only, as 4k, which is 4,000 or 4,096.
SUFFIXES = [GRID, "needlemap.interop.ruler_results"]


def parses_an_axis(tree: ast.AST) -> bool:
    """Whether a specification of lengths or depths is parsed: pydantic alone does, in settings."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("Lengths.parse", "Depths.parse"))
        for node in functions_of(tree)
    )


def functions_of(tree: ast.AST) -> Iterator[ast.AST]:
    """What stands in functions: a constant of a module is parsed once, as it is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from ast.walk(node)


def knows_the_suffixes(tree: ast.AST) -> bool:
    """Whether a function tells k or M behind a number by itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if {"k", "m"} <= {str(key).lower() for key in keys}:
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            cut = node.func.attr in ("endswith", "removesuffix", "rstrip", "replace", "strip")
            words = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            letters = [set(word.lower()) for word in words if isinstance(word, str) and word]
            if cut and any(each <= {"k", "m"} for each in letters):
                return True
    return False


def test_lengths_and_depths_are_parsed_in_one_place(house: Any) -> None:
    trees = {source.module: source.tree for source in house.sources}
    assert [name for name, tree in trees.items() if parses_an_axis(tree)] == []
    assert [name for name, tree in trees.items() if knows_the_suffixes(tree)] == SUFFIXES
    readers = {name for name, tree in trees.items() if f"{GRID}.tokens" in imported(tree)}
    assert readers == TYPED_NUMBERS


@pytest.mark.parametrize(
    "second",
    [
        "def f(text):\n    return int(text[:-1]) * {'k': 1000, 'M': 1000000}[text[-1]]",
        "def f(text):\n    return 1000 * int(text.removesuffix('k'))",
        "f = lambda text: 1000 * int(text[:-1]) if text.endswith(('k', 'K')) else int(text)",
        "f = lambda text: 1000 * int(text.rstrip('kK'))",
        "f = lambda text: float(text.lower().replace('k', '000'))",
    ],
)
def test_a_second_parser_would_be_seen(second: str) -> None:
    assert knows_the_suffixes(ast.parse(second))


def test_a_second_parse_of_an_axis_would_be_seen() -> None:
    assert parses_an_axis(ast.parse("def f(asks):\n    return Lengths.parse(','.join(asks))"))
    assert parses_an_axis(ast.parse("f = lambda text: grid.Depths.parse(text)"))
    assert not parses_an_axis(ast.parse("usual = Lengths.parse('1k,4k')"))


def drives_a_generator(tree: ast.AST) -> bool:
    """Whether a generator takes what is sent into it, or is driven by hand: a coroutine does the
    same with `await`."""
    plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Yield | ast.YieldFrom) and id(node) not in plain:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            starts = node.func.attr == "send" and [ast.unparse(each) for each in node.args] == [
                "None"
            ]
            if starts or node.func.attr == "throw":
                return True
    return False


def test_no_generator_is_driven_by_send_or_throw(house: Any) -> None:
    """One helper runs a coroutine that awaits nothing; strategies are awaited."""
    found = [source.module for source in house.sources if drives_a_generator(source.tree)]
    assert found == ["needlemap.sync"]


@pytest.mark.parametrize(
    "driven",
    [
        "def f():\n    outcome = yield 1",
        "def f():\n    return (yield from g())",
        "def f():\n    if (yield 1):\n        pass",
        "steps.send(None)",
        "steps.throw(error)",
    ],
)
def test_a_driven_generator_would_be_seen(driven: str) -> None:
    assert drives_a_generator(ast.parse(driven))


@pytest.mark.parametrize(
    "plain", ["def f():\n    yield 1\n    yield from g()", "connection.send(data)"]
)
def test_a_generator_that_only_yields_is_none(plain: str) -> None:
    assert not drives_a_generator(ast.parse(plain))


COUNTING = {"comb", "perm", "factorial", "gamma", "lgamma", "erf", "erfc", "NormalDist", "scipy"}


def statistics_in(source: str) -> set[str]:
    """Functions of which tails, bets and intervals are made, wherever a file names them."""
    return {
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [part for alias in node.names for part in alias.name.split(".")]
            if isinstance(node, ast.Import | ast.ImportFrom)
            else [node.attr]
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in {"math", "statistics", "special", "stats"}
            else []
        )
        if name in COUNTING
    }


def test_tails_bets_and_intervals_are_computed_in_one_package() -> None:
    """`check`, `storm` and `ab` had tails of their own, which nobody compared with the core's."""
    source = Path(__file__).parent.parent / "src" / "needlemap"
    others = {
        file.relative_to(source).as_posix(): statistics_in(file.read_text("utf-8"))
        for file in source.rglob("*.py")
        if file.parent.name != "stats"
    }
    # The gate is copied into other projects, so it imports nothing of ours: a test compares them.
    assert {name: found for name, found in others.items() if found} == {
        "servers/gate/gate_file.py": {"NormalDist"}
    }


@pytest.mark.parametrize(
    "source",
    [
        "from math import comb",
        "from math import lgamma as log_of",
        "def late():\n    from statistics import NormalDist",
        "import math\nx = math.comb(4, 2)",
        "import scipy.stats",
    ],
)
def test_a_second_kit_of_statistics_would_be_seen(source: str) -> None:
    assert statistics_in(source)


def test_a_property_of_that_name_is_no_statistics() -> None:
    assert not statistics_in("x = layout.comb\ny = self.gamma")


VERDICTS = {
    *("PASS", "FAIL", "SUSPECT", "NO RESULT", "NOT ENOUGH DATA"),
    *("NO_RESULT", "NOT_ENOUGH_DATA"),
}
EXITS = {"exit", "Exit", "SystemExit"}


def names_a_verdict(tree: ast.AST) -> bool:
    """Return True if a verdict's word stands in an expression, or its constant."""
    return any(
        getattr(node, part, None) in VERDICTS
        for node in ast.walk(tree)
        for part in ("value", "id", "attr")
        if isinstance(getattr(node, part, None), str)
    )


def is_exit_code(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value in range(6)


def ends_with_a_code(branch: ast.AST) -> bool:
    """Return True if a branch returns or exits with a number that is an exit code."""
    for node in ast.walk(branch):
        if isinstance(node, ast.Return) and is_exit_code(node.value):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in EXITS:
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(map(is_exit_code, given)):
                return True
    return False


def turns_words_into_codes(tree: ast.AST) -> bool:
    """Return True if a file knows by itself which exit code a verdict's word has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            if any(key and names_a_verdict(key) and is_exit_code(code) for key, code in pairs):
                return True
        branches: list[ast.stmt] = []
        if isinstance(node, ast.IfExp) and names_a_verdict(node.test):
            branches = [ast.Return(node.body), ast.Return(node.orelse)]
        elif isinstance(node, ast.If | ast.match_case):
            asked = node.test if isinstance(node, ast.If) else node.pattern
            branches = node.body if names_a_verdict(asked) else []
        if any(map(ends_with_a_code, branches)):
            return True
    return False


def test_one_module_knows_the_exit_code_of_a_verdict(house: Any) -> None:
    found = [source.module for source in house.sources if turns_words_into_codes(source.tree)]
    # The gate is copied into other projects, so it imports nothing of ours.
    assert found == ["needlemap.servers.gate.gate_file", "needlemap.stats.verdicts"]


@pytest.mark.parametrize(
    "second",
    [
        "CODES = {'PASS': 0, 'FAIL': 1}",
        "CODES = {verdicts.FAIL: 1, verdicts.SUSPECT: 5}",
        "code = 1 if verdict.word == FAIL else 0",
        "def f(word):\n    if word == 'NOT ENOUGH DATA':\n        return 4\n    return 0",
        "if found.verdict.word in (FAIL, SUSPECT):\n    raise typer.Exit(code=1)",
        "match word:\n    case 'SUSPECT':\n        sys.exit(5)",
    ],
)
def test_a_second_table_of_exit_codes_would_be_seen(second: str) -> None:
    assert turns_words_into_codes(ast.parse(second))


@pytest.mark.parametrize(
    "plain",
    [
        "code = exit_code(NOT_ENOUGH_DATA)",
        "if verdict.word == FAIL:\n    tell('it fails')",
        "count = sum(1 for row in rows if row.state == FAIL)",
    ],
)
def test_a_word_that_becomes_no_code_is_none(plain: str) -> None:
    assert not turns_words_into_codes(ast.parse(plain))


# Kinds of failures that say something of the requests that follow.
OF_THE_NEXT = {"UNAUTHORISED", "RATE_LIMITED"}
# failures.py decides; faults.py reads a reply, and retry.py sends one request again.
POLICY = [
    "needlemap.asking.failures",
    "needlemap.asking.retry",
    "needlemap.http.faults",
]
IN_A_ROW = re.compile(r"in_a_row|in_row|consecutive|\bgone\b|_gone\b|failures_since")


def judges_the_next_request(tree: ast.AST) -> bool:
    """Return True if a file decides by itself what a failure means for the next requests.

    It compares a failure with a kind that all requests share, or counts failures in a row.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for part in ast.walk(node):
                is_kind = isinstance(part, ast.Attribute) and part.attr in OF_THE_NEXT
                if is_kind and ast.unparse(part).startswith(("Failure.", "errors.Failure.")):
                    return True
        if isinstance(node, ast.AugAssign) and IN_A_ROW.search(ast.unparse(node.target)):
            return True
    return False


def test_one_module_says_what_a_failure_means_for_the_next_requests(house: Any) -> None:
    """`run`, `check`, `storm`, `ab` and a drop-in class had a rule each, and these differed."""
    found = [source.module for source in house.sources if judges_the_next_request(source.tree)]
    assert found == POLICY


@pytest.mark.parametrize(
    "second",
    [
        "if error.failure is Failure.UNAUTHORISED:\n    stop()",
        "is_over = record.failure in (Failure.UNAUTHORISED, Failure.SERVER)",
        "def f(self, record):\n    self.failures_in_a_row += 1",
        "consecutive += record.answer is None",
    ],
)
def test_a_second_policy_for_failures_would_be_seen(second: str) -> None:
    assert judges_the_next_request(ast.parse(second))


@pytest.mark.parametrize(
    "plain",
    [
        "raise Unmeasured(Failure.UNAUTHORISED, 'no key')",
        "self.failures.take(record, length, outcome.hopeless, answered=True)",
        "if record.failure == Failure.TOO_LONG:\n    shorter()",
    ],
)
def test_a_failure_that_is_only_named_is_no_policy(plain: str) -> None:
    assert not judges_the_next_request(ast.parse(plain))
