"""Plans of faults: what acts, where, how often, and over which processes."""

import os
import subprocess
import sys

import numpy as np
import pytest

from cuzkd.backend.protocol import MsmSums
from cuzkd.engine import faults
from cuzkd.errors import DeviceFault, InvalidInput


def outcome(plan, point="witness"):
    """What somebody meets at a point: the name of an error, or nothing."""
    try:
        plan.at(point)
    except Exception as error:
        return type(error).__name__
    return ""


def test_items_of_a_point_act_one_after_the_other():
    plan = faults.load("raise:witness:1@1,memory:witness:2,full:upload:1,fault:witness:0")
    assert [outcome(plan) for _ in range(5)] == ["", "RuntimeError", "MemoryError", "MemoryError", ""]
    assert [outcome(plan, "upload") for _ in range(2)] == ["OSError", ""]


def test_a_plan_in_a_file_counts_over_processes_and_may_be_rewritten(tmp_path):
    path = tmp_path / "plan"
    first, second = faults.load(f"@{path}"), faults.load(f"@{path}")
    assert outcome(first) == "", "there is no file"
    path.write_text("raise:witness:2@1,fault:verify:1")
    assert [outcome(plan) for plan in (first, second, second, first)] == ["", *["RuntimeError"] * 2, ""]
    assert path.read_text().strip() == "fault:verify:1"
    with pytest.raises(DeviceFault):
        second.at("verify")
    path.write_text("memory:grant:1")
    assert outcome(first, "grant") == "MemoryError" and path.read_text().strip() == ""
    acted = [line.split() for line in (tmp_path / "plan.acted").read_text().splitlines()]
    assert [words[:2] for words in acted] == [["raise", "witness"]] * 2 + [
        ["fault", "verify"],
        ["memory", "grant"],
    ]
    assert {int(words[2]) for words in acted} == {os.getpid()}


@pytest.mark.parametrize(("action", "status"), [("exit", 70), ("kill", -9)])
def test_a_process_dies_once_and_its_successor_passes(tmp_path, action, status):
    path = tmp_path / "plan"
    path.write_text(f"{action}:offered:1")
    script = "import sys; from cuzkd.engine import faults; faults.load(sys.argv[1]).at('offered')"
    lives = [subprocess.run([sys.executable, "-P", "-c", script, f"@{path}"], check=False) for _ in range(2)]
    assert [life.returncode for life in lives] == [status, 0]
    assert (tmp_path / "plan.acted").read_text().startswith(f"{action} offered ")


def test_flipped_sums_are_others_and_the_first_ones_stay():
    plan = faults.load("flip:sums:1,flip:selftest:1@1")
    arrays = {name: np.arange(8, dtype=np.uint64) for name in ("a_g1", "b_g1", "b_g2", "l_g1", "h_g1")}
    sums = MsmSums(**arrays)
    flipped = plan.sums(sums)
    assert (flipped.a_g1 != sums.a_g1).sum() == 1 and sums.a_g1[0] == 0
    assert plan.sums(sums) is sums
    assert plan.sums(sums, "selftest") is sums and plan.sums(sums, "selftest") is not sums


@pytest.mark.parametrize(
    "wrong", ["raise", "raise:witness", "raise:nowhere:1", "shout:witness:1", "raise:witness:1@x"]
)
def test_what_is_no_plan_is_named(wrong):
    with pytest.raises(InvalidInput, match=wrong.split(":")[0]):
        faults.load(wrong)
