"""Texts of strangers (models, servers, files): as a terminal may show them, and what an answer
names.

For both a text is made plain first. Nothing of it moves a cursor or hides what follows; `show`
is the one way to show any text. An answer is compared by the one rule of all scorers of words
and values: after Unicode's NFKC and case folding, with one kind of hyphen; and a word is only
found whole: '12' is not in '3124', nor 'red-fox' in 'red-foxes'. Scripts without spaces have
no such ends. Thousands may be parted (1,234), a hyphen may be a space, and a name's number may
stand apart (x 7, x_{7}). Words with spaces are found over line breaks and emphasis too; beside
Han and kana, white space says nothing. A fraction is another number (12 is not in 12.5), a
longer compound another word (red-fox in infra-red-fox).
"""

from needlemap.text.matching import (
    any_of,
    but,
    held,
    hexadecimal,
    index_of,
    is_own_pattern,
    named,
    number,
    plain,
    shape,
    ungrouped,
)
from needlemap.text.printing import (
    FORMULA_STARTS,
    LINE_BREAKS,
    counted,
    dollars,
    printable,
    short,
    show,
    show_data,
    sound_streams,
    tell,
    whole_characters,
)

__all__ = [
    "FORMULA_STARTS",
    "LINE_BREAKS",
    "any_of",
    "but",
    "counted",
    "dollars",
    "held",
    "hexadecimal",
    "index_of",
    "is_own_pattern",
    "named",
    "number",
    "plain",
    "printable",
    "shape",
    "short",
    "show",
    "show_data",
    "sound_streams",
    "tell",
    "ungrouped",
    "whole_characters",
]
