"""Measure the structure of the source. It gates nothing: what must hold is in tests/test_house.py.

`python tools/house.py` prints the figures: files, lines, syntax nodes and imports by package and of
the core, floors of packages, classes of one name, heavy `__init__`, import chains and circles, long
functions, tests marked `long`. `--before COMMIT` sets those of a commit beside them. `--day` types
what people type on an ordinary day and prints which modules that loads and which share of the
functions it calls, and what an installation takes on the disk. `--walk MODULE`: what one module
reaches.

A syntax node is one that says something: docstrings, annotations and contexts (whether a name is
read or set) do not count, so neither wrapping nor types change the number. Late imports count;
those under `if TYPE_CHECKING` only where circles are looked for. A circle counts with all its files
in a chain.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, distribution
from io import BytesIO
from pathlib import Path
from statistics import mean
from subprocess import run
from tarfile import open as open_archive
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
FUNCTION_LINES, INIT_LINES, LINE_LENGTH = 60, 150, 95
WINGS = ("servers", "suites", "interop", "cluster", "training")
_NAMED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file. module: its dotted name, a package's without `__init__`."""

    module: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def code(self) -> list[str]:
        """Lines that are neither blank, comment nor docstring."""
        named = (node for node in ast.walk(self.tree) if isinstance(node, _NAMED))
        outside = {line for node in named for line in _docstring(node)}
        lines = [line for n, line in enumerate(self.text.splitlines(), 1) if n not in outside]
        return [line for line in lines if line.strip() and not line.strip().startswith("#")]

    @cached_property
    def lines(self) -> list[str]:
        """Lines that are not blank."""
        return [line for line in self.text.splitlines() if line.strip()]

    @property
    def package(self) -> str:
        """The folder that it lies in, of the package's; '' at the root."""
        parts = self.module.split(".")
        folder = self.path.name == "__init__.py"
        return parts[1] if len(parts) > 2 or (folder and len(parts) == 2) else ""

    def nodes(self) -> int:
        """Syntax nodes without docstrings, annotations and contexts."""
        return sum(1 for _ in _telling(self.tree))

    def classes(self) -> Iterator[str]:
        """Names of its classes."""
        yield from (node.name for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))

    def functions(self) -> Iterator[tuple[str, int, bool]]:
        """Of each function its name, its lines from `def` to the end, and whether it has a
        docstring."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                yield f"{self.module}.{node.name}", lines, bool(_docstring(node))

    def imports(self, modules: Iterable[str], types: bool = False) -> set[str]:
        """The modules that this file imports when it runs, late ones too; types: and for types."""
        known = set(modules)
        names = _imported(self.tree, types)
        return {found for name in names if (found := _within(name, known))} - {self.module}


def _characters(lines: Sequence[str]) -> float:
    """Characters a line in the mean, without what indents it."""
    return round(mean(len(line.strip()) for line in lines), 1)


def _over(lines: Sequence[str]) -> float:
    """Percent of lines that are too long."""
    return round(100 * mean(len(line) > LINE_LENGTH for line in lines), 1)


def _docstring(node: _NAMED) -> range:
    if ast.get_docstring(node, clean=False) is None:
        return range(0)
    return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def _telling(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those under it that say something."""
    yield node
    skipped = {"annotation", "returns", "ctx", "type_params"}
    for name, value in ast.iter_fields(node):
        if name in skipped:
            continue
        below = value if isinstance(value, list) else [value]
        if name == "body" and isinstance(node, _NAMED) and _docstring(node):
            below = below[1:]
        for each in below:
            if isinstance(each, ast.AST):
                yield from _telling(each)


def _imported(node: ast.AST, types: bool) -> Iterator[str]:
    """Dotted names that the import statements under a node may mean."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    of_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    below = node.orelse if of_types and not types else ast.iter_child_nodes(node)
    for child in below:
        yield from _imported(child, types)


def _within(name: str, known: set[str]) -> str | None:
    """The module that holds a dotted name."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


