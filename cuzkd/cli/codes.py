"""Exit codes: one number for each thing that a script would do next."""

from __future__ import annotations

from cuzkd.errors import (
    AlreadyExists,
    Cancelled,
    CuzkdError,
    DeadlineExceeded,
    Exhausted,
    InvalidInput,
    InvalidKey,
    NeverFits,
    NotFound,
    Unavailable,
    UnsatisfiedWitness,
    Unsupported,
)

DONE, NO, WRONG_INPUT, NOT_NOW, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 4, 130


def exit_code(error: CuzkdError) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, UnsatisfiedWitness | Cancelled):
        return NO
    if isinstance(error, InvalidInput | InvalidKey | NotFound | AlreadyExists | NeverFits | Unsupported):
        return WRONG_INPUT
    return NOT_NOW if isinstance(error, Unavailable | Exhausted | DeadlineExceeded) else INTERNAL
