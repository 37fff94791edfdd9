"""What is attacked: an honest file, its map, how the daemon reads it, and how to tell whether what was read does harm.

Here is what they share, and the circom family's binary files; documents and proofs are in other_targets.py.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hostile import answers, maps
from hostile.fields import Field, Lie, lies, words

from cuzkd.backend import cpu
from cuzkd.circuits import builtin, checks
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import CuzkdError, InvalidInput, InvalidKey, InvalidWitness
from cuzkd.formats import snarkjs, wtns, zkey
from cuzkd.groth16 import hosts, prover, setup, verifier
from cuzkd.groth16.keys import Proof, ProvingKey, VerifyingKey

VECTORS = Path(__file__).parent.parent / "vectors"
CUT = words("empty, cut short, beyond the end")
# Tracemalloc's view of a reader's memory: numpy's arrays and Python's objects.
SPARE_BYTES = 2 << 20
BYTES_PER_BYTE = 16


@dataclass(frozen=True)
class Target:
    """read: the daemon's way from a file to something checked; raises a cuzkd error. same: is that what the honest file
    holds? use: puts it to work; raises a cuzkd error, or names a row, or None where harm was done.
    unnamed: rows whose messages name no file, because whoever raises them knows of none.
    """

    format: str
    name: str
    suffix: str
    data: bytes
    fields: Sequence[Field]
    table: answers.Table
    read: Callable[[Path], Any]
    same: Callable[[Any], bool]
    use: Callable[[Any], str | None]
    unnamed: frozenset[str] = frozenset()
    cut: frozenset[str] = CUT
    more: Callable[[], Iterator[Lie]] = field(default=lambda: iter(()))
    secrets: Sequence[int] = ()  # numbers that no message may hold

    def lies(self) -> Iterator[Lie]:
        yield from lies(self.data, self.fields, self.cut)
        yield from self.more()

    def answer(self, path: Path) -> str:
        """The row of the table by which a file is answered. AssertionError where it is a wrong answer to any file."""
        try:
            found = self.read(path)
            if self.same(found):
                return answers.SAME
            row = self.use(found)
            assert row is not None, (
                "accepted, although it differs from the honest file, and what it made is false"
            )
            return row
        except CuzkdError as error:
            message = str(error)
            row = answers.row_of(self.table, message)
            assert isinstance(error, InvalidInput | InvalidKey), f"{type(error).__name__}: {message}"
            told = any(str(n) in message or f"{n:x}" in message for n in self.secrets)
            assert not told, "a secret in a message"
            assert path.name in message or row in self.unnamed, f"names no file: {message}"
            return row


@dataclass(frozen=True)
class Honest:
    """A key as a file, its verification key, and a witness for it."""

    name: str
    zkey: bytes
    vk: VerifyingKey
    witness: np.ndarray

    @property
    def publics(self) -> list[int]:
        return limbs.to_ints(self.witness[1 : self.vk.n_public + 1])

    def judged(self, proof: Proof) -> str | None:
        """What a verifier who has the honest key makes of a proof of the witness's statement."""
        return answers.TRUE if verifier.verify(self.vk, proof, self.publics) else None


def as_file(data: bytes, suffix: str, read: Callable[[Path], Any]) -> Any:
    """What a reader of files makes of some bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"honest{suffix}"
        path.write_bytes(data)
        return read(path)


def as_bytes(suffix: str, write: Callable[[Path], None]) -> bytes:
    """What a writer of files writes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"written{suffix}"
        write(path)
        return path.read_bytes()


def from_folder(folder: Path) -> Honest:
    """A real key: circuit.zkey, circuit.wtns and vkey.json."""
    with wtns.map(folder / "circuit.wtns") as file:
        witness = np.frombuffer(bytes(file.values), "<u8").reshape(-1, 4)
    vk = snarkjs.read_vkey(folder / "vkey.json")
    return Honest(folder.name, (folder / "circuit.zkey").read_bytes(), vk, witness)


def vector(name: str) -> Honest:
    """A real key of tests/vectors."""
    return from_folder(VECTORS / name)


@cache
def chain(curve: str) -> Honest:
    """A development key for one round of the built-in chain."""
    key = setup.setup(builtin.constraints(curve, 1))
    data = as_bytes(".zkey", lambda path: zkey.write(path, key))
    return Honest(f"chain {curve}", data, key.vk, hosts.scalars(builtin.witness(curve, 1, 4711 << 200)))


