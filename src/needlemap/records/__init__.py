"""Read and write what lies on disk of a run: run.json, its records, and a suite's documents.

`RunFile` is run.json, `Record` a record's line, `RunFolder` one run's folder, `Families` the
folders of a run with several families, `Loaded` a run that was read whole.
"""

from needlemap.records.differences import contrast, phrase, prompt_contrast
from needlemap.records.rescoring import how_to_score, outdated
from needlemap.records.run_file import RUN, RuledScorer, RunFile

__all__ = [
    "RUN",
    "RuledScorer",
    "RunFile",
    "contrast",
    "how_to_score",
    "outdated",
    "phrase",
    "prompt_contrast",
]
