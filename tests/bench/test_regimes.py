"""Every regime through the real engine, with real proofs; and what each does to memory, by a driver's books."""

import threading

import numpy as np
import pytest
from bench.fake_device import Driver
from bench.places import Tried, afresh, place_of

from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import subject as subjects
from cuzkd.bench.locking import RegisterAll
from cuzkd.bench.regimes import REGIMES
from cuzkd.engine.prover.partition import Partition, Vectors
from cuzkd.errors import Cancelled, Exhausted, UnsatisfiedWitness
from cuzkd.formats import proof_bytes
from cuzkd.groth16 import verifier

STAGED = [name for name in REGIMES if name.startswith("staged-") and name != "staged-overlapped"]
REGISTERED = ["register", "register-inside", "register-all"]
ORDINARY = ["pageable", "pageable-inside", "staged-overlapped"]
INSIDE = ["pageable-inside", "register-inside"]


@pytest.fixture(scope="module")
def made():
    with subjects.make("bn254", 1024, CpuBackend()) as subject:
        yield subject


@pytest.fixture(scope="module")
def made_381():
    with subjects.make("bls12_381", 1024, CpuBackend()) as subject:
        yield subject


@pytest.fixture
def subject(made, tmp_path):
    return afresh(made, tmp_path)


def spoil(subject, number):
    """Its witness no longer satisfies the circuit: another public digest."""
    path = subject.witness(number)
    words = bytearray(path.read_bytes())
    words[len(words) - subject.witness_bytes + 32] ^= 1
    path.write_bytes(words)


def proofs_hold(subject, run):
    vk = subject.key.vk
    return all(
        verifier.verify(
            vk, proof_bytes.decode(vk.curve, r.proof), [int.from_bytes(v, "big") for v in r.publics]
        )
        for r in run.records
    )


def log_of(device, *kinds):
    return [entry for entry in device.driver.log if entry[0] in kinds]


@pytest.mark.parametrize("name", REGIMES)
def test_proves_alone_and_in_flight_and_leaves_nothing_locked(subject, name):
    for in_flight, count in ((1, 2), (4, 6)):
        with Tried(subject, name, in_flight) as tried:
            run = tried.run(count)
            assert len(run.records) == count and proofs_hold(subject, run)
            assert len({r.publics for r in run.records}) == count
            assert tried.pipeline.workers.pool.stats().leased_bytes == 0
        assert not subject.backend.driver.ranges


@pytest.mark.parametrize("name", REGIMES)
def test_proves_on_the_other_curve(made_381, tmp_path, name):
    subject = afresh(made_381, tmp_path)
    with Tried(subject, name, 2) as tried:
        assert proofs_hold(subject, tried.run(2))


@pytest.mark.parametrize("name", REGIMES)
def test_what_crosses_and_whether_it_is_page_locked(subject, name):
    shape = subject.key.arrays
    with Tried(subject, name, 2) as tried:
        run = tried.run(3)
    z, rows = 32 * shape.n_wires, 32 * shape.n_rows
    vectors = {"zero-copy-ab": 2, "device-eval": 0}.get(name, 3)
    for arrived in subject.backend.arrived:
        assert [nbytes for _, nbytes in arrived.extents] == [z] + [rows] * vectors
        assert set(arrived.locked) == {name not in ORDINARY}
        assert (arrived.ring is not None) == (name == "staged-overlapped")
    assert {record.h2d_bytes for record in run.records} == {z + vectors * rows}


@pytest.mark.parametrize("name", REGIMES)
def test_who_holds_the_device(subject, name):
    """One at a time, so that nobody else may hold it."""
    with Tried(subject, name, 1) as tried:
        tried.run(2)
    assert {arrived.held for arrived in subject.backend.arrived} == {name in INSIDE}


@pytest.mark.parametrize("name", REGIMES)
def test_phases(subject, name):
    with Tried(subject, name, 2) as tried:
        records = tried.run(4).records
    spans = [span for record in records for span in record.spans]
    feeding = {span.phase for span in spans if span.row == "gpu-scheduler"} - {"gpu_wait"}
    copied = {"stage_copy"} if name in STAGED else set()
    locked = {"pin", "unpin"} if name in REGISTERED else set()
    if name == "register-all":
        locked.remove("unpin")  # by a finaliser
        assert {span.row[:9] for span in spans if span.phase == "unpin"} == {"finaliser"}
    assert feeding == copied | locked
    for record in records:
        assert record.seconds.keys() >= {"synthesis", "h2d", "msm_h", "verify"}


