"""The native threads of a process: in a forked child, and where the system gives no more of them.

Each case has a process of its own, which the alarm ends should it ever wait for a thread that is not there.
"""

import os
import subprocess
import sys

import pytest

from cuzkd.backend import native

PRELUDE = """
import os, resource, signal
import numpy as np
from cuzkd.backend import cpu

signal.alarm(60)
FIXED = np.zeros((3000, 4), np.uint64)
FIXED[:, 0] = np.arange(3000)

def points():
    return cpu.fixed_base_mul("bn254", "g1", FIXED)

def tasks():  # numpy has none: OPENBLAS_NUM_THREADS
    return len(os.listdir("/proc/self/task"))
"""

IN_A_CHILD = """
cpu.set_threads(3)
expected = points()
child = os.fork()
if child == 0:
    signal.alarm(60)
    {child}
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(points(), expected)
"""


def run(build, script):
    if build not in native.usable():
        pytest.skip(f"this processor lacks {', '.join(native.missing_flags(build))}")
    out = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", PRELUDE + script],
        env={**os.environ, native.VARIABLE: build, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.returncode == 0, out.stderr


@pytest.mark.parametrize("build", native.BUILDS)
@pytest.mark.parametrize(
    "child",
    [
        "assert tasks() == 1 and cpu.threads() == 3 and np.array_equal(points(), expected) and tasks() == 3",
        "cpu.set_threads(1); assert tasks() == 1 and np.array_equal(points(), expected) and tasks() == 1",
        "cpu.set_threads(5); assert tasks() == 5 and np.array_equal(points(), expected); cpu.set_threads(2)",
    ],
    ids=["as wide", "narrower", "wider"],
)
def test_a_forked_child_has_threads_of_its_own(build, child):
    run(build, IN_A_CHILD.format(child=child))


@pytest.mark.parametrize("build", native.BUILDS)
def test_no_more_threads_than_the_system_gives(build):
    """A limit on memory stands in for one on threads: there is no room for their stacks."""
    run(
        build,
        """
expected = points()
limits = resource.getrlimit(resource.RLIMIT_AS)
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (64 << 20), limits[1]))
cpu.set_threads(200)
resource.setrlimit(resource.RLIMIT_AS, limits)
assert cpu.threads() == tasks() < 200
assert np.array_equal(points(), expected)
cpu.set_threads(4)
assert cpu.threads() == 4 and np.array_equal(points(), expected)
""",
    )
