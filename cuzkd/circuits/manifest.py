"""The description of an added circuit: small, readable JSON beside its prepared key.

Problem: a daemon must be able to list circuits, judge a job and refuse a damaged key without reading
gigabytes; and whoever reads this file must not be led by its numbers to do so.
Design: one frozen record. It holds the counts that admission needs, the table of arrays of the key file with
a blake2b digest for every 64 MiB of each, and the digest of the witness calculator. `digest` names the content,
whatever the circuit is called; it is computed from everything in here but the names, so nothing can be altered
and keep its name. It is no signature: whoever can write here can make another record. So types and bounds are
checked too, and the arrays must follow each other and fill the key file.
Life of data: written once when the circuit is added, and never changed; a new key is a new circuit.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from cuzkd.backend.protocol import REDUCTIONS, ROOT_FAMILIES
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, InvalidKey
from cuzkd.formats import json_depth

VERSION = 2
PAGE = 4096
CHUNK_BYTES = 64 << 20
MAX_DEPTH = 8  # of the JSON; what we write has four
ITEM_BYTES: Mapping[str, int] = {"uint64": 8, "uint32": 4}
CHECKS = ("checked", "derived")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
MAX_BYTES = 1 << 50  # of a key file: what is above is a lie


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
    """One array in the key file: `dtype` "uint64" or "uint32", C order, from a page boundary.

    It lies in whole pages of its own, what it leaves of the last one is zero. chunk_digests: hex blake2b-256 of each
    64 MiB of these pages.
    """

    name: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    chunk_digests: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def page_bytes(self) -> int:
        """Bytes of its pages, in the file as in memory."""
        return -(-self.nbytes // PAGE) * PAGE


@dataclass(frozen=True)
class Manifest:
    """What is known of a circuit without opening its key.

    digest        hex, names the content (not the circuit)
    constraint_check  "checked": C is known, a witness is checked row by row; "derived": the key came without C
    key_bytes     length of the key file, and of all its arrays in memory
    calculator    hex blake2b-256 of the witness calculator (.wasm); "" where there is none
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
    sections: tuple[SectionEntry, ...]
    calculator: str
    source: str
    version: int = VERSION

    @property
    def n_rows(self) -> int:
        """Rows of A and B: the constraints, and the rows that bind the public wires."""
        return self.n_constraints + self.n_public + 1

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def content_digest(record: Mapping[str, Any]) -> str:
    """The digest of a manifest's content: all fields but the name, the source and the digest itself."""
    content = {k: v for k, v in record.items() if k not in {"name", "source", "digest"}}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=32).hexdigest()


def make(**known: Any) -> Manifest:
    """A manifest with its digest filled in."""
    draft = Manifest(digest="", **known)
    return Manifest(digest=content_digest(asdict(draft)), **known)


def from_json(text: str, where: str) -> Manifest:
    """Read a manifest strictly. where: its path, for messages. Raises InvalidKey."""
    if json_depth.is_deeper(text, MAX_DEPTH):
        raise InvalidKey(f"{where}: is not JSON of ours: nested deeper than {MAX_DEPTH}")
    try:
        record = json.loads(text)
    except ValueError as error:
        raise InvalidKey(f"{where}: is not JSON: {error}") from error
    if not isinstance(record, dict) or record.get("version") != VERSION:
        found = record.get("version") if isinstance(record, dict) else type(record).__name__
        raise InvalidKey(
            f"{where}: expected a manifest of version {VERSION}, found {found}; add the circuit again"
        )
    wanted = {f.name for f in fields(Manifest)}
    if record.keys() != wanted:
        raise InvalidKey(f"{where}: fields missing or unknown: {sorted(record.keys() ^ wanted)}")
    if record["digest"] != content_digest(record):
        raise InvalidKey(
            f"{where}: content was altered: it has not the digest {record['digest']!r} that it names"
        )
    _require_possible(record, where)
    sections = tuple(_section(entry, where) for entry in record["sections"])
    _require_filled(sections, record["key_bytes"], where)
    return Manifest(**{**record, "sections": sections})


def _require_possible(record: Mapping[str, Any], where: str) -> None:
    """Types and bounds of what a manifest says, so that nothing is sized by a number that cannot be."""

    def require(name: str, good: bool, expected: str) -> None:
        if not good:
            raise InvalidKey(f"{where}: {name}: expected {expected}, found {str(record[name])[:80]!r}")

    for field in fields(Manifest):
        kind = {"int": int, "str": str}.get(str(field.type), list)
        require(field.name, type(record[field.name]) is kind, f"a {kind.__name__}")
    require("curve", record["curve"] in CURVES, f"one of {', '.join(CURVES)}")
    two_adicity = CURVES[record["curve"]].two_adicity
    for name, least, most in (
        ("n_public", 0, 1 << 32),
        ("n_wires", record["n_public"] + 1, 1 << 32),
        ("log_domain", 0, two_adicity - 1),
        ("n_constraints", 0, (1 << record["log_domain"] % two_adicity) - record["n_public"] - 1),
        ("n_coefficients", 0, MAX_BYTES),
        ("key_bytes", PAGE, MAX_BYTES),
    ):
        require(name, least <= record[name] <= most, f"{least} to {most}")
    require("root_family", record["root_family"] in ROOT_FAMILIES, f"one of {ROOT_FAMILIES}")
    require("reduction", record["reduction"] in REDUCTIONS, f"one of {', '.join(REDUCTIONS)}")
    require("constraint_check", record["constraint_check"] in CHECKS, f"one of {', '.join(CHECKS)}")
    calculator = record["calculator"]
    require("calculator", not calculator or bool(DIGEST.fullmatch(calculator)), "nothing or a digest")


def _section(entry: Any, where: str) -> SectionEntry:
    try:
        section = SectionEntry(
            **{**entry, "shape": tuple(entry["shape"]), "chunk_digests": tuple(entry["chunk_digests"])}
        )
        good = (
            isinstance(section.name, str)
            and type(section.offset) is int
            and section.dtype in ITEM_BYTES
            and all(type(n) is int and 0 <= n <= MAX_BYTES for n in section.shape)
            and all(isinstance(digest, str) for digest in section.chunk_digests)
        )
    except (TypeError, KeyError):
        good = False
    if not good:
        raise InvalidKey(
            f"{where}: sections: not a layout that this version of cuzkd writes: {str(entry)[:160]}"
        )
    return section


def _require_filled(sections: tuple[SectionEntry, ...], key_bytes: int, where: str) -> None:
    """Arrays follow each other, as many digests as they have chunks, and the last one ends with the file."""
    at = 0
    for section in sections:
        chunks = -(-section.page_bytes // CHUNK_BYTES)
        if section.offset != at or len(section.chunk_digests) != chunks:
            raise InvalidKey(
                f"{where}: section {section.name}: expected {chunks} digests from byte {at}, "
                f"found {len(section.chunk_digests)} from byte {section.offset}"
            )
        at += section.page_bytes
    if at != key_bytes:
        raise InvalidKey(f"{where}: key_bytes: expected {at}, where its sections end, found {key_bytes}")
    if len({section.name for section in sections}) != len(sections):
        raise InvalidKey(f"{where}: sections: a name occurs twice")
