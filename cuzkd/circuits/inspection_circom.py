"""What is in a .zkey, .wtns, .r1cs or .wasm file. See inspection.py.

The table of sections is made without trust: of a file that is cut it holds what can be seen. After it the format's own
reader has the word, and its error is what ends an inspection. Points are counted, or checked, block by block.
"""

from __future__ import annotations

import struct

import numpy as np

from cuzkd.backend.protocol import QUERIES, REDUCTIONS, U64
from cuzkd.circuits import calculator_child
from cuzkd.circuits.findings import Findings
from cuzkd.errors import InvalidInput, InvalidKey, InvalidWitness
from cuzkd.formats import iden3, names, r1cs, wtns, zkey
from cuzkd.formats.files import RawFile
from cuzkd.groth16 import hosts
from cuzkd.groth16.keys import StreamedKey

SECTION_HEAD = struct.Struct("<IQ")
SMALL = 1 << 24  # values below are summed as machine integers (kernels/sparse.cuh)
WTNS_BLOCK = 1 << 15  # values at a time: 1 MiB
MAX_WASM_BYTES = 256 << 20


def look_at_zkey(found: Findings, file: RawFile, points: bool) -> None:
    """points: every point is checked against its curve and subgroup, too."""
    _sections(found, file, zkey.NAMES)
    _zkey_header(found, file)
    key = zkey.open(file.path)
    head, a, b = key.arrays, key.constraints.a, key.constraints.b
    found.facts |= {
        "curve": head.curve,
        "protocol": "groth16",
        "constraints": key.constraints.n_constraints,
        "wires": head.n_wires,
        "domain": head.domain,
        "coefficients of A": len(a.cols),
        "coefficients of B": len(b.cols),
        "distinct coefficients": len(np.union1d(a.coeff, b.coeff)),
    }
    found.verifying_key(key.vk)
    _contributions(found, file, head.curve)
    count_points(found, key, points)


def look_at_wtns(found: Findings, file: RawFile, points: bool) -> None:
    """Shares of its values, never one of them. Raises InvalidWitness for one that is not below r."""
    _sections(found, file, wtns.NAMES)
    head = wtns.read_header(file.path)
    found.facts |= {"curve": head.curve, "wires": head.n_wires}
    counts = np.zeros(3, np.int64)
    with iden3.open_container(file.path, wtns.MAGIC, wtns.VERSION, wtns.NAMES) as container:
        for begin in range(0, head.n_wires, WTNS_BLOCK):
            n = min(WTNS_BLOCK, head.n_wires - begin)
            raw, block = (
                container.part(wtns.VALUES, begin * wtns.N8, n * wtns.N8),
                np.empty((n, 4), np.uint64),
            )
            bad = hosts.best().services.copy_witness(head.curve, raw, block)
            if bad >= 0:
                raise InvalidWitness(f"{file.path}: value {begin + bad} is not below r of {head.curve}")
            if begin == 0 and block[0].tolist() != [1, 0, 0, 0]:
                raise InvalidWitness(f"{file.path}: value 0, the constant wire, is not 1")
            low = block[:, 0][~block[:, 1:].any(axis=1)]
            counts += [np.count_nonzero(low == 0), np.count_nonzero(low == 1), np.count_nonzero(low < SMALL)]
    zeros, ones, small = (int(count) / head.n_wires for count in counts)
    found.facts |= {
        "zeros": zeros,
        "ones": ones,
        "others below 2^24": small - zeros - ones,
        "larger": 1 - small,
    }


def look_at_r1cs(found: Findings, file: RawFile, points: bool) -> None:
    """The matrices are read, too."""
    _sections(found, file, r1cs.NAMES)
    gates = [section for section in (r1cs.GATES, r1cs.GATE_USES) if _bytes_of(found, section)]
    found.facts["custom gates"] = bool(gates)
    head = r1cs.read_header(file.path)
    found.facts |= {
        "curve": head.curve,
        "constraints": head.n_constraints,
        "wires": head.n_wires,
        "public outputs": head.n_public_outputs,
        "public inputs": head.n_public_inputs,
        "private inputs": head.n_private_inputs,
        "labels": head.n_labels,
    }
    rows = r1cs.read(file.path)
    bound = rows.n_public + 1  # terms of the rows that the reader appends to A
    found.facts["terms of A"] = len(rows.a.cols) - bound
    found.facts["terms of B"] = len(rows.b.cols)
    found.facts["terms of C"] = 0 if rows.c is None else len(rows.c.cols)
    for reduction in REDUCTIONS:
        found.facts[f"domain of a {reduction} key"] = 1 << rows.log_domain(reduction)


