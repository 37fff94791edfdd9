"""The benches that look at a running daemon, small, with a real one."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cuzkd import cli
from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import load, recovery, served, stream, subject
from cuzkd.errors import CuzkdError, DeviceFault, InvalidInput, Unavailable

N = 1100


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    with subject.make("bn254", N, CpuBackend(), tmp_path_factory.mktemp("witnesses")) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(bed, tmp_path_factory):
    with served.opened(CpuBackend(), tmp_path_factory.mktemp("daemon"), {}) as daemon:
        daemon.install(bed)
        daemon.start()
        yield daemon
        daemon.stop()


# -- a daemon of one's own -----------------------------------------------------------------------------------


def test_a_proof_is_held_against_its_own_witness(daemon, bed):
    answer = daemon.prove(bed, 0)
    with pytest.raises(DeviceFault, match="not of the witness that was sent"):
        served.require_right(bed, answer, [1])
    with pytest.raises(DeviceFault, match="expected 2 proofs, got 1"):
        served.require_right(bed, answer, [0, 1])
    proof = bytearray(answer.results[0].proof)
    proof[:64], proof[192:] = proof[192:], proof[:64]  # A and C, both points of the curve
    answer.results[0].proof = bytes(proof)
    with pytest.raises(DeviceFault, match="does not verify"):
        served.require_right(bed, answer, [0])


def test_time_of_processors_grows_with_proofs(daemon, bed):
    before = daemon.processor_time()
    for _ in range(5):
        daemon.prove(bed, 0)
    used = daemon.processor_time().since(before)
    assert used.prover_s > 0 and used.front_s >= 0


def test_a_prover_that_stands_still_goes_on_afterwards(daemon, bed):
    with daemon.standing_still():
        job_id = daemon.client.submit(bed.name, [bed.witness(3)])
        with pytest.raises(CuzkdError, match="has not ended in time"):
            served.require_done(daemon.client.wait(job_id, 0.05))
    daemon.proved(bed, job_id, [3])


def test_a_daemon_that_does_not_start_says_why(tmp_path):
    with (
        served.opened(CpuBackend(), tmp_path, {"proving": {"threads": -1}}) as daemon,
        pytest.raises(Unavailable, match="whole number from 0 up"),
    ):
        daemon.start()


def test_nothing_is_left(bed, tmp_path):
    with pytest.raises(ZeroDivisionError), served.opened(CpuBackend(), tmp_path, {}) as daemon:
        daemon.install(bed)
        daemon.start()
        process = daemon._process
        1 / 0  # noqa: B018
    assert process.returncode is not None
    assert not any(tmp_path.iterdir())


def test_a_bench_that_is_killed_leaves_no_process():
    """Neither a daemon nor clients, not even stopped ones."""
    with tempfile.TemporaryDirectory() as folder:  # a short name: a socket goes there
        bench = subprocess.Popen(
            [sys.executable, "-P", "-c", ORPHANS, folder],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": folder},
        )
        pids = [int(pid) for pid in bench.stdout.readline().split()]
        assert len(pids) == 3 and all(map(_lives, pids))
        bench.kill()
        bench.communicate()
        while any(map(_lives, pids)):
            time.sleep(0.01)


ORPHANS = """
import pathlib, sys, time
from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import load, served
with served.opened(CpuBackend(), pathlib.Path(sys.argv[1]), {}) as daemon:
    daemon.start()
    clients = load.Clients(daemon.target, ["nobody's"])
    clients.stop()
    print(daemon._process.pid, *daemon.provers(), clients.process.pid, flush=True)
    time.sleep(60)
"""


def _lives(pid):
    """Not gone, and not merely waiting to be reaped by whoever is its parent now."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


# -- load ----------------------------------------------------------------------------------------------------


