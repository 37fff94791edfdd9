"""Where the daemon listens, and where it refuses to."""

import asyncio
import socket
import stat

import grpc
import pytest

from cuzkd.errors import InvalidInput, Unavailable
from cuzkd.service import listen


@pytest.mark.parametrize(
    ("text", "target", "local"),
    [
        ("unix:///run/x.sock", "unix:/run/x.sock", True),
        ("unix:/run/x.sock", "unix:/run/x.sock", True),
        ("127.0.0.1:50", "127.0.0.1:50", True),
        ("localhost:50", "localhost:50", True),
        ("[::1]:50", "[::1]:50", True),
        ("127.9.9.9:50", "127.9.9.9:50", True),
        ("0.0.0.0:50", "0.0.0.0:50", False),
        ("[::]:50", "[::]:50", False),
        ("192.168.1.4:50", "192.168.1.4:50", False),
        ("prover.example:50", "prover.example:50", False),
    ],
)
def test_parse(text, target, local):
    address = listen.parse(text)
    assert (address.target, address.local) == (target, local)


@pytest.mark.parametrize(
    "text", ["", "unix://", "50", ":50", "host:", "host:x", "host:65536", "unix:///" + "x" * 120]
)
def test_parse_refuses(text):
    with pytest.raises(InvalidInput, match="listen address"):
        listen.parse(text)


def bound(address, security=None, **kinds):
    async def run():
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        try:
            got = listen.bind(server, address, security)
            await server.start()
            return got, kinds["look"]() if kinds else None
        finally:
            await server.stop(None)

    return asyncio.run(run())


@pytest.mark.parametrize("text", ["0.0.0.0:0", "[::]:0", "example.org:0"])
def test_open_addresses_need_tls_and_a_token(text):
    with pytest.raises(InvalidInput, match="no TLS and no token"):
        bound(listen.parse(text))


def test_the_socket_is_for_its_owner_only(tmp_path):
    path = tmp_path / "sub" / "s.sock"
    _, mode = bound(listen.parse(f"unix://{path}"), look=lambda: path.stat().st_mode)
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600


def test_a_free_port_is_reported():
    got, _ = bound(listen.parse("127.0.0.1:0"))
    assert got.port > 0


def test_a_dead_socket_gives_way_and_a_living_one_does_not(tmp_path):
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(Unavailable, match="another daemon"):
            bound(listen.parse(f"unix://{path}"))
        assert path.exists()
    bound(listen.parse(f"unix://{path}"))


def test_a_place_where_no_socket_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "socket", tmp_path / "file" / "folder" / "socket", "/proc/none/socket"):
        with pytest.raises(InvalidInput, match="cannot listen"):
            bound(listen.parse(f"unix://{path}"))


def test_a_file_is_not_removed(tmp_path):
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(InvalidInput, match="not a socket"):
        bound(listen.parse(f"unix://{path}"))
    assert path.read_text() == "data"


def test_a_taken_port_is_refused():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(Unavailable, match="cannot listen"):
            bound(listen.Address(host="127.0.0.1", port=other.getsockname()[1]))


def test_security_is_all_or_nothing(tmp_path):
    cert, key, token = (tmp_path / name for name in ("cert", "key", "token"))
    assert listen.read_security(None, None, None) is None
    for file in (cert, key, token):
        file.write_text("0123456789abcdef\n")
        file.chmod(0o600)
    (only,) = listen.read_security(cert, key, token).tokens
    assert only.owner == "default" and only.secret == "0123456789abcdef"
    with pytest.raises(InvalidInput, match="missing: token_file"):
        listen.read_security(cert, key, None)
    token.chmod(0o644)
    with pytest.raises(InvalidInput, match="0600"):
        listen.read_security(cert, key, token)
    token.chmod(0o600)
    token.write_text("short")
    with pytest.raises(InvalidInput, match="16"):
        listen.read_security(cert, key, token)
    token.write_bytes(b"\xff" * 20)
    with pytest.raises(InvalidInput, match="is no text"):
        listen.read_security(cert, key, token)
