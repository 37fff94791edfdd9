"""How benches end that cannot go on: memory that is not there, files that cannot be, interrupts, a broken device."""

import dataclasses
import errno
import json
import signal
import threading
import time

import pytest
from bench.fake_device import FakeDevice
from bench.places import afresh

from cuzkd import cli
from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import pipeline, plots, porep, subject
from cuzkd.bench.pipeline import Setting
from cuzkd.bench.report import Report
from cuzkd.circuits.synthetic import Synthetic
from cuzkd.engine.fleet.budget_desk import Limit
from cuzkd.engine.prover.residency import constraint_bytes
from cuzkd.errors import CuzkdError, DeviceFault, Exhausted, InvalidInput, NeverFits
from cuzkd.memory.upstream import FailingUpstream, PagesUpstream

N = 1100
SMALL = ["--constraints", "1024", "--curve", "bn254", "--partitions", "1", "--backend", "cpu"]


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    with subject.make("bn254", N, CpuBackend(), tmp_path_factory.mktemp("witnesses")) as made:
        yield made


# -- memory --------------------------------------------------------------------------------------------------


def limited(monkeypatch, nbytes):
    monkeypatch.setattr(subject, "auto_limit", lambda: Limit(nbytes, "a test"))


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
@pytest.mark.parametrize("backend", [CpuBackend(), FakeDevice()], ids=lambda backend: backend.name)
def test_what_is_counted_beforehand_is_what_is_made(monkeypatch, curve, backend):
    limited(monkeypatch, 1 << 60)
    needed = (1 << 60) - subject._require_room(Synthetic(curve, N), backend, holding=1000, streamed=False)
    with subject.make(curve, N, backend) as made:
        fixed = constraint_bytes(made.key) + made.key.arrays.host_bytes
        assert needed - 1000 * made.lease_bytes == pytest.approx(fixed, rel=0.01)


def test_a_size_without_memory_is_refused_before_anything_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(Synthetic, "constraints", lambda self: pytest.fail("made"))
    limited(monkeypatch, 1 << 20)
    with (
        pytest.raises(NeverFits, match="1,100 constraints take"),
        subject.make("bn254", N, CpuBackend(), tmp_path),
    ):
        pytest.fail("made")
    assert not any(tmp_path.iterdir())


def test_a_host_that_has_more_than_it_says(monkeypatch):
    """Virtual machines that grow as their memory is used."""
    limited(monkeypatch, 1 << 20)
    circuit, told = Synthetic("bn254", N), 10 << 20
    left = subject._require_room(circuit, CpuBackend(), 1, streamed=False, host_bytes=told)
    limited(monkeypatch, 9 << 20)
    assert left == subject._require_room(circuit, CpuBackend(), 1, streamed=False)
    with pytest.raises(NeverFits, match="1048576 as told"):
        subject._require_room(circuit, CpuBackend(), 1, streamed=False, host_bytes=1 << 20)


def test_witnesses_lie_in_memory_only_where_it_has_room_beside_the_rest(monkeypatch, tmp_path):
    shared, disk = tmp_path / "shared", tmp_path / "disk"
    shared.mkdir()
    disk.mkdir()
    monkeypatch.setattr(subject, "SHARED_MEMORY", shared)
    monkeypatch.setattr(subject.tempfile, "tempdir", str(disk))
    limited(monkeypatch, 1 << 60)
    left = subject._require_room(Synthetic("bn254", N), CpuBackend(), holding=1, streamed=False)
    for spare, place in ((1 << 20, shared), (1 << 10, disk)):
        limited(monkeypatch, (1 << 60) - left + spare)
        with subject.make("bn254", N, CpuBackend(), distinct=1) as made:
            assert made.witness(0).parent.parent == place
        assert not any(place.iterdir())


def test_memory_that_cannot_be_made_ahead(bed):
    upstream = FailingUpstream(PagesUpstream(), good=1)
    with pipeline.opened(bed, Setting(upstream=upstream)) as prover:
        with pytest.raises(Exhausted, match="mapping a slab"):
            prover.prewarm(3)
        assert prover.workers.pool.stats().leased_bytes == 0


# -- runs that end early -------------------------------------------------------------------------------------


def test_a_broken_device_is_one_answer_and_the_last(bed, tmp_path):
    again = afresh(bed, tmp_path)
    launch, launched = again.backend.launch, []

    def break_down(upload):
        launched.append(upload)
        if len(launched) == 2:
            raise DeviceFault("broken")
        return launch(upload)

    again.backend.launch = break_down
    with pipeline.opened(again, Setting(ready_target=4)) as prover:
        with pytest.raises(DeviceFault, match="broken"):
            prover.run(4)
        assert not prover._flight.numbers and prover.workers.pool.stats().leased_bytes == 0


