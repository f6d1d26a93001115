"""Reproduce the needlehaystack family (gkamradt's test and prabha-git's fork) byte for byte.

`context` returns a haystack with one needle or several; `lengths` and `depths` return the grids.
`OpenAIEvaluator` and `AnthropicEvaluator` are the family's testers; derive other testers from
`LLMNeedleHaystackTester`. Habits of the originals are kept: needles go behind a bare '.' token, 200
tokens are left free, and `context` slices from the end for impossible lengths (the testers refuse
them). Three things differ: files are read in the order of their names and as UTF-8, an empty folder
is an error at once, and special-token text is plain text.

Keyword arguments, methods, prints, file names and JSON keys are the originals'. The messages around
haystack and question, and those of the judge, are needlemap's own words; `template` or
`generate_prompt` takes others. For new work use `needlemap run`, because these files do not say
which question, prompt and scorer an answer belongs to.
"""

from needlemap.interop.needlehaystack.contexts import context
from needlemap.interop.needlehaystack.parameters import depths, lengths
from needlemap.interop.needlehaystack.tester import (
    AnthropicEvaluator,
    LLMNeedleHaystackTester,
    OpenAIEvaluator,
)

__all__ = [
    "AnthropicEvaluator",
    "LLMNeedleHaystackTester",
    "OpenAIEvaluator",
    "context",
    "depths",
    "lengths",
]
