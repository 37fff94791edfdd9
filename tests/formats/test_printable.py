"""Names in messages: whatever comes in, what comes out is printable, encodable and short."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzkd.formats.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("pts[0].x", "pts[0].x"),
        ("Größe 秘", "Größe 秘"),
        ("\x1b[2J\n\0", r"\x1b[2J\n\x00"),
        ("\u202e\u2028\ud800", r"\u202e\u2028\ud800"),
        ("a" * 80, "a" * 80),
        ("a" * 81, "a" * 80 + "..."),
    ],
)
def test_what_is_shown(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=[]), max_size=200), st.integers(0, 200))
def test_any_text(text, longest):
    shown = printable(text, longest)
    assert shown.isprintable() and shown.encode() and len(shown) <= 10 * longest + 3 if text else shown == ""
