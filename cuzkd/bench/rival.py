"""groth16py (PyPI, arkworks underneath) as somebody to be compared with: one curve, BN254; one thread; .zkey files.

Like ours, a proof begins with the key in memory and the witness in a file. It does not verify what it makes.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from cuzkd.formats import proof_bytes
from cuzkd.groth16.keys import Proof

CURVE = "bn254"


class Groth16py:
    """A key that it has loaded."""

    def __init__(self, module: Any, zkey: Path) -> None:
        self._module = module
        imported = module.import_zkey(str(zkey))
        self._key = imported[0] if isinstance(imported, tuple) else imported

    def prove(self, witness: Path) -> tuple[Proof, float]:
        """The proof, and the seconds that it took."""
        began = time.perf_counter()
        data = self._module.prove_wtns(self._key, str(witness))
        seconds = time.perf_counter() - began
        return proof_bytes.decode(CURVE, data), seconds


def installed() -> Any | None:
    """The module, or None where nobody has installed it."""
    try:
        return importlib.import_module("groth16py")
    except ImportError:
        return None
