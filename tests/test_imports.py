"""Importing the package, and asking for help, loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROVIDERS = ("openai", "anthropic", "httpx", "transformers", "torch", "huggingface_hub")
DRAWING = ("resvg_py", "vl_convert", "matplotlib", "pandas")
HELP = """
import sys
from needlemap.cli import app
try:
    app(["run", "--help"])
except SystemExit:
    pass
"""


def loaded(code: str) -> set[str]:
    """The top-level modules that a fresh process has loaded after some code."""
    show = "\nprint('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}{show}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_no_library():
    found = loaded("import needlemap")
    assert found.isdisjoint(
        (*PROVIDERS, *DRAWING, "numpy", "pydantic", "tokenizers", "quicktok", "rich")
    )


def test_help_loads_no_provider_and_draws_nothing():
    found = loaded(HELP)
    assert "typer" in found
    assert found.isdisjoint(
        (*PROVIDERS, *DRAWING, "numpy", "quicktok", "tokenizers", "sentencepiece")
    )


@pytest.mark.parametrize(
    "module", ["text.tokens", "prompts.placement", "trials.build", "settings.reading", "tokenizers"]
)
def test_building_prompts_needs_no_provider(module):
    assert loaded(f"import needlemap.{module}").isdisjoint((*PROVIDERS, *DRAWING))


def test_building_prompts_alone_reads_no_packages_metadata_and_starts_no_thread():
    """That was a third of a cold start: which packages an extra has, and a time limit's future."""
    modules = "haystacks.folder", "prompts.placement", "prompts.templates", "tokenizers", "tasks"
    code = "\n".join(f"import needlemap.{module}" for module in modules)
    found = loaded(f"{code}\nsys.modules = {{name.replace('.', '_'): 0 for name in sys.modules}}")
    assert found.isdisjoint(("importlib_metadata", "concurrent_futures"))


def test_a_vocabulary_is_loaded_only_when_it_is_named():
    found = loaded("from needlemap.tokenizers import load; load('gpt-4')")
    assert "quicktok" in found
    assert found.isdisjoint(("tokenizers", "sentencepiece", "huggingface_hub"))


def test_a_report_loads_nothing_that_sends_prompts():
    """`report` took a function to print JSON from a module that runs a model: .12 s a start.
    for the terminal."""
    code = "import needlemap.commands.report"
    found = loaded(f"{code}\nsys.modules = {{name.replace('.', '_'): 0 for name in sys.modules}}")
    assert "needlemap_commands_report" in found
    assert found.isdisjoint(("needlemap_asking", "needlemap_tasks", "tokenizers", "rich_console"))
