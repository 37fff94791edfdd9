"""The long run: seconds by default; with -m slow as long as CUZKD_FUZZ_SECONDS says, an hour if it says nothing.

--fixtures-dir adds real keys to the long run. A run can be repeated: CUZKD_FUZZ_SEED.
"""

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
from hostile import faulty_targets, hour
from hostile.catalogue import NAMES

SECONDS = float(os.environ.get("CUZKD_FUZZ_SECONDS", "3600"))


def attacked(folder, seconds, **environ):
    seed = int(os.environ.get("CUZKD_FUZZ_SEED", time.time_ns() % 2**32))
    outcome = hour.attack(folder, seconds, seed, environ=environ)
    if outcome.returncode:
        kept = Path(tempfile.mkdtemp(prefix="cuzkd-attacked-"))
        path = shutil.copy(outcome.offending, kept) if outcome.offending else "not kept"
        pytest.fail(f"seed {seed}: ended with {outcome.returncode}; the last file: {path}\n{outcome.log}")
    executions = outcome.report["executions"]
    print(f"\nseed {seed}, {sum(executions.values())} files in {seconds} s")
    for name, count in executions.items():
        print(f"  {name}: {count}")
    for name, count in sorted(outcome.report["answers"].items()):
        print(f"    {name}: {count}")
    return executions


def test_a_few_seconds(tmp_path):
    assert attacked(tmp_path, 6).keys() <= {f"{format}, {name}" for format, name in NAMES}


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
def test_as_long_as_one_likes(tmp_path, pytestconfig):
    more = pytestconfig.getoption("--fixtures-dir")
    executions = attacked(
        tmp_path, SECONDS, **({} if more is None else {"CUZKD_ATTACKED_KEYS": str(more.resolve())})
    )
    assert executions.keys() >= {f"{format}, {name}" for format, name in NAMES}


@pytest.mark.parametrize(
    ("fault", "returncode", "words"),
    [
        ("dies", -signal.SIGSEGV, "Segmentation fault"),
        ("hangs", -signal.SIGALRM, ""),
        ("raises", 1, "KeyError: 'raises'"),
        ("believes", 1, "AssertionError: accepted"),
        ("grows", 1, "AssertionError: grew from"),
    ],
)
def test_the_run_notices(fault, returncode, words, tmp_path):
    assert fault in faulty_targets.FAULTS
    outcome = hour.attack(
        tmp_path, 30, 1, "hostile.faulty_targets", hang_s=2, environ={"CUZKD_FAULTY": fault}
    )
    assert outcome.returncode == returncode, outcome.log
    assert words in outcome.log
    # Growth is the fault of no one file.
    assert fault == "grows" or outcome.offending.exists()
