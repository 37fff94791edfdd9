"""What a prover says of itself, as events and log lines of the front."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from cuzkd.engine.fleet.health import Death
from cuzkd.engine.stats import Heartbeat, ProverState
from cuzkd.engine.wire import prover_pb2 as wire

log = structlog.get_logger()

LEVELS: Mapping[str, str] = {"debug": "debug", "info": "info", "warning": "warning"}


def ready_state(name: str, ready: wire.Ready) -> ProverState:
    return ProverState(
        name,
        "ready",
        pid=ready.pid,
        backend=ready.backend,
        device=ready.device,
        device_name=ready.device_name,
        vram_total_bytes=ready.vram_total_bytes,
    )


def heartbeat(name: str, beat: wire.Heartbeat) -> Heartbeat:
    return Heartbeat(
        prover=name,
        pinned_slab_bytes=beat.pinned_slab_bytes,
        pinned_leased_bytes=beat.pinned_leased_bytes,
        pinned_free_bytes=beat.pinned_free_bytes,
        slabs_made=beat.slabs_made,
        slabs_made_on_job_path=beat.slabs_made_on_job_path,
        h2d_bytes_total=beat.h2d_bytes_total,
        vram_used_bytes=beat.vram_used_bytes,
        synthesising=beat.synthesising,
        ready=beat.ready,
        device_busy=beat.device_busy,
        resident_key_bytes=beat.resident_key_bytes,
        vram_free_bytes=beat.vram_free_bytes,
        pinned_lost_bytes=beat.pinned_lost_bytes,
        device_busy_s=beat.device_busy_s,
    )


def device_failed(failed: wire.PartitionFailed, device: str) -> Death:
    """What a prover dies of whose device failed a partition."""
    return Death(failed.error_message, failed.stage, failed.error_code, device, suspect=True)


def write_down(name: str, record: wire.LogRecord) -> None:
    """A prover's log event becomes one of ours; a level that we do not know is an error."""
    write = getattr(log, LEVELS.get(record.level, "error"))
    write(record.event, prover=name, **{**record.fields, **_numbers(record)})


def _numbers(record: wire.LogRecord) -> dict[str, int | float]:
    """In the order of their names, which the wire does not keep: seconds to the microsecond, and counts."""
    return {
        name: round(value, 6) if name.endswith("_s") else int(value)
        for name, value in sorted(record.numbers.items())
    }
