"""No races between the threads of a block: kernels of transforms, sparse rows, lists and sums under ThreadSanitizer.

What compute-sanitizer's racecheck is for on a device, and more: an exchange between lanes orders no memory here, as
CUDA does not promise that it does. Each run is a process of its own, which loads ThreadSanitizer before all else.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
POLICY = "exitcode=0 die_after_fork=0"

# At least a kernel of each kind that shares memory.
TRANSFORMS = (
    "tests/gpu/test_transforms.py::test_quotients[bn254-11-circom-largest tiles]",
    "tests/gpu/test_transforms.py::test_quotients[bn254-11-bellman-fused]",
)
LISTS = (
    "tests/gpu/test_lists.py::test_every_bucket[bn254-8-300]",
    "tests/gpu/test_lists.py::test_tables[bn254-3]",
    "tests/gpu/test_lists.py::test_bases_of_some_scalars[bn254-0.5]",
    "tests/gpu/test_sparse_rows.py::test_sums_that_are_looked_up_and_beyond[bn254]",
)
SUMS = (
    "tests/gpu/test_tree.py::test_sums_of_lists[bn254-g1-random-3]",
    "tests/gpu/test_tree.py::test_sums_of_lists[bn254-g2-equal, opposite, none-9]",
    "tests/gpu/test_tree.py::test_chunk_by_chunk[bn254-g1-200]",
    "tests/gpu/test_tree.py::test_weighted_sums_of_buckets[bn254-g1-3-6-8]",
    "tests/gpu/test_densities.py::test_sums_and_points_are_the_same[half of B-bn254]",
)


@cache
def library():
    found = subprocess.run(["g++", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def watched(folder, command):
    """The process, and what ThreadSanitizer told."""
    log = folder / "told"
    paths = [str(ROOT / "tests"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "LD_PRELOAD": library(),
        "PYTHONPATH": os.pathsep.join(paths),
        "TSAN_OPTIONS": f"{POLICY} log_path={log}",
    }
    run = subprocess.run(
        [
            "setarch",
            "-R",
            sys.executable,
            "-P",
            *command,
        ],  # it knows addresses as they were before they were random
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return run, "".join(path.read_text() for path in folder.glob("told.*"))


pytestmark = [
    pytest.mark.skipif(
        not all(map(shutil.which, ("g++", "setarch"))) or not Path(library()).is_absolute(),
        reason="no g++, setarch or ThreadSanitizer",
    )
]

# A thread reads what its neighbour wrote.
KERNEL = """
extern "C" __global__ void k(uint64_t* out) {
    __shared__ uint64_t at[64];
    at[threadIdx.x] = threadIdx.x;
    BETWEEN;
    out[threadIdx.x] = at[threadIdx.x ^ 1];
}
"""
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from emulation import kernels, racing, streams
racing.install()
streams.choose("lazy")
path = Path(sys.argv[1], "kernel.so")
path.write_bytes(kernels.compile_source(Path(sys.argv[1], "kernel.cu").read_text()))
out = np.zeros(64, np.uint64)
with streams.Stream(non_blocking=True) as stream:
    kernels.RawModule(path=str(path)).get_function("k")((1,), (64,), (np.uint64(out.ctypes.data),))
    stream.synchronize()
print(*out)
"""


@pytest.mark.parametrize(
    ("between", "right"),
    [
        ("__syncthreads()", True),
        ("__syncwarp()", True),
        ("", False),
        ("__shfl_sync(0xffffffffu, 0, 0)", False),
        ("__ballot_sync(0xffffffffu, 0)", False),
    ],
)
def test_what_orders_memory_and_what_does_not(tmp_path, between, right):
    (tmp_path / "kernel.cu").write_text(KERNEL.replace("BETWEEN", between))
    # Of threads that are long over by then it may not know enough to tell.
    for _ in range(1 if right else 10):
        run, told = watched(tmp_path, ["-c", SCRIPT, str(tmp_path)])
        assert run.returncode == 0, run.stderr
        if "data race" in told:
            break
    assert ("data race" not in told) == right, told
    if right:
        assert run.stdout.split() == [str(t ^ 1) for t in range(64)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chosen", [TRANSFORMS, LISTS, SUMS], ids=["transforms", "lists", "sums"])
def test_kernels(tmp_path, chosen):
    how = "-m pytest -p emulation.plugin --emulated lazy --races -p no:cacheprovider -m gpu --timeout 3000 -q"
    run, told = watched(tmp_path, [*how.split(), *chosen])
    assert run.returncode == 0 and f"{len(chosen)} passed" in run.stdout, run.stdout + run.stderr
    assert not told, told
