"""A process that accepts jobs into a journal as fast as it can and says so on stdout, until it is killed."""

import asyncio
import sys
from pathlib import Path

from engine.test_journal import made

from cuzkd.engine.faults import load
from cuzkd.engine.journal.journal import Journal


async def write(state_dir, faults):
    journal = Journal(state_dir, load(faults), lambda event: None)
    remembered = await journal.open()
    number = 1 + max([job.sequence for job in remembered.running], default=0)
    while True:
        several = [made(f"{number + n}", sequence=number + n) for n in range(3)]
        await asyncio.gather(*(journal.accept(job) for job in several))
        print(*(job.job_id for job in several), flush=True)
        number += 3


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2]))
