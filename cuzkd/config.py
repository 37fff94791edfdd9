"""Settings: a TOML file, with command-line flags on top.

Problem: a typing error in a setting that is silently ignored costs hours.
Design: each setting is one field of a frozen dataclass, with its default, its parser and its meaning beside
it. Unknown sections and keys, wrong types and sizes that do not parse are errors that name file, section and
key. There is no other source: no environment variables, but for CUZKD_NATIVE (backend/native.py), which is for tests
and comparisons. `deploy/cuzkd.toml` shows all of them; a test keeps it complete.
Life of data: read once at start; parts of it are passed to whom they concern, never the whole.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from cuzkd.errors import InvalidInput

UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
         "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}  # fmt: skip
SPANS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
POLICIES = ("prefer", "require", "cpu", "reference")


def size(value: Any) -> int:
    """Bytes, from an integer or text such as "8GiB" or "1.5 GB". Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in UNITS:
        raise ValueError(f'expected a size such as 1048576 or "8GiB", got {value!r}')
    return int(float(match[1]) * UNITS[match[2].lower()])


def size_or_auto(value: Any) -> int:
    """As size(); "auto" gives 0, which whoever uses it works out."""
    return 0 if value == "auto" else size(value)


def span(value: Any) -> float:
    """Seconds, from a number or text such as "90s" or "5m". Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value) if isinstance(value, str) else None
    if match is None or match[2] not in SPANS_S:
        raise ValueError(f'expected a time such as 30 or "5m", got {value!r}')
    return float(match[1]) * SPANS_S[match[2]]


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}")
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {value!r}")
    return value


def count(least: int) -> Callable[[Any], int]:
    """A parser of whole numbers from `least` up."""

    def parse(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"expected a whole number from {least} up, got {value!r}")
        return value

    return parse


def one_of(*words: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(words)}, got {value!r}")
        return str(value)

    return parse


def path(value: Any) -> Path | None:
    """A path; empty text means none."""
    return Path(text(value)).expanduser() if text(value) else None


def folder(value: Any) -> Path:
    """A path that is there to be named."""
    if (found := path(value)) is None:
        raise ValueError("expected a folder, got empty text")
    return found


def host_port(value: Any) -> str:
    """An address of TCP; empty text means none."""
    host, _, port = text(value).rpartition(":")
    if value and not (host and host != "unix" and port.isascii() and port.isdigit()):
        raise ValueError(f"expected HOST:PORT, got {value!r}")
    return str(value)


def paths(value: Any) -> tuple[Path, ...]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list of folders, got {value!r}")
    found = tuple(Path(text(entry)) for entry in value)
    if relative := [str(p) for p in found if not p.is_absolute()]:
        raise ValueError(f"expected absolute folders, got {relative}")
    return found


def devices(value: Any) -> tuple[str, ...]:
    """UUIDs of GPUs or their beginnings, none of which may be the beginning of another; "first" gives none, "all" stays
    as it is.
    """
    if value in ("first", "all"):
        return () if value == "first" else ("all",)
    if not isinstance(value, list) or not value:
        raise ValueError(
            f'expected "first", "all" or a list of UUIDs as nvidia-smi -L shows them, got {value!r}'
        )
    for entry in value:
        if not re.fullmatch(r"(GPU|MIG)-[0-9a-f-]{4,36}", text(entry)):
            raise ValueError(
                f'expected a UUID as nvidia-smi -L shows it, such as "GPU-4f5a1b2c", got {entry!r}'
            )
    for one, other in itertools.permutations(value, 2):
        if one.startswith(other):
            raise ValueError(f"{one!r} and {other!r} may be the same device")
    return tuple(value)


def setting(parse: Callable[[Any], Any], default: Any) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True)
class Daemon:
    listen: str = setting(text, "unix:///run/cuzkd/cuzkd.sock")
    state_dir: Path = setting(folder, Path("/var/lib/cuzkd"))
    metrics: str = setting(host_port, "")  # HOST:PORT of /metrics and /status; empty = off
    drain_s: float = setting(span, 60.0)  # how long provers may finish what they hold after SIGTERM
    log_level: str = setting(one_of("debug", "info", "warning", "error"), "info")


@dataclass(frozen=True)
class Security:
    tls_cert: Path | None = setting(path, None)
    tls_key: Path | None = setting(path, None)
    token_file: Path | None = setting(path, None)  # the bearer tokens that clients send, and their owners


@dataclass(frozen=True)
class Proving:
    policy: str = setting(one_of(*POLICIES), "prefer")
    devices: tuple[str, ...] = setting(devices, ())  # UUIDs, a prover for each; () = the first, ("all",)
    threads: int = setting(count(0), 0)  # native threads of each prover; 0 = its share of the cores
    max_parallel_synthesis: int = setting(count(1), 1)
    ready_target: int = setting(count(1), 2)
    max_attempts: int = setting(count(1), 3)
    launch_set: int = setting(count(1), 8)  # partitions of one circuit that a device may begin together
    launch_wait_s: float = setting(span, 0.002)  # how long one may wait for others; CRITICAL never does
    vram: int = setting(size_or_auto, 0)  # bytes of a device's memory that its prover uses; 0 = what is free
    tables: bool = setting(flag, True)  # of a key's points, where a device has room for them
    group: int = setting(
        count(1), 16
    )  # partitions of one circuit in a row, while others of its priority wait


@dataclass(frozen=True)
class Memory:
    budget: int = setting(size_or_auto, 0)  # host bytes, pinned ones included; 0 = auto
    slab: int = setting(size_or_auto, 0)  # bytes of one slab of the pool; 0 = learned per circuit
    eviction_min_idle_s: float = setting(span, 300.0)
    wipe: bool = setting(flag, True)
    prewarm: bool = setting(flag, True)


@dataclass(frozen=True)
class Wire:
    max_message: int = setting(size, 256 << 20)
    stream_above: int = setting(size, 4 << 20)
    max_upload: int = setting(size, 64 << 30)
    message_budget: int = setting(size, 512 << 20)  # bytes of large requests being read or handled at once
    upload_expiry_s: float = setting(span, 900.0)
    server_folders: tuple[Path, ...] = setting(
        paths, ()
    )  # beneath them clients may name files of this machine


@dataclass(frozen=True)
class Intake:
    processes: int = setting(count(0), 2)  # that calculate witnesses from inputs; 0 = inputs are refused
    max_waiting: int = setting(count(0), 64)  # of one circuit
    timeout: float = setting(span, 120.0)  # this and the next three: of one calculation
    memory: int = setting(size, 2 << 30)
    max_instructions: int = setting(count(1), 10**12)
    max_input: int = setting(size, 64 << 20)


@dataclass(frozen=True)
class Supervision:
    heartbeat_s: float = setting(span, 20.0)
    quarantine_after: int = setting(count(1), 2)  # failures in a row
    quarantine_s: float = setting(span, 60.0)  # the first one; each further one twice as long
    longest_quarantine_s: float = setting(span, 3600.0)
    least_stage_s: float = setting(span, 900.0)  # no partition is thought to hang before that


@dataclass(frozen=True)
class Queue:
    max_partitions: int = setting(count(1), 10_000)
    result_expiry_s: float = setting(span, 3600.0)
    max_results: int = setting(count(1), 10_000)
    max_result_bytes: int = setting(size, 256 << 20)


@dataclass(frozen=True)
class Config:
    daemon: Daemon = field(default_factory=Daemon)
    security: Security = field(default_factory=Security)
    proving: Proving = field(default_factory=Proving)
    memory: Memory = field(default_factory=Memory)
    wire: Wire = field(default_factory=Wire)
    intake: Intake = field(default_factory=Intake)
    supervision: Supervision = field(default_factory=Supervision)
    queue: Queue = field(default_factory=Queue)


def _sections() -> dict[str, type[Any]]:
    return {entry.name: cast("type[Any]", entry.default_factory) for entry in fields(Config)}


def _section(where: str, name: str, kind: type[Any], values: Any) -> Any:
    if not isinstance(values, Mapping):
        raise InvalidInput(f"{where}: [{name}] must be a section, got {values!r}")
    known: dict[str, Field[Any]] = {entry.name: entry for entry in fields(kind)}
    parsed = {}
    for key, value in values.items():
        if key not in known:
            raise InvalidInput(f"{where}: unknown key {name}.{key}; [{name}] knows: {', '.join(known)}")
        try:
            parsed[key] = known[key].metadata["parse"](value)
        except ValueError as error:
            raise InvalidInput(f"{where}: {name}.{key}: {error}") from None
    return kind(**parsed)


def parse(document: Mapping[str, Any], where: str) -> Config:
    """A Config from a parsed TOML document. where: its name, for messages. Raises InvalidInput."""
    sections = _sections()
    for name in document:
        if name not in sections:
            raise InvalidInput(
                f"{where}: unknown section or key {name}; known sections: {', '.join(sections)}"
            )
    return Config(
        **{name: _section(where, name, kind, document.get(name, {})) for name, kind in sections.items()}
    )


def load(file: Path | None, flags: Mapping[str, Mapping[str, Any]] | None = None) -> Config:
    """The file's settings (defaults where there is none), with flags ({section: {key: value}}) on top.

    Raises InvalidInput for a file that cannot be read or holds anything unknown.
    """
    document: dict[str, Any] = {}
    if file is not None:
        try:
            document = tomllib.loads(file.read_text())
        except OSError as error:
            raise InvalidInput(f"{file}: cannot be read: {error.strerror}") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidInput(f"{file}: is not TOML: {error}") from None
    for section, values in (flags or {}).items():
        base = document.get(section, {})
        document[section] = {**base, **values} if isinstance(base, Mapping) else base
    return parse(document, str(file) if file else "flags")
