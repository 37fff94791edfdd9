"""The handlers of ProvingEngine: convert, ask the engine, convert.

Problem: handlers that also judge, log and translate errors become unreadable.
Design: handlers raise (the interceptors know what becomes of it), hold no state, and wait only for the
engine. A job belongs to the daemon once it is accepted: a client that goes away loses nothing, and finds it
again by its ids.
Life of data: as soon as the payload of a request is on disk its memory and its byte permit go back, long before
the job ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import cuzkd
from cuzkd.engine.engine import Engine
from cuzkd.engine.job import JobRequest
from cuzkd.engine.payloads.spool import Chunk
from cuzkd.engine.stats import Refused
from cuzkd.engine.status import CircuitStatus, EngineStatus, ProverStatus
from cuzkd.errors import CuzkdError, InvalidInput
from cuzkd.service import conversion, owners
from cuzkd.service.chunks import CHUNK_BYTES
from cuzkd.service.permits import release_current
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc


@dataclass(frozen=True)
class Limits:
    """What GetStatus tells clients about sizes, in bytes."""

    max_message: int
    stream_above: int
    max_upload: int


class Servicer(rpc.ProvingEngineServicer):
    """metrics_text: the page that Prometheus reads."""

    def __init__(self, engine: Engine, limits: Limits, metrics_text: Callable[[], str]) -> None:
        self._engine = engine
        self._limits = limits
        self._metrics_text = metrics_text

    async def SubmitProof(self, request: pb.SubmitProofRequest, context: Any) -> pb.SubmitProofResponse:
        job = self._job(request)
        view = await self._engine.submit(job, lambda: _forget(request))
        return pb.SubmitProofResponse(job_id=view.job_id, queue_position=view.queue_position)

    def _job(self, request: pb.SubmitProofRequest) -> JobRequest:
        try:
            return conversion.job_request(request, owners.current())
        except CuzkdError as error:
            self._engine.publish(Refused(error.code))  # the engine counts those that reach it
            raise

    async def AwaitProof(self, request: pb.AwaitProofRequest, context: Any) -> pb.AwaitProofResponse:
        timeout_s = request.timeout_ms / 1000 if request.timeout_ms else None
        view = await self._engine.wait(request.job_id, timeout_s, owner=owners.current())
        return conversion.await_response(view)

    async def Prove(self, request: pb.ProveRequest, context: Any) -> pb.ProveResponse:
        job = self._job(request.submit)
        view = await self._engine.submit(job, lambda: _forget(request))
        view = await self._engine.wait(view.job_id, owner=owners.current())
        return pb.ProveResponse(result=conversion.await_response(view))

    async def CancelProof(self, request: pb.CancelProofRequest, context: Any) -> pb.CancelProofResponse:
        was_running = await self._engine.cancel(request.job_id, owner=owners.current())
        return pb.CancelProofResponse(was_running=was_running)

    async def WatchProof(self, request: pb.WatchProofRequest, context: Any) -> AsyncIterator[pb.JobState]:
        views = self._engine.watch(request.job_id, owner=owners.current())
        async with contextlib.aclosing(views):  # also when the client has gone
            async for view in views:
                yield conversion.job_state(view, time.time())

    async def Upload(
        self, requests: AsyncIterator[pb.UploadRequest | memoryview], context: Any
    ) -> pb.UploadResponse:
        """requests: as chunks.unpack gives them."""
        first = await anext(aiter(requests), None)
        if not isinstance(first, pb.UploadRequest) or first.WhichOneof("part") != "header":
            raise InvalidInput("upload: expected a header first")
        size_bytes = first.header.size_bytes
        chunks = _chunks(requests)
        async with contextlib.aclosing(chunks):
            upload_id = await self._engine.upload(size_bytes, chunks, owner=owners.current())
        return pb.UploadResponse(upload_id=upload_id, size_bytes=size_bytes)

    async def ListCircuits(self, request: pb.ListCircuitsRequest, context: Any) -> pb.ListCircuitsResponse:
        return pb.ListCircuitsResponse(circuits=[conversion.circuit(m) for m in self._engine.circuits()])

    async def PreloadSRS(self, request: pb.PreloadSrsRequest, context: Any) -> pb.PreloadSrsResponse:
        done = await self._engine.preload(request.circuit_id)
        return pb.PreloadSrsResponse(
            already_loaded=done.already_loaded, load_time_ms=round(done.load_s * 1000)
        )

    async def EvictSRS(self, request: pb.EvictSrsRequest, context: Any) -> pb.EvictSrsResponse:
        done = await self._engine.evict(request.circuit_id)
        return pb.EvictSrsResponse(was_loaded=done.was_loaded, freed_bytes=done.freed_bytes)

    async def GetMetrics(self, request: pb.GetMetricsRequest, context: Any) -> pb.GetMetricsResponse:
        return pb.GetMetricsResponse(prometheus_text=self._metrics_text())

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        status = self._engine.status()
        return pb.GetStatusResponse(
            gpus=self._gpus(status),
            loaded_srs=_circuits(status),
            queues=[
                pb.QueueStatus(
                    proof_kind=f"circuit:{q.circuit}", pending=q.pending, in_progress=q.in_progress
                )
                for q in status.queues
            ],
            total_proofs_completed=status.proofs_completed,
            total_proofs_failed=status.jobs["failed"],
            uptime_seconds=int(status.uptime_s),
            pinned_memory_bytes=status.pinned_bytes,
            pinned_memory_limit_bytes=status.budget_limit_bytes,
            max_message_bytes=self._limits.max_message,
            stream_above_bytes=self._limits.stream_above,
            max_upload_bytes=self._limits.max_upload,
            max_partitions=conversion.MAX_PARTITIONS,
            serving=status.serving,
            not_serving_reason=status.not_serving_reason,
            version=cuzkd.__version__,
            devices=[_device(prover, time.time()) for prover in status.provers],
            policy=status.policy,
            expected_wait_ms=conversion.milliseconds(status.expected_wait_s or 0.0),
        )

    def _gpus(self, status: EngineStatus) -> list[pb.GPUStatus]:
        cards = [prover for prover in status.provers if prover.backend == "cuda"]
        return [
            pb.GPUStatus(
                ordinal=ordinal,
                name=card.device_name,
                vram_total_bytes=card.vram_total_bytes,
                vram_free_bytes=card.vram_free_bytes,
                current_job_id=self._if_his(card.current_job_id),
                current_proof_kind=f"circuit:{card.current_circuit}" if card.current_circuit else "",
            )
            for ordinal, card in enumerate(cards)
        ]

    def _if_his(self, job_id: str) -> str:
        """The id of a job that is the caller's own, else nothing."""
        try:
            return self._engine.view(job_id, owner=owners.current()).job_id if job_id else ""
        except CuzkdError:
            return ""


