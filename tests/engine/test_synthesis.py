"""From a witness file to vectors in leased memory: every way to be wrong has its own error, and holds nothing after."""

import numpy as np
import pytest
from engine.prover_fakes import CURVE, InProcess, R, ScriptedBackend, square_circuit, write_square

from cuzkd.engine.prover import synthesis
from cuzkd.formats import wtns


@pytest.fixture(params=["in place", "device"])
def prover(request):
    yield from running(ScriptedBackend(in_place=request.param == "in place"))


@pytest.fixture
def evaluating():
    """A prover whose device makes a and b."""
    yield from running(ScriptedBackend(in_place=False, evaluates=True))


def running(backend):
    prover = InProcess(backend, {"square": square_circuit(), "no-c": square_circuit("d2", with_c=False)})
    yield prover
    prover.wait_idle()
    prover.close()


def patched(path, at, data):
    """The file with some bytes replaced; a negative `at` counts from its end."""
    raw = bytearray(path.read_bytes())
    at %= len(raw)
    raw[at : at + len(data)] = data
    path.write_bytes(raw)
    return path


def wrong_curve(path):
    wtns.write(path, "bls12_381", [1, 9, 3])


def too_long(path):
    wtns.write(path, CURVE, [1, 9, 3, 3])


def too_short(path):
    wtns.write(path, CURVE, [1, 9])


def not_below_r(path):
    write_square(path, 3)
    patched(path, -32, R.to_bytes(32, "little"))


def all_ones(path):
    write_square(path, 3)
    patched(path, -64, b"\xff" * 32)


def constant_not_one(path):
    write_square(path, 3, one=2)


def unsatisfied(path):
    write_square(path, 3, y=10)


def cut(path):
    write_square(path, 3)
    path.write_bytes(path.read_bytes()[:-17])


def empty(path):
    path.write_bytes(b"")


def missing(path):
    return


WRONG = [
    (wrong_curve, "invalid_witness", ["bn254", "bls12_381"]),
    (too_long, "invalid_witness", ["3", "4"]),
    (too_short, "invalid_witness", ["3", "2"]),
    (not_below_r, "invalid_witness", ["wire 2", CURVE]),
    (all_ones, "invalid_witness", ["wire 1"]),
    (constant_not_one, "invalid_witness", ["wire 0", "not 1"]),
    (unsatisfied, "unsatisfied_witness", ["constraint 0"]),
    (cut, "malformed_file", ["bytes"]),
    (empty, "malformed_file", ["empty"]),
    (missing, "invalid_input", []),
]


