"""The comparison on a real device, small. Runs with `pytest -m gpu` where there is one."""

from pathlib import Path

import numpy as np
import pytest

from cuzkd.backend import cpu
from cuzkd.bench import goals, micro, pinning, prove, sources, subject, transfer, trials
from cuzkd.bench.regimes import REGIMES
from cuzkd.groth16 import prover as groth16
from cuzkd.memory.upstream import PagesUpstream, RegisteringUpstream

pytestmark = pytest.mark.gpu

MIB = 1 << 20


@pytest.fixture(scope="module")
def gpu():
    """Imported here: other machines have no CuPy to import."""
    from cuzkd.backend.cuda import CudaBackend

    backend = CudaBackend()
    yield backend
    backend.close()


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
def test_every_regime_proves(gpu, curve):
    """The finaliser has verified every proof; what crosses is counted by the backend."""
    emulated = gpu.device_name == "emulated"  # there, a proof of 2^14 takes ten seconds
    n, in_flight, partitions = (1 << 10, 2, 3) if emulated else (1 << 14, 4, 6)
    options = transfer.Options(
        curve=curve, n_constraints=n, alone=1, partitions=partitions, in_flight=in_flight, distinct=3
    )
    report = transfer.run(gpu, options, print)
    assert not report.numbers["failed"]
    found = report.numbers["regimes"]
    assert [(m["regime"], m["in_flight"], m["partitions"]) for m in found] == [
        (name, *run) for name in REGIMES for run in ((1, 1), (in_flight, partitions))
    ]
    by_columns = {m["regime"]: m["h2d_bytes"] for m in found}
    assert by_columns["device-eval"] < by_columns["zero-copy-ab"] < by_columns["zero-copy"]
    assert len({by_columns[name] for name in REGIMES if name not in ("device-eval", "zero-copy-ab")}) == 1


def test_bare_copies(gpu):
    device = transfer.device_of(gpu)
    slab = RegisteringUpstream(PagesUpstream(), device.pinning.register, device.pinning.unregister).make(MIB)
    seconds = device.bare_copy(slab.address, MIB, 3)
    slab.close()
    assert len(seconds) == 3 and min(seconds) > 0


def test_making_and_locking(gpu):
    options = pinning.Options(making_bytes=8 * MIB, curve_bytes=(4 * MIB, 8 * MIB), regions=(1, 3, 30))
    report = pinning.run(gpu, options, print)
    assert [made["way"] for made in report.numbers["making"]][-1] == "cudaHostAlloc"
    assert len(report.numbers["curve"]) == 6
    assert all(point["register_s"] > 0 and point["unregister_s"] > 0 for point in report.numbers["curve"])


def test_every_operation_alone(gpu):
    """Those that a device does, both curves; the points are those of the processor."""
    report = micro.run(gpu, micro.Options(log_sizes=(6, 10), rounds=2), print)
    cells = report.numbers["cells"]
    assert {cell["part"] for cell in cells} == set(micro.PARTS) - {"points"}
    assert all(cell["median_s"] > 0 for cell in cells)


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
def test_goals(gpu, curve):
    """Small ones, with and without tables; every result is right."""
    sizes = (("sums", "g1", 64), ("sums", "g2", 32), ("transforms", "", 64), ("rows", "", 1500))
    small = [goals.Goal(part, curve, group, n, 0, 1, 1) for part, group, n in sizes]
    numbers = goals.run(gpu, micro.Options(rounds=2), print, small).numbers["goals"]
    assert len(numbers) == len(small) and all(number["equal"] for number in numbers)
    assert [bool(number["table_bytes"]) for number in numbers] == [True, True, False, False]
    assert all(bool(number["by_table_s"]) == bool(number["table_bytes"]) for number in numbers)


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
def test_points_of_a_sum_are_those_of_the_processor(gpu, curve):
    bench = trials.of(gpu)
    for group in ("g1", "g2"):
        points = bench._bases(curve, group, 32)
        expected = cpu.fixed_base_mul(curve, group, trials.scalars(curve, 32, "random"))
        with gpu.gpu.guard():
            assert np.array_equal(gpu.gpu.compute.get(points, expected.shape), expected)


def test_a_proof_of_a_file(gpu):
    folder = Path(__file__).parent.parent / "vectors" / "edge_pub100"
    files = sources.Options(zkey=folder / "circuit.zkey", witness=folder / "circuit.wtns", rounds=2, stream=2)
    (circuit,) = prove.run(gpu, files, print).numbers["circuits"]
    assert circuit["device_bytes"] > 0 and "h2d" in circuit["phases_s"][0]


def test_a_key_that_finds_less_memory_than_it_was_made_in(tmp_path):
    """Made as ever, then proved with as if the device had not even room for its points."""
    from cuzkd.backend.cuda import ROUNDING, CudaBackend
    from cuzkd.backend.cuda_plan import MARGIN, DryRun, MemoryPlan

    backend, size = CudaBackend(), ("bn254", 1 << 10)
    with subject.make(*size, backend, tmp_path) as bed:
        shape, gpu = bed.key.arrays, backend.gpu
        plan = DryRun(shape, gpu).of(MemoryPlan(1, False, 1))
    vram_bytes = plan.total_bytes - shape.points_bytes // 2
    with subject.make(*size, backend, tmp_path, vram_bytes=vram_bytes + vram_bytes // MARGIN) as bed:
        assert bed.loaded.streamed
        groth16.prove_with(backend, bed.key, bed.loaded, bed.circuit.witness(1))  # which verifies
        assert backend.memory().pool_bytes <= backend.gpu.limit_bytes + 3 * ROUNDING
    backend.close()
