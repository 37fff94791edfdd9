"""Development keys: a Groth16 set-up from secrets that somebody knows. INSECURE: who knows them can forge.

For tests, benches and the demo, which need a key of any size in seconds. With the secrets as plain numbers every point
of a key is one multiple of a generator:

    L_i(tau) = (tau^n - 1)/n * w^i/(tau - w^i)      Lagrange basis of the domain <w>, n = 2^log_domain
    u_i(tau) = sum over rows j of A[j, i] L_j(tau)  a product with the transpose of A; v, w alike from B, C
    H_i = [L'_(2i+1)(tau)/delta]_1                  circom: L' the basis of the domain of twice the size
    H_i = [tau^i (tau^n - 1)/delta]_1, i < n - 1    bellman

gamma is 1. Roots of unity are those of the formats that keys go to: formats.zkey.write makes files which snarkjs takes,
formats.bellman.write_params such that bellman takes. Arithmetic is over whole arrays, by the host's backend.
"""

from __future__ import annotations

import secrets as system
from dataclasses import asdict, dataclass

import numpy as np

from cuzkd.backend.protocol import U64, KeyArrays, KeyShape, SparseMatrix
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput
from cuzkd.groth16 import hosts
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.hosts import Host
from cuzkd.groth16.keys import ProvingKey, VerifyingKey

ROOT_FAMILY = 5  # of circom, on both curves
DEVELOPMENT = "development key: INSECURE"  # for whatever shows such a key to people


@dataclass(frozen=True)
class Secrets:
    """The toxic waste of a development key: plain ints in [1, r), delta > 1. gamma is 1, as in snarkjs's keys."""

    tau: int
    alpha: int
    beta: int
    delta: int

    @classmethod
    def random(cls, curve: str) -> Secrets:
        r = CURVES[curve].r
        return cls(*(2 + system.randbelow(r - 2) for _ in range(4)))


class _Scalars:
    """Whole-array arithmetic in Fr, Montgomery [n, 4]."""

    def __init__(self, curve: str, host: Host) -> None:
        self.curve, self.r, self._backend = curve, CURVES[curve].r, host.backend

    def constant(self, value: int) -> U64:
        """[1, 4]"""
        return limbs.to_montgomery([value], self.r)

    def op(self, op: str, a: U64, b: U64 | None = None) -> U64:
        """Element by element; one operand may be a single element."""
        if b is not None:
            n = len(a) if len(b) == 1 else len(b)  # an empty operand stays empty
            a, b = (np.ascontiguousarray(np.broadcast_to(x, (n, 4))) for x in (a, b))
        return self._backend.field_op(self.curve, "fr", op, a, b)

    def powers(self, base: int, n: int) -> U64:
        """base^0 .. base^(n-1), by doubling."""
        out = self.constant(1)
        while len(out) < n:
            out = np.concatenate([out, self.op("mul", out, self.constant(pow(base, len(out), self.r)))])
        return np.ascontiguousarray(out[:n])

    def canonical(self, a: U64) -> U64:
        return self.op("from_mont", a)


def setup(
    constraints: Constraints,
    secrets: Secrets | None = None,
    host: Host | None = None,
    *,
    reduction: str = "circom",
) -> ProvingKey:
    """An INSECURE proving key for these constraints. secrets: random ones by default. reduction: as in KeyShape.

    Raises InvalidInput where C is not known, a secret is out of range, or the curve has no domain of the size.
    """
    a, b, c = matrices(constraints)
    shape = shape_for(constraints, reduction)
    k = secrets_for(shape, secrets)
    curve, host = shape.curve, host or hosts.best()
    f = _Scalars(curve, host)
    root = CURVES[curve].root_of_unity(shape.root_family, shape.log_domain)
    lagrange = f.canonical(_lagrange(f, k.tau, shape.domain, f.powers(root, constraints.n_rows)))
    u, v, w = (_transposed_product(host, curve, matrix, lagrange) for matrix in (a, b, c))
    mixed = f.op(
        "add", f.op("add", f.op("mul", u, f.constant(k.beta)), f.op("mul", v, f.constant(k.alpha))), w
    )
    per_delta = f.constant(pow(k.delta, -1, f.r))
    n_ic = constraints.n_public + 1

    def g1(scalars: U64) -> U64:
        return host.services.fixed_base_mul(curve, "g1", f.canonical(scalars))

    def g2(scalars: U64) -> U64:
        return host.services.fixed_base_mul(curve, "g2", f.canonical(scalars))

    vk, beta_g1, delta_g1 = head_points(curve, k, g1(np.ascontiguousarray(mixed[:n_ic])), host)
    arrays = KeyArrays(
        **asdict(shape),
        a_g1=g1(u),
        b_g1=g1(v),
        b_g2=g2(v),
        l_g1=g1(f.op("mul", np.ascontiguousarray(mixed[n_ic:]), per_delta)),
        h_g1=g1(f.op("mul", _quotient_basis(f, k.tau, shape), per_delta)),
    )
    return ProvingKey(vk, beta_g1, delta_g1, arrays, constraints)