@pytest.mark.parametrize("name", ["register", "register-inside"])
def test_register_covers_each_copy_and_no_more(subject, name):
    device = subject.backend
    with Tried(subject, name, 3) as tried:
        tried.run(5)
    log = log_of(device, "register", "upload", "unregister")
    assert len(log) == 5 * 9
    for turn, arrived in enumerate(device.arrived):
        part = log[9 * turn : 9 * turn + 9]
        assert [kind for kind, *_ in part] == ["register"] * 4 + ["upload"] + ["unregister"] * 4
        assert [tuple(extent) for _, *extent in part[:4]] == arrived.extents
        assert [tuple(extent) for _, *extent in part[5:]] == arrived.extents[::-1]


def test_register_all_goes_group_by_group(subject):
    device = subject.backend
    with Tried(subject, "register-all", 4) as tried:
        tried.run(10)
    log = log_of(device, "register", "upload", "unregister")
    arrived = iter(device.arrived)
    for size in (4, 4, 2):
        group, log = log[: 9 * size], log[9 * size :]
        kinds = [kind for kind, *_ in group]
        assert kinds == ["register"] * 4 * size + ["upload"] * size + ["unregister"] * 4 * size
        crossed = [extent for _ in range(size) for extent in next(arrived).extents]
        assert sorted(tuple(extent) for _, *extent in group[: 4 * size]) == sorted(crossed)
    assert not log


def test_register_all_keeps_a_group_until_its_last_proof(subject):
    """While one of a group is at work, everything that was registered stays so."""
    device = subject.backend
    gate, seen = threading.Event(), []
    launch = device.launch

    def held(upload):
        run = launch(upload)
        if len(device.arrived) == 3:
            gate.wait(20)
            seen.append(len(device.driver.ranges))
        return run

    device.launch = held
    with Tried(subject, "register-all", 3) as tried:
        answers = []
        runner = threading.Thread(
            target=lambda: answers.append(tried.pipeline.run(3, 3, lambda number: gate.set()))
        )
        runner.start()  # the third is launched only when the first is through
        runner.join()
        assert seen == [12] and len(answers[0].records) == 3
    assert not device.driver.ranges


@pytest.mark.parametrize("name", STAGED)
def test_staged_bytes_pass_through_buffers_made_beforehand(subject, name):
    device = subject.backend
    with Tried(subject, name, 2) as tried:
        (slab,) = device.driver.ranges.items()
        tried.run(4)
        assert list(device.driver.ranges.items()) == [slab]
    assert [kind for kind, *_ in device.driver.log] == ["register", *["upload"] * 4, "unregister"]
    for arrived in device.arrived:
        assert all(slab[0] <= at and at + n <= slab[0] + slab[1] for at, n in arrived.extents)


@pytest.mark.parametrize("name", [name for name in REGIMES if name != "device-eval"])
def test_a_bad_witness_in_the_middle(subject, name):
    """(Where all is evaluated on the device, the host sees no constraint fail; there the verification tells.)"""
    spoil(subject, 3)
    with Tried(subject, name, 4) as tried:
        before = dict(subject.backend.driver.ranges)
        with pytest.raises(UnsatisfiedWitness):
            tried.run(8)
        if not REGIMES[name].locked:
            assert subject.backend.driver.ranges == before
        offered = tried.pipeline._offered
        run = tried.run(3)  # and on it goes
        assert [record.number for record in run.records] == [offered, offered + 1, offered + 2]
        assert proofs_hold(subject, run)
    assert not subject.backend.driver.ranges


@pytest.mark.parametrize("name", REGIMES)
@pytest.mark.parametrize("turn", [1, 3])
def test_an_upload_that_fails(subject, name, turn):
    subject.backend.fail_at = turn
    with Tried(subject, name, 4) as tried:
        before = dict(subject.backend.driver.ranges)
        with pytest.raises(Exhausted, match="no room"):
            tried.run(4)
        if not REGIMES[name].locked:
            assert subject.backend.driver.ranges == before
        tried.run(2)
        assert tried.pipeline.workers.pool.stats().leased_bytes == 0
    assert not subject.backend.driver.ranges


