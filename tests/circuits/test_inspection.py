"""What is said of files, whole and broken."""

import json
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from formats.zkeys import DOMAIN, N_WIRES, assemble, put, sections_of

from cuzkd.circuits import builtin
from cuzkd.circuits.inspection import inspect
from cuzkd.circuits.registry import Registry
from cuzkd.curves.params import CURVES
from cuzkd.formats import bellman, bellman_vk, proof_bytes, r1cs, snarkjs, wtns, zkey
from cuzkd.groth16 import setup

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
NOPUB, MERKLE, BLS = VECTORS / "edge_nopub", VECTORS / "merkle_1k", VECTORS / "merkle_1k_bls12381"
SAPLING, POLKA = VECTORS / "sapling_output", VECTORS / "polka_porep_2kib"


def good(path, **how):
    found = inspect(path, **how)
    assert found.problem == "", found.problem
    assert json.loads(json.dumps(found.record()))["path"] == str(path)
    return found


def broken(path, **how):
    found = inspect(path, **how)
    assert found.problem and str(path) in found.problem
    return found


def rows(found):
    return {row["section"]: row for row in found.sections}


# -- circom's files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [MERKLE, BLS, NOPUB], ids=lambda folder: folder.name)
def test_a_zkey(folder):
    key = zkey.read(folder / "circuit.zkey")
    found = good(folder / "circuit.zkey", points=True)
    facts, arrays = found.facts, key.arrays
    assert (
        found.kind == "proving key of snarkjs (.zkey)"
        and found.nbytes == (folder / "circuit.zkey").stat().st_size
    )
    assert (facts["curve"], facts["protocol"]) == (arrays.curve, "groth16")
    assert (facts["wires"], facts["public"], facts["domain"]) == (
        arrays.n_wires,
        arrays.n_public,
        arrays.domain,
    )
    assert facts["constraints"] == key.constraints.n_constraints
    assert facts["coefficients of A"] == len(key.constraints.a.cols)
    assert facts["contributions"] == 1 and facts["gamma is the generator"] is True
    assert facts["verifying key digest"] == snarkjs.read_vkey(folder / "vkey.json").digest()
    assert found.warnings == []
    for name, points in (("A", arrays.a_g1), ("B2", arrays.b_g2), ("H", arrays.h_g1)):
        row = rows(found)[f"{name} points"]
        assert row["points"] == len(points) and "order r" in row["checked"]
        assert row["at infinity"] == sum(not point.any() for point in points)
    assert [row["at byte"] for row in found.sections] == sorted(row["at byte"] for row in found.sections)


def test_distinct_coefficients(tmp_path):
    constraints = builtin.constraints("bn254", 3)
    zkey.write(tmp_path / "x", setup.setup(constraints))
    used = {value.tobytes() for m in (constraints.a, constraints.b) for value in m.table[m.coeff]}
    assert good(tmp_path / "x").facts["distinct coefficients"] == len(used)


def test_a_development_key_is_called_so(tmp_path):
    zkey.write(tmp_path / "x", setup.setup(builtin.constraints("bls12_381", 3)))
    found = good(tmp_path / "x")
    assert found.facts["contributions"] == 0 and found.facts["circuit hash"] == "none"
    assert len(found.warnings) == 1 and "INSECURE" in found.warnings[0]


def test_a_key_without_phase_2(tmp_path):
    sections = sections_of(MERKLE / "circuit.zkey")
    head = sections[zkey.HEADER]
    gamma = 84 + 64 + 64 + 128  # behind alpha1, beta1 and beta2
    head[-128:] = head[gamma : gamma + 128]
    (tmp_path / "x").write_bytes(assemble(sections))
    (warning,) = good(tmp_path / "x").warnings
    assert "INSECURE" in warning and "phase 2" in warning


def test_a_zkey_without_contributions(tmp_path):
    sections = sections_of(NOPUB / "circuit.zkey")
    del sections[zkey.CONTRIBUTIONS]
    (tmp_path / "x").write_bytes(assemble(sections))
    assert good(tmp_path / "x").facts["contributions"] == "not listed"


def test_a_point_off_the_curve_shows_only_when_asked(tmp_path):
    sections = sections_of(MERKLE / "circuit.zkey")
    sections[zkey.C][64 * 7] ^= 1
    (tmp_path / "x").write_bytes(assemble(sections))
    good(tmp_path / "x")
    found = broken(tmp_path / "x", points=True)
    assert "C points: point 7" in found.problem and "checked" in rows(found)["A points"]


