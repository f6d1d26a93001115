"""Measure the structure of the source: files, code lines, root modules, import chains, circles,
functions.

`python tools/house.py` prints the figures and what is too long. `--walk MODULE`: what one module
reaches. Late imports count, those under `if TYPE_CHECKING` do not. A circle counts with all its
files in a chain.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
FUNCTION_LINES = 60
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

    def code_lines(self) -> int:
        """Lines that are neither blank, comment nor docstring."""
        named = (node for node in ast.walk(self.tree) if isinstance(node, _NAMED))
        outside = {line for node in named for line in _docstring(node)}
        lines = [
            line.strip() for n, line in enumerate(self.text.splitlines(), 1) if n not in outside
        ]
        return sum(bool(line) and not line.startswith("#") for line in lines)

    def functions(self) -> Iterator[tuple[str, int, bool]]:
        """Of each function its name, its lines from `def` to the end, and whether it has a
        docstring."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                yield f"{self.module}.{node.name}", lines, bool(_docstring(node))

    def imports(self, modules: Iterable[str]) -> set[str]:
        """The modules that this file imports when it runs, late ones too."""
        known = set(modules)
        return {found for name in _imported(self.tree) if (found := _within(name, known))} - {
            self.module
        }


def _docstring(node: _NAMED) -> range:
    if ast.get_docstring(node, clean=False) is None:
        return range(0)
    return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def _imported(node: ast.AST) -> Iterator[str]:
    """Dotted names that the import statements under a node may mean."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    inside = (
        node.orelse
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        else None
    )
    for child in ast.iter_child_nodes(node) if inside is None else inside:
        yield from _imported(child)


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

    def circles(self) -> list[list[str]]:
        """Groups of files that import each other."""
        groups = {frozenset(self._group(module)) for module in self.graph}
        return sorted(sorted(group) for group in groups if len(group) > 1)

    def _group(self, module: str) -> set[str]:
        return {module} | {other for other in self.reach[module] if module in self.reach[other]}

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
        return sorted(path.name for path in (SOURCE / "needlemap").glob("*.py"))


def report(house: House) -> str:
    chain, circles, root = house.longest_chain(), house.circles(), house.root()
    functions = [found for source in house.sources for found in source.functions()]
    documented = sum(found[2] for found in functions)
    lines = [
        f"files {len(house.sources)}",
        f"code lines {sum(source.code_lines() for source in house.sources)}",
        f"functions {len(functions)}, with a docstring {documented / len(functions):.1%}",
        f"root modules {len(root)}: {' '.join(root)}",
        f"longest chain {len(chain)}: {' '.join(chain)}",
        f"circles {len(circles)}",
        *(f"  {' '.join(circle)}" for circle in circles),
        f"functions over {FUNCTION_LINES} lines",
        *(f"  {n} {name}" for name, n, _ in functions if n > FUNCTION_LINES),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the structure of the source.")
    parser.add_argument("--walk", metavar="MODULE", help="print all modules that this one reaches")
    chosen = parser.parse_args()
    house = House.read(SOURCE)
    print("\n".join(sorted(house.reach[chosen.walk])) if chosen.walk else report(house))


if __name__ == "__main__":
    main()