def zkey_target(made: Callable[[], Honest]) -> Target:
    """Read, then checked against the verification key that the operator trusts, as `circuit add --vkey` does."""
    honest = made()
    digest = as_file(honest.zkey, ".zkey", zkey.read).digest()

    def read(path: Path) -> ProvingKey:
        key = zkey.read(path)
        checks.require_sound(key, key.blocks, str(path), honest.vk)
        return key

    def use(key: ProvingKey) -> str | None:
        return honest.judged(prover.prove(cpu.CpuBackend(), key, honest.witness))

    return Target(
        "zkey", honest.name, ".zkey", honest.zkey, maps.zkey(honest.zkey, honest.vk.curve), answers.ZKEY,
        read, lambda key: key.digest() == digest, use, words("unsatisfied"),
        more=lambda: whole_sections(honest.zkey), secrets=large(honest.witness),
    )  # fmt: skip


def wtns_target(made: Callable[[], Honest]) -> Target:
    """Mapped, held against the circuit, copied with the range check of every value, and proved."""
    honest = made()
    key = as_file(honest.zkey, ".zkey", zkey.read)
    curve, n = key.arrays.curve, key.arrays.n_wires
    secrets = large(honest.witness)[:3]
    data = as_bytes(".wtns", lambda path: wtns.write(path, curve, limbs.to_ints(honest.witness)))

    def read(path: Path) -> np.ndarray:
        with wtns.map(path) as file:
            file.header.require_fits("mine", curve, n)
            z = np.empty((n, 4), np.uint64)
            if (bad := cpu.copy_witness(curve, file.values, z)) >= 0:
                raise InvalidWitness(f"witness: value {bad} is not below r of {curve}")
        return z

    def use(z: np.ndarray) -> str | None:
        proof = prover.prove(cpu.CpuBackend(), key, z)
        publics = limbs.to_ints(z[1 : honest.vk.n_public + 1])
        return answers.TRUE if verifier.verify(honest.vk, proof, publics) else None

    return Target(
        "wtns", honest.name, ".wtns", data, maps.wtns(data, curve), answers.WTNS,
        read, lambda z: np.array_equal(z, honest.witness), use, words("unsatisfied, range, constant"),
        more=lambda: itertools.chain(whole_sections(data), map(partial(_shifted, data), secrets)), secrets=secrets,
    )  # fmt: skip


def _shifted(data: bytes, secret: int) -> Lie:
    """A witness whose parts have moved, so that a value is where the prime should be: it must not be told."""
    return Lie("a value for the prime", data[:28] + secret.to_bytes(32, "little") + data[60:], words("prime"))


def whole_sections(data: bytes) -> Iterator[Lie]:
    """Sections left out, written twice, put in another order, followed by one that nobody knows."""
    table = [(i, data[begin : begin + size]) for i, _, begin, size in maps.sections(data)]

    def file(sections: list[tuple[int, bytes]]) -> bytes:
        body = b"".join(struct.pack("<IQ", i, len(content)) + content for i, content in sections)
        return data[:8] + struct.pack("<I", len(sections)) + body

    yield Lie("no section", file([]), words("missing"))
    yield Lie("another order", file(table[::-1]), words("same"))
    yield Lie("an unknown section", file([*table, (77, b"?")]), words("same"))
    for k, (i, content) in enumerate(table):
        yield Lie(f"section {i} left out", file(table[:k] + table[k + 1 :]), words("missing, same"))
        yield Lie(f"section {i} twice", file([*table, (i, content)]), words("twice"))
        if i != 10:  # its length means nothing to a prover
            answers = words("size, header size, entries, n8")
            yield Lie(f"section {i} empty", file([*table[:k], (i, b""), *table[k + 1 :]]), answers)
            yield Lie(
                f"section {i} one byte short", file([*table[:k], (i, content[:-1]), *table[k + 1 :]]), answers
            )
            yield Lie(
                f"section {i} one byte longer",
                file([*table[:k], (i, content + b"?"), *table[k + 1 :]]),
                answers,
            )


def large(witness: np.ndarray) -> list[int]:
    """The values of a witness that cannot be in a message by chance."""
    return [n for n in limbs.to_ints(witness) if n >= 1 << 64]


# What makes each key, by its name: two real ones at the edges, and a development key on each curve.
KEYS: dict[str, Callable[[], Honest]] = {
    **{name: partial(vector, name) for name in ("edge_nopub", "edge_pub100")},
    **{f"chain {curve}": partial(chain, curve) for curve in CURVES},
}
