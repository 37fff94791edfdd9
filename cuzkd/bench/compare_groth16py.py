"""Whole proofs on the CPU beside those of groth16py (PyPI, arkworks underneath), same process, taking turns.

    python -m cuzkd.bench.compare_groth16py DIR [--rounds N] [--threads N]

DIR: folders with circuit.zkey and circuit.wtns (BN254; others are left out, groth16py has one curve). Both sides start
with the key in memory and the witness in a file, and end with a proof: reading the witness, rows of A and B, quotient,
sums, assembly. Our verification, which the daemon does before it returns a proof, is timed apart: groth16py does none.
Every proof of both sides is then checked by our verifier; a wrong one ends the run.
"""

from __future__ import annotations

import argparse
import importlib
import secrets
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cuzkd.backend import cpu
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.formats import proof_bytes, wtns, zkey
from cuzkd.groth16 import prover, verifier
from cuzkd.groth16.keys import Proof, ProvingKey


class Ours:
    """cuzkd's CPU backend with a loaded key and vectors that are used again, as the daemon's leases are."""

    def __init__(self, key: ProvingKey) -> None:
        self.key = key
        self._backend = cpu.CpuBackend()
        self._loaded = self._backend.load_key(key.arrays)
        self._vectors = [np.zeros((key.arrays.domain, 4), np.uint64) for _ in range(3)]
        self.z = np.empty((key.arrays.n_wires, 4), np.uint64)

    def prove(self, witness: Path) -> Proof:
        arrays, constraints = self.key.arrays, self.key.constraints
        with wtns.map(witness) as file:
            if cpu.copy_witness(arrays.curve, file.values, self.z) >= 0:
                raise SystemExit(f"{witness}: an element is not below r")
        a, b, c = self._vectors
        for matrix, out in ((constraints.a, a), (constraints.b, b)):
            cpu.spmv_into(arrays.curve, matrix, self.z, out, 0, constraints.n_rows)
            out[constraints.n_rows :] = 0
        run = self._backend.launch(self._backend.upload(self._loaded, a, b, c, self.z))
        order = CURVES[arrays.curve].r
        return prover.assemble(self.key, run.result(), secrets.randbelow(order), secrets.randbelow(order))

    def verify(self, proof: Proof) -> bool:
        publics = limbs.to_ints(self.z[1 : self.key.arrays.n_public + 1])
        return verifier.verify(self.key.vk, proof, publics)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of work(), and milliseconds."""
    start = time.perf_counter()
    value = work()
    return value, (time.perf_counter() - start) * 1e3


def compare(folder: Path, rounds: int, groth16py: Any) -> tuple[float, float, float]:
    """Medians in ms: our proof, our verification, groth16py's proof."""
    witness = folder / "circuit.wtns"
    ours = Ours(zkey.read(folder / "circuit.zkey"))
    imported = groth16py.import_zkey(str(folder / "circuit.zkey"))
    theirs = imported[0] if isinstance(imported, tuple) else imported
    times: list[tuple[float, float, float]] = []
    for turn in range(rounds + 1):
        proof, ms = timed(lambda: ours.prove(witness))
        valid, verify_ms = timed(lambda proof=proof: ours.verify(proof))  # type: ignore[misc]
        other, other_ms = timed(lambda: groth16py.prove_wtns(theirs, str(witness)))
        if not valid or not ours.verify(proof_bytes.decode("bn254", other)):
            raise SystemExit(
                f"{folder.name}: a proof {'of groth16py' if valid else 'of ours'} does not verify"
            )
        if turn:  # the first warms both
            times.append((ms, verify_ms, other_ms))
    ms, verify_ms, other_ms = (statistics.median(column) for column in zip(*times, strict=True))
    return ms, verify_ms, other_ms


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cuzkd.bench.compare_groth16py")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=cpu.threads())
    options = parser.parse_args(argv)
    try:
        groth16py = importlib.import_module("groth16py")
    except ImportError:
        print("groth16py is not installed: pip install groth16py==0.2.0", file=sys.stderr)
        return 1
    cpu.set_threads(options.threads)
    folders = sorted(path.parent for path in options.folder.glob("*/circuit.zkey"))
    folders = [f for f in folders if (f / "circuit.wtns").exists()]
    folders = [f for f in folders if wtns.read_header(f / "circuit.wtns").curve == "bn254"]
    if not folders:
        print(f"{options.folder}: no folder with circuit.zkey and circuit.wtns over BN254", file=sys.stderr)
        return 1
    print(f"{cpu.CpuBackend().device_name}, {cpu.threads()} threads, medians of {options.rounds}\n")
    print("| circuit | cuzkd, ms | its verification, ms | groth16py, ms | ratio |\n|---|---|---|---|---|")
    for folder in folders:
        ms, verify_ms, other_ms = compare(folder, options.rounds, groth16py)
        print(
            f"| {folder.name} | {ms:.1f} | {verify_ms:.1f} | {other_ms:.1f} | {ms / other_ms:.2f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
