"""The canary tells a device that computes wrongly from one that does not."""

import dataclasses

import pytest

from cuzkd.backend import cpu
from cuzkd.engine.canary import Canary
from cuzkd.errors import DeviceFault


class Wrong(cpu.CpuBackend):
    """One bit of one sum is wrong, or the device is lost."""

    lost = False

    def launch(self, upload):
        if self.lost:
            raise DeviceFault("lost")
        run = super().launch(upload)
        sums = run.result()
        wrong = sums.h_g1.copy()
        wrong[0, 0] ^= 1
        run.result = lambda: dataclasses.replace(sums, h_g1=wrong)
        return run


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
def test_a_right_device_sings(curve):
    canary = Canary(cpu.CpuBackend())
    assert canary.sings(curve) and canary.sings(curve)


@pytest.mark.parametrize("lost", [False, True])
def test_a_wrong_device_does_not(lost):
    backend = Wrong()
    backend.lost = lost
    assert not Canary(backend).sings("bn254")
