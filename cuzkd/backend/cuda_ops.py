"""The plain operations of the backend protocol on the device: what the laws compare. Each waits for its
result."""

from __future__ import annotations

import numpy as np

from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Device, blocks
from cuzkd.backend.protocol import U64, SparseMatrix

FIELD_OPS = ("add", "sub", "mul", "sqr", "neg", "inv", "to_mont", "from_mont")  # by number in gpu/fields.cu
POINT_OPS = ("add", "double", "neg")  # by number in gpu/points.cu


def field_op(device: Device, curve: str, fld: str, op: str, a: U64, b: U64 | None) -> U64:
    """See Backend.field_op."""
    module = nvrtc.Module("fields", curve, field=fld)
    return _elementwise(device, module, "field_op", FIELD_OPS.index(op), a, b)


def point_op(device: Device, curve: str, group: str, op: str, p: U64, q: U64 | None) -> U64:
    """See Backend.point_op."""
    module = nvrtc.Module("points", curve, group=group)
    return _elementwise(device, module, "point_op", POINT_OPS.index(op), p, q)


def _elementwise(device: Device, module: nvrtc.Module, kernel: str, op: int, a: U64, b: U64 | None) -> U64:
    n = len(a)
    if n == 0:
        return a.copy()
    first, second = device.put(a), None if b is None else device.put(b)
    out = device.scratch(a.nbytes)
    device.launch(module, kernel, blocks(n, 64), 64, op, first, second, out, np.uint64(n))
    return device.get(out, a.shape)


def scalar_mul(device: Device, curve: str, group: str, points: U64, scalars: U64) -> U64:
    """See Backend.scalar_mul."""
    n = len(points)
    if n == 0:
        return points.copy()
    module = nvrtc.Module("points", curve, group=group)
    out = device.scratch(points.nbytes)
    args = (device.put(points), device.put(scalars), out, np.uint64(n))
    device.launch(module, "scalar_mul", blocks(n, 64), 64, *args)
    return device.get(out, points.shape)


def spmv(device: Device, curve: str, matrix: SparseMatrix, z: U64) -> U64:
    """See Backend.spmv. InvalidKey when an index is out of bounds: a kernel would read beyond its arrays."""
    n = matrix.n_rows
    rows = matrix.row_ptr
    if len(z) != matrix.n_cols:
        raise ValueError(f"z: expected {matrix.n_cols} rows, got {len(z)}")
    counts = rows[0] == 0 and rows[-1] == len(matrix.cols) == len(matrix.coeff)
    if not counts or (rows[1:] < rows[:-1]).any():
        raise errors.InvalidKey(
            f"matrix of {n} rows and {matrix.n_cols} columns: its rows do not fit its entries"
        )
    wrong = np.flatnonzero((matrix.cols >= matrix.n_cols) | (matrix.coeff >= len(matrix.table)))
    if len(wrong):
        row = int(np.searchsorted(rows, wrong[0], side="right")) - 1
        raise errors.InvalidKey(f"matrix row {row}: an index of entry {wrong[0]} is out of bounds")
    out = device.scratch(32 * n)
    parts = [device.put(part) for part in (matrix.row_ptr, matrix.cols, matrix.coeff, matrix.table, z)]
    args = (*parts, out, np.uint64(n))
    device.launch(nvrtc.Module("rows", curve), "sparse_rows", blocks(n, 128), 128, *args)
    return device.get(out, (n, 4))
