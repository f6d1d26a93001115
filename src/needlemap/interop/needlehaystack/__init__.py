"""The needlehaystack family (gkamradt's test, prabha-git's fork of it), byte for byte, over
needlemap's core.

`context`: haystack with needles, single or several. `lengths`, `depths`: the grids.
`OpenAIEvaluator`, `AnthropicEvaluator`: their testers; `LLMNeedleHaystackTester`: to derive
one's own from. Habits are kept: needles go behind a bare '.' token, 200 tokens are left free,
`context` slices from the end for impossible lengths (the testers refuse them). What differs:
file names are sorted and read as UTF-8, an empty folder is an error at once, special-token
text is plain text.

Keyword arguments, methods, prints, file names and JSON keys are the originals'. The messages
around haystack and question, and the judge's, are needlemap's own words (`template`, or
`generate_prompt`, takes others). For new work use `needlemap run`: these files do not say
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
