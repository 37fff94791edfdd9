"""Imports inside cuzkd point down only, those inside functions too. The floors below are the architecture."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "cuzkd"

# Lowest first. A module may import from its own floor and from any floor below it.
FLOORS = [
    "errors",
    "memory",
    "kernels",
    "curves",
    "backend",
    "groth16",
    "formats",
    "circuits",
    "engine",
    "metrics",
    "service",
    "config",
    "log",
    "terminal",
    "daemon",
    "client",
    "demo",
    "bench",
    "cli",
]
# Inside the engine, likewise; what is not in a folder is below or above all of them.
STOREYS = [
    ("faults", "job", "ended", "stats", "channel", "process", "wire"),
    ("scheduling",),
    ("journal",),
    ("payloads",),
    ("fleet",),
    ("settings", "jobs"),
    ("upkeep", "status", "engine"),
]
PROVER_KNOWS = {*STOREYS[0], "prover"}  # it is another process: nothing of the front
# Outside packages that only some floors may know.
GUESTS = {
    "cupy": {"backend"},
    "cupy_backends": {"backend"},
    "grpc": {"service", "daemon", "client", "demo", "cli", "bench"},
    "prometheus_client": {"metrics"},
    "wasmtime": {"circuits"},
    "structlog": {"engine", "service", "log", "daemon", "cli", "demo", "bench"},
}
NATIVE = ("cuzkd.kernels._native", "cuzkd.kernels._readers")


def sources():
    return [p for p in sorted(ROOT.rglob("*.py")) if not p.name.endswith(("_pb2.py", "_pb2_grpc.py"))]


def imports(tree, path):
    """Yield (line, dotted name) for every import, also those inside functions; `from a import b` gives a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def violations(path, text):
    here = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if here == "__init__":
        return
    assert here in FLOORS, f"{path}: {here} is not a floor; add it to FLOORS and to ARCHITECTURE.md"
    for line, name in imports(ast.parse(text, str(path)), path):
        parts = name.split(".")
        if parts[0] in GUESTS and here not in GUESTS[parts[0]]:
            yield f"{path}:{line}: {here} may not import {parts[0]}"
        if name.startswith(NATIVE) and here != "backend":
            yield f"{path}:{line}: only backend may import the native modules"
        if parts[0] == "cuzkd" and len(parts) > 1 and FLOORS.index(parts[1]) > FLOORS.index(here):
            yield f"{path}:{line}: {here} imports {parts[1]}, a floor above it"


def storey(name):
    return next(n for n, names in enumerate(STOREYS) if name in names)


def inner_violations(path, text):
    """The same, of the engine's own folders."""
    here = path.relative_to(ROOT).parts[1].removesuffix(".py")
    if here == "__init__":
        return
    for line, name in imports(ast.parse(text, str(path)), path):
        if not name.startswith("cuzkd.engine."):
            continue
        other = name.split(".")[2]
        if here == "prover" or other == "prover":
            if {here, other} != {"prover"} and not (here == "prover" and other in PROVER_KNOWS):
                yield f"{path}:{line}: {here} and {other} are of different processes"
        elif storey(other) > storey(here):
            yield f"{path}:{line}: {here} imports {other}, which is above it"


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    assert not list(violations(path, path.read_text()))
    if path.relative_to(ROOT).parts[0] == "engine":
        assert not list(inner_violations(path, path.read_text()))


def test_the_check_can_fail():
    up = ROOT / "memory" / "x.py"
    assert list(violations(up, "def f():\n    from cuzkd.engine import job\n"))
    assert list(violations(up, "import cupy"))
    assert list(violations(ROOT / "groth16" / "x.py", "from cuzkd.kernels import _native"))
    assert list(violations(ROOT / "formats" / "x.py", "from cuzkd.kernels import _readers"))
    inside = ROOT / "engine"
    assert list(inner_violations(inside / "journal" / "x.py", "from cuzkd.engine.jobs import table"))
    assert list(inner_violations(inside / "prover" / "x.py", "from cuzkd.engine.fleet.health import Health"))
    assert list(inner_violations(inside / "jobs" / "x.py", "from cuzkd.engine.prover import workers"))


def test_files_hold_one_thought():
    """400 lines is the ceiling of a hand-written file."""
    kinds = {".py", ".cuh", ".cu", ".cpp", ".hpp"}
    files = [
        p for p in ROOT.rglob("*") if p.suffix in kinds and "_pb2" not in p.name and "constants" not in p.name
    ]
    large = {str(p): n for p in files if (n := len(p.read_text().splitlines())) > 400}
    assert files and not large, large
