"""Handle texts of strangers (models, servers, files): print them, and find what an answer names.

Both start with a plain text. `show` is the only way to print any text: nothing in it moves a cursor
or hides what follows.

All scorers of words and values compare by one rule: after Unicode's NFKC and case folding, with one
kind of hyphen.

* A word is only found whole: '12' is not in '3124', nor 'red-fox' in 'red-foxes'. Scripts without
  spaces have no such ends.
* Thousands may be grouped (1,234), a hyphen may be a space, and a name's number may stand apart
  (x 7, x_{7}).
* Words with spaces are also found over line breaks and emphasis. Next to Han and kana, white space
  has no meaning.
* A fraction is another number (12 is not in 12.5), and a longer compound is another word (red-fox
  is not in infra-red-fox).
"""

from needlemap.text.matching import (
    any_of,
    but,
    contains,
    hexadecimal,
    index_of,
    is_own_pattern,
    named,
    needs_space,
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
    end_output,
    printable,
    short,
    show,
    show_data,
    show_json,
    sound_streams,
    tell,
    whole_characters,
    xml_text,
)

__all__ = [
    "FORMULA_STARTS",
    "LINE_BREAKS",
    "any_of",
    "but",
    "contains",
    "counted",
    "dollars",
    "end_output",
    "hexadecimal",
    "index_of",
    "is_own_pattern",
    "named",
    "needs_space",
    "number",
    "plain",
    "printable",
    "shape",
    "short",
    "show",
    "show_data",
    "show_json",
    "sound_streams",
    "tell",
    "ungrouped",
    "whole_characters",
    "xml_text",
]