@dataclass(frozen=True)
class House:
    """All files of a source folder, and who imports whom."""

    sources: tuple[Source, ...]

    @classmethod
    def read(cls, folder: Path) -> House:
        paths = sorted(folder.rglob("*.py"))
        names = (".".join(path.relative_to(folder).with_suffix("").parts) for path in paths)
        return cls(
            tuple(
                Source(name.removesuffix(".__init__"), path)
                for name, path in zip(names, paths, strict=True)
            )
        )

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        modules = [source.module for source in self.sources]
        return {source.module: source.imports(modules) for source in self.sources}

    @cached_property
    def reach(self) -> dict[str, set[str]]:
        """All that a module imports, itself or through others."""
        reach = {}
        for module in self.graph:
            found, ahead = set[str](), [module]
            while ahead:
                new = self.graph[ahead.pop()] - found
                found |= new
                ahead += new
            reach[module] = found
        return reach

    @cached_property
    def with_types(self) -> House:
        """The same house, where imports for types count."""
        modules = [source.module for source in self.sources]
        made = House(self.sources)
        made.__dict__["graph"] = {
            source.module: source.imports(modules, types=True) for source in self.sources
        }
        return made

    def circles(self) -> list[list[str]]:
        """Groups of files that import each other."""
        groups = {frozenset(self._group(module)) for module in self.graph}
        return sorted(sorted(group) for group in groups if len(group) > 1)

    def _group(self, module: str) -> set[str]:
        return {module} | {other for other in self.reach[module] if module in self.reach[other]}

    @cached_property
    def nodes(self) -> Counter[str]:
        """Syntax nodes by package."""
        found = Counter[str]()
        for source in self.sources:
            found[source.package or "(root)"] += source.nodes()
        return found

    def twins(self) -> dict[str, int]:
        """Class names that occur several times, and how often."""
        found = Counter(name for source in self.sources for name in source.classes())
        return {name: n for name, n in sorted(found.items()) if n > 1}

    def heavy(self) -> dict[str, int]:
        """`__init__` files with too many lines, blank ones and docstrings too, and how many."""
        inits = [each for each in self.sources if each.path.name == "__init__.py"]
        lengths = {each.module: len(each.text.splitlines()) for each in inits}
        return {module: n for module, n in lengths.items() if n > INIT_LINES}

    def longest_chain(self) -> list[str]:
        """The longest way down through imports; a circle stands with all its files."""
        best: dict[str, list[str]] = {}
        for module in sorted(self.graph, key=lambda module: len(self.reach[module] | {module})):
            group = sorted(self._group(module), key=lambda other: other != module)
            below = {name for other in group for name in self.graph[other]} - set(group)
            best[module] = group + max((best[name] for name in sorted(below)), key=len, default=[])
        return max(best.values(), key=len)

    def root(self) -> list[str]:
        """Modules at the root of the package, `__init__` too."""
        return sorted(each.path.name for each in self.sources if not each.package)

    def figures(self) -> dict[str, float]:
        """What is compared with a commit."""
        code = [line for source in self.sources for line in source.code]
        lines = [line for source in self.sources for line in source.lines]
        functions = [found for source in self.sources for found in source.functions()]
        return {
            "files": len(self.sources),
            "lines": sum(len(source.text.splitlines()) for source in self.sources),
            "code lines": len(code),
            "characters a code line": _characters(code),
            "characters a line": _characters(lines),
            f"% of code lines over {LINE_LENGTH}": _over(code),
            f"% of lines over {LINE_LENGTH}": _over(lines),
            "functions": len(functions),
            "% of functions with a docstring": round(100 * mean(each[2] for each in functions), 1),
            "class names twice": len(self.twins()),
            f"__init__ over {INIT_LINES} lines": len(self.heavy()),
            "circles": len(self.circles()),
            "circles, imports for types too": len(self.with_types.circles()),
            "longest chain": len(self.longest_chain()),
            "root modules": len(self.root()),
            "floors of packages": self.floors(),
            "imports": sum(map(len, self.graph.values())),
            "syntax nodes": sum(self.nodes.values()),
            **self._by_package(),
        }

    def floors(self) -> int:
        """How many packages stand one above the other, each of which imports the next."""
        packages = {source.package for source in self.sources}
        below: dict[str, set[str]] = {name: set() for name in packages}
        package_of = {source.module: source.package for source in self.sources}
        for module, imported in self.graph.items():
            below[package_of[module]] |= {package_of[name] for name in imported}
        heights = dict.fromkeys(packages, 1)
        # A circle of packages would never end: as many rounds as there are packages are enough.
        for _ in packages:
            for name in packages:
                others = below[name] - {name}
                heights[name] = 1 + max((heights[other] for other in others), default=0)
            if max(heights.values()) > len(packages):
                return len(packages)
        return max(heights.values())

    def _by_package(self) -> dict[str, float]:
        """Files, lines, syntax nodes and imports of each package, and of all that is no wing."""
        figures = dict[str, float]()
        packages = sorted({source.package for source in self.sources})
        groups = {name or "(root)": {name} for name in packages}
        groups["core"] = {*packages} - {*WINGS}
        for shown, group in groups.items():
            sources = [source for source in self.sources if source.package in group]
            figures[f"  {shown}: files"] = len(sources)
            figures[f"  {shown}: lines"] = sum(len(each.text.splitlines()) for each in sources)
            figures[f"  {shown}: nodes"] = sum(source.nodes() for source in sources)
            figures[f"  {shown}: imports"] = sum(len(self.graph[each.module]) for each in sources)
        return figures


