"""Between messages of the wire and values of the engine. No state, no waiting.

Problem: a handler full of field names hides what it does.
Design: one function for each direction and kind. Requests are judged here as far as that needs no knowledge
of circuits or jobs; the engine judges the rest. Times and shares are finite and not negative when they leave: NaN and
infinity are words that few readers of JSON, Prometheus or protobuf expect.
Life of data: a request becomes a JobRequest; a JobView becomes a reply.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from cuzkd.circuits.manifest import Manifest
from cuzkd.engine.job import (
    PHASES,
    InputJson,
    JobRequest,
    JobState,
    JobView,
    PartitionResult,
    Payload,
    Priority,
    ServerPath,
    UploadRef,
    WitnessBytes,
)
from cuzkd.errors import InvalidInput, Unsupported
from cuzkd.service.v1 import proving_pb2 as pb

MAX_PARTITIONS = 4096
MAX_STATES = 256  # of partitions in every message of a watch
STATUSES = {
    JobState.DONE: pb.AwaitProofResponse.COMPLETED,
    JobState.FAILED: pb.AwaitProofResponse.FAILED,
    JobState.CANCELLED: pb.AwaitProofResponse.CANCELLED,
}
SYNTHESIS_PHASES = frozenset({"witness", "synthesis", "stage_copy", "pin"})
DEVICE_PHASES = frozenset(
    {"h2d", "ntt_h", "prep_msm", "msm_h", "msm_l", "msm_a", "msm_b_g1", "msm_b_g2", "d2h"}
)
_ORDER = {name: i for i, name in enumerate(PHASES)}


def job_request(message: pb.SubmitProofRequest, owner: str) -> JobRequest:
    """What a client wants proved. Raises Unsupported for other kinds of jobs, InvalidInput for what makes no
    sense.
    """
    if message.proof_kind != pb.PROOF_KIND_UNSPECIFIED and not message.circuit_id:
        raise Unsupported(
            f"proof_kind {_name(pb.ProofKind, message.proof_kind)}: this daemon serves circuit jobs: "
            "set circuit_id (field 40) and partitions (field 41), and leave proof_kind unset"
        )
    if message.proof_kind != pb.PROOF_KIND_UNSPECIFIED:
        raise InvalidInput("a job with a circuit_id must leave proof_kind unset")
    if not message.circuit_id:
        raise InvalidInput("circuit_id is empty: expected the name of an installed circuit")
    if not 0 < len(message.partitions) <= MAX_PARTITIONS:
        raise InvalidInput(f"partitions: expected 1 to {MAX_PARTITIONS}, got {len(message.partitions)}")
    if message.priority not in pb.Priority.values():
        raise InvalidInput(f"priority {message.priority}: expected 0 to {max(pb.Priority.values())}")
    return JobRequest(
        circuit=message.circuit_id,
        partitions=tuple(_payload(partition, i) for i, partition in enumerate(message.partitions)),
        request_id=message.request_id,
        priority=Priority(message.priority or Priority.NORMAL),
        owner=owner,
        deadline_s=message.deadline_ms / 1000,
    )


def _payload(partition: pb.Partition, index: int) -> Payload:
    match partition.WhichOneof("source"):
        case "witness":
            return WitnessBytes(partition.witness)
        case "upload_id":
            return UploadRef(partition.upload_id)
        case "server_path":
            return ServerPath(partition.server_path)
        case "input_json":
            return InputJson(partition.input_json)
    raise InvalidInput(f"partition {index}: has no witness, upload_id, server_path or input_json")


def _name(kind: Mapping[str, int] | object, number: int) -> str:
    try:
        return str(kind.Name(number))  # type: ignore[union-attr]
    except ValueError:
        return str(number)


def await_response(view: JobView) -> pb.AwaitProofResponse:
    """A job's reply: its results when it has ended well, else why not; TIMEOUT when it has not ended."""
    return pb.AwaitProofResponse(
        job_id=view.job_id,
        status=STATUSES.get(view.state, pb.AwaitProofResponse.TIMEOUT),
        proof=b"".join(result.proof for result in view.results),
        error_message=view.error_message,
        error_code=view.error_code,
        queue_wait_ms=milliseconds(view.queue_wait_s),
        srs_load_ms=milliseconds(_sum(view.results, frozenset({"key_load"}))),
        synthesis_ms=milliseconds(_sum(view.results, SYNTHESIS_PHASES)),
        gpu_compute_ms=milliseconds(_sum(view.results, DEVICE_PHASES)),
        total_ms=milliseconds(view.total_s),
        results=[partition_result(result) for result in view.results],
    )


def partition_result(result: PartitionResult) -> pb.PartitionResult:
    """One proof with all that is known of how it was made; phases in the order of the pipeline."""
    ordered = sorted(result.phases, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    return pb.PartitionResult(
        index=result.index,
        proof=result.proof,
        public_inputs=result.publics,
        phases=[pb.Phase(name=name, seconds=finite(result.phases[name])) for name in ordered],
        backend=result.backend,
        device=result.device,
        attempts=result.attempts,
        key_digest=result.key_digest,
        h2d_bytes=result.h2d_bytes,
    )


def job_state(view: JobView, now_unix_s: float) -> pb.JobState:
    """now_unix_s: what the clock on the wall says, for the expected end."""
    expected = view.expected_s is not None and math.isfinite(view.expected_s) and not view.state.ended
    return pb.JobState(
        job_id=view.job_id,
        state=view.state.value,
        partitions=view.partitions,
        partitions_done=view.partitions_done,
        error_code=view.error_code,
        error_message=view.error_message,
        request_id=view.request_id,
        circuit_id=view.circuit,
        queue_position=view.queue_position,
        elapsed_ms=milliseconds(view.total_s),
        progress=min(finite(view.progress), 1.0),
        expected_end_unix_ms=milliseconds(now_unix_s + (view.expected_s or 0.0)) if expected else 0,
        partition_states=[
            pb.PartitionState(index=index, state=stage.value, attempts=attempt)
            for index, (stage, attempt) in enumerate(view.stages)
            if stage.in_hand or len(view.stages) <= MAX_STATES
        ],
    )


def circuit(manifest: Manifest) -> pb.Circuit:
    return pb.Circuit(
        circuit_id=manifest.name,
        digest=manifest.digest,
        curve=manifest.curve,
        n_constraints=manifest.n_constraints,
        n_wires=manifest.n_wires,
        n_public=manifest.n_public,
        domain=1 << manifest.log_domain,
    )


def _sum(results: Iterable[PartitionResult], names: frozenset[str]) -> float:
    return sum(seconds for result in results for name, seconds in result.phases.items() if name in names)


def finite(value: float) -> float:
    """The value where it is a number of something, else 0."""
    return value if math.isfinite(value) and value > 0 else 0.0


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, as many as 64 bits hold at most."""
    return min(round(finite(seconds) * 1000), (1 << 64) - 1)