def test_of_a_cut_key_there_is_what_there_is(tmp_path):
    data = (MERKLE / "circuit.zkey").read_bytes()
    (tmp_path / "x").write_bytes(data[: len(data) // 3])
    found = broken(tmp_path / "x")
    assert found.facts["wires"] == 3023 and found.facts["curve"] == "bn254"
    last = found.sections[-1]
    assert (
        last["at byte"] + last["of these bytes there are"] == len(data) // 3 < last["at byte"] + last["bytes"]
    )


@pytest.mark.parametrize(("at", "value"), [(N_WIRES, 2**32 - 1), (DOMAIN, 3000)])
def test_numbers_that_lie_are_shown_and_refused(tmp_path, at, value):
    sections = sections_of(MERKLE / "circuit.zkey")
    put(sections[zkey.HEADER], at, "<I", value)
    (tmp_path / "x").write_bytes(assemble(sections))
    assert value in broken(tmp_path / "x").facts.values()


def test_another_protocol(tmp_path):
    sections = sections_of(MERKLE / "circuit.zkey")
    put(sections[zkey.PROTOCOL], 0, "<I", 2)
    (tmp_path / "x").write_bytes(assemble(sections))
    assert broken(tmp_path / "x").facts["protocol"] == "plonk"


def test_a_witness_says_shares_and_no_values(tmp_path):
    r = CURVES["bls12_381"].r
    secret = 0x1234567890ABCDEF << 64
    wtns.write(tmp_path / "x", "bls12_381", [1, 0, 0, 1, 77, 2**24, secret, r - 1])
    found = good(tmp_path / "x")
    assert (found.facts["curve"], found.facts["wires"]) == ("bls12_381", 8)
    shares = [found.facts[name] for name in ("zeros", "ones", "others below 2^24", "larger")]
    assert shares == [0.25, 0.25, 0.125, 0.375]
    assert not {"77", str(secret), str(r - 1)} & set(re.findall(r"\d+", json.dumps(found.facts)))


def test_a_witness_longer_than_a_block(tmp_path):
    n = 40_000
    wtns.write(tmp_path / "x", "bn254", [1, *[0] * (n - 2), 5])
    facts = good(tmp_path / "x").facts
    assert facts["zeros"] == (n - 2) / n and facts["others below 2^24"] == pytest.approx(1 / n)


@pytest.mark.parametrize(
    ("wire", "value", "says"), [(5, CURVES["bn254"].r, "value 5 is not"), (0, 2, "constant wire")]
)
def test_a_witness_with_a_wrong_value(tmp_path, wire, value, says):
    wtns.write(tmp_path / "x", "bn254", [1] * 9)
    data = bytearray((tmp_path / "x").read_bytes())
    at = len(data) - 32 * (9 - wire)
    data[at : at + 32] = value.to_bytes(32, "little")
    (tmp_path / "x").write_bytes(data)
    found = broken(tmp_path / "x")
    assert says in found.problem and str(value) not in found.problem.replace(str(tmp_path), "")


def test_constraints():
    found = good(MERKLE / "circuit.r1cs")
    system = r1cs.read(MERKLE / "circuit.r1cs")
    facts = found.facts
    assert (facts["constraints"], facts["wires"]) == (system.n_constraints, system.n_wires)
    assert facts["public outputs"] + facts["public inputs"] == system.n_public
    assert facts["terms of A"] == len(system.a.cols) - system.n_public - 1
    assert facts["terms of C"] == len(system.c.cols) and facts["custom gates"] is False


def test_custom_gates(tmp_path):
    data = bytearray((NOPUB / "circuit.r1cs").read_bytes())
    (count,) = struct.unpack_from("<I", data, 8)
    struct.pack_into("<I", data, 8, count + 1)
    (tmp_path / "x").write_bytes(bytes(data) + struct.pack("<IQI", 4, 4, 1))
    found = broken(tmp_path / "x")
    assert found.facts["custom gates"] is True and "PLONK" in found.problem


def test_calculators():
    found = good(NOPUB / "circuit.wasm")
    assert found.facts["interface"].startswith("circom 2.") and found.facts["curve"] == "bn254"
    assert found.facts["wires"] == wtns.read_header(NOPUB / "circuit.wtns").n_wires
    values = json.loads((NOPUB / "input.json").read_text())
    assert found.facts["input values"] == len(values)
    assert "runtime.exceptionHandler" in found.facts["imports"]
    older = good(VECTORS / "circom1_whitelist" / "circuit.wasm")
    assert older.facts["interface"] == "circom 1" and "env.memory" in older.facts["imports"]


def test_no_calculator(tmp_path):
    (tmp_path / "x").write_bytes(b"\0asm\1\0\0\0")
    assert broken(tmp_path / "x").kind == "witness calculator (.wasm)"


# -- bellman's files -----------------------------------------------------------------------------------------


def test_parameters_of_a_ceremony():
    path = SAPLING / "sapling-output.params"
    found = good(path, points=True)
    head = bellman.read_params_head(path)
    assert (found.facts["curve"], found.facts["domain"], found.facts["public"]) == ("bls12_381", 1 << 13, 5)
    assert found.facts["contributions"] == 97 and found.facts["bytes after the last list"] == 52_836
    lists = rows(found)
    assert {name: lists[name]["points"] for name in bellman.LISTS} == dict(head.counts)
    assert all("order r" in lists[name]["checked"] for name in bellman.LISTS)
    last = lists["b2"]
    assert last["at byte"] + last["bytes"] + 52_836 == path.stat().st_size


def test_parameters_that_are_cut(tmp_path):
    data = (SAPLING / "sapling-output.params").read_bytes()[:1_000_000]
    (tmp_path / "x").write_bytes(data)
    found = broken(tmp_path / "x")
    assert found.facts["public"] == 5
    assert (
        found.sections[-1]["section"] == "l"
        and found.sections[-1]["of these bytes there are"] == 1_000_000 - 787_788
    )


def test_parameters_with_a_point_off_the_curve(tmp_path):
    data = bytearray((SAPLING / "sapling-output.params").read_bytes())
    data[787_788 + 96 * 5 + 60] ^= 1
    (tmp_path / "x").write_bytes(data)
    good(tmp_path / "x")
    assert ": l: point 5 is not in the subgroup" in broken(tmp_path / "x", points=True).problem


@pytest.mark.parametrize("every_wire", [False, True])
def test_parameters_over_bn254(tmp_path, every_wire):
    """With every wire, infinity spelt as zeros, as snarkjs exports them; without a transcript."""
    key = setup.setup(builtin.constraints("bn254", 3), reduction="bellman")
    bellman.write_params(tmp_path / "x", key, every_wire=every_wire)
    found = good(tmp_path / "x", points=True)
    assert (found.facts["curve"], found.facts["domain"]) == ("bn254", key.arrays.domain)
    assert found.facts["contributions"] == "not listed" and found.facts["bytes after the last list"] == 0
    assert (rows(found)["b1"]["points"] == key.arrays.n_wires) is every_wire


def test_verifying_keys(tmp_path):
    found = good(POLKA / "porep.vk", points=True)
    assert found.facts["compressed"] is True and found.facts["public"] == 39
    bellman_vk.write_vk(tmp_path / "x", zkey.open(MERKLE / "circuit.zkey"))
    found = good(tmp_path / "x", points=True)
    assert found.facts["compressed"] is False and found.facts["curve"] == "bn254"


# -- proofs and JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "curve"), [(MERKLE, "bn254"), (BLS, "bls12_381")], ids=["bn254", "bls12_381"]
)
def test_proofs(tmp_path, folder, curve):
    data = proof_bytes.encode(snarkjs.read_proof(folder / "proof.json", curve))
    (tmp_path / "x").write_bytes(data * 2)
    found = good(tmp_path / "x", points=True)
    assert found.facts == {"curve": curve, "proofs": 2, "points": "on their curves, order r"}
    (tmp_path / "x").write_bytes(data + data[:-1] + bytes([data[-1] ^ 1]))
    found = broken(tmp_path / "x") if curve == "bn254" else inspect(tmp_path / "x")
    assert curve == "bls12_381" or "proof 1: C: " in found.problem  # half of all x have a point


def test_json_of_snarkjs(tmp_path):
    found = good(MERKLE / "proof.json", points=True)
    assert found.facts["curve"] == "bn254" and found.facts["the file names its curve"] is True
    record = json.loads((BLS / "proof.json").read_text())
    del record["curve"]
    (tmp_path / "x").write_text(json.dumps(record))
    found = good(tmp_path / "x")
    assert found.facts["curve"] == "bls12_381" and found.facts["the file names its curve"] is False
    record["pi_c"][0] = "5"
    (tmp_path / "x").write_text(json.dumps(record))
    assert "C: point is not on bls12_381" in broken(tmp_path / "x").problem

    found = good(MERKLE / "vkey.json", points=True)
    assert found.kind.startswith("verification key") and found.facts["public"] == 3
    publics = snarkjs.read_publics(MERKLE / "public.json", "bn254")
    found = good(MERKLE / "public.json")
    assert found.facts == {"values": 3, "below r of": ["bn254", "bls12_381"]}
    assert not any(str(value) in json.dumps(found.record()) for value in publics)
    (tmp_path / "x").write_text(json.dumps([str(CURVES["bn254"].r)]))
    assert good(tmp_path / "x").facts["below r of"] == ["bls12_381"]
    (tmp_path / "x").write_text(json.dumps([str(1 << 255)]))
    broken(tmp_path / "x")


def test_inputs_are_named_and_not_shown(tmp_path):
    (tmp_path / "x").write_text('{"secret": "8765432109", "path": [[1, 2], [3, 4]]}')
    found = good(tmp_path / "x")
    assert found.facts == {"signals": 2, "values": 5, "names": ["secret", "path"]}
    (tmp_path / "x").write_text('{"secret": "8765432109x"}')
    assert "8765432109" not in json.dumps(broken(tmp_path / "x").record())


@pytest.mark.parametrize(
    "text", ["[1", "{", '{"pi_a": 1}', '{"vk_alpha_1": []}', "[" * 10_000, "[[]]", '{"pi_a": 1e999}']
)
def test_json_that_is_not_right(tmp_path, text):
    (tmp_path / "x").write_text(text)
    broken(tmp_path / "x")


# -- circuits ------------------------------------------------------------------------------------------------


def test_an_added_circuit(tmp_path):
    manifest = Registry(tmp_path).add("mine", zkey=NOPUB / "circuit.zkey")
    folder = tmp_path / "circuits" / "mine"
    found = good(folder)
    assert found.facts["digest"] == manifest.digest and found.facts["constraints"] == 1
    assert [row["at byte"] for row in found.sections] == [entry.offset for entry in manifest.sections]
    assert good(folder / "manifest.json").facts == found.facts
    assert good(folder / "key.bin").kind == "prepared key"
    os.truncate(folder / "key.bin", 4096)
    assert "by its manifest" in inspect(folder).problem
    (folder / "manifest.json").write_text("{}")
    assert inspect(folder).problem


# -- nothing of ours -----------------------------------------------------------------------------------------


def test_what_is_nothing_of_ours(tmp_path):
    (tmp_path / "x").write_bytes(b"\x7fELF" + bytes(300))
    assert "nothing that cuzkd knows: it begins with 7f 45 4c 46" in broken(tmp_path / "x").problem
    (tmp_path / "x").write_bytes(b"ptau" + bytes(300))
    assert "powers of tau" in broken(tmp_path / "x").problem
    (tmp_path / "x").write_bytes(b"")
    assert "empty" in broken(tmp_path / "x").problem
    assert "cannot be opened" in broken(tmp_path / "y").problem
    assert "folder without" in broken(tmp_path).problem
    os.mkfifo(tmp_path / "pipe")
    assert "regular" in broken(tmp_path / "pipe").problem


@pytest.mark.parametrize(
    "source",
    [
        NOPUB / "circuit.zkey",
        NOPUB / "circuit.wtns",
        NOPUB / "circuit.r1cs",
        POLKA / "porep.vk",
        POLKA / "proof.bin",
        NOPUB / "vkey.json",
    ],
    ids=lambda path: path.name,
)
def test_no_file_is_too_broken(tmp_path, source):
    """Cut anywhere, or with any byte changed: an answer, and no exception."""
    data = source.read_bytes()
    random = np.random.default_rng(5)
    for trial in range(120):
        changed = bytearray(data)
        at = int(random.integers(len(data)))
        if trial % 2:
            changed[at] ^= int(random.integers(1, 256))
        (tmp_path / "x").write_bytes(changed if trial % 2 else changed[:at] or b"\0")
        inspect(tmp_path / "x", points=trial % 4 == 1)


def test_names_of_inputs_are_shown_without_escapes(tmp_path):
    (tmp_path / "x").write_text(json.dumps({"\x1b]0;owned\x07": 1, "a\nb": 2}))
    assert good(tmp_path / "x").facts["names"] == [r"\x1b]0;owned\x07", r"a\nb"]
