"""A small client: what the command line, the demo and the tests speak to a daemon with.

Problem: callers want a witness or input file turned into proofs, and errors as words, not as transport statuses.
Design: one blocking class over a gRPC channel. Files above the daemon's own limit go by Upload, smaller ones
inside the request. A refused call raises the class of cuzkd.errors that the daemon meant; a daemon that
cannot be reached raises Unavailable.
Life of data: a witness is read in chunks and sent; nothing is kept.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from cuzkd.errors import BY_CODE, CuzkdError, Exhausted, InvalidInput, Unavailable, from_code
from cuzkd.service import listen
from cuzkd.service.interceptors import CODE_KEY
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

CHUNK_BYTES = 1 << 20
MESSAGE_BYTES = 256 << 20
CALL_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Access:
    """How to reach a daemon beyond this machine: its CA certificate (PEM) and the bearer token."""

    ca: bytes
    token: str


class Client:
    """Speaks to the daemon at address ("unix://PATH" or "HOST:PORT"). Threads may share one."""

    def __init__(self, address: str, access: Access | None = None) -> None:
        self.address = address
        target = listen.parse(address, "address").target
        limits = [
            ("grpc.max_send_message_length", MESSAGE_BYTES + (64 << 10)),
            ("grpc.max_receive_message_length", MESSAGE_BYTES + (64 << 10)),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if access is None:
            self._channel = grpc.insecure_channel(target, options=limits)
            self._metadata: tuple[tuple[str, str], ...] = ()
        else:
            credentials = grpc.ssl_channel_credentials(root_certificates=access.ca)
            self._channel = grpc.secure_channel(target, credentials, options=limits)
            self._metadata = (("authorization", f"Bearer {access.token}"),)
        self._stub = rpc.ProvingEngineStub(self._channel)
        self._stream_above_bytes: int | None = None

    def submit(
        self,
        circuit: str,
        witnesses: Sequence[Path | bytes] = (),
        *,
        inputs: Sequence[Path | bytes] = (),
        request_id: str = "",
        priority: pb.Priority = pb.PRIORITY_UNSPECIFIED,
    ) -> str:
        """Submit a job: one partition for each witness (.wtns file or its content), then one for each input JSON (a
        file or its content). Returns the job's id; with inputs it takes until their witnesses are calculated.

        Witnesses travel inside the request up to the daemon's limit in all, the others by Upload. Inputs always
        travel inside.
        """
        request = pb.SubmitProofRequest(request_id=request_id, circuit_id=circuit, priority=priority)
        inline_bytes = 0
        for witness in witnesses:
            size = _size(witness)
            if inline_bytes + size > self._stream_above():
                request.partitions.add(upload_id=self.upload(witness))
            else:
                request.partitions.add(
                    witness=witness if isinstance(witness, bytes) else witness.read_bytes()
                )
                inline_bytes += size
        for given in inputs:
            _size(given, "input JSON")
            request.partitions.add(input_json=given if isinstance(given, bytes) else given.read_bytes())
        limit_s = None if inputs else CALL_TIMEOUT_S  # how long a calculation may take, the daemon knows
        return str(self._call(self._stub.SubmitProof, request, limit_s).job_id)

    def wait(self, job_id: str, timeout_s: float = 0.0) -> pb.AwaitProofResponse:
        """Wait for a job's end, or until timeout_s is over (0 = for ever): then the status is TIMEOUT."""
        request = pb.AwaitProofRequest(job_id=job_id, timeout_ms=round(timeout_s * 1000))
        limit_s = timeout_s + CALL_TIMEOUT_S if timeout_s else None
        answer: pb.AwaitProofResponse = self._call(self._stub.AwaitProof, request, limit_s)
        return answer

    def prove(
        self,
        circuit: str,
        witnesses: Sequence[Path | bytes] = (),
        timeout_s: float = 0.0,
        *,
        inputs: Sequence[Path | bytes] = (),
    ) -> pb.AwaitProofResponse:
        """submit() and wait(), and the job's failure as an exception of the class that the daemon names."""
        return require_done(self.wait(self.submit(circuit, witnesses, inputs=inputs), timeout_s))

    def watch(self, job_id: str) -> Iterator[pb.JobState]:
        """The job's states until it has ended."""
        with _errors(self.address):
            yield from self._stub.WatchProof(pb.WatchProofRequest(job_id=job_id), metadata=self._metadata)

    def cancel(self, job_id: str) -> bool:
        """Cancel a job. True if it had not ended."""
        return bool(self._call(self._stub.CancelProof, pb.CancelProofRequest(job_id=job_id)).was_running)

    def upload(self, witness: Path | bytes) -> str:
        """Send a witness in chunks. Returns the upload's id."""
        with _errors(self.address):
            answer = self._stub.Upload(_parts(witness, _size(witness)), metadata=self._metadata)
        return str(answer.upload_id)

    def status(self) -> pb.GetStatusResponse:
        answer: pb.GetStatusResponse = self._call(self._stub.GetStatus, pb.GetStatusRequest())
        return answer

    def metrics(self) -> str:
        return str(self._call(self._stub.GetMetrics, pb.GetMetricsRequest()).prometheus_text)

    def circuits(self) -> list[pb.Circuit]:
        return list(self._call(self._stub.ListCircuits, pb.ListCircuitsRequest()).circuits)

    def preload(self, circuit: str) -> pb.PreloadSrsResponse:
        """Have a circuit's key loaded now. Returns when it is."""
        answer: pb.PreloadSrsResponse = self._call(
            self._stub.PreloadSRS, pb.PreloadSrsRequest(circuit_id=circuit), None
        )
        return answer

    def evict(self, circuit: str) -> pb.EvictSrsResponse:
        """Have it let go of a circuit's key. Returns when whoever uses it has ended, and its memory is back."""
        answer: pb.EvictSrsResponse = self._call(
            self._stub.EvictSRS, pb.EvictSrsRequest(circuit_id=circuit), None
        )
        return answer

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stream_above(self) -> int:
        if self._stream_above_bytes is None:
            self._stream_above_bytes = self.status().stream_above_bytes
        return self._stream_above_bytes

    def _call(self, method: Any, request: Any, timeout_s: float | None = CALL_TIMEOUT_S) -> Any:
        with _errors(self.address):
            return method(request, timeout=timeout_s, metadata=self._metadata)