@pytest.mark.parametrize("name", REGISTERED)
@pytest.mark.parametrize("vectors", [2, 6])
def test_a_driver_that_refuses_more(subject, name, vectors):
    """Nothing stays registered of what could not be registered as a whole."""
    driver = subject.backend.driver
    driver.refuse_after = 32 * subject.key.arrays.n_rows * vectors
    with Tried(subject, name, 2) as tried:
        if name == "register-all" or vectors < 4:
            with pytest.raises(Exhausted, match="page-locked"):
                tried.run(2)
        else:
            tried.run(2)
        assert not driver.ranges
        driver.refuse_after = 1 << 62
        tried.run(2)
    assert not driver.ranges


# -- register-all by hand ------------------------------------------------------------------------------------


class ByHand:
    """The transfer without an engine: partitions made, uploaded and let go of in any order."""

    def __init__(self, subject, in_flight):
        self.place = place_of(subject, in_flight)
        self.place.pending = lambda: self.pending
        self.pending = 1 << 30
        self.uploaded = []
        self.place.backend.upload = lambda *args, **kw: self._upload()
        self.transfer = RegisterAll(self.place.backend, self.place.pinning, self.place.group)
        self.driver = self.place.backend.driver
        self.loaded = subject.loaded

    def _upload(self):
        class Landed:
            def wait(self):
                pass

        self.uploaded.append(len(self.driver.ranges))
        return Landed()

    def made(self, name):
        partition = Partition(name, "c", "d", "/nowhere", 2, 1)
        partition.resident = self
        # A page of its own for each vector, as leases have.
        partition.vectors = Vectors(*(np.zeros(2048, np.uint8)[:1024].view(np.uint64) for _ in range(4)))
        self.transfer.made(partition)
        return partition


@pytest.fixture
def hand(subject):
    return ByHand(subject, in_flight=2)


def test_a_stranger_while_members_are_to_cross_is_copied_as_it_is(hand):
    """It waits for nobody: the one thread that uploads is busy with it."""
    one, two = hand.made("1"), hand.made("2")
    hand.transfer.upload(one)
    again = hand.made("1, once more")
    hand.transfer.upload(again)
    hand.transfer.upload(two)
    assert hand.uploaded == [8, 8, 8]
    for partition in (one, again, two):
        assert len(hand.driver.ranges) == 8
        partition.release()
    assert not hand.driver.ranges
    three = hand.made("3")
    hand.pending = 1
    hand.transfer.upload(three)
    assert hand.uploaded == [8, 8, 8, 4]
    three.release()
    assert not hand.driver.ranges


def test_who_is_cancelled_while_waiting_for_its_group(hand):
    one = hand.made("1")
    errors = []

    def upload():
        try:
            hand.transfer.upload(one)
        except Cancelled as error:
            errors.append(error)

    thread = threading.Thread(target=upload)
    thread.start()
    one.cancelled.set()
    thread.join(20)
    assert not thread.is_alive() and len(errors) == 1
    one.release()
    two, three = hand.made("2"), hand.made("3")
    hand.transfer.upload(two)
    hand.transfer.upload(three)
    assert hand.uploaded == [8, 8]
    two.release()
    assert len(hand.driver.ranges) == 8
    three.release()
    assert not hand.driver.ranges


def test_the_end_of_a_run_is_a_smaller_group(hand):
    one = hand.made("1")
    hand.pending = 1
    hand.transfer.upload(one)
    assert hand.uploaded == [4]
    one.release()
    assert not hand.driver.ranges


def test_the_next_group_waits_until_the_last_is_through(hand):
    one, two = hand.made("1"), hand.made("2")
    hand.transfer.upload(one)
    hand.transfer.upload(two)
    three, _four = hand.made("3"), hand.made("4")
    one.release()
    thread = threading.Thread(target=lambda: hand.transfer.upload(three))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive() and len(hand.driver.ranges) == 8 and hand.uploaded == [8, 8]
    two.release()
    thread.join(20)
    assert not thread.is_alive() and hand.uploaded == [8, 8, 8]


def test_the_books_can_tell():
    """The fake driver refuses what a driver refuses."""
    driver = Driver()
    driver.register(4096, 8192)
    with pytest.raises(Exception, match="overlap"):
        driver.register(8192, 1)
    with pytest.raises(Exception, match="not registered"):
        driver.unregister(8192)
