"""How many provers may have a circuit's key at once.

Problem. Each prover holds a copy of what it needs of a key. Where not all copies fit into host memory, those that
come late wait for what the early ones, which have work, do not give back, and hold up everybody behind them in the
queue for memory. Design. The scheduler is told of circuits of which fewer copies fit than there are provers. Life.
Worked out once for each digest, when a partition of it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cuzkd.circuits.manifest import Manifest
from cuzkd.engine.fleet.health import HOSTS
from cuzkd.engine.job import Ticket
from cuzkd.engine.scheduling.scheduler import ProverView
from cuzkd.errors import CuzkdError

ANY = 1 << 30  # provers: of a circuit that cannot be looked at any more


class Copies:
    """fitting(manifest, in_place): how many fit. manifest: of a circuit by name; may raise."""

    def __init__(self, fitting: Callable[[Manifest, bool], int], manifest: Callable[[str], Manifest]) -> None:
        self._fitting = fitting
        self._manifest = manifest
        self._known: dict[tuple[str, bool], int] = {}  # as many as circuits ever waited

    def __call__(self, waiting: Sequence[Ticket], provers: Sequence[ProverView]) -> Mapping[str, int]:
        """By circuit, of those that wait, where not all provers may have the key."""
        if len(provers) < 2:
            return {}
        in_place = all(view.backend in HOSTS for view in provers)
        most = {ticket.circuit: self._most(ticket, in_place) for ticket in waiting}
        return {circuit: count for circuit, count in most.items() if count < len(provers)}

    def _most(self, ticket: Ticket, in_place: bool) -> int:
        key = ticket.circuit_digest, in_place
        if key not in self._known:
            try:
                self._known[key] = self._fitting(self._manifest(ticket.circuit), in_place)
            except CuzkdError:
                self._known[key] = ANY
        return self._known[key]