def _forget(request: Any) -> None:
    """Its payload is on disk: the memory is free for others."""
    request.Clear()
    release_current()


async def _chunks(requests: AsyncIterator[pb.UploadRequest | memoryview]) -> AsyncGenerator[Chunk]:
    async for request in requests:
        if isinstance(request, pb.UploadRequest) and request.WhichOneof("part") != "data":
            raise InvalidInput("upload: expected data after the header")
        data = request.data if isinstance(request, pb.UploadRequest) else request
        if len(data) > CHUNK_BYTES:
            raise InvalidInput(f"upload: chunk of {len(data)} bytes, at most {CHUNK_BYTES} are allowed")
        yield data


def _device(prover: ProverStatus, now_unix_s: float) -> pb.DeviceStatus:
    until_s = now_unix_s + prover.quarantine_left_s if prover.quarantined else 0.0
    return pb.DeviceStatus(
        backend=prover.backend,
        device=prover.device,
        name=prover.device_name,
        state=prover.state,
        synthesising=prover.synthesising,
        ready=prover.ready,
        prover_pid=prover.pid,
        restarts=prover.restarts,
        cause=prover.cause,
        quarantined_until_unix_ms=conversion.milliseconds(until_s),
        failures=prover.failures,
        quarantined_device=prover.quarantined,
    )


def _circuits(status: EngineStatus) -> list[pb.SRSStatus]:
    return [
        pb.SRSStatus(
            circuit_id=circuit.circuit,
            tier=_tier(circuit),
            size_bytes=circuit.size_bytes,
            ref_count=circuit.users,
        )
        for circuit in status.circuits
    ]


def _tier(circuit: CircuitStatus) -> pb.SRSStatus.Tier:
    if circuit.loaded:
        return pb.SRSStatus.HOT
    return pb.SRSStatus.WARM if circuit.cached else pb.SRSStatus.COLD
