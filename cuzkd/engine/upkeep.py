"""What time alone brings about: the engine's slow heartbeat.

Problem. Results grow old, uploads are left behind, a disk has room again, memory stays short, a circuit is removed from
under a loaded key; no event says so, and one of these going wrong must not end the others. Design. One loop with a
pause; each step looks at once and does little. A step that fails is logged, and tried again the next time.
Life. run, from the engine's start to its stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from cuzkd.circuits.registry import Registry
from cuzkd.engine.fleet.budget_desk import BudgetDesk
from cuzkd.engine.fleet.fleet import Fleet
from cuzkd.engine.jobs.jobs import Jobs
from cuzkd.engine.journal.journal import Journal
from cuzkd.engine.payloads.intake import Intake
from cuzkd.engine.scheduling.estimates import Estimates
from cuzkd.engine.stats import BudgetState, Event
from cuzkd.errors import Exhausted, InvalidKey, NotFound

log = structlog.get_logger()

ESTIMATES_S = 30.0  # between two savings


class Upkeep:
    """Owned by the engine's loop."""

    def __init__(
        self,
        jobs: Jobs,
        intake: Intake,
        journal: Journal,
        estimates: Estimates,
        desk: BudgetDesk,
        fleet: Fleet,
        registry: Registry,
        publish: Callable[[Event], None],
    ) -> None:
        self._jobs = jobs
        self._intake = intake
        self._journal = journal
        self._estimates = estimates
        self._desk = desk
        self._fleet = fleet
        self._registry = registry
        self._publish = publish
        self._saved_s = 0.0

    async def run(self, pause_s: float) -> None:
        attending = asyncio.ensure_future(self._attend(pause_s))
        try:
            await self._keep_up(pause_s)
        finally:
            attending.cancel()
            await asyncio.wait([attending])

    async def _attend(self, pause_s: float) -> None:
        """By itself: steps that wait for a disk are no absence."""
        while True:
            self._fleet.attend()
            await asyncio.sleep(pause_s)

    async def _keep_up(self, pause_s: float) -> None:
        while True:
            for step in (
                self._jobs.expire,
                self._intake.expire,
                self._journal.retry,
                self._memory,
                self._fleet.tick,
            ):
                await _tried(step)
            self._jobs.fleet_changed()
            await _tried(self.drop_removed)
            await _tried(self._save)
            await asyncio.sleep(pause_s)

    def _memory(self) -> None:
        self._desk.press()
        budget = self._desk.budget
        self._publish(BudgetState(budget.limit_bytes, budget.used_bytes, budget.peak_bytes, budget.waiting))

    async def _save(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._saved_s > ESTIMATES_S:
            self._saved_s = now_s
            await asyncio.to_thread(self._estimates.save)

    async def drop_removed(self) -> None:
        """Keys of circuits that were removed or replaced give way, unless a job still counts on them."""
        for circuit, digest in await asyncio.to_thread(self._gone, self._fleet.loaded()):
            if not self._jobs.table.counts_on(circuit, digest):
                log.info("removed_circuit_dropped", circuit=circuit, digest=digest)
                self._fleet.drop(circuit, digest)

    def _gone(self, keys: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of (circuit, digest) that are not installed any more. One whose manifest cannot be read may be."""
        gone = []
        for circuit, digest in keys:
            try:
                installed = self._registry.get(circuit).digest
            except NotFound:
                installed = ""
            except (InvalidKey, Exhausted):  # whatever it is, it is there
                continue
            if installed != digest:
                gone.append((circuit, digest))
        return gone


async def _tried(step: Callable[[], Awaitable[None] | None]) -> None:
    try:
        if (rest := step()) is not None:
            await rest
    except Exception:
        log.exception("upkeep_failed", step=getattr(step, "__name__", str(step)))
