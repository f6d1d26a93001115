"""All that an extension imports: a model, task, scorer, haystack, tokenizer or probe of one's own
needs this module alone. Where its names come from may change; these names stay."""

from __future__ import annotations

from needlemap.check.finding import AtSize
from needlemap.check.probe import Probe
from needlemap.errors import Failure, HaystackError, SettingsError, Unmeasured, VocabularyMissing
from needlemap.grid import Cell
from needlemap.haystacks import Document, Source
from needlemap.models import Answer, Decoding, Forced, Logprobs, Model, Traits
from needlemap.prompts import Prompt
from needlemap.registry import Checked
from needlemap.scorers import Score, Scorer
from needlemap.tasks import Background, Draw, Item, Needle, ReadyPrompt, Reference, Task
from needlemap.text.tokens import Tokenizer, TokenText

__all__ = [
    "Answer",
    "AtSize",
    "Background",
    "Cell",
    "Checked",
    "Decoding",
    "Document",
    "Draw",
    "Failure",
    "Forced",
    "HaystackError",
    "Item",
    "Logprobs",
    "Model",
    "Needle",
    "Probe",
    "Prompt",
    "ReadyPrompt",
    "Reference",
    "Score",
    "Scorer",
    "SettingsError",
    "Source",
    "Task",
    "TokenText",
    "Tokenizer",
    "Traits",
    "Unmeasured",
    "VocabularyMissing",
]