def test_nobody_is_waited_for_when_the_prover_is_no_more(bed, monkeypatch, tmp_path):
    monkeypatch.setattr(pipeline, "PATIENCE_S", 0.01)
    again = afresh(bed, tmp_path)
    with pipeline.opened(again) as prover:
        prover.workers._ready.take = lambda: (
            1 / 0
        )  # the thread that feeds the device ends, when it is there next
        with pytest.raises(CuzkdError, match="gpu-scheduler ended"):
            for _ in range(2):
                prover.run(1)


def test_an_interrupt_cancels_what_is_under_way(bed):
    def interrupt(number):
        raise KeyboardInterrupt

    with pipeline.opened(bed) as prover:
        with pytest.raises(KeyboardInterrupt):
            prover.run(50, in_flight=3, done=interrupt)
        assert prover._offered == 3 and prover.workers.pool.stats().leased_bytes == 0
        assert len(prover.run(2).records) == 2  # and on it goes


def test_an_interrupt_is_told_and_not_what_hears_of_none(bed, monkeypatch):
    """The second partition is in native code, and holds its vectors."""
    monkeypatch.setattr(pipeline, "PATIENCE_S", 0.01)
    ended, under_way = threading.Event(), threading.Event()

    class Deaf(CpuBackend):
        calls = 0

        def launch(self, upload):
            self.calls += 1
            return super().launch(upload) if self.calls == 1 else self

        def cancel(self):
            """Deaf."""

        def result(self, device_free=None):
            under_way.set()
            ended.wait(20)
            raise Exhausted("too late for anybody")

    def interrupt(number):
        assert under_way.wait(20)
        raise KeyboardInterrupt

    again = dataclasses.replace(bed, backend=Deaf())
    with pytest.raises(KeyboardInterrupt), pipeline.opened(again) as prover:
        prover.run(2, done=interrupt)
    assert prover.workers.pool.stats().leased_bytes > 0
    ended.set()
    while prover.workers.pool.stats().leased_bytes:
        time.sleep(0.001)


def test_sigterm_ends_a_bench_as_an_interrupt_does(monkeypatch, tmp_path, capsys):
    """So that witness files, which may lie in shared memory, do not outlive it."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(
        subject.Subject,
        "require_valid",
        lambda bed, *told: (bed.witness(0), signal.raise_signal(signal.SIGTERM)),
    )
    assert cli.main(["bench", "porep", *SMALL, "--dir", str(tmp_path)]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before and not any(tmp_path.iterdir())


# -- files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--json", "--markdown", "--timeline"])
def test_files_are_tried_before_anything_is_measured(monkeypatch, tmp_path, capsys, option):
    monkeypatch.setattr(porep, "run", lambda *options: pytest.fail("measured"))
    assert cli.main(["bench", "porep", *SMALL, option, str(tmp_path)]) == 2
    assert f"{tmp_path}: Is a directory" in capsys.readouterr().err


def test_files_are_written_even_if_nobody_reads_the_rest(tmp_path, monkeypatch):
    def nobody(*text, flush):
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", nobody)
    with pytest.raises(BrokenPipeError):
        Report("porep", CpuBackend(), numbers={"n": 1}).write(
            tmp_path / "numbers.json", tmp_path / "section.md"
        )
    assert json.loads((tmp_path / "numbers.json").read_text())["n"] == 1
    assert "cuzkd bench porep" in (tmp_path / "section.md").read_text()


def test_a_full_disk_is_told_with_the_name_of_the_file(monkeypatch, tmp_path, capsys):
    def full(self, seed, window):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Synthetic, "_fill", full)
    assert cli.main(["bench", "porep", *SMALL, "--dir", str(tmp_path)]) == 2
    assert "/0.wtns: No space left on device" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


KERNEL = {"name": "msm_h", "ph": "X", "tid": 1, "ts": 0, "dur": 5}
ROW = {"name": "thread_name", "ph": "M", "tid": 1, "args": {"name": "compute"}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\x00\xff",
        "[]",
        '{"bench": "porep"}',
        '{"bench": "pinning"}',
        '{"bench": "pinning", "curve": []}',
        *(
            json.dumps({"traceEvents": events})
            for events in (
                [],
                5,
                [KERNEL],
                [ROW],
                ["text"],
                [{"ph": "X"}],
                [{**ROW, "args": {"name": 3}}, KERNEL],
            )
        ),
    ],
)
def test_damaged_results_make_no_picture(tmp_path, text):
    damaged, picture = tmp_path / "damaged.json", tmp_path / "picture.svg"
    damaged.write_text(text)
    with pytest.raises(InvalidInput, match=str(damaged)):
        plots.draw([damaged], picture)
    assert not picture.exists()
    damaged.write_text(json.dumps({"traceEvents": [ROW, KERNEL]}))
    plots.draw([damaged], picture)
    with pytest.raises(InvalidInput, match="ending in"):
        plots.draw([damaged], tmp_path / "picture.xyz")
