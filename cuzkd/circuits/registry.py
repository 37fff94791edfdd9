"""The circuits of one state directory: added by an operator, found by name, opened by provers.

    STATE/circuits/NAME/manifest.json     what the circuit is (manifest.py)
    STATE/circuits/NAME/key.bin           its prepared key (keyfile.py, prepared.py)
    STATE/circuits/NAME/calculator.wasm   its witness calculator, if it has one
    STATE/circuits/.new-*  .old-*         being made, being removed: never looked at; swept by the next add

Problem: elsewhere a half-written key is taken for whole, a key without a phase 2 is served, and replacing a
file takes the running prover down.
Design: a circuit is a directory that appears and disappears by one rename. What goes in is read once, block by
block, in bounded memory, and checked thoroughly on its way (checks.py). Listing and looking up read manifests
alone: the front process does so, and must load no native code; hence the imports inside functions.
Life of data: a circuit never changes. `open` reads its manifest, `Circuit.key` its key, into memory of its own;
removing or damaging the files takes nothing from a prover that has read them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cuzkd.backend.protocol import Backend, LoadedKey
from cuzkd.circuits import manifest as manifests
from cuzkd.circuits import pagecache, prepared
from cuzkd.circuits.keyfile import KeyFile
from cuzkd.circuits.manifest import Manifest, require_name
from cuzkd.circuits.unchanged import Unchanged
from cuzkd.errors import SCARCE, AlreadyExists, Exhausted, InvalidInput, InvalidKey, NotFound
from cuzkd.formats.files import RawFile
from cuzkd.groth16.keys import ProvingKey, StreamedKey, VerifyingKey

if TYPE_CHECKING:
    from cuzkd.circuits.sources import PathLike, Source

MANIFEST, KEY, CALCULATOR = "manifest.json", "key.bin", "calculator.wasm"
MAX_MANIFEST_BYTES = 64 << 20  # a terabyte of key has 2 MB
# progress(done_bytes, total_bytes) of the points of a key that is being looked at
Progress = Callable[[int, int], None]


def _silent(done_bytes: int, total_bytes: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Circuit:
    """An opened circuit: its manifest, and where its key is. Implements engine.prover.residency.Openable."""

    manifest: Manifest
    path: Path

    @property
    def digest(self) -> str:
        return self.manifest.digest

    @property
    def head_bytes(self) -> int:
        return prepared.head_bytes(self.manifest)

    @property
    def point_bytes(self) -> int:
        return prepared.point_bytes(self.manifest)

    @cached_property
    def key(self) -> ProvingKey:
        """The key, read when it is first asked for. Raises InvalidKey when the file is not, byte for byte, what was
        added.
        """
        return prepared.load(self.path, self.manifest)

    def load_on(self, backend: Backend) -> LoadedKey:
        """The key's points on a device."""
        return backend.load_key(self.key.arrays)


