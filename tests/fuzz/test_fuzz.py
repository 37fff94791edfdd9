"""The native readers under a coverage-guided fuzzer, where clang has one: run.py does the work, and says how."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("run.py")
spec = importlib.util.spec_from_file_location("cuzkd_fuzz_run", SCRIPT)
fuzz = sys.modules["cuzkd_fuzz_run"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz)

SECONDS = 60


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.parametrize("name", fuzz.NAMES)
def test_nothing_is_found(name, tmp_path):
    if reason := fuzz.missing():
        pytest.skip(reason)
    report = fuzz.run(name, SECONDS, tmp_path)
    assert report.executions > 1000 and report.edges > 100 and report.corpus > 10, report


@pytest.mark.parametrize("name", fuzz.NAMES)
def test_seeds_are_made_of_real_files(name):
    seeds = fuzz.seeds(name)
    assert len(seeds) > 5 and all(1 < len(seed) <= fuzz.LONGEST for seed in seeds)
