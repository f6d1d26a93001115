"""Nothing heavy is imported until a report is asked for."""

from __future__ import annotations

import subprocess
import sys


def test_tables_and_figure_do_not_import_drawing_libraries() -> None:
    code = (
        "import sys, needlemap, needlemap.reports.table, needlemap.reports.figures.figure\n"
        "print([name for name in ('resvg_py', 'rich', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