def compared(now: dict[str, float], before: dict[str, float]) -> list[str]:
    """A row a figure: before, now and the change in percent."""
    rows = []
    for name in [*now, *(name for name in before if name not in now)]:
        was, is_now = before.get(name, 0), now.get(name, 0)
        change = f"{100 * (is_now - was) / was:+.1f} %" if was else ""
        rows.append(f"{name:34}{was:>10,g}{is_now:>10,g}{change:>10}")
    return rows


GRID = "--lengths 500:3000:4 --depths 0:100:5 --repeats 2"
A, B = (f"--model baseline/bm25 --model-options window={n} {GRID}" for n in (1800, 900))
DAY = (
    *(f"run {A} -o a", f"run {A} -o a", f"run {B} -o b", "report a", "report a -o a.png"),
    *("report a -o a.html", "report a -o a.csv", "report a b -o ab.html", "compare a b"),
    *(f"plan {A}", "list tasks", "--help", "run --help", "score --help"),
    "run --task multikey --model baseline/bm25 --lengths 1000,2000 --repeats 2 -o mk",
)
# Runs one command, then prints its modules and the places of the functions that it called.
WATCHED = """
import json, sys, threading
called = set()
def watch(frame, event, argument):
    if event == "call" and "needlemap" in frame.f_code.co_filename:
        called.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
threading.setprofile(watch)
sys.setprofile(watch)
try:
    from needlemap.cli import main
    main()
except SystemExit:
    pass
sys.setprofile(None)
loaded = [name for name in sys.modules if name.split(".")[0] == "needlemap"]
print("\\n" + json.dumps([loaded, sorted(called)]))
"""


def day(root: Path) -> dict[str, float]:
    """What the commands of an ordinary day load and call. root: of a checkout."""
    source = root / "src"
    house = House.read(source)
    functions = {(str(each.path), line) for each in house.sources for line in first_lines(each)}
    loaded, called, by_report = set[str](), set[tuple[str, int]](), 0
    with TemporaryDirectory() as folder:
        write_metadata(root, Path(folder) / "site")
        path = os.pathsep.join((str(Path(folder) / "site"), str(source)))
        for line in DAY:
            command = [sys.executable, "-c", WATCHED, *line.split()]
            done = run(
                command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True
            )
            modules, places = json.loads(done.stdout.splitlines()[-1])
            loaded |= set(modules)
            called |= {(name, first) for name, first in places}
            by_report = len(modules) if line == "report a" else by_report
    return {
        "modules that a day loads": len(loaded),
        "modules that `report a` loads": by_report,
        "% of functions that a day calls": round(100 * len(called & functions) / len(functions), 1),
    }


