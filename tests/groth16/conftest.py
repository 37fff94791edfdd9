"""A tiny circuit that has one of everything, keys for it, and the two hosts."""

from dataclasses import dataclass
from itertools import product

import pytest

from cuzkd.backend.protocol import REDUCTIONS
from cuzkd.curves.params import CURVES
from cuzkd.groth16 import constraints, hosts, setup
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import ProvingKey

SECRETS = setup.Secrets(tau=123456789, alpha=1001, beta=2002, delta=3003)


@dataclass(frozen=True)
class Case:
    """constraints; a witness that satisfies them, as ints; a key from SECRETS of either reduction."""

    curve: str
    reduction: str
    constraints: Constraints
    witness: list[int]
    key: ProvingKey

    @property
    def publics(self):
        return self.witness[1 : self.constraints.n_public + 1]

    @property
    def z(self):
        return hosts.scalars(self.witness)


def tiny(curve):
    """I know x, y with x y (x + 5) - 3 y = out; `unused` is a public value that no constraint knows.

    Wires: 0 one, 1 out, 2 unused, 3 x, 4 y, 5 t = x y, 6 lonely (private, in no constraint).
    """
    rows = (
        [{3: 1}, {5: 1}],
        [{4: 1}, {3: 1, 0: 5}],
        [{5: 1}, {1: 1, 4: 3}],
    )
    return constraints.from_rows(curve, 7, 2, *rows), [1, 12 * 8 - 3 * 4, 99, 3, 4, 12, CURVES[curve].r - 1]


@pytest.fixture(scope="session", params=list(product(CURVES, REDUCTIONS)), ids="-".join)
def case(request):
    curve, reduction = request.param
    made, witness = tiny(curve)
    key = setup.setup(made, SECRETS, hosts.plain(), reduction=reduction)
    return Case(curve, reduction, made, witness, key)
