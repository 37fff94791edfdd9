"""What there is to observe of a pool."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PoolStats:
    """Bytes are whole pages: slab_bytes = leased_bytes + free_bytes + quarantined_bytes, always.

    free_bytes does not tell how large a lease would succeed at once: it may lie in several ranges, and a piece of it
    may be being wiped. dirty_bytes: of the free ones, those that may hold somebody's data.
    slabs_made_on_job_path: slabs that were made because a lease was waiting, not ahead of time.
    """

    slab_bytes: int
    leased_bytes: int
    free_bytes: int
    quarantined_bytes: int
    dirty_bytes: int
    slabs: int
    slabs_made: int
    slabs_made_on_job_path: int
    peak_slab_bytes: int
    peak_leased_bytes: int
    waiting: int
    prewarming: int  # prewarm calls that are neither fulfilled nor given up
