"""Whether payloads are still what was accepted, looked at before anything is concluded from them.

Problem. After a crash of the machine, or on a bad disk, a file of the spool may hold something else than it held: its
proof would be one of another statement, and a bit that has flipped makes a good witness look like one without a proof,
which is remembered. But reading hundreds of gigabytes before a daemon starts is no restart. Design. Files are read
again in threads and their keyed digest is compared with the one of then: after an unclean end each before its partition
is offered, several at once, the best places first, while the others go on already; and whenever a payload itself is
blamed for a failure, before that is believed. What cannot be read for want of descriptors is read later.
Life. add, start: held back -> found good, or not. trouble: of one file, now. stop: whatever is being read is let go.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

from cuzkd.engine.job import Job, PartitionRecord, Stage
from cuzkd.engine.payloads.intake import Intake
from cuzkd.engine.scheduling.queue import place
from cuzkd.errors import Exhausted

AT_ONCE = 4  # files; a thread reads a gigabyte in about a second
AGAIN_S = 1.0

Held = tuple[Job, PartitionRecord]


class Intact:
    """Owned by the engine's loop. found(job, record, trouble): told of each that was held back; trouble "" where it is
    good.
    """

    def __init__(self, intake: Intake, found: Callable[[Job, PartitionRecord, str], None]) -> None:
        self._intake = intake
        self._found = found
        self._held: list[Held] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = threading.Event()

    def add(self, job: Job) -> None:
        """Its waiting partitions are held back."""
        self._held += [(job, record) for record in job.partitions if record.stage is Stage.QUEUED]

    def start(self) -> None:
        """Look at everything that is held back."""
        held = iter(sorted(self._held, key=lambda one: place(one[1].ticket)))
        for _ in range(min(AT_ONCE, len(self._held))):
            self.run(self._look(held))
        self._held = []

    async def trouble(self, record: PartitionRecord) -> str:
        """What is wrong with a partition's payload, for people; "" when it is what it was."""
        while True:
            try:
                trouble = await self._intake.trouble(record.file, self._stopping.is_set)
            except Exhausted:
                await asyncio.sleep(AGAIN_S)
                continue
            file = Path(record.file.path).name
            return trouble and f"partition {record.ticket.index}: its payload, spool/{file}, {trouble}"

    def run(self, work: Coroutine[None, None, None]) -> None:
        """Something that asks for trouble, in the background; it ends when the daemon stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        self._stopping.set()
        for task in (tasks := tuple(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, held: Iterator[Held]) -> None:
        for job, record in held:
            if job.end is None:
                self._found(job, record, await self.trouble(record))
