"""Circuits at the edges: few constraints, none, no public wires, nothing but public wires, empty matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cuzkd.backend.protocol import U64
from cuzkd.curves.params import CURVES
from cuzkd.groth16 import hosts
from cuzkd.groth16.constraints import Constraints, from_rows


@dataclass(frozen=True)
class Statement:
    """A constraint system and a witness that satisfies it, plain ints."""

    constraints: Constraints
    witness: list[int]

    @property
    def curve(self) -> str:
        return self.constraints.curve

    @property
    def publics(self) -> list[int]:
        return self.witness[1 : self.constraints.n_public + 1]

    @property
    def z(self) -> U64:
        return hosts.scalars(self.witness)


def made(curve, n_public, witness, *rows) -> Statement:
    """rows: (A, B, C) of each constraint."""
    matrices = tuple(zip(*rows, strict=True)) or ((), (), ())
    r = CURVES[curve].r
    return Statement(from_rows(curve, len(witness), n_public, *matrices), [value % r for value in witness])


def squarings(curve: str, n_constraints: int, n_public: int = 1) -> Statement:
    """x -> x^2 -> x^4 ...: the last one is public, and so are n_public - 1 wires that no constraint has."""
    n, r = n_constraints, CURVES[curve].r
    inner = range(n_public + 1, n_public + 1 + n)
    wires = [*inner, 1 if n_public else n + 1]
    powers = [pow(3, 2**i, r) for i in range(n + 1)]
    values = {0: 1} | {wire: 77 + wire for wire in range(1, n_public + 1)}
    values |= dict(zip(wires, powers, strict=True))
    rows = [({wires[i]: 1}, {wires[i]: 1}, {wires[i + 1]: 1}) for i in range(n)]
    return made(curve, n_public, [values[i] for i in range(len(values))], *rows)


# Each gets a curve. Wires: 0 one, then the public ones.
EDGES: dict[str, Callable[[str], Statement]] = {
    "one constraint": lambda c: made(c, 1, [1, 15, 3, 5], ({2: 1}, {3: 1}, {1: 1})),
    "two constraints": lambda c: squarings(c, 2),
    "three constraints": lambda c: squarings(c, 3),
    "no public wire": lambda c: made(c, 0, [1, 17, 23], ({1: -1}, {2: 1}, {0: -391})),
    "no private wire": lambda c: made(c, 3, [1, 15, 3, 5], ({2: 1}, {3: 1}, {1: 1})),
    "only the constant wire": lambda c: made(c, 0, [1], ({0: 2}, {0: 3}, {0: 6})),
    "only linear constraints": lambda c: made(
        c, 1, [1, 8, 3, 5], ({}, {}, {2: 1, 3: 1, 1: -1}), ({}, {}, {2: 5, 3: -3})
    ),
    "B empty, A not": lambda c: made(c, 1, [1, 8, 3, 5], ({2: 7, 3: 1}, {}, {2: 1, 3: 1, 1: -1})),
    "A empty, B not": lambda c: made(c, 1, [1, 8, 3, 5], ({}, {2: 7, 3: 1}, {2: 1, 3: 1, 1: -1})),
    "C empty": lambda c: made(c, 1, [1, 0, 3, 5], ({1: 1}, {2: 1, 3: 1}, {})),
    "B the constant": lambda c: made(c, 1, [1, 8, 3, 5], ({2: 1, 3: 1}, {0: 1}, {1: 1})),
    "0 = 0": lambda c: made(c, 1, [1, 15, 3, 5], ({}, {}, {}), ({2: 1}, {3: 1}, {1: 1}), ({}, {}, {})),
    "nothing but 0 = 0": lambda c: made(c, 1, [1, 4, 5], ({}, {}, {})),
    "the same constraint twice": lambda c: made(c, 1, [1, 15, 3, 5], *[({2: 1}, {3: 1}, {1: 1})] * 2),
    "unused wires": lambda c: made(c, 2, [1, 15, 99, 3, 5, 7, 8], ({3: 1}, {4: 1}, {1: 1})),
    "no constraint": lambda c: made(c, 1, [1, 4, 5]),
    "no constraint, no public wire": lambda c: made(c, 0, [1, 4]),
    "no constraint, only the constant wire": lambda c: made(c, 0, [1]),
    "no constraint, all wires public": lambda c: made(c, 3, [1, 4, 5, 6]),
    "all values zero": lambda c: made(c, 1, [1, 0, 0, 0], ({2: 1}, {3: 1}, {1: 1}), ({2: 1}, {2: 1}, {3: 1})),
    "all values r - 1": lambda c: made(c, 1, [1, -1, -1, -1], ({2: 1}, {3: 1}, {1: -1})),
    "coefficients r - 1 and 2": lambda c: made(c, 1, [1, -30, 3, 5], ({2: -1}, {3: 2}, {1: 1})),
    "a wide row": lambda c: made(
        c, 1, [1, 200 * 201 // 2, *range(1, 201)], (dict.fromkeys(range(2, 202), 1), {0: 1}, {1: 1})
    ),
}
