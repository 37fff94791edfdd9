"""The container: whole files are read whatever their order; a lie in any number of the frame is named, and
costs nothing.
"""

import os
import struct

import pytest

from cuzkd.errors import InvalidInput, MalformedFile
from cuzkd.formats import files, iden3

MAGIC = b"test"
NAMES = {1: "header", 2: "values"}


def frame(*sections, magic=MAGIC, version=1, count=None, tail=b""):
    body = b"".join(struct.pack("<IQ", i, len(data)) + data for i, data in sections)
    return struct.pack("<4sII", magic, version, len(sections) if count is None else count) + body + tail


def opened(tmp_path, data):
    path = tmp_path / "file.test"
    path.write_bytes(data)
    return iden3.open_container(path, MAGIC, 1, NAMES)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_sections_are_found_in_any_order(tmp_path, order):
    contents = {1: b"head", 2: b"some values", 7: b""}
    file = opened(tmp_path, frame(*((i, contents[i]) for i in (*order, 7))))
    for i, expected in contents.items():
        with file.view(i, len(expected)) as view:
            assert bytes(view) == expected and view.readonly
    file.close()


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "f"
    iden3.write_container(path, MAGIC, 1, [(2, [b"ab", memoryview(b"cde")]), (1, [])])
    assert path.read_bytes() == frame((2, b"abcde"), (1, b""))
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"tes", "at least 12 bytes .* found 3: file is cut"),
        (frame(magic=b"zzzz"), "expected magic b'test', found b'zzzz'"),
        (frame(version=3), "expected version 1, found 3"),
        (frame((1, b""), (1, b"")), r"section 1 \(header\) occurs twice"),
        (frame((1, b"abc"), count=2), "ends at byte 27 before the header of number 2"),
        (frame((1, b"abc"), count=2**32 - 1), "claims 4294967295 sections"),
        (frame((1, b"abc"), tail=b"x"), "1 bytes after the last"),
        (frame((1, b"abc"))[:-1], r"section 1 \(header\) claims 3 bytes from byte 24, .* ends at byte 26"),
        (
            struct.pack("<4sIIIQ", MAGIC, 1, 1, 2, 2**60),
            r"section 2 \(values\) claims 1152921504606846976 bytes",
        ),
        (struct.pack("<4sIIIQ", MAGIC, 1, 1, 2, 2**64 - 1), "claims 18446744073709551615 bytes"),
    ],
)
def test_lies_are_named(tmp_path, data, words):
    with pytest.raises(MalformedFile, match=words) as error:
        opened(tmp_path, data)
    assert "file.test" in str(error.value)


def test_missing_section_and_wrong_size(tmp_path):
    file = opened(tmp_path, frame((1, b"abc")))
    with pytest.raises(MalformedFile, match=r"section 2 \(values\) is missing; found \[1\]"):
        file.view(2)
    with pytest.raises(
        MalformedFile, match=r"section 1 \(header\): expected 4 bytes \(for a reason\), found 3"
    ):
        file.view(1, 4, because="for a reason")
    file.close()


def test_what_is_no_file(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be opened: No such file"):
        iden3.open_container(tmp_path / "none", MAGIC, 1, NAMES)
    with pytest.raises(InvalidInput, match="not a regular file"):
        iden3.open_container(tmp_path, MAGIC, 1, NAMES)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="not a regular file"):  # and does not wait for a writer
        iden3.open_container(tmp_path / "pipe", MAGIC, 1, NAMES)
    with pytest.raises(InvalidInput, match="cannot be opened"):
        iden3.open_container("a\0b", MAGIC, 1, NAMES)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("size", [10, files.SMALL_BYTES - 100, files.SMALL_BYTES, 200_000])
def test_files_of_any_size_are_read_whole_or_in_part(tmp_path, size, mapped):
    contents = os.urandom(size)
    path = tmp_path / "f"
    path.write_bytes(frame((3, b"before"), (2, contents)))
    with iden3.open_container(path, MAGIC, 1, NAMES, mapped=mapped) as file:
        for begin, n in ((0, size), (3, 5), (size - 2, 100), (size + 5, 5), (7, 0)):
            with file.part(2, begin, n) as part:
                assert part == contents[begin : begin + n] and part.readonly
        with file.view(2) as view:
            assert view == contents


def test_a_file_that_shrinks_is_refused_where_it_is_read(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(frame((1, b"head"), (2, bytes(200_000))))
    with iden3.open_container(path, MAGIC, 1, NAMES) as file:
        os.truncate(path, 1000)
        assert file.view(1) == b"head"
        with pytest.raises(MalformedFile, match=r"f: file is cut: it had 200040 bytes .* while being read"):
            file.view(2)


def test_nothing_is_left_of_what_could_not_be_written(tmp_path):
    def pieces():
        yield b"abc"
        raise InvalidInput("no more")

    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(InvalidInput, match="no more"):
        iden3.write_container(tmp_path / "f", MAGIC, 1, [(1, pieces())])
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"old"
