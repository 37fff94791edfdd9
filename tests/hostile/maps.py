"""Where everything lies in the binary files, field by field: from the formats' descriptions, not from our readers.

Points and entries come by the hundred; the first, the last and one between stand for all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from hostile import encodings
from hostile.fields import Field, words

from cuzkd.curves.params import CURVES
from cuzkd.formats import affine

# A look at the points finds these, and need not wait for what comes of them.
BY_ITSELF = {
    what: words("point") for what in ("outside the subgroup", "coordinate 0 + 1", "coordinate 0 = q")
}
FRAME = words("cut short, beyond the end, bytes after, twice, missing, size, number of sections")


def few(n: int) -> list[int]:
    """The first, the middle one and the last of n."""
    return sorted({0, n // 2, n - 1}) if n else []


def sections(data: bytes) -> list[tuple[int, int, int, int]]:
    """(id, where its head begins, where its bytes begin, how many) of each section of an iden3 file, in order."""
    out, at = [], 12
    for _ in range(struct.unpack_from("<I", data, 8)[0]):
        i, size = struct.unpack_from("<IQ", data, at)
        out.append((i, at, at + 12, size))
        at += 12 + size
    assert at == len(data)
    return out


def frame(data: bytes, unread: Sequence[int] = ()) -> Iterator[Field]:
    """Magic, version, number of sections, the head of each. unread: ids of sections that mean nothing to the reader."""
    yield Field("magic", "magic", 0, 4, words("magic"))
    yield Field("version", "number", 4, 4, words("version"))
    yield Field("number of sections", "number", 8, 4, FRAME)
    for i, head, _, _ in sections(data):
        # Sections of one size that have changed places are told apart by what is in them, or by what comes of it.
        other = (
            words("same") if i in unread else words("n8, prime, header size, entries, point, fit, B1 is B2")
        )
        yield Field(f"section {i}: id", "number", head, 4, FRAME | other)
        yield Field(f"section {i}: size", "number", head + 4, 8, FRAME)


def zkey(data: bytes, curve: str) -> list[Field]:
    """A .zkey of snarkjs. Its section 10 (contributions) is not for provers."""
    width = 8 * affine.limbs(curve)
    g1, g2 = (encodings.iden3(curve, group) for group in ("g1", "g2"))
    fields = list(frame(data, unread=(10,)))
    where = {i: (begin, size) for i, _, begin, size in sections(data)}
    fields.append(Field("protocol", "number", where[1][0], 4, words("protocol")))

    at = where[2][0]
    counts = FRAME | words(
        "counts, domain, domain too large, row index, wire index, entries, binding, n8, true"
    )
    for name, kind, size, answers in (
        ("n8q", "number", 4, words("n8, prime, header size")),
        ("q", "prime", width, words("prime")),
        ("n8r", "number", 4, words("n8")),
        ("r", "prime", 32, words("prime")),
        ("n_wires", "number", 4, counts), ("n_public", "number", 4, counts), ("domain", "number", 4, counts),
    ):  # fmt: skip
        fields.append(Field(name, kind, at, size, answers))
        at += size
    single = words("point, infinity, vkey, pairing, phase 2")
    for name, spelling in (
        ("alpha1", g1), ("beta1", g1), ("beta2", g2), ("gamma2", g2), ("delta1", g1), ("delta2", g2),
    ):  # fmt: skip
        fields.append(Field(name, "point", at, spelling.size, single, detail=spelling, certain=BY_ITSELF))
        at += spelling.size

    # On a domain of two, h is a constant, and the two points of H are summed: exchanged, they prove as before.
    for i, name, spelling in (
        (3, "IC", g1),
        (5, "A", g1),
        (6, "B1", g1),
        (7, "B2", g2),
        (8, "C", g1),
        (9, "H", g1),
    ):
        begin, size = where[i]
        answers = (
            words("point, vkey") if i == 3 else words("point, fit, B1 is B2, no infinity, unsatisfied, true")
        )
        for k in few(size // spelling.size):
            at = begin + k * spelling.size
            fields.append(
                Field(f"{name}[{k}]", "point", at, spelling.size, answers, detail=spelling, certain=BY_ITSELF)
            )

    begin, size = where[4]
    fields.append(Field("entries", "number", begin, 4, words("entries")))
    for k in few((size - 4) // 44):
        at = begin + 4 + 44 * k
        another = words("binding, fit, unsatisfied, true")
        fields += [
            Field(f"entry {k}: matrix", "number", at, 4, another | words("matrix index")),
            Field(f"entry {k}: row", "number", at + 4, 4, another | words("row index")),
            Field(f"entry {k}: wire", "number", at + 8, 4, another | words("wire index")),
            Field(
                f"entry {k}: value",
                "scalar",
                at + 12,
                32,
                another | words("coefficient"),
                detail=CURVES[curve].r,
            ),
        ]
    if 10 in where and where[10][1] >= 68:
        begin = where[10][0]
        fields.append(Field("circuit hash", "raw", begin, 64, words("same")))
        fields.append(Field("contributions", "number", begin + 64, 4, words("same")))
    return fields


def wtns(data: bytes, curve: str) -> list[Field]:
    """A .wtns: header and the first, middle and last value, and the constant."""
    fields = list(frame(data))
    where = {i: (begin, size) for i, _, begin, size in sections(data)}
    at = where[1][0]
    fields += [
        Field("n8", "number", at, 4, words("n8")),
        Field("r", "prime", at + 4, 32, words("prime, other curve")),
        Field("n", "number", at + 36, 4, words("size, no values")),
    ]
    begin, size = where[2]
    for k in few(size // 32):
        answers = words("constant, range") if k == 0 else words("range, unsatisfied, true")
        fields.append(Field(f"value {k}", "scalar", begin + 32 * k, 32, answers, detail=CURVES[curve].r))
    return fields
