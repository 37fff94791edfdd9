"""The plain operations of the backend protocol on the device: what the laws compare. Each waits for its
result."""

from __future__ import annotations

import numpy as np

from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.cuda_rows import DeviceMatrix
from cuzkd.backend.protocol import U64, SparseMatrix

FIELD_OPS = ("add", "sub", "mul", "sqr", "neg", "inv", "to_mont", "from_mont")  # by number in gpu/fields.cu
POINT_OPS = ("add", "double", "neg")  # by number in gpu/points.cu
CHAINS = (  # kernels of gpu/chains.cu
    "by_words", "by_halves", "by_summed_doubles", "by_chained_doubles", "squares", "inverses",
)  # fmt: skip
CHAIN_THREADS = 128  # of a block there


def field_op(lane: Lane, curve: str, fld: str, op: str, a: U64, b: U64 | None) -> U64:
    """See Backend.field_op."""
    module = nvrtc.Module("fields", curve, field=fld)
    return _elementwise(lane, module, "field_op", FIELD_OPS.index(op), a, b)


def point_op(lane: Lane, curve: str, group: str, op: str, p: U64, q: U64 | None) -> U64:
    """See Backend.point_op."""
    module = nvrtc.Module("points", curve, group=group)
    return _elementwise(lane, module, "point_op", POINT_OPS.index(op), p, q)


def _elementwise(lane: Lane, module: nvrtc.Module, kernel: str, op: int, a: U64, b: U64 | None) -> U64:
    n = len(a)
    if n == 0:
        return a.copy()
    first, second = lane.put(a), None if b is None else lane.put(b)
    out = lane.scratch(a.nbytes)
    lane.launch(module, kernel, blocks(n, 64), 64, op, first, second, out, np.uint64(n))
    return lane.get(out, a.shape)


def chain(lane: Lane, curve: str, fld: str, kernel: str, values: Buffer, n_blocks: int, rounds: int) -> None:
    """Launch one of CHAINS on 2 * CHAIN_THREADS * n_blocks elements, MONTGOMERY, of the field fr or fq: as many
    first operands, changed in place, as second ones.
    """
    module = nvrtc.Module("chains", curve, field=fld)
    lane.launch(module, kernel, n_blocks, CHAIN_THREADS, values, np.uint32(rounds))


def scalar_mul(lane: Lane, curve: str, group: str, points: U64, scalars: U64) -> U64:
    """See Backend.scalar_mul."""
    n = len(points)
    if n == 0:
        return points.copy()
    module = nvrtc.Module("points", curve, group=group)
    out = lane.scratch(points.nbytes)
    args = (lane.put(points), lane.put(scalars), out, np.uint64(n))
    lane.launch(module, "scalar_mul", blocks(n, 64), 64, *args)
    return lane.get(out, points.shape)


def spmv(lane: Lane, curve: str, matrix: SparseMatrix, z: U64) -> U64:
    """See Backend.spmv. InvalidKey when an index is out of bounds."""
    if len(z) != matrix.n_cols:
        raise ValueError(f"z: expected {matrix.n_cols} rows, got {len(z)}")
    there = DeviceMatrix.of(curve, matrix, lane.device)
    out = lane.scratch(32 * matrix.n_rows)
    there.multiply(lane, lane.put(z), out.address)
    return lane.get(out, (matrix.n_rows, 4))
