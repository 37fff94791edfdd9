"""What the conformance tests share: the real keys to try, and snarkjs."""

import hashlib
import os
from pathlib import Path

import pytest
from conformance import snarkjs

VECTORS = Path(__file__).parent.parent / "vectors"


def real_keys(config):
    """Every .zkey below tests/vectors and --fixtures-dir that has its witness beside it, once, smallest first."""
    extra = config.getoption("--fixtures-dir")
    folders = [VECTORS] if extra is None else [VECTORS, extra.resolve(strict=True)]
    found: dict[bytes, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.zkey")):
            if path.with_suffix(".wtns").exists():
                with open(path, "rb") as file:
                    found.setdefault(hashlib.file_digest(file, "blake2b").digest(), path)
    return sorted(found.values(), key=lambda path: (path.stat().st_size, path))


def pytest_generate_tests(metafunc):
    if "real_key" in metafunc.fixturenames:
        keys = real_keys(metafunc.config)
        metafunc.parametrize("real_key", keys, ids=[f"{p.parent.name}/{p.stem}" for p in keys])


@pytest.fixture(scope="session")
def call_snarkjs():
    """Runs a list of calls (calls.cjs) in one node process. Where it cannot be had: a skip, but in CI a failure."""
    try:
        modules = snarkjs.install()
    except snarkjs.SnarkjsMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"snarkjs {snarkjs.VERSION}: {missing}")
    return lambda calls: snarkjs.call(modules, calls)