class Registry:
    """All circuits below one state directory. Any number of processes may use one directory, any number of threads one
    registry.
    """

    def __init__(self, state_dir: str | os.PathLike[str]):
        self.directory = Path(state_dir) / "circuits"
        self._parsed: Unchanged[Manifest] = Unchanged()

    def list(self) -> Sequence[Manifest]:
        """Every circuit that can be read, by name. What cannot be read is left to `problems`, and harms no
        other.
        """
        return [found for _, found in self._scan() if isinstance(found, Manifest)]

    def problems(self) -> Mapping[str, InvalidKey]:
        """By name, what is wrong with circuits whose manifests are damaged."""
        return {name: found for name, found in self._scan() if isinstance(found, InvalidKey)}

    def get(self, name: str) -> Manifest:
        """The manifest of a circuit. Raises NotFound, InvalidKey, InvalidInput (no possible name), Exhausted."""
        path = self.directory / require_name(name) / MANIFEST
        return self._parsed.get(path, lambda: self._read(name))

    def _read(self, name: str) -> Manifest:
        folder = self.directory / name
        path = folder / MANIFEST
        try:
            file = RawFile(path)
            if file.size > MAX_MANIFEST_BYTES:
                raise InvalidKey(f"{path}: {file.size} bytes are no manifest")
            text = bytes(file.read(0, file.size)).decode()
        except InvalidInput as error:
            if not os.path.lexists(folder):
                raise NotFound(f"circuit {name}: not in {self.directory}") from None
            if not os.path.exists(path):
                raise InvalidKey(f"{path}: is missing; remove the circuit and add it again") from None
            raise InvalidKey(str(error)) from error
        except UnicodeDecodeError as error:
            raise InvalidKey(f"{path}: is not JSON: {error}") from error
        found = manifests.from_json(text, str(path))
        if found.name != name:
            raise InvalidKey(f"{path}: describes the circuit {found.name!r}, not {name!r}")
        return found

    def open(self, name: str) -> Circuit:
        """A circuit, of which the manifest alone has been read. Raises as `get`."""
        return Circuit(self.get(name), self.directory / name / KEY)

    def calculator(self, name: str) -> bytes:
        """The witness calculator of a circuit, a .wasm. Raises NotFound where it has none, InvalidKey when the file is
        not the one that was added, Exhausted.
        """
        from cuzkd.circuits import sources

        manifest = self.get(name)
        if not manifest.calculator:
            raise NotFound(
                f"circuit {name}: has no witness calculator: add it with its .wasm, or send a witness"
            )
        path = self.directory / name / CALCULATOR
        try:
            data = sources.read_calculator(path)
        except InvalidInput as error:
            raise InvalidKey(str(error)) from error
        if _digest(data) != manifest.calculator:
            raise InvalidKey(
                f"{path}: was altered: expected blake2b {manifest.calculator[:16]}..., found {_digest(data)[:16]}..."
            )
        return data

    def warm(self, manifest: Manifest) -> bool:
        """Whether a circuit's key file is in the page cache, by a sample. Cheap, and reads nothing."""
        return pagecache.holds(self.directory / manifest.name / KEY)

    def add(
        self,
        name: str,
        *,
        zkey: PathLike | None = None,
        params: PathLike | None = None,
        r1cs: PathLike | None = None,
        wasm: PathLike | None = None,
        vkey: PathLike | None = None,
        progress: Progress = _silent,
    ) -> Manifest:
        """Read a key, check it, prepare it, install it. For what goes with what, see sources.py.

        Adding the same content under the same name again changes nothing. Raises MalformedFile, InvalidInput,
        InvalidKey, Exhausted (the disk), and AlreadyExists when the name is taken by another circuit.
        """
        from cuzkd.circuits import sources

        require_name(name)
        source = sources.gather(
            name,
            zkey_path=zkey,
            params_path=params,
            r1cs_path=r1cs,
            wasm_path=wasm,
            vkey_path=vkey,
            state_dir=self.directory.parent,
        )
        return self._install(name, source, progress)

    def install(
        self,
        name: str,
        key: ProvingKey | StreamedKey,
        source: str,
        expected: VerifyingKey | None = None,
        calculator: bytes = b"",
    ) -> Manifest:
        """Check, prepare and install a key that is no file: one in memory, perhaps. Otherwise as `add`."""
        from cuzkd.circuits.sources import Source

        require_name(name)
        return self._install(
            name, Source(source, key, [key.arrays.root_family], expected, calculator), _silent
        )

    def check(self, name: str, progress: Progress = _silent) -> Manifest:
        """Look at an installed circuit again, as if it were added: digests, and all that checks.py knows.

        Raises NotFound, InvalidKey.
        """
        from cuzkd.circuits import checks

        circuit = self.open(name)
        if circuit.manifest.calculator:
            self.calculator(name)
        with KeyFile(circuit.path, circuit.manifest) as file:
            key = prepared.stream(file, circuit.manifest)
            told = _told(circuit.point_bytes, progress)
            checks.require_sound(key, key.blocks, str(circuit.path), told=told)
        return circuit.manifest

    def _install(self, name: str, source: Source, progress: Progress) -> Manifest:
        from cuzkd.circuits import checks

        key = source.key
        told = _told(key.arrays.points_bytes, progress)
        looked_at = checks.Checks(key, source.name, source.expected, source.families, told)
        for place in (self.directory.parent, self.directory):  # state is nobody else's to read
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._staging() as staging:
            written = prepared.write(
                staging / KEY, key, lambda query: looked_at.watch(query, key.blocks(query))
            )
            manifest = written.manifest(
                name=name,
                root_family=looked_at.conclude(),
                calculator=_digest(source.calculator) if source.calculator else "",
                source=source.name,
            )
            if source.calculator:
                _write(staging / CALCULATOR, source.calculator)
            _write(staging / MANIFEST, manifest.to_json().encode())
            _sync_directory(staging)
            with self._locked():
                return self._commit(staging, manifest)

    def remove(self, name: str) -> None:
        """Take a circuit away, also a damaged one, or whatever else has its name: of a link, the link. Processes that
        have opened it keep it. Raises NotFound.
        """
        path = self.directory / require_name(name)
        if not os.path.lexists(path):
            raise NotFound(f"circuit {name}: not in {self.directory}")
        with self._locked():
            old = self.directory / f".old-{uuid.uuid4()}"
            try:
                os.rename(path, old)
            except FileNotFoundError:
                raise NotFound(f"circuit {name}: not in {self.directory}") from None
            _sync_directory(self.directory)
            _delete(old)

    def _scan(self) -> Iterator[tuple[str, Manifest | InvalidKey]]:
        try:
            names = sorted(e.name for e in os.scandir(self.directory) if manifests.NAME.fullmatch(e.name))
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in SCARCE:
                raise Exhausted(
                    f"{self.directory}: cannot be read now: {error.strerror}; try again later"
                ) from error
            raise
        for name in names:
            try:
                yield name, self.get(name)
            except InvalidKey as error:
                yield name, error
            except NotFound:  # removed since the scan
                continue

    def _commit(self, staging: Path, manifest: Manifest) -> Manifest:
        """Give a prepared directory its name, or find out that it was there before. Called under the lock."""
        target = self.directory / manifest.name
        if os.path.lexists(target):
            existing = self.get(manifest.name)
            if existing.digest == manifest.digest:
                return existing
            raise AlreadyExists(
                f"circuit {manifest.name}: is there with another key or calculator: expected "
                f"{manifest.digest[:16]}..., found {existing.digest[:16]}...; remove it first, or choose another name"
            )
        os.rename(staging, target)
        _sync_directory(self.directory)
        return manifest

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """A directory to prepare a circuit in. It is gone after the block, unless it was renamed.

        Whoever works in it holds a lock on it, so that others know it from what a killed process has left.
        """
        with self._locked():
            self._sweep()
            staging = self.directory / f".new-{uuid.uuid4()}"
            with _disk(staging):
                staging.mkdir(mode=0o700)
            descriptor = _lock(staging, fcntl.LOCK_EX)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            os.close(descriptor)

    def _sweep(self) -> None:
        """Remove what an add or a remove that was killed has left. Called under the lock."""
        for entry in os.scandir(self.directory):
            if not entry.name.startswith((".new-", ".old-")):
                continue
            with suppress(OSError):  # somebody is at work there, or it is gone
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry)
                    continue
                descriptor = _lock(Path(entry.path), fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(descriptor)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time gives or takes names. The lock goes with its holder."""
        descriptor = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _lock(directory: Path, how: int) -> int:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _told(total_bytes: int, progress: Progress) -> Callable[[int], None]:
    done_bytes = 0

    def told(nbytes: int) -> None:
        nonlocal done_bytes
        done_bytes += nbytes
        progress(done_bytes, total_bytes)

    return told


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def _write(path: Path, data: bytes) -> None:
    with _disk(path), open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Around writes: the disk takes no more. Raises Exhausted, as keyfile.py does."""
    try:
        yield
    except OSError as error:
        raise Exhausted(f"{path}: cannot be written: {error.strerror}") from error


def _delete(path: Path) -> None:
    """Whatever it is; a link is not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
