"""What a prover process tells the front: the only place that builds its messages.

Errors become plain values here (code, message, retryable), so that no traceback, and with it no array of a
stage that failed, outlives the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, DeviceFault, Exhausted, Unavailable

RETRYABLE = (DeviceFault, Exhausted, Unavailable)


@dataclass(frozen=True)
class Failure:
    """An error that stopped a partition. `fatal`: the device is not to be trusted any more, the process
    must end.
    """

    code: str
    message: str
    retryable: bool
    fatal: bool


def failure(error: BaseException, stage: str, say: Mapping[str, str] | None = None) -> Failure:
    """What an error means for the partition in whose stage it was raised. say: for words that clients do
    not know.
    """
    if isinstance(error, MemoryError):
        error = Exhausted(f"out of host memory in stage {stage}: {error}")
    if not isinstance(error, CuzkdError):
        return Failure(CuzkdError.code, f"unexpected error in stage {stage}: {error!r}", False, False)
    message = str(error)
    for ours, theirs in (say or {}).items():
        message = message.replace(ours, theirs)
    return Failure(error.code, message, isinstance(error, RETRYABLE), isinstance(error, DeviceFault))


class Reporter:
    """Sends events. Thread-safe as far as `send` is."""

    def __init__(self, send: Callable[[wire.FromProver], None]) -> None:
        self._send = send

    def stage(self, partition_id: str, stage: str) -> None:
        self._send(wire.FromProver(event=wire.PartitionEvent(partition_id=partition_id, stage=stage)))

    def done(self, message: wire.PartitionDone) -> None:
        self._send(wire.FromProver(done=message))

    def failed(self, partition_id: str, stage: str, why: Failure) -> None:
        message = wire.PartitionFailed(
            partition_id=partition_id,
            error_code=why.code,
            error_message=why.message,
            stage=stage,
            retryable=why.retryable,
        )
        self._send(wire.FromProver(failed=message))

    def circuit(
        self,
        circuit: str,
        *,
        loaded: bool,
        digest: str = "",
        nbytes: int = 0,
        load_s: float = 0.0,
        was_loaded: bool = False,
        error: CuzkdError | None = None,
    ) -> None:
        state = wire.CircuitState(
            circuit=circuit,
            loaded=loaded,
            digest=digest,
            bytes=nbytes,
            load_s=load_s,
            was_loaded=was_loaded,
        )
        if error is not None:
            state.error_code, state.error_message = error.code, str(error)
        self._send(wire.FromProver(circuit=state))

    def log(self, level: str, event: str, fields: Mapping[str, str], numbers: Mapping[str, float]) -> None:
        record = wire.LogRecord(level=level, event=event, fields=dict(fields), numbers=dict(numbers))
        self._send(wire.FromProver(log=record))

    def heartbeat(self, message: wire.Heartbeat) -> None:
        self._send(wire.FromProver(heartbeat=message))

    def ready(self, message: wire.Ready) -> None:
        self._send(wire.FromProver(ready=message))

    def fatal(self, code: str, message: str, stage: str = "", device: str = "") -> None:
        """stage: what was being done, where that is known. device: the one that failed, where it was one."""
        fatal = wire.Fatal(error_code=code, error_message=message, stage=stage, device=device)
        self._send(wire.FromProver(fatal=fatal))
