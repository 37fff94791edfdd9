"""Whose call is it? Names of callers, by the bearer token that they send.

Problem: ids of jobs are short words that clients choose; whoever shares a daemon with strangers must neither see
nor end their jobs, nor collide with their ids.
Design: the token file gives each token the name of its owner. The `Tokens` interceptor finds the owner of a call
and puts the name into the call's own context; handlers hand it to the engine, which shows a job to its owner
alone. A daemon without tokens (a Unix socket, loopback) tells nobody apart: its callers are all "".
Life of data: tokens are read once at start and compared in constant time; they are logged nowhere.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from cuzkd.errors import InvalidInput

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DEFAULT = "default"  # owner of a token that stands alone
MIN_TOKEN = 16  # characters

_owner: ContextVar[str] = ContextVar("owner", default="")


@dataclass(frozen=True)
class Token:
    owner: str
    secret: str = field(repr=False)


def parse(text: str, where: str) -> tuple[Token, ...]:
    """The tokens of a file: one alone, or lines of "NAME TOKEN"; empty lines and lines with # in front are passed
    over. An owner may have several tokens, a token has one owner. Raises InvalidInput, naming the line.
    """
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, words) for number, words in lines if words and not words[0].startswith("#")]
    if len(lines) == 1 and len(lines[0][1]) == 1:
        tokens = [Token(DEFAULT, lines[0][1][0])]
        numbers = [lines[0][0]]
    else:
        tokens, numbers = [], []
        for number, words in lines:
            if len(words) != 2 or not NAME.fullmatch(words[0]):
                raise InvalidInput(
                    f"[security] {where}, line {number}: expected NAME TOKEN (or one token alone in the file), "
                    f"got {len(words)} words"
                )
            tokens.append(Token(*words))
            numbers.append(number)
    if not tokens:
        raise InvalidInput(f"[security] {where}: holds no token")
    seen: set[str] = set()
    for number, token in zip(numbers, tokens, strict=True):
        if len(token.secret) < MIN_TOKEN or not token.secret.isascii():
            raise InvalidInput(
                f"[security] {where}, line {number}: a token has at least {MIN_TOKEN} characters, all ASCII"
            )
        if token.secret in seen:
            raise InvalidInput(f"[security] {where}, line {number}: this token has an owner already")
        seen.add(token.secret)
    return tuple(tokens)


def find(tokens: Sequence[Token], authorization: str) -> str | None:
    """The owner of a call by its `authorization` metadata; None: nobody's. Takes as long whichever token it is."""
    given, found = authorization.encode("utf-8", "backslashreplace"), None
    for token in tokens:
        if hmac.compare_digest(given, f"Bearer {token.secret}".encode()):
            found = token.owner
    return found


def enter(owner: str) -> None:
    """The call that runs in this context is this owner's."""
    _owner.set(owner)


def current() -> str:
    """Whose call this is; "" where nobody is told apart."""
    return _owner.get()