def first_lines(source: Source) -> Iterator[int]:
    """The first line of each function, its decorators included."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield min([node.lineno, *(each.lineno for each in node.decorator_list)])


def write_metadata(root: Path, site: Path) -> None:
    """Write what an installation of a checkout would tell of its entry points."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    about = site / f"needlemap-{project['version']}.dist-info"
    about.mkdir(parents=True)
    lines = list[str]()
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    name, version = project["name"], project["version"]
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def installed_mb(root: Path) -> float:
    """Megabytes of all files of the packages that the core needs, as they are installed here, and
    of its own source."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    names, ahead = set[str](), list(project["dependencies"])
    size = sum(path.stat().st_size for path in (root / "src").rglob("*") if path.suffix != ".pyc")
    while ahead:
        requirement = ahead.pop()
        name = re.split(r"[^\w.-]", requirement)[0].lower()
        if name in names or ";" in requirement:
            continue
        names.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        ahead += found.requires or []
        size += sum(file.size or 0 for file in found.files or ())
    return round(size / 1e6, 1)


def of_tests(root: Path) -> dict[str, float]:
    """Lines of tests, and how many are marked `long`."""
    texts = [path.read_text("utf-8") for path in sorted((root / "tests").rglob("*.py"))]
    marked = sum(text.count("mark.long") for text in texts)
    return {
        "test lines": sum(text.count("\n") for text in texts),
        "marks `long` in tests": marked,
    }


def all_figures(root: Path, with_day: bool) -> dict[str, float]:
    """All figures of a checkout."""
    more = {**day(root), "installed MB": installed_mb(root)} if with_day else {}
    return {**of_tests(root), **more, **House.read(root / "src").figures()}


def of_commit(commit: str, with_day: bool) -> dict[str, float]:
    """The figures of a commit."""
    command = ["git", "archive", commit, "src", "tests", "pyproject.toml"]
    packed = run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with TemporaryDirectory() as folder:
        with open_archive(fileobj=BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        return all_figures(Path(folder), with_day)


def report(house: House, before: str = "", with_day: bool = False) -> str:
    """All figures, and what stands out."""
    figures = all_figures(ROOT, with_day)
    rows = compared(figures, of_commit(before, with_day)) if before else []
    rows = rows or [f"{name:34}{value:>10,g}" for name, value in figures.items()]
    functions = [found for source in house.sources for found in source.functions()]
    lines = [
        *rows,
        f"class names twice: {', '.join(f'{name} {n}' for name, n in house.twins().items())}",
        f"heavy __init__: {', '.join(f'{name} {n}' for name, n in house.heavy().items())}",
        f"root modules: {' '.join(house.root())}",
        f"longest chain: {' '.join(house.longest_chain())}",
        *(f"circle: {' '.join(circle)}" for circle in house.with_types.circles()),
        f"functions over {FUNCTION_LINES} lines",
        *(f"  {n} {name}" for name, n, _ in functions if n > FUNCTION_LINES),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the structure of the source.")
    parser.add_argument("--walk", metavar="MODULE", help="print all modules that this one reaches")
    parser.add_argument("--before", metavar="COMMIT", default="", help="also of a commit")
    parser.add_argument("--day", action="store_true", help="also of an ordinary day's commands")
    chosen = parser.parse_args()
    house = House.read(SOURCE)
    if chosen.walk:
        print("\n".join(sorted(house.reach[chosen.walk])))
    else:
        print(report(house, chosen.before, chosen.day))


if __name__ == "__main__":
    main()
