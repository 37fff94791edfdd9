"""Payload files: private, synced, removed; paths that lead elsewhere are refused."""

import contextlib
import errno
import os
import stat

import pytest

from cuzkd.engine.faults import load
from cuzkd.engine.journal.rows import Upload
from cuzkd.engine.payloads import spool as spools
from cuzkd.engine.payloads.spool import Spool
from cuzkd.engine.payloads.uploads import Uploads
from cuzkd.errors import Exhausted, InvalidInput, NotFound


@pytest.fixture
def allowed(tmp_path):
    folder = tmp_path / "allowed"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "w").write_bytes(b"witness")
    return folder


@pytest.fixture
def spool(tmp_path, allowed):
    return Spool(tmp_path / "state", 1000, (allowed,))


def files(spool):
    return list(spool.directory.iterdir())


def test_written_files_are_ours_alone(spool):
    file = spool.write(b"content")
    mode = os.stat(file.path).st_mode
    assert stat.S_IMODE(mode) == 0o600 and stat.S_IMODE(spool.directory.stat().st_mode) == 0o700
    assert file.nbytes == 7 and open_bytes(file.path) == b"content"
    spool.remove(file)
    spool.remove(file)
    assert files(spool) == []


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def test_file_and_directory_are_synced_before_it_counts(spool, monkeypatch):
    synced = []
    monkeypatch.setattr(spools.os, "fsync", lambda fd: synced.append(stat.S_ISDIR(os.fstat(fd).st_mode)))
    spool.write(b"content")
    assert sorted(synced) == [False, True]  # at once


def test_digests_tell_contents_apart_and_are_keyed(spool, tmp_path):
    assert spool.write(b"a").digest == spool.digest(b"a") != spool.digest(b"b")
    assert Spool(tmp_path / "other", 10).digest(b"a") != spool.digest(b"a")
    assert spool.combine([b"ab", b"c"]) != spool.combine([b"a", b"bc"])
    assert "digest=" not in repr(spool.write(b"a"))


def test_streamed_sizes_must_agree(spool):
    with contextlib.closing(spool.create(4)) as incoming:
        incoming.write(b"ab")
        with pytest.raises(InvalidInput, match="4 bytes were announced, 2 came"):
            incoming.commit()
        with pytest.raises(InvalidInput, match="more came"):
            incoming.write(b"cde")
        incoming.write(b"cd")
        assert incoming.commit().digest == spool.digest(b"abcd")
    assert len(files(spool)) == 1
    with pytest.raises(InvalidInput, match="1001 bytes: at most 1000"):
        spool.create(1001)


def test_what_is_not_committed_is_removed(spool):
    incoming = spool.create(4)
    incoming.write(b"ab")
    assert len(files(spool)) == 1
    incoming.close()
    incoming.close()
    assert files(spool) == []


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, Exhausted), (errno.EDQUOT, Exhausted)])
def test_a_full_disk_is_not_now(spool, monkeypatch, number, error):
    def full(*_):
        raise OSError(number, "full")

    monkeypatch.setattr(spools.os, "write", full)
    with pytest.raises(error, match="try again later"):
        spool.write(b"x")
    assert files(spool) == []


def test_sweep_spares_what_is_named(spool):
    kept, _ = spool.write(b"1"), spool.write(b"2")
    assert spool.sweep({kept.path}) == 1
    assert [str(path) for path in files(spool)] == [kept.path]


