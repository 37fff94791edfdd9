"""A small client: what the command line, the demo and the tests speak to a daemon with.

Problem: callers want a witness or input file turned into proofs, and errors as words, not as transport statuses; a
daemon that is restarted meanwhile should cost them patience, not their job.
Design: one blocking class over a gRPC channel. Files above the daemon's own limit go by Upload, smaller ones
inside the request; the daemon's limits are asked for before anything is sent. A refused call raises the class of
cuzkd.errors that the daemon meant; a daemon that cannot be reached raises Unavailable. Jobs outlive daemons: `wait`
and `watch` ask again until a daemon answers, for `patience_s` at most, and a submission carries an id by which it is
recognised when its answer was lost.
Life of data: a witness is read in chunks and sent; nothing is kept.
"""

from __future__ import annotations

import contextlib
import stat
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from cuzkd.errors import BY_CODE, CuzkdError, Exhausted, InvalidInput, NotFound, Unavailable, from_code
from cuzkd.service import chunks, listen
from cuzkd.service.chunks import CHUNK_BYTES
from cuzkd.service.interceptors import CODE_KEY, RETRY_KEY
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

MESSAGE_BYTES = 256 << 20
CALL_TIMEOUT_S = 30.0
PATIENCE_S = 60.0  # a restart takes the time to drain, to stop and to start
PAUSE_S = 0.1  # between two tries
LASTED_S = 1.0  # a call that took longer had reached a daemon that answered just before
OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES + (64 << 10)),
    ("grpc.max_receive_message_length", MESSAGE_BYTES + (64 << 10)),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # Back soon after a restart; and a machine that is gone without a word is noticed while a call waits.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    ("grpc.http2.max_pings_without_data", 0),
)

Answer = TypeVar("Answer")


class Unreachable(Unavailable):
    """Nobody answers there, or the connection was lost before there was an answer."""


@dataclass(frozen=True)
class Access:
    """How to reach a daemon beyond this machine: its CA certificate (PEM) and the bearer token."""

    ca: bytes
    token: str = field(repr=False)


