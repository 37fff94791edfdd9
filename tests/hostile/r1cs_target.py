"""The .r1cs as a target. A system other than the honest one is right if a plain reading of the bytes says so."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hostile import answers, maps
from hostile.fields import Field, Lie, words
from hostile.targets import Target

from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.formats import r1cs
from cuzkd.groth16.constraints import Constraints

Rows = tuple[dict[int, int], ...]  # a row of each of A, B and C


def r1cs_target(made: Callable[[], str]) -> Target:
    """Four constraints over nine wires, one of them unused: two public outputs, a public input, two private ones."""
    curve = made()
    r = CURVES[curve].r
    system: list[Rows] = [
        ({4: 1}, {5: 1}, {6: 1}),
        ({6: 1, 0: 5}, {3: r - 1}, {1: 1}),
        ({}, {7: 3}, {}),
        ({1: 7, 2: r - 2, 6: 1 << 250}, {0: 1}, {}),
    ]
    data = written(curve, system, 9, 2, 1, 2)
    honest = (9, 3, system)

    def read(path: Path) -> tuple[Constraints, bytes]:
        return r1cs.read(path), path.read_bytes()

    def same(found: tuple[Constraints, bytes]) -> bool:
        return found[0].curve == curve and rows_of(found[0]) == honest

    def use(found: tuple[Constraints, bytes]) -> str | None:
        return answers.TRUE if rows_of(found[0]) == plain_reading(found[1], curve) else None

    return Target(
        "r1cs",
        curve,
        ".r1cs",
        data,
        fields(data, curve),
        answers.R1CS,
        read,
        same,
        use,
        more=lambda: more(data),
    )


def written(curve: str, system: list[Rows], n_wires: int, n_out: int, n_in: int, n_private: int) -> bytes:
    """The bytes of a file, from the description of the format."""
    head = struct.pack("<I", 32) + CURVES[curve].r.to_bytes(32, "little")
    head += struct.pack("<IIIIQI", n_wires, n_out, n_in, n_private, 50, len(system))
    body = b""
    for row in system:
        for terms in row:
            body += struct.pack("<I", len(terms))
            body += b"".join(struct.pack("<I", w) + v.to_bytes(32, "little") for w, v in terms.items())
    labels = b"".join(struct.pack("<Q", 3 * wire) for wire in range(n_wires))
    return _file([(1, head), (2, body), (3, labels)])


def _file(table: list[tuple[int, bytes]]) -> bytes:
    body = b"".join(struct.pack("<IQ", i, len(content)) + content for i, content in table)
    return struct.pack("<4sII", b"r1cs", 1, len(table)) + body


def fields(data: bytes, curve: str) -> list[Field]:
    """A map of such a file."""
    out = [
        replace(f, answers=f.answers | words("custom gates")) if ": id" in f.name else f
        for f in maps.frame(data)
    ]
    where = {i: begin for i, _, begin, _ in maps.sections(data)}
    at = where[1]
    header = words("wires, size, constraints, left over, count cut, terms, wire, coefficient, true, same")
    for name, kind, size, allowed in (
        ("n8", "number", 4, words("n8")), ("r", "prime", 32, words("prime, coefficient, true")),
        ("n_wires", "number", 4, header), ("n_public_outputs", "number", 4, header),
        ("n_public_inputs", "number", 4, header), ("n_private_inputs", "number", 4, header),
        ("n_labels", "number", 8, words("same")), ("n_constraints", "number", 4, header),
    ):  # fmt: skip
        out.append(Field(name, kind, at, size, allowed))
        at += size
    at = where[2]
    (n_constraints,) = struct.unpack_from("<I", data, where[1] + 60)
    walk = words("terms, count cut, wire, coefficient, left over, true")
    for constraint in range(n_constraints):
        for matrix in "ABC":
            (n,) = struct.unpack_from("<I", data, at)
            name = f"constraint {constraint}, {matrix}"
            out.append(Field(f"{name}: terms", "number", at, 4, walk))
            at += 4
            for term in range(n):
                out.append(Field(f"{name}: wire {term}", "number", at, 4, words("wire, true")))
                value = words("coefficient, true")
                out.append(
                    Field(f"{name}: value {term}", "scalar", at + 4, 32, value, detail=CURVES[curve].r)
                )
                at += 36
    out.append(Field("a label", "raw", where[3], 8, words("same")))
    return out


def more(data: bytes) -> Iterator[Lie]:
    table = [(i, data[begin : begin + size]) for i, _, begin, size in maps.sections(data)]
    yield Lie("another order", _file(table[::-1]), words("same"))
    yield Lie("an unknown section", _file([*table, (77, b"?")]), words("same"))
    for gates in (4, 5):
        yield Lie(f"custom gates: section {gates}", _file([*table, (gates, bytes(4))]), words("custom gates"))
    for k, (i, content) in enumerate(table):
        yield Lie(f"section {i} left out", _file(table[:k] + table[k + 1 :]), words("missing"))
        yield Lie(f"section {i} twice", _file([*table, (i, content)]), words("twice"))
        for what, changed in (
            ("empty", b""),
            ("a byte short", content[:-1]),
            ("a byte longer", content + b"?"),
        ):
            answer = words("size, n8, constraints, count cut, terms, left over")
            yield Lie(f"section {i} {what}", _file([*table[:k], (i, changed), *table[k + 1 :]]), answer)


def plain_reading(data: bytes, curve: str) -> tuple[int, int, list[Rows]]:
    """(wires, public wires, constraints) by the description of the format, term by term."""
    where = {i: begin for i, _, begin, _ in maps.sections(data)}
    r = int.from_bytes(data[where[1] + 4 : where[1] + 36], "little")
    n_wires, n_out, n_in, _, _, n_constraints = struct.unpack_from("<IIIIQI", data, where[1] + 36)
    at, system = where[2], []
    for _ in range(n_constraints):
        row = []
        for _ in range(3):
            (n,) = struct.unpack_from("<I", data, at)
            at += 4
            terms: dict[int, int] = {}
            for _ in range(n):
                (wire,) = struct.unpack_from("<I", data, at)
                terms[wire] = (terms.get(wire, 0) + int.from_bytes(data[at + 4 : at + 36], "little")) % r
                at += 36
            row.append({wire: value for wire, value in terms.items() if value})
        system.append(tuple(row))
    return n_wires, n_out + n_in, system


def rows_of(constraints: Constraints) -> tuple[int, int, list[Rows]]:
    """The same of what was read; AssertionError where the rows that bind public wires are not as they must be."""
    r = CURVES[constraints.curve].r
    matrices = []
    for matrix in (constraints.a, constraints.b, constraints.c):
        assert matrix is not None
        values = [n * pow(1 << 512, -1, r) % r for n in limbs.to_ints(matrix.table)]
        ends = matrix.row_ptr.tolist()
        matrices.append(
            [
                {int(matrix.cols[e]): values[matrix.coeff[e]] for e in range(begin, end)}
                for begin, end in pairwise(ends)
            ]
        )
    n = constraints.n_constraints
    assert matrices[0][n:] == [{wire: 1} for wire in range(constraints.n_public + 1)]
    assert not any(row for matrix in matrices[1:] for row in matrix[n:])
    return (
        constraints.n_wires,
        constraints.n_public,
        list(zip(*(matrix[:n] for matrix in matrices), strict=True)),
    )
