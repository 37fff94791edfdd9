"""Names that came from somewhere else, in our messages.

Problem. A name out of a file or a request may hold what a terminal obeys, a line break that forges a line of a log,
text that runs backwards, half a character, or a megabyte. Design. One function, through which every such name goes
on its way into a message. What comes out is printable, encodable and short.
"""

from __future__ import annotations

LONGEST = 80  # characters


def printable(text: str, longest: int = LONGEST) -> str:
    r"""The text with escapes (\n, \x1b, \u202e, \ud800) for whatever does not print; its first `longest` characters,
    and "..." where there are more.
    """
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:longest]
    )
    return shown + "..." * (len(text) > longest)