class Client:
    """Speaks to the daemon at address ("unix://PATH" or "HOST:PORT"). Threads may share one. patience_s: how long a
    daemon may be away while a job is waited for.
    """

    def __init__(self, address: str, access: Access | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self.address = address
        self.patience_s = patience_s
        target = listen.parse(address, "address").target
        if access is None:
            self._channel = grpc.insecure_channel(target, options=OPTIONS)
            self._metadata: tuple[tuple[str, str], ...] = ()
        else:
            credentials = grpc.ssl_channel_credentials(root_certificates=access.ca)
            self._channel = grpc.secure_channel(target, credentials, options=OPTIONS)
            self._metadata = (("authorization", f"Bearer {access.token}"),)
        self._stub = rpc.ProvingEngineStub(self._channel)
        self._upload = self._channel.stream_unary(
            chunks.UPLOAD, response_deserializer=pb.UploadResponse.FromString
        )
        self._limits: pb.GetStatusResponse | None = None

    def submit(
        self,
        circuit: str,
        witnesses: Sequence[Path | bytes] = (),
        *,
        inputs: Sequence[Path | bytes] = (),
        request_id: str = "",
        priority: pb.Priority = pb.PRIORITY_UNSPECIFIED,
        deadline_s: float = 0.0,
    ) -> str:
        """Submit a job: one partition for each witness (.wtns file or its content), then one for each input JSON (a
        file or its content). Returns the job's id; with inputs it takes until their witnesses are calculated.

        Witnesses travel inside the request up to the daemon's limit in all, the others by Upload. Inputs always
        travel inside. request_id: "" makes one. deadline_s: from now; a job that has not ended by then fails.
        """
        request = pb.SubmitProofRequest(
            request_id=request_id or f"client-{uuid.uuid4()}",
            circuit_id=circuit,
            priority=priority,
            deadline_ms=round(deadline_s * 1000),
        )
        sizes = [_size(witness) for witness in witnesses]
        input_bytes = sum(_size(given, "input JSON") for given in inputs)
        by_upload = self._plan(circuit, sizes, len(witnesses) + len(inputs), input_bytes)
        for witness, uploaded in zip(witnesses, by_upload, strict=True):
            if uploaded:
                request.partitions.add(upload_id=self.upload(witness))
            else:
                request.partitions.add(witness=_content(witness))
        for given in inputs:
            request.partitions.add(input_json=_content(given))
        limit_s = None if inputs else CALL_TIMEOUT_S  # how long a calculation may take, the daemon knows
        answer = self._patiently(
            lambda: self._call(self._stub.SubmitProof, request, limit_s), self.patience_s, Unreachable
        )
        return str(answer.job_id)

    def _plan(self, circuit: str, sizes: Sequence[int], count: int, input_bytes: int) -> list[bool]:
        """Which witnesses go by Upload. Raises what the daemon would say after hours of uploading."""
        if self._limits is None:
            self._limits = self.status()
        limits = self._limits
        if limits.max_partitions and count > limits.max_partitions:
            raise InvalidInput(
                f"{count} partitions, the daemon takes at most {limits.max_partitions} in a job"
            )
        if sizes and max(sizes) > limits.max_upload_bytes:
            raise InvalidInput(
                f"witness {sizes.index(max(sizes))}: {max(sizes)} bytes, the daemon takes at most "
                f"{limits.max_upload_bytes}"
            )
        if input_bytes > limits.max_message_bytes:
            raise InvalidInput(
                f"inputs: {input_bytes} bytes in all, one message takes at most {limits.max_message_bytes}"
            )
        room = min(limits.stream_above_bytes, limits.max_message_bytes - input_bytes)
        by_upload = []
        for size in sizes:
            by_upload.append(size > room)
            room -= 0 if by_upload[-1] else size
        if any(by_upload) and circuit not in {known.circuit_id for known in self.circuits()}:
            raise NotFound(f"circuit {circuit[:80]}: not installed")
        return by_upload

    def wait(self, job_id: str, timeout_s: float = 0.0) -> pb.AwaitProofResponse:
        """Wait for a job's end, or until timeout_s is over (0 = for ever): then the status is TIMEOUT. A daemon that is
        restarted meanwhile is asked again. Raises Unavailable when none has answered for patience_s.
        """
        end_s = time.monotonic() + timeout_s

        def ask() -> pb.AwaitProofResponse:
            left_s = max(end_s - time.monotonic(), 0.001) if timeout_s else 0.0
            request = pb.AwaitProofRequest(job_id=job_id, timeout_ms=max(round(left_s * 1000), bool(left_s)))
            limit_s = left_s + CALL_TIMEOUT_S if left_s else None
            answer: pb.AwaitProofResponse = self._call(self._stub.AwaitProof, request, limit_s)
            return answer

        return self._patiently(ask, min(self.patience_s, timeout_s or self.patience_s))

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

    def watch(self, job_id: str) -> Generator[pb.JobState]:
        """The job's states until it has ended; after a restart of the daemon they go on with the one of then. Closing
        the generator ends the call. Raises as wait().
        """
        patience = _Patience(self, self.patience_s, Unavailable)
        while True:
            try:
                with _errors(self.address):
                    call = self._stub.WatchProof(pb.WatchProofRequest(job_id=job_id), metadata=self._metadata)
                    try:
                        for state in call:
                            patience.rewarded()
                            yield state
                        return
                    finally:
                        call.cancel()
            except Unavailable as error:
                patience.next(error)

    def cancel(self, job_id: str) -> bool:
        """Cancel a job. True if it had not ended."""
        return bool(self._call(self._stub.CancelProof, pb.CancelProofRequest(job_id=job_id)).was_running)

    def upload(self, witness: Path | bytes) -> str:
        """Send a witness in chunks. Returns the upload's id."""
        with _errors(self.address):
            answer = self._upload(_parts(witness, _size(witness)), metadata=self._metadata)
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

    def reach(self, patience_s: float) -> None:
        """Wait for a daemon that is being started: until it serves, or for patience_s. Raises Unavailable when none
        has answered by then.
        """
        end_s = time.monotonic() + patience_s
        while True:
            left_s = end_s - time.monotonic()
            try:
                if self._probe(left_s).serving or left_s <= 0:
                    return
            except Unavailable:
                if left_s <= 0:
                    raise
            time.sleep(PAUSE_S)

    def _patiently(
        self, ask: Callable[[], Answer], patience_s: float, what: type[Unavailable] = Unavailable
    ) -> Answer:
        """What ask() gives; asked again while it raises `what`."""
        patience = _Patience(self, patience_s, what)
        while True:
            begun_s = time.monotonic()
            try:
                return ask()
            except Unavailable as error:
                if time.monotonic() - begun_s > LASTED_S:
                    patience.rewarded()
                patience.next(error)

    def _probe(self, limit_s: float) -> pb.GetStatusResponse:
        """The status of a daemon that answers within limit_s. Raises Unavailable."""
        try:
            self._limits = self._call(self._stub.GetStatus, pb.GetStatusRequest(), max(limit_s, PAUSE_S))
        except CuzkdError as error:
            if isinstance(error, Unavailable) or not str(error).startswith("DEADLINE_EXCEEDED"):
                raise
            raise Unreachable(f"no daemon answers at {self.address} within {limit_s:.1f} s") from None
        return self._limits

    def _call(self, method: Any, request: Any, timeout_s: float | None = CALL_TIMEOUT_S) -> Any:
        with _errors(self.address):
            return method(request, timeout=timeout_s, metadata=self._metadata)


class _Patience:
    """When to ask again, and for how long. what: errors that pass."""

    def __init__(self, client: Client, patience_s: float, what: type[Unavailable]) -> None:
        self._client = client
        self._patience_s = patience_s
        self._what = what
        self._end_s: float | None = None

    def rewarded(self) -> None:
        """There was an answer: the next silence has all of the patience again."""
        self._end_s = None

    def next(self, error: Unavailable) -> None:
        """Returns when a daemon answers; raises the error when it is none that passes, or patience is over."""
        now_s = time.monotonic()
        if self._end_s is None:
            self._end_s = now_s + self._patience_s
        while isinstance(error, self._what) and now_s < self._end_s:
            time.sleep(min(PAUSE_S, self._end_s - now_s))
            try:
                self._client._probe(self._end_s - time.monotonic())
                return
            except Unavailable as still:
                error, now_s = still, time.monotonic()
        raise error


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


def _content(payload: Path | bytes) -> bytes:
    return payload if isinstance(payload, bytes) else payload.read_bytes()


def _parts(witness: Path | bytes, size: int) -> Iterator[bytes]:
    """The messages of an upload."""
    yield pb.UploadRequest(header=pb.UploadHeader(size_bytes=size)).SerializeToString()
    if isinstance(witness, bytes):
        for start in range(0, size, CHUNK_BYTES):
            yield chunks.pack(memoryview(witness)[start : start + CHUNK_BYTES])
        return
    with witness.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunks.pack(chunk)


@contextlib.contextmanager
def _errors(address: str) -> Iterator[None]:
    """Turn a status into the error class that the daemon raised."""
    try:
        yield
    except grpc.RpcError as error:
        trailing = dict(error.trailing_metadata() or ())
        word, retry_ms = trailing.get(CODE_KEY, ""), trailing.get(RETRY_KEY, "")
        if word in BY_CODE:
            meant = from_code(word, error.details())
            meant.retry_after_s = int(retry_ms) / 1000 if retry_ms.isdigit() else None
            raise meant from None
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            raise Unreachable(f"no daemon answers at {address}: {error.details()}") from None
        raise CuzkdError(f"{error.code().name}: {error.details()}") from None
