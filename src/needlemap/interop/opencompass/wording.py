"""How context and question become a prompt: a template of {context} and {question}, and its guide.

The original's wording is not part of needlemap. Pass it as `template` to compare prompts byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from needlemap.errors import SettingsError, did_you_mean
from needlemap.templates import guided, load_template

LANGUAGES = {"Chinese": "chat-zh", "English": "chat-en"}
_PLACE = re.compile(r"\{(context|question)\}")


@dataclass(frozen=True, slots=True)
class Wording:
    """prompt: text with {context} and {question}. guide: a sentence for before guide_marker in the question.

    guided_suffix: what the first version appends to the question instead.
    """

    prompt: str
    guide: str = ""
    guide_marker: str = ""
    guided_suffix: str = ""

    @classmethod
    def of(cls, template: Mapping[str, str] | None, language: str) -> Wording:
        """The template given, else our own words in that language. Raises SettingsError."""
        if language not in LANGUAGES:
            raise SettingsError(f"Unknown language '{language}'. {did_you_mean(language, LANGUAGES)}")
        if template is None:
            return _own(language)
        for key in template:
            if key not in (known := [field.name for field in fields(cls)]):
                raise SettingsError(f"Unknown template key '{key}'. {did_you_mean(key, known)}")
        places = sorted(_PLACE.findall(template.get("prompt", "")))
        if places != ["context", "question"]:
            raise SettingsError("The template's 'prompt' must hold {context} once and {question} once.")
        return cls(**template)

    def asked(self, question: str) -> str:
        """The question with the guide before the marker, up to a second marker. Raises SettingsError."""
        if not self.guide:
            raise SettingsError("guide is on, but the template has no 'guide'. Add one, or pass guide=False.")
        if self.guide_marker not in question:
            raise SettingsError(
                f"The question does not hold the guide marker '{self.guide_marker}'. "
                "Add it to the question, change 'guide_marker', or pass guide=False."
            )
        return guided(question, self.guide, self.guide_marker)

    def filled(self, context: str, question: str) -> str:
        """The prompt. Nothing inside context or question is taken for a placeholder."""
        values = {"context": context, "question": question}
        parts = _PLACE.split(self.prompt)
        return "".join(values[part] if index % 2 else part for index, part in enumerate(parts))


def _own(language: str) -> Wording:
    """needlemap's chat template as one text."""
    template = load_template(LANGUAGES[language])
    text = "\n\n".join("".join(part.pieces) for part in template.parts)
    prompt = text.replace("\0haystack", "{context}").replace("\0question", "{question}")
    return Wording(prompt, template.guide, guided_suffix=guided("", template.guide))
