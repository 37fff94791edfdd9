"""The same r and s give the same bytes, whoever computes the sums and whoever assembles."""

import numpy as np
import pytest

from cuzkd.backend import select
from cuzkd.groth16 import hosts, prover
from cuzkd.groth16.hosts import Host

BLINDINGS = [(0, 0), (1, 2), (2**200 + 3, 5**80)]


@pytest.mark.parametrize("blinding", BLINDINGS)
@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_same_bytes_as_the_reference(case, name, blinding):
    backend = select.load(name)
    try:
        one = prover.prove(backend, case.key, case.z, blinding)
    finally:
        backend.close()
    two = prover.prove(select.load("reference"), case.key, case.z, blinding)
    for field in "abc":
        assert np.array_equal(getattr(one, field), getattr(two, field)), field


def test_hosts_assemble_the_same(case):
    sums = select.load("reference")
    key, z = case.key, case.z
    backend = hosts.plain().backend
    a, b = (backend.spmv(case.curve, m, z) for m in (case.constraints.a, case.constraints.b))
    made = sums.launch(sums.upload(sums.load_key(key.arrays), a, b, None, z)).result()
    one, two = (prover.assemble(key, made, 77, 88, host) for host in (hosts.best(), hosts.plain()))
    assert all(np.array_equal(getattr(one, f), getattr(two, f)) for f in "abc")


def test_the_best_host_is_native():
    """In a built tree; in others the ints take over, and cuzkd can still verify."""
    from cuzkd.backend import cpu

    assert hosts.best() is hosts.best() and hosts.best().services is cpu
    assert isinstance(hosts.plain(), Host) and hosts.plain() is not hosts.best()
