"""Tests of the GPU on a machine without one: the real kernels and the real backend, on an emulated device.

Problem: kernels and the order of streams need tests most, and see the machine that runs them least.
Design: fake_cupy.py takes CuPy's place, over streams whose work is done late or in random order (streams.py), memory
that is poisoned where it is nobody's (memory.py), and kernels that g++ compiles (kernels.py, cuda.hpp). Each of these
says what it does not emulate: time, above all, and PTX. It must not get near tests that look for a real CuPy, so each
run here is a process of its own, with plugin.py; it has to report a passed test for everything that was chosen, and
nothing but passed ones. Two run at a time. The default ones take some minutes; -m slow runs all that a device gets.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from emulation import kernels

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

ROOT = Path(__file__).parent.parent.parent

# Lists, tree and rows; keys that are streamed, with a table, of files; whole proofs.
SMALL = (
    "tests/gpu/test_files.py",
    "tests/gpu/test_lists.py",
    "tests/gpu/test_memory.py::test_streamed_keys[bn254-(6, 70, 7, 41)-('b_g2', 'l_g1')]",
    "tests/gpu/test_memory.py::test_proofs_ask_for_no_memory[two streams-evaluated]",
    "tests/gpu/test_memory.py::test_the_next_is_launched_while_the_last_sum_runs[given, two streams, in steps]",
    "tests/gpu/test_proving.py::test_sums_equal_the_processors",
    *(
        f"tests/gpu/test_transforms.py::test_quotients[{case}]"
        for case in (
            "bn254-12-bellman-as ever",
            "bls12_381-9-circom-fused",
            "bls12_381-11-bellman-short passes",
            "bn254-12-circom-windows",
        )
    ),
    "tests/gpu/test_sparse_rows.py",
    "tests/gpu/test_tables.py::test_a_key_with_a_table",
    "tests/gpu/test_tree.py",
    "tests/emulation/narrow_setup.py",
)
# No keys of 2^12 (these are their rows), and no sums over thousands.
NOT_LARGE = ("-k", "not 3500 and not 3900 and not more_than_a_batch")
LAWS = tuple(f"tests/kernels/test_{name}.py" for name in ("field", "points", "msm", "sparse", "transform"))
ALL = ("tests/gpu", "tests/kernels")
# The fault of an illegal access, in a process of its own; kernels that really run at the same time; daemons, whose
# provers are processes without a plugin.
NOT_EMULATED = (
    "--deselect=tests/gpu/test_proving.py::test_an_illegal_access_is_a_device_fault_in_that_process_alone",
    "--deselect=tests/gpu/test_transfer.py::test_spans_lie_in_time",
    "--deselect=tests/gpu/test_recovery.py",
    "--deselect=tests/gpu/test_several.py",
)


@dataclass(frozen=True)
class Run:
    """chosen: files and tests; options: more for pytest."""

    policy: str
    chosen: tuple[str, ...]
    options: tuple[str, ...] = ()

    def __call__(self):
        folders = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        how = f"-p emulation.plugin --emulated {self.policy} -p no:cacheprovider -m gpu -rA --show-capture=no"
        return subprocess.run(
            [sys.executable, "-P", "-m", "pytest", *how.split(), *self.options, *self.chosen],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
            capture_output=True,
            text=True,
            check=False,
        )


DEFAULT = {
    "small, random": Run("random:1", SMALL, NOT_LARGE),
    "mistakes, lazy": Run("lazy", ("tests/emulation/mistakes.py",)),
}
SLOW = {f"all, {policy}": Run(policy, ALL, NOT_EMULATED) for policy in ("lazy", "random:3", "random:4")}
SLOW |= {"small, lazy": Run("lazy", SMALL, NOT_LARGE), "laws, random": Run("random:2", LAWS, NOT_LARGE)}
SLOW |= {
    "products as on a device, lazy": Run("lazy", (*LAWS, "tests/gpu/test_tree.py"), (*NOT_LARGE, "--rows"))
}


@pytest.fixture(scope="module")
def started(request):
    """Those runs that this run of pytest asks for, as futures."""
    runs = [item.callspec.params["run"] for item in request.session.items if item.path == Path(__file__)]
    kernels.compile_all()
    with ThreadPoolExecutor(2) as pool:
        yield {run: pool.submit(run) for run in runs}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(
    "run",
    [
        *(
            pytest.param(run, id=f"emulated: {name}", marks=pytest.mark.timeout(1800))
            for name, run in DEFAULT.items()
        ),
        *(
            pytest.param(run, id=f"emulated: {name}", marks=[pytest.mark.slow, pytest.mark.timeout(3600)])
            for name, run in SLOW.items()
        ),
    ],
)
def test_everything_chosen_passes(started, run):
    child = started[run].result()
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (.*)", child.stdout, re.M)
    log = re.sub(r"^PASSED .*\n", "", child.stdout, flags=re.M) + child.stderr
    assert child.returncode == 0, log
    assert {outcome for outcome, _ in outcomes} == {"PASSED"}, log
    for chosen in run.chosen:
        assert any(name.startswith(chosen) for _, name in outcomes), f"nothing ran of {chosen}"
