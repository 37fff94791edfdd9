"""One prover's health as the outside hears of it: events, log lines, evidence.

Health (health.py) decides and says nothing; the fleet knows processes and no devices. Between them this: it passes on
what happens, with the time, and makes events of what follows. A quarantine is told together with what the driver
counts of the device's errors, which may take seconds; a return that comes sooner is told after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from cuzkd.engine.fleet import evidence
from cuzkd.engine.fleet.health import Death, Health, HealthView, Quarantine, Returned
from cuzkd.engine.stats import DeviceReturned, Event, Quarantined, SelfTest
from cuzkd.engine.wire import prover_pb2 as wire

log = structlog.get_logger()

SELFTEST = "selftest"  # wire.Fatal.stage


class Ward:
    """On the engine's loop. look(device): what the driver counts; blocks, in a thread of its own."""

    def __init__(
        self,
        prover: str,
        health: Health,
        publish: Callable[[Event], None],
        clock: Callable[[], float],
        look: Callable[[str], Mapping[str, str]] = evidence.counters,
    ) -> None:
        self._prover = prover
        self._health = health
        self._publish = publish
        self._clock = clock
        self._look = look
        self._telling: asyncio.Future[Mapping[str, str]] | None = None  # the latest quarantine's evidence

    def begins(self) -> str:
        """The backend that the next process opens."""
        return self._health.began(self._clock())

    def ready(self, ready: wire.Ready) -> None:
        if ready.selftest_s:
            self._publish(SelfTest(self._prover, ready.device, True, ready.selftest_s))
        verdict = self._health.ready(self._clock(), ready.backend, ready.device)
        if isinstance(verdict, Quarantine):
            self._quarantine(verdict)
        elif isinstance(verdict, Returned):
            self._return(verdict)

    def proved(self, attempts: int) -> None:
        """attempts: how often the sums of a proof that verified were computed."""
        if verdict := self._health.proved(self._clock(), attempts):
            self._quarantine(verdict)

    def died(self, death: Death) -> None:
        if death.stage == SELFTEST:
            self._publish(SelfTest(self._prover, death.device, False, 0.0))
        verdict = self._health.died(self._clock(), death)
        if death.asked:
            log.info("prover_ended", prover=self._prover, cause=death.cause)
        else:
            log.error(
                "prover_died",
                prover=self._prover,
                cause=death.cause,
                stage=death.stage,
                device=death.device,
            )
        if verdict:
            self._quarantine(verdict)

    def pause_s(self) -> float:
        """How long the next process is to wait."""
        return self._health.pause_s(self._clock())

    def stopped(self) -> None:
        self._health.stopped()

    def view(self) -> HealthView:
        return self._health.view(self._clock())

    def works(self) -> bool:
        return self._health.works()

    def left_alone(self) -> bool:
        return self._health.left_alone(self._clock())

    def may_stand_in(self, allowed: bool) -> None:
        self._health.may_stand_in(allowed)

    def to_make_way(self) -> bool:
        return self._health.to_make_way(self._clock())

    def useless(self) -> bool:
        return self._health.useless(self._clock())

    def hopeless(self) -> bool:
        return self._health.hopeless(self._clock())

    def trouble(self) -> str:
        """Why it does not work, of one that is not ready; "" when it is starting for the first time."""
        view = self.view()
        if view.until_s is None or not self.useless():
            return view.cause
        return (
            f"device {view.device or '(unknown)'} is in quarantine for another {view.until_s - self._clock():.0f} s "
            f"after {view.failures} failures in a row: {view.cause}"
        )

    def _quarantine(self, verdict: Quarantine) -> None:
        log.error(
            "device_quarantined",
            prover=self._prover,
            device=verdict.device,
            stage=verdict.stage,
            cause=verdict.cause,
            failures=verdict.failures,
            seconds=verdict.seconds,
        )

        def told(future: asyncio.Future[Mapping[str, str]]) -> None:
            counters = dict(future.result())
            log.warning("device_evidence", prover=self._prover, device=verdict.device, counters=counters)
            self._publish(
                Quarantined(
                    self._prover,
                    verdict.device,
                    verdict.cause,
                    verdict.stage,
                    verdict.failures,
                    verdict.seconds,
                    counters,
                )
            )

        self._telling = evidence.gather(lambda: self._look(verdict.device))
        self._telling.add_done_callback(told)

    def _return(self, verdict: Returned) -> None:
        log.info("device_returned", prover=self._prover, device=verdict.device)
        event = DeviceReturned(self._prover, verdict.device)
        if self._telling is None or self._telling.done():
            self._publish(event)
        else:
            self._telling.add_done_callback(lambda _: self._publish(event))
