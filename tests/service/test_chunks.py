"""Messages of an upload: the same on the wire as protobuf's, whoever makes or reads them."""

from __future__ import annotations

import os

import pytest
from google.protobuf.message import DecodeError

from cuzkd.service import chunks
from cuzkd.service.v1 import proving_pb2 as pb

SIZES = [0, 1, 127, 128, 16_383, 16_384, chunks.CHUNK_BYTES, (1 << 21) - 1, 1 << 21]


@pytest.mark.parametrize("size", SIZES)
def test_packed_is_what_protobuf_makes_of_it(size: int) -> None:
    data = os.urandom(size)
    message = chunks.pack(data)
    assert message == pb.UploadRequest(data=data).SerializeToString()
    assert message == chunks.pack(memoryview(data))
    found = chunks.unpack(message)
    assert isinstance(found, memoryview)
    assert found == data
    assert found.obj is message  # no copy


@pytest.mark.parametrize(
    "message",
    [
        b"",
        pb.UploadRequest(header=pb.UploadHeader(size_bytes=300)).SerializeToString(),
        chunks.pack(b"first") + chunks.pack(b"second"),  # the last one counts
        chunks.pack(b"data") + b"\x7a\x02ab",  # and a field of a later version
        b"\x7a\x02ab" + chunks.pack(b"data"),
        b"\x12\x84\x00data",  # a length in more bytes than it needs
        chunks.pack(b"data") + pb.UploadRequest(header=pb.UploadHeader(size_bytes=1)).SerializeToString(),
    ],
)
def test_whatever_else_is_read_as_protobuf_reads_it(message: bytes) -> None:
    expected = pb.UploadRequest.FromString(message)
    found = chunks.unpack(message)
    if isinstance(found, memoryview):
        found = pb.UploadRequest(data=bytes(found))
    assert found == expected


@pytest.mark.parametrize(
    "message",
    [b"\x12", b"\x12\x80", b"\x12\x05data", b"\x12\x80\x80\x80\x80\x80\x80", b"\x12\x03data", b"\xff"],
)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(DecodeError):
        chunks.unpack(message)