def look_at_wasm(found: Findings, file: RawFile, points: bool) -> None:
    """Nothing of the circuit is run: its calculator is asked what it is, in a process of its own."""
    if file.size > MAX_WASM_BYTES:
        raise InvalidInput(f"{file.path}: expected at most {MAX_WASM_BYTES} bytes, found {file.size}")
    asked = calculator_child.ask(bytes(file.read(0, file.size)), str(file.path))
    found.facts |= {"interface": asked.interface, "curve": asked.curve, "wires": asked.n_wires}
    if asked.n_inputs is not None:
        found.facts["input values"] = asked.n_inputs
    found.facts["imports"] = list(asked.imports)


# -- parts ---------------------------------------------------------------------------------------------------


def _sections(found: Findings, file: RawFile, named: dict[int, str]) -> None:
    """What the frame claims, as far as it goes."""
    head = bytes(file.read(0, min(12, file.size)))
    if len(head) < 12:
        return
    found.facts["version"], count = struct.unpack_from("<II", head, 4)
    at = 12
    for _ in range(min(count, iden3.MAX_SECTIONS)):
        if file.size - at < SECTION_HEAD.size:
            return
        number, size = SECTION_HEAD.unpack(file.read(at, SECTION_HEAD.size))
        at += SECTION_HEAD.size
        row = {"section": named.get(number, "unknown"), "id": number, "at byte": at, "bytes": size}
        found.sections.append(row)
        if size > file.size - at:
            row["of these bytes there are"] = file.size - at
            return
        at += size


def _bytes_of(found: Findings, number: int) -> int:
    """The size of a section, 0 where there is none."""
    return sum(int(str(row["bytes"])) for row in found.sections if row.get("id") == number)


def _content(found: Findings, file: RawFile, number: int, nbytes: int) -> bytes:
    """The first bytes of a section, as many as there are."""
    for row in found.sections:
        if row.get("id") == number:
            at, size = int(str(row["at byte"])), int(str(row["bytes"]))
            return bytes(file.read(at, max(0, min(nbytes, size, file.size - at))))
    return b""


def _zkey_header(found: Findings, file: RawFile) -> None:
    """The numbers of sections 1 and 2, unchecked: what a broken key still says."""
    protocol = _content(found, file, zkey.PROTOCOL, 4)
    if len(protocol) == 4:
        (number,) = struct.unpack("<I", protocol)
        found.facts["protocol"] = {1: "groth16", 2: "plonk", 10: "fflonk"}.get(number, f"unknown ({number})")
    head = _content(found, file, zkey.HEADER, 4 + 48 + 4 + 32 + 12)
    if len(head) < 4 or (n8q := struct.unpack_from("<I", head)[0]) not in (32, 48):
        return
    counts = 4 + n8q + 4 + zkey.N8R
    found.facts["curve"] = names.by_base_prime(int.from_bytes(head[4 : 4 + n8q], "little")) or "unknown"
    if len(head) >= counts + 12:
        n_wires, n_public, domain = struct.unpack_from("<III", head, counts)
        found.facts |= {"wires": n_wires, "public": n_public, "domain": domain}


def _contributions(found: Findings, file: RawFile, curve: str) -> None:
    """Section 10, which provers do not need: u8[64] hash of the circuit, u32 number of contributions."""
    head = _content(found, file, zkey.CONTRIBUTIONS, zkey.CIRCUIT_HASH_BYTES + 4)
    if len(head) < zkey.CIRCUIT_HASH_BYTES + 4:
        found.facts["contributions"] = "not listed"
        return
    (n,) = struct.unpack_from("<I", head, zkey.CIRCUIT_HASH_BYTES)
    found.facts["contributions"] = n
    found.facts["circuit hash"] = head[: zkey.CIRCUIT_HASH_BYTES].hex() if any(head[:64]) else "none"
    if n == 0:
        found.warnings.append(
            "INSECURE unless you trust who made it: no contribution is listed, so it is a development key, or one "
            "that was made outside of a ceremony"
        )


def count_points(found: Findings, key: StreamedKey, points: bool) -> None:
    """How many there are in each query, how many of them at infinity, and whether all are good."""
    curve = key.vk.curve
    for query in QUERIES:
        group, name = "g2" if query == "b_g2" else "g1", zkey.NAMES[zkey.SECTION_OF[query]]
        row = found.section(name)
        n = infinite = 0
        for block in key.blocks(query):
            if points:
                require_good(curve, group, block, f"{found.path}: {name}", n)
            infinite += len(block) - int(np.count_nonzero(block.reshape(len(block), -1).any(axis=1)))
            n += len(block)
            row["points"], row["at infinity"] = n, infinite
        if points:
            row["checked"] = "on the curve, order r"


def require_good(curve: str, group: str, block: U64, where: str, first: int) -> None:
    """Raises InvalidKey for the first that is not a point of the subgroup. first: number of the block's first."""
    bad = hosts.best().services.check_points(curve, group, np.ascontiguousarray(block), subgroup=True)
    if bad >= 0:
        raise InvalidKey(
            f"{where}: point {first + bad} is not in the subgroup of order r of {group} of {curve}"
        )
