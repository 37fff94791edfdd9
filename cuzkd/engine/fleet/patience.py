"""How long a partition may be in a stage before its prover is thought to hang.

Estimates know what earlier ones took; where there were none, the size of the circuit's domain must do.
"""

from __future__ import annotations

from collections.abc import Callable

from cuzkd.engine.job import Stage, Ticket
from cuzkd.engine.scheduling.estimates import Estimates
from cuzkd.errors import CuzkdError

LARGEST = 28  # logarithm of a domain: assumed of a circuit that cannot be looked at any more


class Patience:
    """least_s: nothing hangs sooner. log_domain: of a circuit by name; may raise."""

    def __init__(self, estimates: Estimates, least_s: float, log_domain: Callable[[str], int]) -> None:
        self._estimates = estimates
        self._least_s = least_s
        self._log_domain = log_domain
        self._known: dict[str, int] = {}  # by digest; as many as circuits were ever offered

    def limit_s(self, ticket: Ticket, backend: str, stage: Stage) -> float:
        digest = ticket.circuit_digest
        if digest not in self._known:
            try:
                self._known[digest] = self._log_domain(ticket.circuit)
            except CuzkdError:
                self._known[digest] = LARGEST
        return self._estimates.limit_s(digest, backend, stage, self._least_s, self._known[digest])
