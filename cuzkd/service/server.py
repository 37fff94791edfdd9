"""The gRPC server: one service, health that follows facts, reflection, one address.

Problem: a server that says SERVING while its prover is dead, or that hides its message limit, costs its users
hours.
Design: everything is put together here and nowhere else. A small task asks the engine whether it can take
work and tells grpc.health.v1. Both limits (largest message, largest witness inside a message) are in
GetStatus.
Life of data: bind() takes the address, where clients may wait from then on; start() serves; drain() turns health to
NOT_SERVING and refuses new work while running calls go on; stop() ends the calls that are left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cuzkd.service import listen
from cuzkd.service.interceptors import LargeMessages, Statuses, Tokens, Uploads
from cuzkd.service.permits import NOTHING, Permits, Reserve
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

log = structlog.get_logger()

SERVICE = pb.DESCRIPTOR.services_by_name["ProvingEngine"].full_name
LARGE_METHODS = frozenset(f"/{SERVICE}/{name}" for name in ("SubmitProof", "Prove"))
MESSAGE_OVERHEAD = 64 << 10  # framing around the largest payload
HEALTH_INTERVAL_S = 0.25
KEEPALIVE_MS = 30_000


class Server:
    """servicer: handlers of ProvingEngine. serving(): (True, "") or (False, reason), asked often. reserve: bytes of the
    host budget for requests that are being read. told: hears of serving() as often as clients do.
    """

    def __init__(
        self,
        servicer: rpc.ProvingEngineServicer,
        serving: Callable[[], tuple[bool, str]],
        *,
        max_message_bytes: int,
        message_budget_bytes: int,
        reserve: Reserve = lambda nbytes: NOTHING,
        told: Callable[[bool], None] = lambda serving: None,
        security: listen.Security | None = None,
    ) -> None:
        self._serving = serving
        self._told = told
        self._security = security
        self.permits = Permits(max_message_bytes, message_budget_bytes, reserve)
        interceptors: list[grpc.aio.ServerInterceptor] = [Statuses()]
        if security is not None:
            interceptors.append(Tokens(security.tokens))
        interceptors += [LargeMessages(LARGE_METHODS, self.permits), Uploads()]
        limit = max_message_bytes + MESSAGE_OVERHEAD
        self._grpc = grpc.aio.server(
            interceptors=interceptors,
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.so_reuseport", 0),  # a second daemon on the same port is an error, not a lottery
                # Whoever is gone without a word gives back what his calls hold; clients may look for us as well.
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 2),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 3),
            ],
        )
        rpc.add_ProvingEngineServicer_to_server(servicer, self._grpc)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._grpc
        )
        self._health_task: asyncio.Task[None] | None = None

    def bind(self, address: listen.Address) -> listen.Address:
        """Take the address. Returns it with its real port. Raises InvalidInput or Unavailable."""
        return listen.bind(self._grpc, address, self._security)

    async def start(self) -> None:
        """Answer calls: those, too, that have waited since bind()."""
        await self._tell_health()
        await self._grpc.start()
        self._health_task = asyncio.create_task(self._follow_health(), name="health")

    async def drain(self) -> None:
        """Say NOT_SERVING from now on. Calls are still answered: clients fetch their results."""
        await self._stop_following()
        self._told(False)
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, give running ones grace_s, then cancel them."""
        await self.drain()
        await self._grpc.stop(grace_s)

    async def _stop_following(self) -> None:
        if self._health_task is not None:
            self._health_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._health_task
            self._health_task = None

    async def _tell_health(self) -> bool:
        serving, _ = self._serving()
        word = "SERVING" if serving else "NOT_SERVING"
        status = health_pb2.HealthCheckResponse.ServingStatus.Value(word)
        for name in ("", SERVICE):
            await self._health.set(name, status)
        self._told(serving)
        return serving

    async def _follow_health(self) -> None:
        before: bool | None = None
        while True:
            now = await self._tell_health()
            if now != before:
                log.info("health", serving=now, reason=self._serving()[1])
            before = now
            await asyncio.sleep(HEALTH_INTERVAL_S)
