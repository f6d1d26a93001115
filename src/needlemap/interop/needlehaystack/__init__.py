"""The needlehaystack family (gkamradt's test, prabha-git's fork of it), byte for byte, over needlemap's core.

`context`: haystack with needles, single or several. `lengths`, `depths`: the grids. `OpenAIEvaluator`,
`AnthropicEvaluator`: their testers; `LLMNeedleHaystackTester`: to derive one's own from. Habits are kept:
needles go behind a bare '.' token, 200 tokens are left free, `context` slices from the end for impossible
lengths (the testers refuse them). What differs: file names are sorted and read as UTF-8, an empty folder is
an error at once, special-token text is plain text.
"""

from needlemap.interop.needlehaystack.contexts import context
from needlemap.interop.needlehaystack.evaluators import (
    AnthropicEvaluator,
    LLMNeedleHaystackTester,
    OpenAIEvaluator,
)
from needlemap.interop.needlehaystack.parameters import depths, lengths

__all__ = ["AnthropicEvaluator", "LLMNeedleHaystackTester", "OpenAIEvaluator", "context", "depths", "lengths"]
