"""Readers under attack for as long as one likes, in a process of their own.

Every file is written before it is read, so it is there when the process dies of it. A file that keeps a reader busy for
longer than a minute ends the process, too (SIGALRM). The last line of the output is a report as JSON. The parent's side
is `attack`, which turns whatever happens into an Outcome.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from hostile.mutate import mutated

TESTS = Path(__file__).resolve().parent.parent
TARGETS = "hostile.catalogue"  # a module with NAMES and target()
HANG_S = 60
AT_A_TIME = 100  # files of one target before the next one's turn
WARM = 3  # rounds before memory is looked at: by then everything is loaded and every cache filled
GROWTH_BYTES = 192 << 20


@dataclass(frozen=True)
class Outcome:
    """returncode: of the process, negative for a signal. offending: the last file, where it did not end well."""

    returncode: int
    offending: Path | None
    report: dict[str, object]
    log: str


def attack(
    folder: Path,
    seconds: float,
    seed: int,
    targets: str = TARGETS,
    hang_s: int = HANG_S,
    environ: Mapping[str, str] | None = None,
) -> Outcome:
    """Run the attack, wait for its end (which comes a little after `seconds`, or earlier), and say how it was."""
    command = [sys.executable, "-X", "faulthandler", "-m", "hostile.hour"]
    arguments = [str(folder), str(seconds), str(seed), targets, str(hang_s)]
    paths = [str(TESTS), *(path for path in sys.path if path)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": ":".join(paths), **(environ or {})},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    ended_well = done.returncode == 0
    report = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    left = sorted(folder.glob("attacked*"))
    return Outcome(done.returncode, None if ended_well or not left else left[0], report, done.stderr[-4000:])


def run(folder: Path, seconds: float, seed: int, targets: str, hang_s: int) -> dict[str, object]:
    """In the attacked process. Raises what a reader must not raise; AssertionError for a wrong answer, or growth."""
    module, rng = import_module(targets), random.Random(seed)
    executions, answers = Counter[str](), Counter[str]()
    ends, first, rounds = time.monotonic() + seconds, 0, 0
    while time.monotonic() < ends:
        for format, name in module.NAMES:
            attacked = module.target(format, name)
            path = folder / f"attacked{attacked.suffix}"
            for _ in range(AT_A_TIME):
                path.write_bytes(mutated(attacked.data, attacked.fields, rng.randint))
                signal.alarm(hang_s)
                answers[f"{format}: {attacked.answer(path)}"] += 1
                signal.alarm(0)
                executions[f"{format}, {name}"] += 1
                if time.monotonic() > ends:
                    break
            path.unlink()
        rounds += 1
        if rounds == WARM:
            first = resident()
        if rounds > WARM:
            assert resident() - first < GROWTH_BYTES, f"grew from {first} to {resident()} bytes"
    return {"executions": executions, "answers": answers, "rounds": rounds, "bytes": [first, resident()]}


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    where, how_long, start, what, patience = sys.argv[1:]
    print(json.dumps(run(Path(where), float(how_long), int(start), what, int(patience))))
