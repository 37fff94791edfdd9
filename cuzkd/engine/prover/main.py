"""The prover process: one device, replaceable at any time. `python -m cuzkd.engine.prover.main --fd N`.

Started by the supervisor with one end of a socketpair as file descriptor N; never forked from a process
with threads. It speaks proto/cuzkd/prover/v1/prover.proto and nothing else, holds no durable state, and
ends when the front is gone. Here is what makes it a process: hardening, the lock of its place, the first message,
opening the device and trusting it. What it does then is in workers.py.

Signals: those that a terminal or a service manager sends to the whole group are left to the front, which
drains first.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

from cuzkd.backend import cpu, select
from cuzkd.backend.protocol import Backend, MsmSums
from cuzkd.circuits.registry import Registry
from cuzkd.curves.params import CURVES
from cuzkd.engine import faults, process
from cuzkd.engine.channel import Channel
from cuzkd.engine.prover.canary import Canary
from cuzkd.engine.prover.report import Reporter
from cuzkd.engine.prover.workers import Parts, Workers
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, DeviceFault, Exhausted, InvalidInput, Unavailable
from cuzkd.groth16 import prover as groth16_prover
from cuzkd.groth16 import verifier as groth16_verifier
from cuzkd.groth16.keys import KeyHead, Proof, VerifyingKey
from cuzkd.memory.hints import CapacityHints
from cuzkd.memory.upstream import PagesUpstream, RegisteringUpstream, Upstream

# Far more than a healthy device takes, kernels having been compiled before the self-test.
OPENING_S = 120.0
SELFTEST_S = 60.0


class Groth16:
    """engine.prover.finaliser.Groth16, by the floor of that name."""

    def assemble(self, key: KeyHead, sums: MsmSums, r: int, s: int) -> Proof:
        return groth16_prover.assemble(key, sums, r, s)

    def verify(self, vk: VerifyingKey, proof: Proof, publics: Sequence[int]) -> bool:
        return bool(groth16_verifier.verify(vk, proof, publics))


def upstream_for(backend: Backend) -> Upstream:
    """Page-locked for a device, ordinary pages where none is."""
    pages = PagesUpstream(cpu.threads())
    if backend.name != "cuda":
        return pages
    from cuzkd.backend import cuda  # needs cupy, which is there if the backend is

    return RegisteringUpstream(pages, cuda.register_host, cuda.unregister_host)


def choose(name: str, vram_bytes: int = 0) -> select.Choice:
    """The backend called `name`. "auto" gives the processor only where there is no device: one that is there and does
    not work is a fault, of which the front must know. Raises Unavailable, DeviceFault, Exhausted.
    """
    if name != "auto":
        return select.choose(name, vram_bytes)
    try:
        return select.choose("cuda", vram_bytes)
    except Unavailable as error:
        return replace(select.choose("cpu"), reason=f"auto: cpu, because {error}")


def open_parts(config: wire.Configure, reporter: Reporter) -> Parts:
    """Open the device, log which and why, have it pass its self-test, open the registry. Raises as `choose`; a device
    that fails the test is the end of the process.
    """
    cpu.set_threads(config.threads or len(os.sched_getaffinity(0)))
    with within(OPENING_S, reporter, "start"):
        choice = choose(config.backend or "auto", config.vram_bytes)
    backend = choice.backend
    if backend.name == "cuda":
        cast(Any, backend).tables = not config.no_tables
        lock_device(backend.device, Path(config.state_dir) / "provers", reporter)
    said = {"backend": backend.name, "device": backend.device, "reason": choice.reason, "native": cpu.build}
    reporter.log("info", "backend_chosen", said, {"threads": cpu.threads()})
    registry = Registry(config.state_dir)
    curves = sorted({manifest.curve for manifest in registry.list()})
    for curve in curves:
        backend.warm_up(curve)
    canary = Canary(backend, faults.load(config.fault), Path(config.state_dir) / "canary")
    try:
        with within(SELFTEST_S, reporter, "selftest", backend.device):
            selftest_s = canary.test_all(curves)
    except Exception as error:
        give_up(reporter, "self-test", error, "selftest", backend.device)
    return Parts(
        backend=backend,
        host=cpu,
        groth16=Groth16(),
        upstream=upstream_for(backend),
        open_circuit=registry.open,
        order=lambda curve: CURVES[curve].r,
        hints=CapacityHints(Path(config.state_dir) / f"hints-{backend.name}.json"),
        canary=canary.sings,
        selftest=canary.test,
        selftest_s=selftest_s,
        vram_total_bytes=getattr(backend, "vram_total_bytes", 0),
    )


def lock_device(device: str, folder: Path, reporter: Reporter) -> None:
    """Wait until no other prover of this state directory uses it: one of another name may still be there, from before
    the settings were changed.
    """
    process.lock_for_life(
        folder / f"{device}.lock",
        lambda pid: reporter.log("warning", "device_waits", {"device": device, "for_pid": pid}, {}),
    )


def serve(sock: socket.socket) -> None:
    """Everything from the first message to the end of the process."""
    channel = Channel(sock, wire.ToProver)
    first = channel.receive()
    if first is None:
        os._exit(1)

    def send(message: wire.FromProver) -> None:
        try:
            channel.send(message)
        except OSError:  # the front is gone, and with it everybody who could want an answer
            os._exit(1)

    reporter = Reporter(send)
    backend = first.configure.backend
    try:
        if first.WhichOneof("kind") != "configure":
            raise InvalidInput(f"the first message is {first.WhichOneof('kind')!r}, expected 'configure'")
        workers = Workers(channel, first.configure, open_parts(first.configure, reporter))
    except Exception as error:
        give_up(reporter, f"opening the {backend!r} backend", error, "start")
    workers.run()


@contextmanager
def within(limit_s: float, reporter: Reporter, stage: str, device: str = "") -> Iterator[None]:
    """A block that calls a driver, which may hang: after limit_s that is said, and the process ends."""
    late = DeviceFault(f"did not come to an end within {limit_s:g} s")
    doing = {"start": "opening the device", "selftest": "self-test"}[stage]
    timer = threading.Timer(limit_s, lambda: give_up(reporter, doing, late, stage, device))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def give_up(reporter: Reporter, doing: str, error: Exception, stage: str, device: str = "") -> NoReturn:
    """Say why, and end the process."""
    if isinstance(error, MemoryError):
        error = Exhausted(f"out of memory: {error}")
    code = error.code if isinstance(error, CuzkdError) else CuzkdError.code
    message = str(error) if isinstance(error, CuzkdError) else repr(error)
    reporter.fatal(code, f"{doing}: {message}", stage, device)
    os._exit(1)


def waits(sock: socket.socket, pid: str) -> None:
    """Another prover of this state directory is still there; it must be gone before a device is opened."""
    Reporter(Channel(sock, wire.ToProver).send).log("warning", "prover_waits", {"for_pid": pid}, {})


def main() -> None:
    process.main("cuzkd.engine.prover.main", serve, waits=waits)


if __name__ == "__main__":
    main()
