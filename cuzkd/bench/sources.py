"""What `cuzkd bench prove` proves: keys and witnesses in files, added circuits, synthetic ones.

Life of data: Options -> sources -> one of them opened: a `Provable`, for a block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cuzkd.backend.protocol import Backend, LoadedKey
from cuzkd.bench import subject
from cuzkd.bench.porep import holders
from cuzkd.bench.subject import Provable
from cuzkd.circuits.registry import Registry
from cuzkd.circuits.synthetic import MIN_CONSTRAINTS
from cuzkd.errors import InvalidInput
from cuzkd.formats import bellman, r1cs, zkey
from cuzkd.groth16.keys import KeyHead

READY_TARGET = 2
MIN_ROUNDS = 2
SIZES = (1 << 12, 1 << 16)


@dataclass(frozen=True)
class Options:
    """What is proved: `fixtures`; `zkey`, bellman's `params` with their `r1cs`, or `circuit` of `state_dir`, with a
    `witness`; or synthetic `sizes` on `curve` (none for those of SIZES).

    rounds: proofs alone. stream: proofs in flight together. compare: with groth16py, where that can be. one_thread:
    afterwards as many by one thread of the processor.
    """

    zkey: Path | None = None
    params: Path | None = None
    r1cs: Path | None = None
    circuit: str | None = None
    state_dir: Path | None = None
    witness: Path | None = None
    fixtures: Path | None = None
    curve: str = "bls12_381"
    sizes: tuple[int, ...] = ()
    rounds: int = 9
    stream: int = 6
    compare: bool = True
    one_thread: bool = False


Opened = tuple[KeyHead, Callable[[Backend], LoadedKey]]


@dataclass(frozen=True)
class Source:
    """opened: a Provable for a block. files: the .zkey and .wtns that it comes from, if it does."""

    name: str
    opened: Callable[[Backend], AbstractContextManager[Provable]]
    files: tuple[Path, Path] | None = None


@dataclass(kw_only=True)
class FromFile(Provable):
    """Always the same witness."""

    path: Path

    def witness(self, number: int) -> Path:
        return self.path


@contextmanager
def _from_file(
    name: str, open_key: Callable[[], Opened], witness: Path, backend: Backend
) -> Iterator[Provable]:
    began = time.monotonic()
    key, load_on = open_key()
    opened_s = time.monotonic()
    loaded = load_on(backend)
    made_s = {"open": opened_s - began, "load": time.monotonic() - opened_s}
    try:
        yield FromFile(
            name=name,
            digest=key.vk.digest(),
            backend=backend,
            key=key,
            loaded=loaded,
            made_s=made_s,
            path=witness,
        )
    finally:
        loaded.close()


def _open_zkey(path: Path) -> Opened:
    key = zkey.read(path)
    return key, lambda backend: backend.load_key(key.arrays)


def _open_params(path: Path, constraints: Path) -> Opened:
    key = bellman.open_params(path, r1cs.read(constraints)).load()
    return key, lambda backend: backend.load_key(key.arrays)


def _open_circuit(state_dir: Path, name: str) -> Opened:
    circuit = Registry(state_dir).open(name)
    return circuit.key, circuit.load_on


def _zkey_source(name: str, key: Path, witness: Path) -> Source:
    return Source(name, partial(_from_file, name, partial(_open_zkey, key), witness), (key, witness))


# What goes with what, by the names of options.
BELONGS = {"witness": ("zkey", "params", "circuit"), "r1cs": ("params",), "state_dir": ("circuit",)}


def _require_sense(options: Options) -> None:
    """Raises InvalidInput for options that would be forgotten, or are too small."""

    def flag(name: str) -> str:
        return "--" + name.replace("_", "-")

    for name, owners in BELONGS.items():
        if getattr(options, name) is not None and all(getattr(options, owner) is None for owner in owners):
            raise InvalidInput(f"{flag(name)}: expected with {' or '.join(map(flag, owners))}")
    keys = [name for name in ("zkey", "params", "circuit", "fixtures") if getattr(options, name) is not None]
    if options.sizes and keys:
        raise InvalidInput(f"--sizes: are of synthetic circuits, expected without {flag(keys[0])}")
    if min(options.sizes, default=MIN_CONSTRAINTS) < MIN_CONSTRAINTS:
        raise InvalidInput(f"--sizes: expected at least {MIN_CONSTRAINTS}, got {min(options.sizes)}")
    if options.rounds < MIN_ROUNDS:
        raise InvalidInput(f"--rounds: expected at least {MIN_ROUNDS}, got {options.rounds}")


def sources(options: Options) -> list[Source]:
    """Raises InvalidInput where the options name nothing that could be proved, or more than one kind of it."""
    _require_sense(options)
    given = [x for x in (options.zkey, options.params, options.circuit, options.fixtures) if x is not None]
    if len(given) > 1:
        raise InvalidInput("expected one of --zkey, --params, --circuit and --fixtures")
    if options.fixtures is not None:
        if not options.fixtures.is_dir():
            raise InvalidInput(f"--fixtures {options.fixtures}: there is no such folder")
        pairs = [(key, key.with_suffix(".wtns")) for key in sorted(options.fixtures.rglob("*.zkey"))]
        found = [_zkey_source(_name(key), key, witness) for key, witness in pairs if witness.exists()]
        if not found:
            raise InvalidInput(f"{options.fixtures}: no .zkey with a .wtns of its name beside it")
        return found
    if given:
        if options.witness is None:
            raise InvalidInput("--witness: expected the .wtns file to prove")
        if options.zkey is not None:
            return [_zkey_source(_name(options.zkey), options.zkey, options.witness)]
        if options.params is not None:
            if options.r1cs is None:
                raise InvalidInput("--r1cs: expected the constraint system of the parameters")
            name, open_key = _name(options.params), partial(_open_params, options.params, options.r1cs)
            return [Source(name, partial(_from_file, name, open_key, options.witness))]
        if options.state_dir is None or options.circuit is None:
            raise InvalidInput("--state-dir: expected the one that the circuit was added to")
        open_key = partial(_open_circuit, options.state_dir, options.circuit)
        return [Source(options.circuit, partial(_from_file, options.circuit, open_key, options.witness))]
    return [Source(f"synthetic {n:,}", partial(_synthetic, options.curve, n)) for n in options.sizes or SIZES]


def _synthetic(curve: str, n: int, backend: Backend) -> AbstractContextManager[Provable]:
    return subject.make(curve, n, backend, distinct=2, holding=holders(backend, READY_TARGET))


def _name(key: Path) -> str:
    """circuit.zkey is called by its folder."""
    return key.absolute().parent.name if key.stem == "circuit" else key.stem
