"""The description of an added circuit: small, readable JSON beside its prepared key.

Problem: a daemon must be able to list circuits, judge a job and refuse a damaged key without reading
gigabytes.
Design: one frozen record. It holds the counts that admission needs, the table of sections of the key file,
and a blake2b digest for every 64 MiB of it. `digest` names the key's content, whatever the circuit is called;
it is computed from everything in here that says what is proved, so nothing can be altered and keep its name.
Life of data: written once when the circuit is added, and never changed; a new key is a new circuit.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from cuzkd.errors import InvalidInput, InvalidKey

VERSION = 1
CHUNK_BYTES = 64 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def require_name(name: str) -> str:
    """The name itself if it may name a circuit, else InvalidInput."""
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"circuit name {name[:80]!r}: expected 1 to 64 of letters, digits, '.', '_', '-', "
            "the first of them a letter or a digit"
        )
    return name


@dataclass(frozen=True)
class SectionEntry:
    """One array in the key file: `dtype` "uint64" or "uint32", C order, at a page boundary."""

    name: str
    offset: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """What is known of a circuit without opening its key.

    digest        hex, names the key's content (not the circuit's name)
    constraint_check  "checked": C is known, a witness is checked row by row; "derived": the key came without
    C
    key_bytes     length of the key file; resident_bytes: the arrays in it, without padding
    chunk_digests hex blake2b-256 of each 64 MiB of the key file
    source        what it was made from, for people ("circuit.zkey"), never used to find anything
    """

    name: str
    digest: str
    curve: str
    n_constraints: int
    n_public: int
    n_wires: int
    log_domain: int
    root_family: int
    reduction: str
    constraint_check: str
    n_coefficients: int
    key_bytes: int
    resident_bytes: int
    chunk_bytes: int
    chunk_digests: tuple[str, ...]
    sections: tuple[SectionEntry, ...]
    source: str
    version: int = VERSION

    @property
    def n_rows(self) -> int:
        """Rows of A and B: the constraints, and the rows that bind the public wires."""
        return self.n_constraints + self.n_public + 1

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def content_digest(record: dict[str, Any]) -> str:
    """The digest of a manifest's content: all fields but the name, the source and the digest itself."""
    content = {k: v for k, v in record.items() if k not in {"name", "source", "digest"}}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=32).hexdigest()


def make(**known: Any) -> Manifest:
    """A manifest with its digest filled in."""
    draft = Manifest(digest="", **known)
    return Manifest(digest=content_digest(asdict(draft)), **known)


def from_json(text: str, where: str) -> Manifest:
    """Read a manifest strictly. where: its path, for messages. Raises InvalidKey."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise InvalidKey(f"{where}: is not JSON: {error}") from error
    if not isinstance(record, dict) or record.get("version") != VERSION:
        found = record.get("version") if isinstance(record, dict) else type(record).__name__
        raise InvalidKey(
            f"{where}: expected a manifest of version {VERSION}, found {found}; add the circuit again"
        )
    wanted = {f.name: f.type for f in fields(Manifest)}
    if record.keys() != wanted.keys():
        raise InvalidKey(f"{where}: fields missing or unknown: {sorted(record.keys() ^ wanted.keys())}")
    if record["digest"] != content_digest(record):
        raise InvalidKey(
            f"{where}: content was altered: it has not the digest {record['digest']!r} that it names"
        )
    sections = tuple(SectionEntry(**{**s, "shape": tuple(s["shape"])}) for s in record["sections"])
    return Manifest(**{**record, "sections": sections, "chunk_digests": tuple(record["chunk_digests"])})
