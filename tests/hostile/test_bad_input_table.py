"""What other provers do with bad input, row by row, and what cuzkd says instead, where its users meet it.

Elsewhere (snarkjs 0.7.6, rapidsnark, groth16py) most of these end with exit code 0 and an invalid proof, in a crash, or
never. Witnesses are sent to a running daemon; keys are added to a registry. After each refusal the honest file is
taken.
"""

import re
from contextlib import contextmanager

import pytest
from hostile import encodings, maps
from hostile.fields import replaced
from hostile.targets import VECTORS
from service.real import daemon

from cuzkd.circuits.registry import Registry
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidKey, MalformedFile
from cuzkd.formats import proof_bytes, snarkjs
from cuzkd.groth16 import verifier
from cuzkd.service.v1 import proving_pb2 as pb

FOLDER = VECTORS / "edge_pub100"
WITNESS = (FOLDER / "circuit.wtns").read_bytes()
KEY = (FOLDER / "circuit.zkey").read_bytes()
R = CURVES["bn254"].r
FIELDS = {f.name: f for f in maps.zkey(KEY, "bn254")}
VALUES = 12 + 12 + 40 + 12  # where the first value of a witness lies


def value(wire):
    return int.from_bytes(WITNESS[VALUES + 32 * wire :][:32], "little")


def valued(wire, number):
    """The witness with another number on a wire."""
    at = VALUES + 32 * wire
    return WITNESS[:at] + number.to_bytes(32, "little") + WITNESS[at + 32 :]


def one_short():
    head = bytearray(WITNESS[:-32])
    head[60:64] = (200).to_bytes(4, "little")
    head[68:76] = (200 * 32).to_bytes(8, "little")
    return bytes(head)


# row, the file, code of the error, words of its message
WITNESSES = [
    (
        "private value + 1",
        valued(150, (value(150) + 1) % R),
        "unsatisfied_witness",
        "does not satisfy circuit pub100",
    ),
    ("w[0] = 2", valued(0, 2), "invalid_witness", "wire 0, the constant, is not 1"),
    ("private value + r", valued(150, value(150) + R), "invalid_witness", "wire 150 is not below the order"),
    ("public value + r", valued(1, value(1) + R), "invalid_witness", "wire 1 is not below the order"),
    ("wtns cut by 100 bytes", WITNESS[:-100], "malformed_file", r"section 2 \(values\) claims 6432 bytes"),
    ("witness one short", one_short(), "invalid_witness", r"expected 201 values .*, found 200"),
    ("empty wtns", b"", "malformed_file", "empty"),
    (
        "wtns of another prime",
        WITNESS[:28] + CURVES["bls12_381"].r.to_bytes(32, "little") + WITNESS[60:],
        "invalid_witness",
        "expected a witness over bn254 .*found one over bls12_381",
    ),
    (
        "public value + 1",
        valued(1, (value(1) + 1) % R),
        "unsatisfied_witness",
        "does not satisfy circuit pub100",
    ),
]


def number(name, n):
    f = FIELDS[name]
    return replaced(KEY, f, n.to_bytes(f.size, "little"))


def without(section):
    table = maps.sections(KEY)
    body = b"".join(KEY[head : begin + size] for i, head, begin, size in table if i != section)
    return KEY[:8] + (len(table) - 1).to_bytes(4, "little") + body


SECTION_9 = next(begin + size // 2 for i, _, begin, size in maps.sections(KEY) if i == 9)
OFF_THE_CURVE = dict(
    encodings.wrong_points(FIELDS["A[0]"].detail, KEY[FIELDS["A[0]"].at : FIELDS["A[0]"].end])
)

# row, the file, the error, words of its message
KEYS = [
    ("zkey cut to half", KEY[: len(KEY) // 2], MalformedFile, r"section \d \(.*\) claims .* file is cut"),
    ("zkey cut by 1 byte", KEY[:-1], MalformedFile, r"section 10 \(contributions\) claims"),
    ("zkey cut inside section 9", KEY[:SECTION_9], MalformedFile, r"section 9 \(H points\) claims"),
    ("zkey cut to 50 bytes", KEY[:50], MalformedFile, r"section 2 \(Groth16 header\) claims"),
    ("bad magic", replaced(KEY, FIELDS["magic"], b"zzzz"), MalformedFile, "magic b'zkey', found b'zzzz'"),
    ("version 3", number("version", 3), MalformedFile, "expected version 1, found 3"),
    ("protocol 2", number("protocol", 2), InvalidKey, r"expected 1 \(Groth16\), found 2"),
    (
        "A point off the curve",
        replaced(KEY, FIELDS["A[0]"], OFF_THE_CURVE["coordinate 0 + 1"]),
        InvalidKey,
        "A: point 0 of 201: expected a point of the r-subgroup of g1",
    ),
    (
        "coefficient row out of range",
        number("entry 0: row", 256),
        MalformedFile,
        "entry 0: expected a row index below",
    ),
    (
        "coefficient wire out of range",
        number("entry 0: wire", 201),
        MalformedFile,
        "entry 0: expected a wire index",
    ),
    ("section 9 missing", without(9), MalformedFile, r"section 9 \(H points\) is missing"),
    ("section size 2^60", number("section 5: size", 2**60), MalformedFile, f"claims {2**60} bytes"),
    ("domainSize 3000", number("domain", 3000), MalformedFile, "a power of two, found 3000"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Of a daemon that knows the circuit."""
    state = tmp_path_factory.mktemp("table") / "state"
    Registry(state).add("pub100", zkey=FOLDER / "circuit.zkey", vkey=FOLDER / "vkey.json")
    with daemon(state) as (_, client):
        yield client


@contextmanager
def then_the_honest_one_proves(client):
    yield
    (result,) = client.prove("pub100", [FOLDER / "circuit.wtns"]).results
    vk = snarkjs.read_vkey(FOLDER / "vkey.json")
    publics = [int.from_bytes(public, "big") for public in result.public_inputs]
    assert publics == snarkjs.read_publics(FOLDER / "public.json", "bn254")
    assert verifier.verify(vk, proof_bytes.decode("bn254", result.proof), publics)


@pytest.mark.parametrize(
    ("data", "code", "words"), [row[1:] for row in WITNESSES], ids=[row[0] for row in WITNESSES]
)
def test_witness(client, data, code, words):
    with then_the_honest_one_proves(client):
        answer = client.wait(client.submit("pub100", [data]))
        assert (answer.status, answer.error_code) == (pb.AwaitProofResponse.FAILED, code), answer
        assert re.search(words, answer.error_message), answer.error_message
        assert not any(str(value(wire)) in answer.error_message for wire in (1, 150, 200))


@pytest.mark.parametrize(("data", "error", "words"), [row[1:] for row in KEYS], ids=[row[0] for row in KEYS])
def test_key(data, error, words, tmp_path):
    path = tmp_path / "bad.zkey"
    path.write_bytes(data)
    circuits = Registry(tmp_path / "state")
    with pytest.raises(error, match=words) as caught:
        circuits.add("pub100", zkey=path)
    assert type(caught.value) is error and "bad.zkey" in str(caught.value)
    assert not list(circuits.list()) and not circuits.problems()
    assert circuits.add("pub100", zkey=FOLDER / "circuit.zkey").n_wires == 201
