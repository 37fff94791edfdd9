"""Evidence is what a stand-in for nvidia-smi says: never late, never an error of ours."""

import os
import sys

import pytest

from cuzkd.engine.fleet import evidence

UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.fixture
def smi(tmp_path):
    def make(body):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!{sys.executable}\nimport sys, time\nargs = sys.argv[1:]\n{body}\n")
        path.chmod(0o700)
        return str(path)

    return make


def test_values_by_name_without_those_that_it_has_not(smi):
    command = smi(
        f"""
fields = args[0].removeprefix("--query-gpu=").split(",")
assert args[1:] == ["--format=csv,noheader", "--id={UUID}"]
known = {{"uuid": "{UUID}", "name": "H", "temperature.gpu": "91", "pci.bus_id": "[N/A]",
    "power.draw": "[Not Supported]"}}
print(", ".join(known.get(name, "0") for name in fields))"""
    )
    found = evidence.counters(UUID, command=command)
    assert found["uuid"] == UUID and found["temperature.gpu"] == "91"
    assert found["ecc.errors.uncorrected.volatile.total"] == "0"
    assert not {"pci.bus_id", "power.draw", "error"} & set(found)


def test_fields_that_the_driver_does_not_know_are_left_out(smi):
    command = smi(
        """
fields = args[0].removeprefix("--query-gpu=").split(",")
for name in fields:
    if name.startswith(("remapped", "clocks")):
        print(f'Field "{name}" is not a valid field to query.\\n')
        sys.exit(2)
print(", ".join("7" for name in fields))"""
    )
    found = evidence.counters("", command=command)
    assert set(found) == {name for name in evidence.FIELDS if not name.startswith(("remapped", "clocks"))}


def test_one_that_hangs_is_killed(smi, tmp_path):
    pid = tmp_path / "pid"
    command = smi(f"import os; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(3600)")
    found = evidence.counters(UUID, patience_s=1.0, command=command)
    assert found == {"error": "nvidia-smi did not answer within 1 s"}
    if pid.exists():  # or it was killed before it had begun
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('Unable to determine the device handle: GPU is lost'); sys.exit(15)", "status 15: Unable to"),
        ("print('a, b'); print('c, d')", "2 lines"),
        ("print('Field \"made.up\" is not a valid field to query.'); sys.exit(2)", "status 2"),
        ("print('x' * 5000); sys.exit(1)", "status 1: xxx"),
    ],
)
def test_one_that_fails_says_so(smi, body, words):
    found = evidence.counters(UUID, command=smi(body))
    assert list(found) == ["error"] and words in found["error"] and len(found["error"]) < 400


def test_none():
    assert evidence.counters(UUID, command="/does/not/exist") == {}
