"""The circuits of one state directory: added by an operator, found by name, opened by provers.

    STATE/circuits/NAME/manifest.json     what the circuit is (manifest.py)
    STATE/circuits/NAME/key.bin           its prepared key (keyfile.py, prepared.py)
    STATE/circuits/.new-*  .old-*         being made, being removed: never looked at; swept by the next add

Problem: elsewhere a half-written key is taken for whole, a key without a phase 2 is served, and replacing a
file takes the running prover down.
Design: a circuit is a directory that appears and disappears by one rename. What goes in is checked once,
thoroughly: structure and counts, every point on its curve, the few points of the verifying key in their
subgroups and consistent with each other, gamma other than delta, and equal to the verification key that the
operator trusts, if one is given. Listing and looking up read manifests alone: the front process does so, and
must load no native code; hence the imports inside `add`.
Life of data: a circuit never changes. Removing it takes the names away; a prover that has it mapped keeps its
map.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cuzkd.backend.protocol import Backend, LoadedKey
from cuzkd.circuits import manifest as manifests
from cuzkd.circuits import prepared
from cuzkd.circuits.manifest import Manifest, require_name
from cuzkd.errors import AlreadyExists, InvalidKey, NotFound
from cuzkd.groth16.keys import ProvingKey, VerifyingKey

MANIFEST, KEY = "manifest.json", "key.bin"


@dataclass(frozen=True)
class Circuit:
    """An opened circuit. `key`'s arrays are read-only windows of the mapped key file."""

    manifest: Manifest
    key: ProvingKey

    @property
    def digest(self) -> str:
        return self.manifest.digest

    def load_on(self, backend: Backend) -> LoadedKey:
        """The key's points on a device."""
        return backend.load_key(self.key.arrays)


class Registry:
    """All circuits below one state directory. Holds no state of its own: any number of processes may use one
    directory.
    """

    def __init__(self, state_dir: str | os.PathLike[str]):
        self.directory = Path(state_dir) / "circuits"

    def list(self) -> Sequence[Manifest]:
        """Every circuit that can be read, by name. What cannot be read is left to `problems`, and harms no
        other.
        """
        return [found for _, found in self._scan() if isinstance(found, Manifest)]

    def problems(self) -> Mapping[str, InvalidKey]:
        """By name, what is wrong with circuits whose manifests are damaged."""
        return {name: found for name, found in self._scan() if isinstance(found, InvalidKey)}

    def get(self, name: str) -> Manifest:
        """The manifest of a circuit. Raises NotFound, InvalidKey, InvalidInput (no possible name)."""
        path = self.directory / require_name(name) / MANIFEST
        try:
            text = path.read_text()
        except FileNotFoundError:
            if path.parent.exists():
                raise InvalidKey(f"{path}: is missing; remove the circuit and add it again") from None
            raise NotFound(f"circuit {name}: not in {self.directory}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidKey(f"{path}: cannot be read: {error}") from error
        found = manifests.from_json(text, str(path))
        if found.name != name:
            raise InvalidKey(f"{path}: describes the circuit {found.name!r}, not {name!r}")
        return found

    def open(self, name: str, *, check_digests: bool = True) -> Circuit:
        """Map a circuit's key. Raises InvalidKey when the key file is not, byte for byte, the one that was
        added.

        check_digests: as in `keyfile.map_arrays`.
        """
        manifest = self.get(name)
        path = self.directory / name / KEY
        return Circuit(manifest, prepared.load(path, manifest, check_digests=check_digests))

    def add(
        self, name: str, zkey: str | os.PathLike[str], vkey: str | os.PathLike[str] | None = None
    ) -> Manifest:
        """Read a .zkey, check it, prepare it, install it. vkey: a verification_key.json that it must agree
        with.

        Adding the same content under the same name again changes nothing. Raises MalformedFile, InvalidKey,
        and AlreadyExists when the name is taken by another key.
        """
        from cuzkd.formats import snarkjs
        from cuzkd.formats import zkey as zkeys

        require_name(name)
        expected = None if vkey is None else snarkjs.read_vkey(vkey)
        return self.install(name, zkeys.read(zkey), source=Path(zkey).name, expected=expected)

    def install(
        self, name: str, key: ProvingKey, source: str, expected: VerifyingKey | None = None
    ) -> Manifest:
        """Check, prepare and install a key that is in memory already. Otherwise as `add`."""
        from cuzkd.circuits import checks

        require_name(name)
        checks.require_sound(key, source, expected)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            self._sweep()
            staging = self.directory / f".new-{uuid.uuid4()}"
            staging.mkdir(mode=0o700)
            try:
                manifest = prepared.write(staging / KEY, name, key, source)
                return self._commit(staging, manifest)
            finally:
                shutil.rmtree(staging, ignore_errors=True)  # gone already if it was renamed

    def remove(self, name: str) -> None:
        """Take a circuit away, also a damaged one. Processes that have opened it keep it. Raises NotFound."""
        path = self.directory / require_name(name)
        if not path.is_dir():
            raise NotFound(f"circuit {name}: not in {self.directory}")
        with self._locked():
            old = self.directory / f".old-{uuid.uuid4()}"
            try:
                os.rename(path, old)
            except FileNotFoundError:
                raise NotFound(f"circuit {name}: not in {self.directory}") from None
            _sync_directory(self.directory)
            shutil.rmtree(old)

    def _scan(self) -> Iterator[tuple[str, Manifest | InvalidKey]]:
        try:
            names = sorted(e.name for e in os.scandir(self.directory) if manifests.NAME.fullmatch(e.name))
        except FileNotFoundError:
            return
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
        if target.exists():
            existing = self.get(manifest.name)
            if existing.digest == manifest.digest:
                return existing
            raise AlreadyExists(
                f"circuit {manifest.name}: is there with another key: expected {manifest.digest[:16]}..., "
                f"found {existing.digest[:16]}...; remove it first, or choose another name"
            )
        with open(staging / MANIFEST, "x") as file:
            file.write(manifest.to_json())
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(staging)
        os.rename(staging, target)
        _sync_directory(self.directory)
        return manifest

    def _sweep(self) -> None:
        """Remove what an add or a remove that was killed has left. Called under the lock, so nobody is at
        work.
        """
        for entry in os.scandir(self.directory):
            if entry.name.startswith((".new-", ".old-")):
                shutil.rmtree(entry.path, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One add or remove at a time, over all processes. The lock goes with its holder."""
        descriptor = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
