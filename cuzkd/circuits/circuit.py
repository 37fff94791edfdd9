"""An installed circuit, opened: its manifest, and its key for whoever asks.

Nothing but the manifest has been read. The key comes as a head, as a whole, or goes to a device piece by piece; each
time the file is held against its manifest's digests.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cuzkd.backend.protocol import Backend, LoadedKey
from cuzkd.circuits import prepared
from cuzkd.circuits.manifest import Manifest
from cuzkd.groth16.keys import KeyHead, ProvingKey

Turn = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Circuit:
    """An opened circuit: its manifest, and where its key is. Implements engine.residency.Openable."""

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
    def head(self) -> KeyHead:
        """The key without its points. Raises as `key`."""
        return prepared.load_head(self.path, self.manifest)

    def loading_bytes(self, backend: Backend) -> int:
        """Host memory that load_on takes, beside the head: all points, or what passes them on to a device piece by
        piece and what the device has no room for.
        """
        if not backend.takes_pieces:
            return self.point_bytes
        return prepared.pouring_bytes(self.manifest) + backend.kept_bytes(prepared.shape(self.manifest))

    @cached_property
    def key(self) -> ProvingKey:
        """The key, read when it is first asked for. Raises InvalidKey when the file is not, byte for byte, what was
        added.
        """
        return prepared.load(self.path, self.manifest)

    def load_on(self, backend: Backend, turn: Turn = nullcontext) -> LoadedKey:
        """The key's points on a device. turn(): a block in which nobody else gives the device work; none is open while
        the file is read.
        """
        if not backend.takes_pieces:
            arrays = self.key.arrays
            with turn():
                return backend.load_key(arrays)
        with turn():
            receiver = backend.receive(prepared.shape(self.manifest))
        try:
            prepared.pour_points(self.path, self.manifest, receiver.memory, receiver.into)
            with turn():
                return receiver.finish()
        except BaseException:
            receiver.close()
            raise
