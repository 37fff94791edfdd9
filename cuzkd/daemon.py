"""The daemon: puts engine, server and pages together, and takes them down again.

Problem: a daemon that ignores SIGTERM, loses running jobs at a restart, or exits 0 after failing to start
makes every operator write wrappers.
Design: one coroutine from start to end. Signals only set events: the first one drains (health NOT_SERVING, no
new work, what provers hold may end for drain_s), the second ends the wait; what has not ended is handed back to the
journal and goes on at the next start. systemd, if it started us, hears READY, STOPPING and a status line. Exit
code 0 after a stop that was asked for; errors at the start are raised and become the command line's.
Life of data: config in; the parts get their values; the objects die in the opposite order of their making.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import structlog

import cuzkd
from cuzkd import log as logs
from cuzkd.backend import native
from cuzkd.circuits.registry import Registry
from cuzkd.config import Config
from cuzkd.engine import process
from cuzkd.engine.engine import Engine
from cuzkd.engine.payloads.calculators import IntakeSettings
from cuzkd.engine.settings import EngineSettings
from cuzkd.engine.status import EngineStatus
from cuzkd.errors import InvalidInput
from cuzkd.metrics import Metrics
from cuzkd.service import listen, status_page
from cuzkd.service.http import HttpPages, Page
from cuzkd.service.pipelines import Pipelines
from cuzkd.service.server import Server
from cuzkd.service.servicer import Limits, Servicer

log = structlog.get_logger()

LAST_LINES_S = 1.0  # of the log, at the end
CALLS_GRACE_S = 2.0  # for replies on their way when everything has ended
STATUS_TIMEOUT_S = 5.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def run(config: Config) -> int:
    """Run until a signal ends it. Raises errors of cuzkd.errors when it cannot start."""
    native.asked()  # each prover would die of it, one after the other
    lines = logs.of_a_daemon(config.daemon.log_level)
    process.keep_secrets()  # witnesses pass through this process, too
    _keep_buffers()
    try:
        return asyncio.run(_run(config))
    finally:
        if lines is not None:
            lines.flush(LAST_LINES_S)


def engine_settings(config: Config) -> EngineSettings:
    """The engine's part of the settings."""
    return EngineSettings(
        state_dir=config.daemon.state_dir,
        policy=config.proving.policy,
        devices=config.proving.devices,
        threads=config.proving.threads,
        max_parallel_synthesis=config.proving.max_parallel_synthesis,
        ready_target=config.proving.ready_target,
        max_attempts=config.proving.max_attempts,
        launch_set=config.proving.launch_set,
        launch_wait_s=config.proving.launch_wait_s,
        vram_bytes=config.proving.vram,
        tables=config.proving.tables,
        group=config.proving.group,
        budget_bytes=config.memory.budget,
        slab_bytes=config.memory.slab,
        wipe=config.memory.wipe,
        prewarm=config.memory.prewarm,
        eviction_min_idle_s=config.memory.eviction_min_idle_s,
        max_partitions=config.queue.max_partitions,
        result_expiry_s=config.queue.result_expiry_s,
        max_results=config.queue.max_results,
        max_result_bytes=config.queue.max_result_bytes,
        heartbeat_s=config.supervision.heartbeat_s,
        least_stage_s=config.supervision.least_stage_s,
        quarantine_after=config.supervision.quarantine_after,
        quarantine_s=config.supervision.quarantine_s,
        longest_quarantine_s=config.supervision.longest_quarantine_s,
        max_upload_bytes=config.wire.max_upload,
        upload_expiry_s=config.wire.upload_expiry_s,
        server_folders=config.wire.server_folders,
        intake=IntakeSettings(
            processes=config.intake.processes,
            max_waiting=config.intake.max_waiting,
            timeout_s=config.intake.timeout,
            memory_bytes=config.intake.memory,
            max_instructions=config.intake.max_instructions,
            max_input_bytes=config.intake.max_input,
        ),
    )


def _keep_buffers() -> None:
    """Chunks of uploads come and go: the C library shall use their memory again, not map, clear and unmap it."""
    with contextlib.suppress(AttributeError):  # a C library without it
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 4 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 32 << 20)


async def _run(config: Config) -> int:
    with _signals() as signals:
        async with running(config) as daemon:
            # Collecting garbage among ten thousand jobs stops the loop for a tenth of a second and more: seldom, then.
            gc.freeze()
            gc.set_threshold(2000, 20, 200)
            await signals.first.wait()
            log.info("draining", drain_s=config.daemon.drain_s)
            notify("STOPPING=1")
            await daemon.stop(config.daemon.drain_s, signals.second)
    return 0


