"""What a registry keeps of a circuit, as targets: its key file; its manifest, whose lies may agree with themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hostile import answers, documents
from hostile.fields import Field, Lie, words
from hostile.targets import Honest, Target

from cuzkd.backend import cpu
from cuzkd.circuits import builtin
from cuzkd.circuits.circuit import Circuit
from cuzkd.circuits.manifest import content_digest
from cuzkd.circuits.registry import Registry
from cuzkd.formats import json_depth
from cuzkd.groth16 import prover, setup

# Of lies that agree with themselves, those that are not yet answered: test_known_faults.py has them.


@dataclass(frozen=True)
class State:
    """A state directory with one circuit, whose files are put in place of honest ones and back."""

    folder: TemporaryDirectory[str]
    manifest: bytes
    key: bytes

    @property
    def circuit(self) -> Path:
        return Path(self.folder.name) / "circuits" / "mine"

    def opened(self, manifest: bytes, key: bytes) -> Circuit:
        """The circuit, its key read, with these files."""
        self._put("manifest.json", manifest)
        self._put("key.bin", key)
        circuit = Registry(self.folder.name).open("mine")
        assert circuit.key.arrays.n_wires == circuit.manifest.n_wires
        return circuit

    def _put(self, name: str, data: bytes) -> None:
        path = self.circuit / name
        if path.read_bytes() != data:
            path.write_bytes(data)


@cache
def state(curve: str) -> State:
    """With the built-in chain of one round: C is known."""
    folder = TemporaryDirectory()
    Registry(folder.name).install("mine", setup.setup(builtin.constraints(curve, 1)), source="test")
    circuit = Path(folder.name) / "circuits" / "mine"
    return State(folder, (circuit / "manifest.json").read_bytes(), (circuit / "key.bin").read_bytes())


def manifest_target(made: Callable[[], Honest]) -> Target:
    """Lies as they stand, which break the digest; and lies with a digest made to fit, which only the rest can tell."""
    honest = made()
    held = state(honest.vk.curve)
    record = json.loads(held.manifest)

    def use(circuit: Circuit) -> str | None:
        return honest_proof(circuit, honest)

    def more() -> Iterator[Lie]:
        told = set()
        allowed = frozenset(answers.MANIFEST) | words("same, true")
        for lie in documents.lies(record, lambda path: allowed, words("empty, not JSON, version"), 2**64):
            yield lie
            if json_depth.is_deeper(lie.data.decode(errors="replace"), 100):
                continue
            try:
                changed = json.loads(lie.data)
            except ValueError:
                continue
            if isinstance(changed, dict):
                told.add(lie.what)
                fitting = json.dumps(changed | {"digest": content_digest(changed)}).encode()
                yield Lie(f"{lie.what}, with a fitting digest", fitting, allowed - {"altered"})
        assert told

    return Target(
        "manifest", honest.name, ".json", held.manifest, [], answers.MANIFEST,
        lambda path: held.opened(path.read_bytes(), held.key),
        lambda circuit: circuit.manifest.digest == record["digest"], use,
        unnamed=frozenset(answers.MANIFEST), more=more,
    )  # fmt: skip


def honest_proof(circuit: Circuit, honest: Honest) -> str | None:
    """Whether what a lying manifest describes proves nothing false: `prove` gives out only what verifies."""
    vk = circuit.key.vk
    prover.prove(cpu.CpuBackend(), circuit.key, honest.witness)
    return answers.TRUE if vk.curve == honest.vk.curve else None


def key_file_target(made: Callable[[], Honest]) -> Target:
    """A bit anywhere, any other length."""
    honest = made()
    held = state(honest.vk.curve)
    altered, fields = words("altered"), []
    for section in json.loads(held.manifest)["sections"]:
        at, size = section["offset"], 8
        fields.append(Field(f"begin of {section['name']}", "raw", at, size, altered))
        fields.append(
            Field(f"page of {section['name']}, the last word", "raw", at + 4096 - size, size, altered)
        )

    def more() -> Iterator[Lie]:
        yield Lie("a byte more", held.key + b"\0", words("length"))
        yield Lie("a page more", held.key + bytes(4096), words("length"))
        yield Lie("nothing", b"", words("length"))

    return Target(
        "key.bin", honest.name, ".bin", held.key, fields, answers.KEY_FILE,
        lambda path: held.opened(held.manifest, path.read_bytes()),
        lambda circuit: True, lambda circuit: None, unnamed=frozenset(answers.KEY_FILE),
        cut=words("length"), more=more,
    )  # fmt: skip