def matrices(constraints: Constraints) -> tuple[SparseMatrix, SparseMatrix, SparseMatrix]:
    """A, B, C; InvalidInput where C is not known."""
    if constraints.c is None:
        raise InvalidInput("set-up needs the matrix C, and these constraints come without it")
    return constraints.a, constraints.b, constraints.c


def shape_for(constraints: Constraints, reduction: str) -> KeyShape:
    """What a new key for these constraints looks like; InvalidInput where the curve has no domain of the size.

    Roots of unity come from 7 where bellman proves over BLS12-381, and else from 5: so says snarkjs, which is also the
    one that writes bellman's keys over BN254.
    """
    curve, log_domain = CURVES[constraints.curve], constraints.log_domain(reduction)
    if log_domain >= curve.two_adicity:
        raise InvalidInput(
            f"constraints: a domain of 2^{log_domain} is too large for the roots of unity of {curve.name}"
        )
    return KeyShape(
        curve=curve.name,
        root_family=7 if (reduction, curve.name) == ("bellman", "bls12_381") else ROOT_FAMILY,
        reduction=reduction,
        log_domain=log_domain,
        n_wires=constraints.n_wires,
        n_public=constraints.n_public,
        n_rows=constraints.n_rows,
    )


def secrets_for(shape: KeyShape, secrets: Secrets | None) -> Secrets:
    """The secrets given, or fresh ones; InvalidInput where no key can come of them."""
    curve = CURVES[shape.curve]
    k = secrets or Secrets.random(curve.name)
    # Zero drops a term, and delta = gamma = 1 is a key under which anybody proves anything.
    for name, low in (("tau", 1), ("alpha", 1), ("beta", 1), ("delta", 2)):
        if not low <= getattr(k, name) < curve.r:
            raise InvalidInput(f"{name}: expected at least {low} and below r")
    if pow(k.tau, 2 * shape.domain, curve.r) == 1:
        raise InvalidInput("tau lies in the domain, or in its double; choose another")
    return k


def head_points(curve: str, k: Secrets, ic: U64, host: Host) -> tuple[VerifyingKey, U64, U64]:
    """The verifying key, [beta]_1 and [delta]_1: the points that are not the prover's bulk."""

    def multiple(group: str, scalar: int) -> U64:
        points = host.services.fixed_base_mul(curve, group, hosts.scalars([scalar]))
        return points.reshape(points.shape[1:])

    vk = VerifyingKey(
        curve=curve,
        alpha_g1=multiple("g1", k.alpha),
        beta_g2=multiple("g2", k.beta),
        gamma_g2=multiple("g2", 1),
        delta_g2=multiple("g2", k.delta),
        ic=ic,
    )
    return vk, multiple("g1", k.beta), multiple("g1", k.delta)


def _lagrange(f: _Scalars, tau: int, n: int, points: U64) -> U64:
    """L_i(tau) over the domain of n points, Montgomery, for these of its points."""
    inverse = f.op("inv", f.op("sub", f.constant(tau), points))
    factor = (pow(tau, n, f.r) - 1) * pow(n, -1, f.r)
    return f.op("mul", f.op("mul", points, inverse), f.constant(factor))


def _quotient_basis(f: _Scalars, tau: int, shape: KeyShape) -> U64:
    """What the scalars of the H sum stand for, at tau and times delta: Montgomery [domain, 4]."""
    n = shape.domain
    if shape.reduction == "bellman":
        powers = f.op("mul", f.powers(tau, n), f.constant(pow(tau, n, f.r) - 1))
        powers[-1] = 0  # (A B - C)/(X^n - 1) has degree n - 2
        return powers
    root = CURVES[f.curve].root_of_unity(shape.root_family, shape.log_domain + 1)
    odd = f.op("mul", f.powers(root * root % f.r, n), f.constant(root))
    return _lagrange(f, tau, 2 * n, odd)


def _transposed_product(host: Host, curve: str, matrix: SparseMatrix, row_values: U64) -> U64:
    """matrix^T . row_values: row_values CANONICAL [n_rows, 4] -> Montgomery [n_cols, 4]."""
    order = np.argsort(matrix.cols, kind="stable")
    rows = np.repeat(np.arange(matrix.n_rows, dtype=np.uint32), np.diff(matrix.row_ptr).astype(np.int64))
    row_ptr = np.zeros(matrix.n_cols + 1, np.uint64)
    row_ptr[1:] = np.cumsum(np.bincount(matrix.cols, minlength=matrix.n_cols))
    transposed = SparseMatrix(
        matrix.n_rows,
        row_ptr,
        np.ascontiguousarray(rows[order]),
        np.ascontiguousarray(matrix.coeff[order]),
        matrix.table,
    )
    return host.backend.spmv(curve, transposed, np.ascontiguousarray(row_values))