@pytest.mark.parametrize(("make", "code", "words"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_each_wrong_witness_has_its_error_and_the_next_job_succeeds(prover, tmp_path, make, code, words):
    bad = tmp_path / "bad.wtns"
    make(bad)
    prover.front.offer("bad/0", bad)
    prover.front.offer("good/0", write_square(tmp_path / "good.wtns", 5))
    failed, done = prover.front.answer("bad/0", "good/0")
    assert (failed.error_code, failed.retryable, failed.stage) == (code, False, "synthesising")
    assert all(word in failed.error_message for word in words), failed.error_message
    assert str(R) not in failed.error_message and str(tmp_path) not in failed.error_message
    assert [int.from_bytes(value, "big") for value in done.publics] == [25]
    assert not prover.backend.launched[1:]


def test_an_unknown_or_replaced_circuit(prover, tmp_path):
    path = write_square(tmp_path / "w.wtns", 4)
    prover.front.offer("a/0", path, circuit="nope")
    prover.front.offer("b/0", path, digest="other")
    prover.front.offer("c/0", path)
    unknown, replaced, done = prover.front.answer("a/0", "b/0", "c/0")
    assert unknown.error_code == "not_found"
    assert replaced.error_code == "invalid_key" and "other" in replaced.error_message
    assert done.key_digest == "d1" and done.attempts_inside == 1


def test_vectors_are_exact_products(prover, tmp_path, monkeypatch):
    """Whatever the block size, rows past the constraints are zero, also in memory that held something else."""
    monkeypatch.setattr(synthesis, "BLOCK_ROWS", 2)
    seen = []
    upload = prover.backend.upload

    def spy(key, a, b, c, z):
        seen.append([vector.copy() for vector in (a, b, z)])
        return upload(key, a, b, c, z)

    monkeypatch.setattr(prover.backend, "upload", spy)
    for index, x in enumerate((0, 1, R - 1, 12345)):
        prover.front.offer(f"job/{index}", write_square(tmp_path / f"{index}.wtns", x))
        prover.front.answer(f"job/{index}")
        a, b, z = seen[-1]
        mont = np.array([[x << 256, 1 << 256, (x * x % R) << 256]], object) % R
        assert [int.from_bytes(row.tobytes(), "little") for row in a[:3]] == mont[0].tolist()
        assert int.from_bytes(b[0].tobytes(), "little") == mont[0][0]
        assert not a[3:].any() and not b[1:].any()
        assert z.tolist()[0] == [1, 0, 0, 0]


def test_a_key_without_c_leaves_the_check_to_verification(prover, tmp_path):
    """The fake sums cannot be wrong by themselves, so an unsatisfied witness passes synthesis here."""
    prover.front.offer("a/0", write_square(tmp_path / "w.wtns", 3, y=10), circuit="no-c", digest="d2")
    assert prover.front.answer("a/0").publics == [(10).to_bytes(32, "big")]


def test_a_device_that_evaluates_is_given_z_alone(evaluating, tmp_path, monkeypatch):
    given, upload = [], evaluating.backend.upload
    monkeypatch.setattr(evaluating.backend, "upload", lambda key, *v: given.append(v[:3]) or upload(key, *v))
    for circuit, digest in (("square", "d1"), ("no-c", "d2")):
        path = write_square(tmp_path / f"{circuit}.wtns", 3)
        evaluating.front.offer(f"{circuit}/0", path, circuit=circuit, digest=digest)
        done = evaluating.front.answer(f"{circuit}/0")
        assert (int.from_bytes(done.publics[0], "big"), done.attempts_inside) == (9, 1)
    assert given == [(None, None, None)] * 2
    assert evaluating.workers.pool.stats().peak_leased_bytes == 4096


@pytest.mark.parametrize(
    ("circuit", "digest", "words"), [("square", "d1", "constraint 0"), ("no-c", "d2", "2 proofs")]
)
def test_what_a_device_evaluated_in_vain_is_made_on_the_host(evaluating, tmp_path, circuit, digest, words):
    """An unsatisfied witness shows by its proof; the second attempt says where, if C is known."""
    bad = write_square(tmp_path / "bad.wtns", 3, y=10)
    evaluating.front.offer("bad/0", bad, circuit=circuit, digest=digest)
    evaluating.front.offer("good/0", write_square(tmp_path / "good.wtns", 5))
    failed, done = evaluating.front.answer("bad/0", "good/0")
    assert (failed.error_code, failed.retryable) == ("unsatisfied_witness", False)
    assert words in failed.error_message
    assert [int.from_bytes(value, "big") for value in done.publics] == [25]


def test_stages_and_phases_are_told(prover, tmp_path):
    prover.front.offer("a/0", write_square(tmp_path / "w.wtns", 3))
    done = prover.front.answer("a/0")
    assert prover.front.stages("a/0") == ["synthesising", "ready", "proving", "verifying"]
    phases = {phase.name: phase.seconds for phase in done.phases}
    assert set(phases) == {
        "key_load", "pin", "witness", "synthesis", "gpu_wait", "ntt_h", "msm_h", "assembly", "verify",
    }  # fmt: skip
    assert all(seconds >= 0 for seconds in phases.values())
    logs = {record.event: record for record in prover.front.all("log")}
    assert {"ntt_h_s", "gpu_wait_s", "mutex_wait_s", "h2d_bytes"} <= set(logs["gpu_timing"].numbers)
    assert {"assembly_s", "verify_s", "free_s", "pin_s"} <= set(logs["fin_timing"].numbers)
    assert logs["gpu_timing"].fields["partition_id"] == "a/0"
