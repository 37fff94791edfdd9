"""The pipe between the front process and a prover process: length-prefixed protobuf over a socketpair.

Frame: u32 little-endian length, then one message. The prover side blocks in threads (`Channel`), the front
side lives in an event loop (`AsyncChannel`). Both treat the end of the stream, also in the middle of a
frame, as "the other process is gone": what it was saying is lost either way.

The language is proto/cuzkd/prover/v1/prover.proto. Nothing large travels here: proofs and paths, never
witnesses.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from typing import Generic, Protocol, TypeVar

_LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 64 << 20


class Message(Protocol):
    """What a generated protobuf class does for us."""

    def SerializeToString(self) -> bytes: ...

    def ParseFromString(self, data: bytes) -> int: ...


In = TypeVar("In", bound=Message)


def pack(message: Message) -> bytes:
    """One frame. Raises ValueError above MAX_FRAME_BYTES."""
    data = message.SerializeToString()
    if len(data) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(data)} bytes, at most {MAX_FRAME_BYTES} fit into a frame")
    return _LENGTH.pack(len(data)) + data


def _length(header: bytes) -> int:
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes announced, at most {MAX_FRAME_BYTES} are allowed")
    return int(length)


class Channel(Generic[In]):
    """Blocking end. Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket, receives: type[In]) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._receives = receives
        self._sending = threading.Lock()  # keeps frames whole; nothing else is taken under it

    def send(self, message: Message) -> None:
        """Raises OSError when the other process is gone."""
        frame = pack(message)
        with self._sending:
            self._socket.sendall(frame)

    def receive(self) -> In | None:
        """The next message; None when the other process is gone."""
        header = self._exactly(_LENGTH.size)
        data = None if header is None else self._exactly(_length(header))
        if data is None:
            return None
        message = self._receives()
        message.ParseFromString(data)
        return message

    def _exactly(self, nbytes: int) -> bytes | None:
        data = bytearray()
        while len(data) < nbytes:
            try:
                piece = self._socket.recv(min(nbytes - len(data), 1 << 20))
            except ConnectionError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


class AsyncChannel(Generic[In]):
    """Event-loop end. Make it with `await AsyncChannel.open(sock, FromProver)`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receives: type[In]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._receives = receives

    @classmethod
    async def open(cls, sock: socket.socket, receives: type[In]) -> AsyncChannel[In]:
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, receives)

    def post(self, message: Message) -> None:
        """Queue a message without waiting; it is sent in order. Lost when the other process is gone."""
        if not self._writer.is_closing():
            self._writer.write(pack(message))

    async def send(self, message: Message) -> None:
        """Post and wait while the pipe is full. Raises ConnectionError when the other process is gone."""
        self.post(message)
        await self._writer.drain()

    async def receive(self) -> In | None:
        """The next message; None when the other process is gone."""
        try:
            header = await self._reader.readexactly(_LENGTH.size)
            data = await self._reader.readexactly(_length(header))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        message = self._receives()
        message.ParseFromString(data)
        return message

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:  # it was gone already
            return
