"""CUDA modules from the sources in kernels/gpu: named, compiled with NVRTC, kept in a folder of compiled
code.

Problem: every GPU needs machine code of its own architecture, and NVRTC takes seconds for a module of point
arithmetic; no proof may wait for that, and code made from older sources must never be used.
Design: a `Module` is one .cu file with the types it is compiled for. All modules that a curve needs are
compiled at once, one thread each (NVRTC runs without the GIL), straight to a cubin: that needs neither a GPU
nor its driver, so the tests compile every module on any machine that has an NVRTC library. Compiled code lies
in a private folder under a name that is a digest of everything that went into it: all sources and headers
(those reached through an include, too), options, architecture and NVRTC's version, but not of where the sources
lie: a folder that was filled on one machine serves another. The digest of the sources is also given to the compiler
as a macro, so that no other cache on the way can mistake one for another.
Life of the data: sources in the installed package -> cubin bytes -> file, written under another name and
moved into place -> cuda_device loads the file into the driver.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cuzkd import errors

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
CURVE_TYPES = {"bn254": "Bn254", "bls12_381": "Bls12_381"}
GROUP_TYPES = {"g1": "G1", "g2": "G2"}
FIELD_TYPES = {"fr": "Fr", "fq": "Fq", "fq2": "Fq2"}


@dataclass(frozen=True)
class Module:
    """One translation unit: a file of kernels/gpu for a curve and, where it is about one, a group or a
    field."""

    source: str
    curve: str
    group: str | None = None
    field: str | None = None

    @property
    def name(self) -> str:
        return ".".join(part for part in (self.source, self.curve, self.group, self.field) if part)

    @property
    def path(self) -> Path:
        return KERNELS / "gpu" / f"{self.source}.cu"

    def options(self, arch: str) -> tuple[str, ...]:
        """What NVRTC is given; arch as in sm_90. CUZKD_DEFINES in the environment, such as "A=1 B=2", sets constants
        of the kernels that are macros with a default: to measure them.
        """
        named = [f"-DCUZKD_CURVE={CURVE_TYPES[self.curve]}"]
        if self.group:
            named.append(f"-DCUZKD_GROUP={GROUP_TYPES[self.group]}")
        if self.field:
            named.append(f"-DCUZKD_FIELD={FIELD_TYPES[self.field]}")
        return (
            f"--gpu-architecture={arch}",
            "--std=c++17",
            f"-I{KERNELS}",
            f"-I{KERNELS / 'gpu'}",
            f"-DCUZKD_SOURCES={source_digest()}",
            *named,
            *(f"-D{define}" for define in os.environ.get("CUZKD_DEFINES", "").split()),
        )


def proving_modules(curve: str) -> list[Module]:
    """What a proof on this curve runs, or the loading of a key."""
    plain = [Module(source, curve) for source in ("ntt", "quotient", "density", "digits", "rounds", "rows")]
    sums = [Module(source, curve, group=group) for source in ("tree", "msm") for group in GROUP_TYPES]
    return [*plain, *sums, Module("tables", curve, group="g1")]


def law_modules(curve: str) -> list[Module]:
    """What only the plain operations of the protocol and benches run."""
    fields = [Module("fields", curve, field=field) for field in FIELD_TYPES]
    points = [Module("points", curve, group=group) for group in GROUP_TYPES]
    chains = [Module("chains", curve, field=field) for field in ("fr", "fq")]
    return [*fields, *points, *chains, Module("tables", curve, group="g2")]


def setup_modules(curve: str) -> list[Module]:
    """What only the making of a development key runs."""
    return [Module("setup", curve), *(Module("multiples", curve, group=group) for group in GROUP_TYPES)]


def all_modules() -> list[Module]:
    kinds = (proving_modules, law_modules, setup_modules)
    return [m for curve in CURVE_TYPES for kind in kinds for m in kind(curve)]


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Hexadecimal digest of every kernel source and header, names included."""
    digest = hashlib.sha256()
    for path in sorted([*KERNELS.glob("*.cuh"), *KERNELS.glob("gpu/*.cuh"), *KERNELS.glob("gpu/*.cu")]):
        digest.update(f"{path.relative_to(KERNELS)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def version() -> tuple[int, int]:
    """(major, minor) of the NVRTC library in use. Unavailable when there is none."""
    try:
        from cupy_backends.cuda.libs import nvrtc

        major, minor = nvrtc.getVersion()
    except Exception as error:  # no cupy, no library, or one that does not load: each has its own type
        raise errors.Unavailable(
            f"no NVRTC library: {type(error).__name__}: {error}. The extras cuda12 and cuda13 bring one"
        ) from error
    return int(major), int(minor)


def compile_module(module: Module, arch: str) -> bytes:
    """The module's cubin for an architecture (sm_80, sm_90, ...). Needs no GPU.

    Unavailable, with log, options and numbered source, when it does not compile.
    """
    version()
    from cupy_backends.cuda.libs import nvrtc

    source = module.path.read_text()
    options = module.options(arch)
    program = nvrtc.createProgram(source, f"{module.source}.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError as error:
            raise errors.Unavailable(
                _explain(module, options, source, nvrtc.getProgramLog(program))
            ) from error
        return bytes(nvrtc.getCUBIN(program)) + b"\0"  # CuPy cuts off a byte, as if it ended a string
    finally:
        nvrtc.destroyProgram(program)


def _explain(module: Module, options: tuple[str, ...], source: str, log: str) -> str:
    lines = (f"{number:4} {line}" for number, line in enumerate(source.splitlines(), 1))
    return "\n".join(
        [
            f"{module.name} does not compile with NVRTC {version()}:",
            log,
            "options:",
            *options,
            "source:",
            *lines,
        ]
    )


def default_cache_dir() -> Path:
    """$CUPY_CACHE_DIR, or cuzkd/kernels under $XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("CUPY_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuzkd" / "kernels"


class CubinCache:
    """Compiled modules of one architecture in a folder that is ours alone (mode 0700)."""

    def __init__(self, arch: str, folder: Path | None = None) -> None:
        self.arch = arch
        self.folder = folder or default_cache_dir()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            where = "a folder that can be written"
            raise errors.Unavailable(f"compiled kernels: {error}; set CUPY_CACHE_DIR to {where}") from error

    def path(self, module: Module) -> Path:
        """Where the module's cubin lies, or would lie."""
        digest = hashlib.sha256()
        options = (option for option in module.options(self.arch) if not option.startswith("-I"))
        for part in (source_digest(), str(version()), *options):
            digest.update(part.encode() + b"\0")
        return self.folder / f"{module.name}.{self.arch}.{digest.hexdigest()[:32]}.cubin"

    def missing(self, modules: Iterable[Module]) -> list[Module]:
        """Those that are not there yet."""
        return [module for module in modules if not self.path(module).exists()]

    def get(self, module: Module) -> Path:
        """The module's cubin, compiled first where it is not there yet."""
        path = self.path(module)
        if not path.exists():
            code = compile_module(module, self.arch)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=module.name, delete=False) as made:
                made.write(code)
            Path(made.name).replace(path)  # other processes see a whole file or none
        return path

    def get_all(self, modules: Iterable[Module], threads: int | None = None) -> dict[Module, Path]:
        """The cubins of several modules, compiled at the same time on up to `threads` threads (all cores)."""
        wanted = list(modules)
        workers = max(1, min(threads or os.cpu_count() or 1, len(wanted)))
        with ThreadPoolExecutor(workers, thread_name_prefix="nvrtc") as pool:
            return dict(zip(wanted, pool.map(self.get, wanted), strict=True))
