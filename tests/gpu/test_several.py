"""Several real devices in one daemon. Needs two of them; with fewer each test says so and is skipped."""

import asyncio
import os
import signal
import subprocess
from collections import Counter

import pytest
from gpu.test_recovery import PATIENCE_S, bed, pids, proved

from cuzkd.engine.fleet import devices
from cuzkd.engine.stats import ProverState

pytestmark = pytest.mark.gpu

assert bed  # a fixture
NOT_THERE = "GPU-00000000-0000-0000-0000-000000000000"
CONTEXT_BYTES = 128 << 20  # a process that has opened a device takes more of its memory than this


@pytest.fixture(scope="module")
def uuids():
    found = devices.installed()
    if len(found.uuids) < 2:
        pytest.skip(f"needs two devices; nvidia-smi shows {len(found.uuids)}: {found.trouble}")
    return found.uuids[:2]


def memory_used():
    """Bytes by UUID, as the driver says."""
    asked = ["nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return {uuid: int(mib) << 20 for uuid, mib in (line.split(", ") for line in lines)}


async def ready(front, count):
    async with asyncio.timeout(PATIENCE_S):
        while len(front._fleet.views()) < count:
            await asyncio.sleep(0.02)


def places(view):
    return Counter(result.device for result in view.results)


def shown(front):
    return {prover.device for prover in front.status().provers}


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
@pytest.mark.parametrize("wanted", ["all", "named", "by their beginnings"])
def test_both_get_work(uuids, bed, wanted, curve):
    named = {"all": devices.ALL, "named": uuids, "by their beginnings": [uuid[:20] for uuid in uuids]}[wanted]

    async def body():
        async with bed.running(devices=named) as front:
            expected = set(devices.installed().uuids if wanted == "all" else uuids)
            await ready(front, len(expected))
            assert shown(front) == expected
            view = await proved(front, bed, curve, *range(2, 18))
            bed.check(view, curve)
            assert set(places(view)) == expected, places(view)
            print(wanted, curve, places(view))

    asyncio.run(body())


@pytest.mark.parametrize("which", [0, 1])
def test_one_alone_whatever_the_order_in_the_environment(uuids, bed, which, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    before = memory_used()

    async def body():
        async with bed.running(devices=[uuids[which]]) as front:
            await ready(front, 1)
            view = await proved(front, bed, "bn254", 3, 4, 5)
            bed.check(view, "bn254")
            assert set(places(view)) == shown(front) == {uuids[which]}
            taken = {uuid: used - before[uuid] for uuid, used in memory_used().items()}
            assert taken[uuids[which]] > CONTEXT_BYTES > taken[uuids[1 - which]], taken

    asyncio.run(body())


def test_a_job_whose_prover_is_killed_is_finished_while_the_other_goes_on(uuids, bed):
    async def body():
        async with bed.running(devices=uuids) as front:
            await ready(front, 2)
            bed.check(await proved(front, bed, "bls12_381", *range(2, 10)), "bls12_381")  # keys are there
            view = await front.submit(bed.job("bls12_381", *range(2, 34)))
            first = next(e.pid for e in front.events if isinstance(e, ProverState) and e.device == uuids[0])
            os.kill(first, signal.SIGKILL)
            view = await front.wait(view.job_id, PATIENCE_S)
            bed.check(view, "bls12_381")
            assert places(view)[uuids[1]] > 0
            await ready(front, 2)
            assert len(pids(front)) == 3 and shown(front) == set(uuids)

    asyncio.run(body())


@pytest.mark.parametrize("policy", ["prefer", "require"])
def test_one_that_is_not_there_is_said_to_be_missing(uuids, bed, policy):
    async def body():
        async with bed.running(devices=[NOT_THERE, uuids[1]], policy=policy, quarantine_s=600.0) as front:
            await ready(front, 1)
            view = await proved(front, bed, "bn254", 6, 7)
            bed.check(view, "bn254")
            assert set(places(view)) == {uuids[1]}
            async with asyncio.timeout(PATIENCE_S):
                while (gone := front.status().provers[0]).state != "quarantined":
                    await asyncio.sleep(0.1)
            assert gone.device == NOT_THERE and gone.cause
            print(gone.cause)

    asyncio.run(body())
