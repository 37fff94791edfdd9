"""How deeply a JSON text is nested, and how much it holds, before a parser has a look at it.

Python's parser recurses in C: nested deeply enough, a text ends the process where a library (py_ecc does) has raised
the limit of recursion. And what it makes of a text takes up to fifty times the text's memory: three bytes, "[]," are
a list.
"""

from __future__ import annotations

import re

# Strings are passed over whole: a bracket in one must not make up for a bracket outside.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[][{}]', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def is_deeper(text: str, limit: int) -> bool:
    """Whether more than `limit` brackets are open at once somewhere. The text need not be JSON."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        depth += _STEP.get(token[0], 0)
        if depth > limit:
            return True
    return False


def most_values(text: str) -> int:
    """No fewer than there are values in a JSON text: each is the first inside of a bracket, or follows a comma. Commas
    inside of strings count, too. A value takes some 120 bytes when it is parsed (the object of one), and its digits.
    """
    return sum(map(text.count, "[{,")) + 1
