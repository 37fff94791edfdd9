"""A small .params file made by plain ints, in pieces, for tests that read it and tests that make it lie.

Its points are multiples of the generators, each its own: a key by its shape, not by its sense.
"""

import struct
from dataclasses import dataclass, field
from functools import cache

from formats import plain_points

from cuzkd.curves import points
from cuzkd.groth16.constraints import from_rows

SINGLE = {
    "alpha_g1": "g1", "beta_g1": "g1", "beta_g2": "g2", "gamma_g2": "g2", "delta_g1": "g1", "delta_g2": "g2",
}  # fmt: skip
LISTS = {"ic": "g1", "h": "g1", "l": "g1", "a": "g1", "b1": "g1", "b2": "g2"}
GROUPS = SINGLE | LISTS
# 7 wires, 2 of them public, 2 constraints and 3 appended rows: domain 8.
N_WIRES, N_PUBLIC = 7, 2
IN_A, IN_B = (0, 1, 2, 3, 4), (0, 4, 5)
COUNTS = {"ic": 3, "h": 7, "l": 4, "a": 5, "b1": 3, "b2": 3}


def constraints(curve):
    return from_rows(
        curve, N_WIRES, N_PUBLIC, [{3: 1, 4: 2}, {4: 5}], [{4: 1}, {5: 3, 0: 1}], [{6: 1}, {6: -1, 1: 1}]
    )


@cache
def multiples(curve, group, n=40):
    """G, 2G, ..., nG as plain ints."""
    law = points.group(curve, group)
    found = [law.generator]
    while len(found) < n:
        found.append(law.add(found[-1], law.generator))
    return found


@dataclass
class Params:
    """The pieces of a file. single: name -> point; lists: name -> points; each may be None for infinity."""

    curve: str
    single: dict = field(default_factory=dict)
    lists: dict = field(default_factory=dict)
    trailing: bytes = b""

    def offset(self, name, i=0):
        """The byte at which a point begins; of a list, its i-th."""
        at = 0
        for single, group in SINGLE.items():
            if single == name:
                return at
            at += plain_points.size(self.curve, group)
        for listed, group in LISTS.items():
            size = plain_points.size(self.curve, group)
            if listed == name:
                return at + 4 + i * size
            at += 4 + len(self.lists[listed]) * size
        assert name == "trailing"
        return at

    def vk_bytes(self):
        return self.bytes()[: self.offset("h") - 4]

    def bytes(self):
        pieces = [plain_points.encode(self.curve, group, self.single[name]) for name, group in SINGLE.items()]
        for name, group in LISTS.items():
            pieces.append(struct.pack(">I", len(self.lists[name])))
            pieces += [plain_points.encode(self.curve, group, point) for point in self.lists[name]]
        return b"".join([*pieces, self.trailing])


def params(curve):
    """A file as bellman writes it for `constraints`."""
    fresh = {group: iter(multiples(curve, group)) for group in ("g1", "g2")}
    made = Params(curve)
    for name, group in SINGLE.items():
        made.single[name] = next(fresh[group])
    for name, group in LISTS.items():
        made.lists[name] = [next(fresh[group]) for _ in range(COUNTS[name])]
    return made


def with_every_wire(made):
    """The same as `snarkjs zkey export bellman` has it."""
    for name, wires in (("a", IN_A), ("b1", IN_B), ("b2", IN_B)):
        held = dict(zip(wires, made.lists[name], strict=True))
        made.lists[name] = [held.get(wire) for wire in range(N_WIRES)]
    return made
