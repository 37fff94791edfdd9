"""Contents for which there is no proof: found out once, refused from then on.

Problem. A client that sends the same bad witness again and again pays with our device each time; and where nobody knows
C, finding out costs two proofs and a known one. Design. Keyed digests of circuit and payload, with the error that was
found, the newest MAX_UNPROVABLE of them; the journal has the same, so a restart forgets none. Only errors that the same
bytes will always meet with count, and only where the bytes are those that came. Life. A partition fails -> its file is
what was accepted -> learn -> require_provable at every submit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from cuzkd.engine.journal.rows import MAX_UNPROVABLE, Unprovable
from cuzkd.errors import BY_CODE, InvalidInput, InvalidWitness, UnsatisfiedWitness, from_code

# Errors that the same bytes would meet with again.
LASTING = frozenset(code for code, error in BY_CODE.items() if issubclass(error, InvalidInput))
CODES = (InvalidWitness.code, UnsatisfiedWitness.code)


class UnprovableContents:
    """Owned by the engine's loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Unprovable] = OrderedDict()  # oldest first

    def restore(self, known: Iterable[Unprovable]) -> None:
        for what in known:
            self._add(what)

    def learn(self, content: bytes, code: str, message: str) -> Unprovable | None:
        """What is to be recorded of a failed partition; None for errors that say nothing of its content."""
        if code not in CODES or content in self._known:
            return None
        what = Unprovable(content, code, message)
        self._add(what)
        return what

    def require_provable(self, contents: Sequence[bytes]) -> None:
        """Raises the error of then when one of a job's partitions is known."""
        for index, content in enumerate(contents):
            if what := self._known.get(content):
                raise from_code(what.code, f"partition {index}: {what.message}")

    def _add(self, what: Unprovable) -> None:
        self._known[what.content] = what
        if len(self._known) > MAX_UNPROVABLE:
            self._known.popitem(last=False)
