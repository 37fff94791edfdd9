"""Addresses: where the daemon may listen, and what must be true before it does.

Problem: proving servers that listen everywhere without asking who is there give witnesses and machines away.
Design: a Unix socket (mode 0600) or a loopback address needs nothing more; every other address needs TLS and
a token, or the daemon does not start.
Life of data: an address is parsed once at start, judged, bound.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from cuzkd.errors import InvalidInput, Unavailable
from cuzkd.service import owners

UNIX_PATH_LIMIT = 107  # bytes that the kernel keeps for the path of a Unix socket, without the final zero


@dataclass(frozen=True)
class Address:
    """Either a Unix socket (path) or host and port. port 0 lets the system choose one."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def local(self) -> bool:
        """True if only this machine can reach it."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def target(self) -> str:
        """As gRPC spells it."""
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Security:
    """TLS certificate chain and key (PEM) and the tokens of which clients must send one."""

    cert: bytes
    key: bytes = field(repr=False)
    tokens: tuple[owners.Token, ...]


def parse(text: str, what: str = "listen address") -> Address:
    """An Address from "unix://PATH", "unix:PATH" or "HOST:PORT" ([..] around IPv6). Raises InvalidInput."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path:
            raise InvalidInput(f"{what} {text!r}: expected a path after unix://")
        full = Path(path).absolute()
        if len(os.fsencode(full)) > UNIX_PATH_LIMIT:
            raise InvalidInput(f"{what}: path of a Unix socket has at most {UNIX_PATH_LIMIT} bytes: {full}")
        return Address(path=full)
    host, colon, port = text.removeprefix("dns:///").rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"{what} {text!r}: expected unix://PATH or HOST:PORT")
    return Address(host=host.removeprefix("[").removesuffix("]"), port=int(port))


def read_security(cert: Path | None, key: Path | None, token_file: Path | None) -> Security | None:
    """All three, or None for none of them. Raises InvalidInput: one is missing, unreadable or too open."""
    given = {"tls_cert": cert, "tls_key": key, "token_file": token_file}
    missing = [name for name, file in given.items() if file is None]
    if len(missing) == len(given):
        return None
    if cert is None or key is None or token_file is None:
        raise InvalidInput(
            f"[security] needs tls_cert, tls_key and token_file together; missing: {', '.join(missing)}"
        )
    for file in (key, token_file):
        if file.exists() and file.stat().st_mode & 0o077:
            raise InvalidInput(f"[security] {file} can be read by others; expected mode 0600")
    try:
        tokens = token_file.read_text()
        pair = cert.read_bytes(), key.read_bytes()
    except OSError as error:
        raise InvalidInput(f"[security] cannot be read: {error}") from None
    except UnicodeDecodeError:  # its text would quote what it could not read
        raise InvalidInput(f"[security] {token_file}: is no text") from None
    return Security(*pair, owners.parse(tokens, str(token_file)))


def bind(server: grpc.aio.Server, address: Address, security: Security | None) -> Address:
    """Bind the server. Returns the address with the port that it got.

    Raises InvalidInput for an address that others can reach while there is no Security, Unavailable when
    it is taken.
    """
    if not address.local and security is None:
        raise InvalidInput(
            f"refusing to listen on {address.target}: other machines can reach it, and there is no TLS and "
            "no token; set tls_cert, tls_key and token_file in [security], "
            "or listen on unix://PATH or 127.0.0.1:PORT"
        )
    if address.path is not None:
        _make_way(address.path)
    before = os.umask(0o177)  # the socket appears with mode 0600 and is never more open than that
    try:
        if security is not None and address.path is None:
            credentials = grpc.ssl_server_credentials([(security.key, security.cert)])
            port = server.add_secure_port(address.target, credentials)
        else:
            port = server.add_insecure_port(address.target)
    except RuntimeError as error:
        raise Unavailable(f"cannot listen on {address.target}: {error}") from None
    finally:
        os.umask(before)
    return address if address.path is not None else Address(host=address.host, port=port)


def _make_way(path: Path) -> None:
    """Remove the socket of a daemon that is gone. One that answers, or another kind of file, stays."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        _make_folder(path.parent)
        return
    except OSError as error:
        raise InvalidInput(f"cannot listen on {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise InvalidInput(f"cannot listen on {path}: there is a file that is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise Unavailable(f"cannot listen on {path}: another daemon answers there")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot listen in {path}: {error.strerror}") from None