class Daemon:
    """A running daemon. address: where it listens."""

    def __init__(
        self, engine: Engine, server: Server, address: listen.Address, pages: HttpPages | None
    ) -> None:
        self.engine = engine
        self.server = server
        self.address = address
        self.pages = pages
        self._stopped = False

    async def stop(self, drain_s: float = 0.0, hurry: asyncio.Event | None = None) -> None:
        """No new work; what provers hold may end until drain_s is over or `hurry` is set; the rest is handed back to
        the journal. Idempotent.
        """
        if self._stopped:
            return
        self.engine.drain()
        await self.server.drain()
        patient = asyncio.create_task(self.engine.stop(drain_s))
        hurried = asyncio.create_task((hurry or asyncio.Event()).wait())
        await asyncio.wait({patient, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if patient.done():
            await patient
        else:
            log.warning("hurried")
            patient.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await patient
            await self.engine.stop()
        self._stopped = True


@contextlib.asynccontextmanager
async def running(config: Config) -> AsyncIterator[Daemon]:
    """A daemon that serves for the block and is gone after it. Also what tests run."""
    state_dir = config.daemon.state_dir
    with _state_directory(state_dir):
        metrics = Metrics(cuzkd.__version__, config.proving.policy)
        engine = Engine(engine_settings(config), Registry(state_dir))
        engine.subscribe(metrics.handle)
        pipelines = Pipelines(time.monotonic)
        engine.subscribe(pipelines.handle)
        security = listen.read_security(
            config.security.tls_cert, config.security.tls_key, config.security.token_file
        )
        limits = Limits(config.wire.max_message, config.wire.stream_above, config.wire.max_upload)
        server = Server(
            Servicer(engine, limits, metrics.text),
            engine.serving,
            max_message_bytes=config.wire.max_message,
            message_budget_bytes=config.wire.message_budget,
            reserve=lambda nbytes: engine.reserve_now(nbytes, "a request that is being read"),
            told=metrics.serves,
            security=security,
        )
        async with contextlib.AsyncExitStack() as stack:
            address = server.bind(listen.parse(config.daemon.listen))
            stack.push_async_callback(server.stop, CALLS_GRACE_S)
            pages = _pages(config, engine, metrics, pipelines)
            if pages is not None:
                pages.start()
                stack.push_async_callback(asyncio.to_thread, pages.close)
            daemon = Daemon(engine, server, address, pages)
            await (
                engine.start()
            )  # before anybody asks for a job: what earlier runs have left is known by then
            stack.push_async_callback(daemon.stop)
            await server.start()
            log.info(
                "serving",
                version=cuzkd.__version__,
                listen=address.target,
                metrics=pages.address.target if pages else "",
                state_dir=str(state_dir),
                tls=security is not None,
            )
            notify(f"READY=1\nSTATUS=listening on {address.target}")
            yield daemon


def _pages(config: Config, engine: Engine, metrics: Metrics, pipelines: Pipelines) -> HttpPages | None:
    if not config.daemon.metrics:
        return None
    loop = asyncio.get_running_loop()

    async def ask() -> EngineStatus:
        return engine.status()

    def status() -> tuple[str, bytes]:
        now = asyncio.run_coroutine_threadsafe(ask(), loop).result(STATUS_TIMEOUT_S)
        text = status_page.page(now, pipelines.picture(), config.proving.max_parallel_synthesis)
        return "application/json", text

    pages: dict[str, Page] = {
        "/metrics": lambda: (PROMETHEUS_TEXT, metrics.text().encode()),
        "/status": status,
    }
    return HttpPages(listen.parse(config.daemon.metrics, "metrics address"), pages)


# -- the surroundings --


class _Signals:
    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def arrived(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


@contextlib.contextmanager
def _signals() -> Iterator[_Signals]:
    """SIGTERM and SIGINT as events; the handlers of before come back."""
    loop, signals = asyncio.get_running_loop(), _Signals()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        loop.add_signal_handler(number, signals.arrived)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@contextlib.contextmanager
def _state_directory(path: Path) -> Iterator[None]:
    """Make it (0700) and be its only daemon. The lock goes with the process."""
    import fcntl

    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidInput(f"state directory {path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InvalidInput(f"state directory {path}: another daemon uses it") from None
    try:
        yield
    finally:
        os.close(descriptor)


def notify(message: str, environ: Callable[[str], str | None] = os.environ.get) -> bool:
    """Tell systemd, where it wants to hear (sd_notify(3)). False: it does not."""
    name = environ("NOTIFY_SOCKET")
    if not name:
        return False
    target = "\0" + name[1:] if name.startswith("@") else name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, contextlib.suppress(OSError):
        channel.sendto(message.encode(), target)
        return True
    return False