def test_sweep_takes_whatever_is_there_and_follows_nothing(spool, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    (spool.directory / "folder" / "deep").mkdir(parents=True)
    (spool.directory / "folder" / "link").symlink_to(outside)
    (spool.directory / "link").symlink_to(outside)
    (spool.directory / "dangling").symlink_to("nowhere")
    os.mkfifo(spool.directory / "pipe")
    assert spool.sweep() == 4 and files(spool) == []
    assert (outside / "precious").read_bytes() == b"x"


def test_a_path_is_shown_in_a_line_without_what_a_terminal_obeys(spool, allowed):
    for path in (f"{allowed}/" + "\x1b[31m" * 700, f"/{'x' * 4090}", "/" * (1 << 20), "a" * 5000):
        with pytest.raises(InvalidInput) as caught:
            spool.copy(path)
        assert len(str(caught.value)) < 500 and "\x1b" not in str(caught.value)


def test_paths_beneath_an_allowed_folder_are_copied(spool, allowed):
    source = allowed / "deep" / "er" / "w"
    file = spool.copy(f"{allowed}//deep/./er/w")
    source.write_bytes(b"changed")
    assert open_bytes(file.path) == b"witness" and file.digest == spool.digest(b"witness")


def test_other_paths_are_refused(spool, allowed, tmp_path):
    (tmp_path / "outside").write_bytes(b"x")
    (allowed / "link").symlink_to(tmp_path / "outside")
    (allowed / "linked").symlink_to(allowed / "deep")
    (allowed / "large").write_bytes(bytes(1001))
    os.mkfifo(allowed / "pipe")
    (tmp_path / "allowedbutnot").write_bytes(b"x")
    for path in (
        "relative",
        "",
        "/",
        str(allowed),
        f"{allowed}/deep",
        f"{allowed}/../outside",
        f"{allowed}/link",
        f"{allowed}/linked/er/w",
        f"{allowed}/deep/er/w/x",
        f"{allowed}/pipe",
        f"{allowed}/large",
        f"{allowed}/a\0b",
        str(tmp_path / "outside"),
        str(tmp_path / "allowedbutnot"),
    ):
        with pytest.raises(InvalidInput):
            spool.copy(path)
    with pytest.raises(NotFound):
        spool.copy(f"{allowed}/nothing")
    assert files(spool) == []
    assert len(os.listdir("/proc/self/fd")) < 100


def test_no_folder_is_allowed_by_default(tmp_path):
    with pytest.raises(InvalidInput, match="none"):
        Spool(tmp_path, 10).copy("/etc/hostname")


def test_uploads_are_taken_once_and_expire(spool):
    uploads = Uploads(expiry_s=10.0, max_waiting=10)
    first, second = spool.write(b"1"), spool.write(b"2")
    a, b = Upload("a", first, "me", 10.0), Upload("b", second, "me", 15.0)
    for upload in (a, b):
        uploads.add(upload)
    assert uploads.find("a", "me") is a
    uploads.take([a], "job")
    for some in ([a], [b, a]):
        with pytest.raises(NotFound, match="used it up"):
            uploads.take(some, "other job")
    assert uploads.digest("a", "me") == first.digest and uploads.digest("b", "me") == second.digest
    for ask in (uploads.find, uploads.digest):
        with pytest.raises(NotFound, match="unknown, or it has expired"):
            ask("a", "you")
    assert uploads.expire(9.9) == []
    uploads.require_room(arriving=8)
    with pytest.raises(Exhausted, match="10 of at most 10"):
        uploads.require_room(arriving=9)
    assert uploads.expire(15.0) == [b]
    uploads.require_room(arriving=9)
    assert uploads.digest("a", "me") == first.digest  # as long as its job is known
    uploads.forget(["job", "another job"])
    for upload_id in ("a", "b"):
        with pytest.raises(NotFound, match="expired"):
            uploads.find(upload_id, "me")


def test_uploads_come_back_when_the_job_does_not(spool):
    uploads = Uploads(expiry_s=10.0, max_waiting=10)
    a, b, c = (
        Upload(name, spool.write(name.encode()), "", t) for name, t in (("a", 5.0), ("b", 50.0), ("c", 60.0))
    )
    for upload in (a, b, c):
        uploads.add(upload)
    uploads.take([a, b], "job")
    assert uploads.expire(20.0) == []
    uploads.give_back([b, a], "job")
    assert uploads.expire(20.0) == [a]  # its time was over meanwhile
    uploads.take([b], "another job")


def test_the_key_lasts_and_is_ours_alone(tmp_path):
    first = Spool(tmp_path, 10)
    key = tmp_path / "spool.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(key.read_bytes()) == 32
    assert Spool(tmp_path, 10).digest(b"x") == first.digest(b"x")
    key.write_bytes(b"short")
    with pytest.raises(InvalidInput, match=r"spool.key: 5 bytes, expected 32"):
        Spool(tmp_path, 10)


def test_digests_without_a_copy(spool, allowed):
    path = str(allowed / "deep" / "er" / "w")
    assert spool.digest_of(path) == spool.copy(path).digest
    assert len(files(spool)) == 1
    with pytest.raises(InvalidInput):
        spool.digest_of("/etc/hostname")


@pytest.mark.parametrize("point", ["spool_write", "spool_sync"])
@pytest.mark.parametrize("action", ["full", "memory"])
def test_what_fails_on_its_way_leaves_nothing(tmp_path, point, action):
    spool = Spool(tmp_path, 10, (), load(f"{action}:{point}:1"))
    with pytest.raises(Exhausted, match="try again later"):
        spool.write(b"x")
    assert files(spool) == []
    spool.write(b"x")
