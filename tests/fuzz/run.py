"""Coverage-guided fuzzing of the native readers: build the harnesses with clang, give them real files, run.

    python tests/fuzz/run.py [SECONDS] [NAME ...]      all of them for a minute each, by default

Harnesses are the fuzz_*.cpp beside this file; they drive the headers that cuzkd/kernels/_readers is made of, under the
address and undefined-behaviour sanitisers. What they find stays in build/fuzz/NAME/ as crash-*; what they have
learnt stays there, too, and the next run goes on from it. Delete the folder to begin anew.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VECTORS = ROOT / "tests" / "vectors"
BUILD = ROOT / "build" / "fuzz"
NAMES = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.cpp"))
LONGEST = 8192  # bytes of an input
FLAGS = ["-std=c++17", "-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
# The operands of arch_x86.cuh ("8*1+%[y]") are for GNU's assembler: it takes a missing displacement for zero, with a
# warning.
FLAGS += ["-fno-integrated-as", "-Wa,-W"]


@dataclass
class Report:
    """What one run did. edges: reached of those there are, the standard library's inlined ones included."""

    name: str
    executions: int
    edges: int
    all_edges: int
    corpus: int


def missing() -> str | None:
    """Why there can be no fuzzing here, or None."""
    if shutil.which("clang++") is None:
        return "clang++ is not installed"
    probe = subprocess.run(
        ["clang++", "-fsanitize=fuzzer", "-x", "c++", "-", "-o", "/dev/null"],
        input='extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }',
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"clang++ has no libFuzzer: {probe.stderr[-200:]}" if probe.returncode else None


def build(name: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / f"fuzz_{name}"
    command = ["clang++", *FLAGS, f"-I{ROOT / 'cuzkd' / 'kernels'}", str(HERE / f"fuzz_{name}.cpp")]
    subprocess.run([*command, "-pthread", "-o", str(binary)], check=True)
    return binary


def sections(path: Path) -> dict[int, bytes]:
    """A container of the iden3 family, taken apart."""
    data = path.read_bytes()
    found, at = {}, 12
    while at < len(data):
        section, size = struct.unpack_from("<IQ", data, at)
        found[section] = data[at + 12 : at + 12 + size]
        at += 12 + size
    return found


def seeds(name: str) -> list[bytes]:
    """Inputs made of real files, as the harness wants them."""
    return {"points": _points, "r1cs": _r1cs, "coefficients": _coefficients}[name]()


def _points() -> list[bytes]:
    from cuzkd.backend import readers
    from cuzkd.formats import zkey

    found = []
    for folder, curve in (("edge_pub100", "bn254"), ("merkle_1k_bls12381", "bls12_381")):
        arrays = zkey.read(VECTORS / folder / "circuit.zkey").arrays
        for group, points in (("g1", arrays.b_g1), ("g2", arrays.b_g2)):
            pick = 2 * (curve == "bls12_381") + (group == "g2")
            found += [
                bytes([pick]) + readers.encode_points(curve, group, points[i : i + n].copy())
                for i, n in ((0, 1), (0, 8), (50, 20))
            ]
    return found


def _r1cs() -> list[bytes]:
    found = []
    for path in VECTORS.glob("*/circuit.r1cs"):
        parts = sections(path)
        n_wires = struct.unpack_from("<I", parts[1], 36)[0]
        rows, ends, at = parts[2], [], 0
        while at < min(len(rows), LONGEST - 6):
            for _ in range(3):
                at += 4 + 36 * struct.unpack_from("<I", rows, at)[0]
            ends.append(at)
        for n in (1, 3, len(ends) - 1):
            if 0 < n <= len(ends):
                head = struct.pack("<BHHB", "bls" not in path.parent.name, n_wires, n, 16 * n % 256)
                found.append(head + rows[: ends[n - 1]])
    return found


def _coefficients() -> list[bytes]:
    found = []
    for path in VECTORS.glob("*/circuit.zkey"):
        parts = sections(path)
        at, curve = (4 + 48 + 4 + 32, 0) if "bls" in path.parent.name else (4 + 32 + 4 + 32, 1)
        n_wires, _, domain = struct.unpack_from("<III", parts[2], at)
        for n in (1, 4, 100):
            for change in (0, 0x0105):
                head = struct.pack("<BHHBH", curve, n_wires, min(domain, 1023), 6, change)
                found.append(head + parts[4][4 : 4 + 44 * n])
    return found


def run(name: str, seconds: int, folder: Path) -> Report:
    """Build and run one harness. Raises AssertionError with its last words when it found something."""
    binary = build(name, folder)
    corpus, given = folder / "corpus", folder / "seeds"
    for where in (corpus, given):
        where.mkdir(exist_ok=True)
    for i, seed in enumerate(seeds(name)):
        (given / f"seed{i}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-rss_limit_mb=2048", "-timeout=20"]
    options += ["-print_final_stats=1", f"-artifact_prefix={folder}/"]
    done = subprocess.run(
        [str(binary), *options, str(corpus), str(given)],
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    words = done.stderr
    assert done.returncode == 0, f"fuzz_{name} found something:\n{words[-4000:]}"
    executions = int(re.findall(r"stat::number_of_executed_units:\s*(\d+)", words)[-1])
    edges = int(re.findall(r" cov: (\d+)", words)[-1])
    (all_edges,) = re.findall(r"\((\d+) inline 8-bit counters\)", words)
    return Report(name, executions, edges, int(all_edges), len(list(corpus.iterdir())))


def main(arguments: list[str]) -> int:
    seconds = int(arguments[0]) if arguments else 60
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    for name in arguments[1:] or NAMES:
        print(run(name, seconds, BUILD / name), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
