"""What a prover says of a partition that is done, as its job's result: in the front's terms and on its clock."""

from __future__ import annotations

from cuzkd.engine.job import PHASES, Job, PartitionResult, Ticket
from cuzkd.engine.wire import prover_pb2 as wire


def result_of(
    job: Job, ticket: Ticket, done: wire.PartitionDone, ready: wire.Ready, now_s: float
) -> PartitionResult:
    """With two phases more: queue_wait, and total, from its submission until now."""
    begun_s = job.partitions[ticket.index].begun_s
    phases = {phase.name: phase.seconds for phase in done.phases}
    total_s = now_s - job.submitted_s
    worked_s = sum(phases.get(phase, 0.0) for phase in PHASES)
    waited_s = (now_s if begun_s is None else begun_s) - job.submitted_s
    # A busy loop reads of the beginning late; that time is the prover's already and must not count twice.
    phases["queue_wait"] = max(0.0, min(waited_s, total_s - worked_s))
    phases["total"] = total_s
    return PartitionResult(
        index=ticket.index,
        proof=done.proof,
        publics=tuple(done.publics),
        phases=phases,
        backend=ready.backend,
        device=ready.device,
        attempts=ticket.attempt + repeated(done),
        key_digest=done.key_digest,
        h2d_bytes=done.h2d_bytes,
    )


def repeated(done: wire.PartitionDone) -> int:
    """How often its sums were computed again because a proof did not verify."""
    return max(done.attempts_inside, 1) - 1