def test_load(tmp_path):
    options = load.Options(waiting=8, samples=3, busy_s=20.0, folder=tmp_path)
    report = load.run(CpuBackend(), options, print)
    found = json.loads(report.json())
    assert found["told"] == {"CANCELLED": 4}
    assert [(m["call"], m["scene"]) for m in found["calls"]] == [
        (call, scene) for scene in load.SCENES for call in load.CALLS
    ]
    for measured in found["calls"]:
        assert len(measured["seconds"]) == 3
        assert 0 < measured["least"] <= measured["median"] <= measured["p99_s"] == measured["most"]
    assert len(report.tables[0].rows) == 9
    assert max(len(line) for line in report.tables[0].text().splitlines()) <= 120


def test_of_a_hundred_one_may_take_longer():
    seconds = (*(0.001 * n for n in range(99)), 5.0)
    assert load.Measured("x", "y", seconds).p99_s == pytest.approx(0.098)


@pytest.mark.parametrize(
    ("given", "says"),
    [({"waiting": 6}, "multiple of 4, got 6"), ({"samples": 1}, "at least 2, got 1")],
)
def test_load_that_means_nothing(given, says):
    with pytest.raises(InvalidInput, match=says):
        load.run(CpuBackend(), load.Options(**given), print)


def test_clients_say_who_does_not_wait_any_more(daemon, bed):
    done = daemon.prove(bed, 0).job_id
    with daemon.standing_still():
        job_id = daemon.client.submit(bed.name, [bed.witness(1)])
        with load._clients(daemon.target, [done, job_id, "nobody's"]) as clients:
            while (tally := clients.ask("")).waiting > 1:
                pass
            assert tally == load.Tally(1, {"COMPLETED": 1, "NOT_FOUND": 1})
            daemon.client.cancel(job_id)
            assert clients.ask("end") == load.Tally(0, {"COMPLETED": 1, "NOT_FOUND": 1, "CANCELLED": 1})
    assert clients.process.returncode is not None


# -- stream --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["sent", "on_server", "uploaded"])
def test_stream(tmp_path, way):
    options = stream.Options(
        curve="bn254",
        n_constraints=N,
        proofs=4,
        rounds=2,
        partitions=2,
        in_flight=2,
        on_server=way == "on_server",
        uploaded=way == "uploaded",
        folder=tmp_path,
    )
    report = stream.run(CpuBackend(), options, print)
    found = json.loads(report.json())
    assert {way: len(seconds) for way, seconds in found["each_s"].items()} == {
        "library": 2,
        "threads": 2,
        "daemon": 2,
    }
    library, daemon = found["each_s"]["library"], found["each_s"]["daemon"]
    ratios = sorted(one / other for one, other in zip(library, daemon, strict=True))
    assert found["ratio"]["daemon"]["median"] == pytest.approx(sum(ratios) / 2)
    assert found["processors_s"].keys() == {"library", "client", "front", "prover"}
    assert len(found["found"]["phases_s"]) == 8 and len(found["found"]["job_s"]) == 4
    assert {"synthesis", "msm_h", "verify"} < found["found"]["phases_s"][0].keys()
    assert [table.title[:8] for table in report.tables] == ["A stream", "Device b", "Time of ", "Phases o"]
    busy = found["found"]["busy"]
    assert busy.keys() == {"threads", "daemon"}
    assert all(len(shares) == 2 and all(0 < share <= 1 for share in shares) for shares in busy.values())
    assert not any(tmp_path.iterdir())


def test_stream_makes_jobs_long_enough(monkeypatch):
    """A job that shall take four times as long has four times the constraints."""
    sizes = []
    for job_s in (0.1, 0.4):
        monkeypatch.setattr(stream, "JOB_S", job_s)
        monkeypatch.setattr(stream, "_prove", lambda bed, number: None)
        monkeypatch.setattr(stream.time, "perf_counter", iter((0.0, 0.0, 0.03)).__next__)
        sizes.append(stream._size(CpuBackend(), "bn254"))
    assert sizes == [stream.FIRST_SIZE << 2, stream.FIRST_SIZE << 4]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rounds": 1}, "--rounds: expected at least 2, got 1"),
        ({"proofs": 1}, "--proofs: expected at least 2, got 1"),
        ({"proofs": 5, "partitions": 2}, "--proofs: expected a multiple of 2, got 5"),
    ],
)
def test_a_stream_that_means_nothing(given, says):
    with pytest.raises(InvalidInput, match=says):
        stream.run(CpuBackend(), stream.Options(**given), print)


