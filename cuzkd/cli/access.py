"""How commands reach a daemon: its address, and what proves who is who."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cuzkd import config
from cuzkd.errors import InvalidInput

if TYPE_CHECKING:
    from cuzkd.client import Access, Client


def client(args: argparse.Namespace) -> Client:
    from cuzkd.client import Client

    return Client(args.address, _access(args.ca, args.token_file))


def _access(ca: Path | None, token_file: Path | None) -> Access | None:
    from cuzkd.client import Access

    if ca is None and token_file is None:
        return None
    if ca is None or token_file is None:
        raise InvalidInput("--ca and --token-file belong together")
    try:
        return Access(ca.read_bytes(), _token(token_file.read_text(), token_file))
    except OSError as error:
        flag = "--ca" if error.filename == str(ca) else "--token-file"
        raise InvalidInput(f"{flag} {error.filename}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"--token-file {token_file}: is no text") from None


def _token(text: str, where: Path) -> str:
    """The one token of a file: alone, or behind its owner's name as in the daemon's own file."""
    words = text.split()
    if len(text.strip().splitlines()) != 1 or len(words) > 2:
        raise InvalidInput(f"--token-file {where}: expected one line, TOKEN or NAME TOKEN")
    return words[-1]


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--address",
        default=config.Daemon().listen,
        help="the daemon's address: unix://PATH or HOST:PORT (default: %(default)s)",
    )
    command.add_argument("--ca", type=Path, help="its CA certificate, where it speaks TLS")
    command.add_argument("--token-file", type=Path, help="file with the bearer token, where it wants one")
