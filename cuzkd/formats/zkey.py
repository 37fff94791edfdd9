"""The .zkey file: a Groth16 proving key as snarkjs makes it, over both curves.

    1   u32 protocol (1: Groth16)
    2   u32 n8q, q, u32 n8r, r, u32 n_wires, u32 n_public, u32 domain,
        alpha1, beta1, beta2, gamma2, delta1, delta2
    3   IC [n_public + 1]
    4   coefficients of A and B (coefficients.py); there is no C
    5   A [n_wires]    6   B1 [n_wires]    7   B2 [n_wires], G2
    8   C [n_wires - n_public - 1]
    9   H [domain], the bases for the odd coset of the doubled domain
    10  circuit hash and contributions: not for the prover

All is little-endian. Points are affine and Montgomery with R = 2^256 or 2^384, infinity all zero, G2 as x.c0
x.c1 y.c0 y.c1: the house's own form. The FFT roots come from the non-residue 5 on both curves, unlike
bellman's 7 on BLS12-381.

Problem: of a key that is cut or that lies, other provers make invalid proofs, or they crash.
Design: sizes of all sections follow from section 2, and are compared with it before an element is read.
Points are checked against the curve when a circuit is added (circuits/checks.py), not here.
Life of data: `open` reads header, IC and coefficients; the bulk of points comes in blocks, read when asked for, so
that a key larger than memory can be converted. The file stays open with the key: what is replaced or deleted
meanwhile is still read, what is shortened is refused. What daemons load is the prepared key (circuits/prepared.py).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from cuzkd.backend.protocol import U64, KeyShape
from cuzkd.curves import params
from cuzkd.errors import InvalidKey, MalformedFile
from cuzkd.formats import affine, coefficients, iden3, names
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import ProvingKey, StreamedKey, VerifyingKey

MAGIC = b"zkey"
VERSION = 1
GROTH16 = 1
ROOT_FAMILY = 5
PROTOCOL, HEADER, IC, COEFFICIENTS, A, B1, B2, C, H, CONTRIBUTIONS = range(1, 11)
NAMES = {
    PROTOCOL: "protocol", HEADER: "Groth16 header", IC: "IC", COEFFICIENTS: "coefficients", A: "A points",
    B1: "B1 points", B2: "B2 points", C: "C points", H: "H points", CONTRIBUTIONS: "contributions",
}  # fmt: skip
SECTION_OF = {"a_g1": A, "b_g1": B1, "b_g2": B2, "l_g1": C, "h_g1": H}
N8R = 32
LARGEST_HEADER = 1024  # bytes: longer than section 2 on any curve
BLOCK_BYTES = 16 << 20  # of points, read or written at a time
CIRCUIT_HASH_BYTES = 64


@dataclass(frozen=True)
class _Header:
    """Section 2. points: alpha1 beta1 beta2 gamma2 delta1 delta2 by name."""

    curve: str
    n_wires: int
    n_public: int
    domain: int
    points: dict[str, U64]


def open(path: str | os.PathLike[str]) -> StreamedKey:
    """Open and check a key; its points are yet to be read. Raises MalformedFile, InvalidInput for what is no file, or
    InvalidKey for what is well formed but of no use.
    """
    file = iden3.open_container(path, MAGIC, VERSION, NAMES)
    (protocol,) = struct.unpack("<I", file.view(PROTOCOL, 4))
    if protocol != GROTH16:
        raise InvalidKey(f"{file.where(PROTOCOL)}: expected 1 (Groth16), found {protocol}")
    head = _header(file)
    _require_domain(head, file.where(HEADER))

    lq = affine.limbs(head.curve)
    n_private = head.n_wires - head.n_public - 1
    shapes = {
        IC: (head.n_public + 1, 2, lq),
        A: (head.n_wires, 2, lq),
        B1: (head.n_wires, 2, lq),
        B2: (head.n_wires, 2, 2, lq),
        C: (n_private, 2, lq),
        H: (head.domain, 2, lq),
    }
    for i, shape in shapes.items():
        file.require(i, 8 * prod(shape), because=f"{shape[0]} points by the header")
    a, b = coefficients.read(
        partial(file.part, COEFFICIENTS), file.require(COEFFICIENTS).size, file.where(COEFFICIENTS),
        head.curve, head.n_wires, head.n_public, head.domain,
    )  # fmt: skip
    vk = VerifyingKey(
        curve=head.curve,
        alpha_g1=head.points["alpha1"],
        beta_g2=head.points["beta2"],
        gamma_g2=head.points["gamma2"],
        delta_g2=head.points["delta2"],
        ic=_aligned(file.view(IC)).reshape(shapes[IC]),
    )
    arrays = KeyShape(
        curve=head.curve,
        root_family=ROOT_FAMILY,
        reduction="circom",
        log_domain=head.domain.bit_length() - 1,
        n_wires=head.n_wires,
        n_public=head.n_public,
        n_rows=a.n_rows,
    )
    return StreamedKey(
        vk,
        head.points["beta1"],
        head.points["delta1"],
        arrays,
        Constraints(head.curve, head.n_public, a, b, None),
        {query: partial(_points, file, i, shapes[i]) for query, i in SECTION_OF.items()},
    )


def read(path: str | os.PathLike[str]) -> ProvingKey:
    """The whole key in memory. Raises as `open`."""
    return open(path).load()


def _points(file: iden3.Container, section_id: int, shape: tuple[int, ...]) -> Iterator[U64]:
    """The points of a section, some at a time."""
    n, point = shape[0], shape[1:]
    size = 8 * prod(point)
    at_once = BLOCK_BYTES // size
    for begin in range(0, n, at_once):
        count = min(at_once, n - begin)
        yield _aligned(file.part(section_id, begin * size, count * size)).reshape(count, *point)


def _header(file: iden3.Container) -> _Header:
    view = file.part(HEADER, 0, LARGEST_HEADER)
    where = file.where(HEADER)
    curve = _curve(view, where)
    lq = affine.limbs(curve)
    fixed = 4 + 8 * lq + 4 + N8R + 3 * 4
    expected = fixed + 8 * lq * (3 * 2 + 3 * 4)
    file.require(HEADER, expected, because=f"on {curve}")
    n_wires, n_public, domain = struct.unpack_from("<III", view, fixed - 12)
    if n_public + 1 > n_wires:
        raise MalformedFile(
            f"{where}: expected n_public + 1 <= n_wires, found n_public = {n_public}, n_wires = {n_wires}"
        )
    points: dict[str, U64] = {}
    at = fixed
    for name, shape in (
        ("alpha1", (2, lq)), ("beta1", (2, lq)), ("beta2", (2, 2, lq)),
        ("gamma2", (2, 2, lq)), ("delta1", (2, lq)), ("delta2", (2, 2, lq)),
    ):  # fmt: skip
        nbytes = 8 * prod(shape)
        points[name] = _aligned(view[at : at + nbytes]).reshape(shape)
        at += nbytes
    return _Header(curve, n_wires, n_public, domain, points)


def _curve(view: memoryview, where: str) -> str:
    """The curve whose primes a header names: both of them, of the lengths that it claims."""
    if len(view) < 4:
        raise MalformedFile(f"{where}: expected n8q and q, found {len(view)} bytes")
    (n8q,) = struct.unpack_from("<I", view)
    if n8q not in {8 * affine.limbs(name) for name in params.CURVES}:
        raise MalformedFile(f"{where}: expected n8q = 32 or 48, found {n8q}")
    if len(view) < 4 + n8q + 4 + N8R:
        raise MalformedFile(f"{where}: expected q and r, found {len(view)} bytes")
    q = int.from_bytes(view[4 : 4 + n8q], "little")
    (n8r,) = struct.unpack_from("<I", view, 4 + n8q)
    if n8r != N8R:
        raise MalformedFile(f"{where}: expected n8r = {N8R}, found {n8r}")
    r = int.from_bytes(view[8 + n8q : 8 + n8q + N8R], "little")
    curve = names.by_base_prime(q)
    if curve is None or n8q != 8 * affine.limbs(curve):
        raise InvalidKey(f"{where}: expected the prime q of {names.KNOWN}, found {q}")
    if names.by_scalar_prime(r) != curve:
        raise InvalidKey(f"{where}: expected the prime r of {curve}, whose q it names, found {r}")
    return curve


def _require_domain(head: _Header, where: str) -> None:
    if head.domain == 0 or head.domain & (head.domain - 1):
        raise MalformedFile(f"{where}: expected a domain size that is a power of two, found {head.domain}")
    r = params.CURVES[head.curve].r
    two_adicity = ((r - 1) & -(r - 1)).bit_length() - 1
    if 2 * head.domain > 1 << two_adicity:
        raise InvalidKey(
            f"{where}: expected a domain of at most 2^{two_adicity - 1} on {head.curve}, "
            f"found {head.domain}: there is no root of unity for its double"
        )


def _aligned(section: memoryview) -> U64:
    """uint64[...] of bytes: a window on them if they lie at a multiple of 8, else a copy."""
    return np.require(np.frombuffer(section, dtype="<u8"), requirements=["C", "A"])


def write(path: str | os.PathLike[str], key: ProvingKey | StreamedKey) -> None:
    """Write a key so that snarkjs and its kin read it. The circuit hash is zero and no contribution is listed.

    C is not in the format: it is left out. A key that comes in blocks is written in blocks. Raises InvalidKey for a key
    of another reduction or root family, or whose blocks are not as many points as it says; then nothing is left.
    """
    shape, vk = key.arrays, key.vk
    if shape.reduction != "circom" or shape.root_family != ROOT_FAMILY:
        raise InvalidKey(
            f"{path}: a .zkey holds keys of the circom reduction on root family {ROOT_FAMILY}, "
            f"not {shape.reduction} on {shape.root_family}"
        )
    curve = params.CURVES[shape.curve]
    n8q = 8 * affine.limbs(curve.name)
    header = [
        struct.pack("<I", n8q) + curve.q.to_bytes(n8q, "little"),
        struct.pack("<I", N8R) + curve.r.to_bytes(N8R, "little"),
        struct.pack("<III", shape.n_wires, shape.n_public, shape.domain),
        *(_bytes(p) for p in (vk.alpha_g1, key.beta_g1, vk.beta_g2, vk.gamma_g2, key.delta_g1, vk.delta_g2)),
    ]
    counts = {
        "a_g1": shape.n_wires, "b_g1": shape.n_wires, "b_g2": shape.n_wires,
        "l_g1": shape.n_wires - shape.n_public - 1, "h_g1": shape.domain,
    }  # fmt: skip
    iden3.write_container(
        path,
        MAGIC,
        VERSION,
        [
            (PROTOCOL, [struct.pack("<I", GROTH16)]),
            (HEADER, header),
            (IC, [_bytes(vk.ic)]),
            (COEFFICIENTS, coefficients.write(key.constraints.a, key.constraints.b)),
            *((i, _blocks(key, query, counts[query])) for query, i in SECTION_OF.items()),
            (CONTRIBUTIONS, [bytes(CIRCUIT_HASH_BYTES) + struct.pack("<I", 0)]),
        ],
    )


def _blocks(key: ProvingKey | StreamedKey, query: str, expected: int) -> Iterator[bytes | memoryview]:
    found = 0
    for block in key.blocks(query):
        found += len(block)
        yield _bytes(block)
    if found != expected:
        raise InvalidKey(f"{query}: expected {expected} points, its blocks hold {found}")


def _bytes(array: U64) -> bytes | memoryview:
    return np.ascontiguousarray(array, dtype="<u8").data.cast("B") if array.size else b""