# -- recovery ------------------------------------------------------------------------------------------------


def small(**given):
    return recovery.Options(
        **{
            "curve": "bn254",
            "n_constraints": N,
            "cancel_constraints": 1 << 16,
            "rounds": 1,
            "cancels": 2,
            "queued": 3,
        }
        | given
    )


def test_kill_and_cancel(tmp_path):
    options = small(parts=("kill", "cancel"), n_constraints=1 << 12, folder=tmp_path)
    report = recovery.run(CpuBackend(), options, print)
    found = json.loads(report.json())
    kill, cancel = found["seconds"]["kill"], found["seconds"]["cancel"]
    assert all(len(seconds) == 1 and seconds[0] > 0 for seconds in kill.values()) and len(kill) == 3
    assert set(found["cancelled_at"]) <= set(recovery.AT_WORK)
    n = len(found["cancelled_at"])  # the second may come too late
    assert n >= 1 and len(cancel["until its watcher knows"]) == n
    assert [table.title for table in report.tables] == ["kill", "cancel"]


def test_restart(tmp_path):
    report = recovery.run(CpuBackend(), small(parts=("restart",), folder=tmp_path), print)
    found = report.numbers["seconds"]["restart"]
    assert (
        0 < found["until it serves"][0] < found["until a first proof"][0] <= found["until all are proved"][0]
    )
    assert [table.title for table in report.tables] == ["restart"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"parts": ("kill", "resurrect")}, "--parts: expected some of .*, got resurrect"),
        ({"queued": 0}, "--queued: expected at least 1, got 0"),
    ],
)
def test_a_recovery_that_means_nothing(given, says):
    with pytest.raises(InvalidInput, match=says):
        recovery.run(CpuBackend(), small(**given), print)


def test_a_job_that_is_done_too_soon_is_not_called_cancelled(daemon, bed, monkeypatch):
    monkeypatch.setattr(recovery, "_at_work", lambda daemon, job_id: False)
    with pytest.raises(CuzkdError, match="--cancel-constraints must be more"):
        recovery._cancel(daemon, bed, bed, 1, recovery.Found(), print)
    with pytest.raises(CuzkdError, match="--constraints must be more"):
        recovery._killed_at_work(daemon, bed)


# -- the commands --------------------------------------------------------------------------------------------


def test_the_commands_pass_their_arguments_on(monkeypatch, tmp_path):
    seen = {}

    def keep(name):
        def run(backend, options, say):
            seen[name] = options
            raise InvalidInput("enough")

        return run

    for bench in (load, stream, recovery):
        monkeypatch.setattr(bench, "run", keep(bench.__name__))
    common = ["--backend", "cpu", "--curve", "bn254", "--constraints", "2,000", "--dir", str(tmp_path)]
    for argv in (
        ["load", "--waiting", "8", "--samples", "9", "--busy", "1.5"],
        ["stream", "--proofs", "7", "--rounds", "3", "--partitions", "4", "--in-flight", "5", "--on-server"],
        [
            *["recovery", "--parts", "kill", "--cancel-constraints", "5000"],
            *["--rounds", "2", "--cancels", "3", "--queued", "4"],
        ],
    ):
        assert cli.main(["bench", *argv, *common]) == 2
    assert seen == {
        "cuzkd.bench.load": load.Options("bn254", 2000, 8, 9, 1.5, tmp_path),
        "cuzkd.bench.stream": stream.Options("bn254", 2000, 7, 3, 4, 5, True, False, tmp_path),
        "cuzkd.bench.recovery": recovery.Options("bn254", ("kill",), 2000, 5000, 2, 3, 4, tmp_path),
    }