def require_done(answer: pb.AwaitProofResponse) -> pb.AwaitProofResponse:
    """The answer itself if its job is completed, else the error that it carries."""
    if answer.status == pb.AwaitProofResponse.COMPLETED:
        return answer
    if answer.status == pb.AwaitProofResponse.TIMEOUT:
        raise Exhausted(f"job {answer.job_id} has not ended in time; it goes on")
    raise from_code(answer.error_code, f"job {answer.job_id}: {answer.error_message}")


def _size(payload: Path | bytes, what: str = "witness") -> int:
    if isinstance(payload, bytes):
        return len(payload)
    try:
        status = payload.stat()
    except OSError as error:
        raise InvalidInput(f"{what} {payload}: cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"{what} {payload}: is not a regular file")
    return status.st_size


def _parts(witness: Path | bytes, size: int) -> Iterator[pb.UploadRequest]:
    yield pb.UploadRequest(header=pb.UploadHeader(size_bytes=size))
    if isinstance(witness, bytes):
        for start in range(0, size, CHUNK_BYTES):
            yield pb.UploadRequest(data=witness[start : start + CHUNK_BYTES])
        return
    with witness.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield pb.UploadRequest(data=chunk)


@contextlib.contextmanager
def _errors(address: str) -> Iterator[None]:
    """Turn a status into the error class that the daemon raised."""
    try:
        yield
    except grpc.RpcError as error:
        word = dict(error.trailing_metadata() or ()).get(CODE_KEY, "")
        if word in BY_CODE:
            raise from_code(word, error.details()) from None
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            raise Unavailable(f"no daemon answers at {address}: {error.details()}") from None
        raise CuzkdError(f"{error.code().name}: {error.details()}") from None
