"""Tokens and their owners: how the file is read, and who is told apart by it."""

import pytest

from cuzkd.errors import InvalidInput
from cuzkd.service import owners

A, B = "a" * 16, "b" * 20


def test_a_token_alone_has_the_default_owner():
    assert owners.parse(f"  {A}\n\n", "file") == (owners.Token("default", A),)


def test_lines_name_owners():
    text = f"# made by hand\nalice {A}\n\nbob.2\t{B}\n  alice {A}x\n"
    tokens = owners.parse(text, "file")
    assert [(token.owner, token.secret) for token in tokens] == [
        ("alice", A),
        ("bob.2", B),
        ("alice", A + "x"),
    ]
    assert owners.find(tokens, f"Bearer {A}") == "alice" == owners.find(tokens, f"Bearer {A}x")
    assert owners.find(tokens, f"Bearer {B}") == "bob.2"
    for wrong in (
        "",
        A,
        f"bearer {A}",
        f"Bearer {A} ",
        f"Bearer {A}y",
        "Bearer ",
        "Bearer alice",
        "Bearer \udcff\u20ac",
    ):
        assert owners.find(tokens, wrong) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no token"),
        ("# only words\n", "no token"),
        ("short", "line 1: a token has at least 16"),
        (f"alice {A}\nbob short", "line 2: a token has at least 16"),
        (f"alice {A}\n{B}", "line 2: expected NAME TOKEN"),
        (f"{A}\n{B}", "line 1: expected NAME TOKEN"),
        (f"alice {A} {B}", "line 1: expected NAME TOKEN"),
        (f"../x {A}", "line 1: expected NAME TOKEN"),
        (f"alice {A}\nbob {A}", "line 2: this token has an owner already"),
        ("ä" * 20, "all ASCII"),
    ],
)
def test_what_is_wrong_is_named_by_its_line_and_no_token_is_shown(text, says):
    with pytest.raises(InvalidInput) as caught:
        owners.parse(text, "the-file")
    assert says in str(caught.value) and "the-file" in str(caught.value)
    assert A not in str(caught.value) and B not in str(caught.value)


def test_nobody_prints_a_token():
    (token,) = owners.parse(A, "file")
    assert A not in repr(token)


def test_outside_of_a_call_there_is_no_owner():
    assert owners.current() == ""
