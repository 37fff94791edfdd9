"""The messages of an upload, without protobuf's copies of what they carry.

Problem: a witness arrives in thousands of messages of a mebibyte, each an UploadRequest that is nothing but `data`.
Parsing one copies its payload, and so does every look at the field; a client's side copies as often. Beside proofs of a
tenth of a second that is a good part of the daemon's time.
Design: on the wire such a message is a tag, a length and the payload. `pack` puts the two in front; `unpack` finds the
payload where it lies, and gives whatever looks otherwise to protobuf. What is sent and accepted is the same as ever.
Life of data: chunk -> pack -> the wire -> unpack -> a view of the message, which lives as long as the view does.
"""

from __future__ import annotations

from cuzkd.service.v1 import proving_pb2 as pb

UPLOAD = f"/{pb.DESCRIPTOR.services_by_name['ProvingEngine'].full_name}/Upload"  # the method
CHUNK_BYTES = 1 << 20  # of payload in one message, at most
DATA = pb.UploadRequest.DESCRIPTOR.fields_by_name["data"].number << 3 | 2  # its tag: a field with a length
MAX_VARINT = 5  # bytes of a length: more than any message has


def pack(chunk: bytes | memoryview) -> bytes:
    """UploadRequest(data=chunk), serialised."""
    head, size = bytearray([DATA]), len(chunk)
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return b"".join((head, chunk))


def unpack(message: bytes) -> pb.UploadRequest | memoryview:
    """The payload of a message that holds one `data` and nothing else; any other message parsed.

    Raises google.protobuf.message.DecodeError when it is no UploadRequest.
    """
    if message[:1] == bytes([DATA]):
        size = 0
        for at, byte in enumerate(message[1 : 1 + MAX_VARINT]):
            size |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                if len(message) == 2 + at + size:
                    return memoryview(message)[2 + at :]
                break
    request = pb.UploadRequest()
    request.ParseFromString(message)
    return request
