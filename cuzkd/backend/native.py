"""The native module and its builds: which ones this processor can run, and which one this process uses.

Problem: a wheel travels to processors with different instructions, and tests want each build on one machine.
Design: the same sources are compiled several times (kernels/CMakeLists.txt); the first of BUILDS whose processor flags
are all there is taken. The environment variable CUZKD_NATIVE names another one, for tests and comparisons; provers
inherit it. The operating system's part is in the flags, too: Linux hides those whose registers it does not save.
"""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from cuzkd.errors import InvalidInput

VARIABLE = "CUZKD_NATIVE"
# What AVX-512 brings with it: compilers use these as well.
VECTORS = ["avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512ifma"]
# Best first: name -> module, and the flags of /proc/cpuinfo that it needs.
BUILDS = {
    "ifma": ("_native_ifma", ["bmi2", "adx", *VECTORS]),
    "adx": ("_native_adx", ["bmi2", "adx"]),
    "portable": ("_native", []),
}


def cpuinfo(field: str) -> str:
    """First value of a field of /proc/cpuinfo, or nothing."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith(field):
                return line.partition(":")[2].strip()
    return ""


def missing_flags(build: str) -> list[str]:
    """What this processor lacks for a build."""
    has = set(cpuinfo("flags").split())
    return [flag for flag in BUILDS[build][1] if flag not in has]


def usable() -> list[str]:
    """The builds that this processor can run, best first. Whether they were compiled is another matter."""
    return [build for build in BUILDS if not missing_flags(build)]


def load(build: str) -> Any:
    """The module of one build. Raises InvalidInput where this processor cannot run it, ImportError if it is missing."""
    _require_runs(build)
    return importlib.import_module(f"cuzkd.kernels.{BUILDS[build][0]}")


def asked(environment: str | None = None) -> str:
    """The build that CUZKD_NATIVE (or `environment`) names, "" for none. Loads nothing: the front may ask, too.

    Raises InvalidInput for a name that is no build's, and when this processor cannot run it.
    """
    name = os.environ.get(VARIABLE, "") if environment is None else environment
    if name and name not in BUILDS:
        raise InvalidInput(f"{VARIABLE}: expected one of {', '.join(BUILDS)}, got '{name}'")
    if name:
        _require_runs(name)
    return name


def _require_runs(build: str) -> None:
    if missing := missing_flags(build):
        raise InvalidInput(f"native build '{build}': this processor has no {', '.join(missing)}")


def chosen(environment: str | None = None) -> tuple[str, Any]:
    """Name and module of the build that is asked for, else of the best one that loads. Raises as asked() and load().

    One that is asked for and missing is InvalidInput: an ImportError means that there is no native module, and who
    can do without takes plain ints then.
    """
    if name := asked(environment):
        try:
            return name, load(name)
        except ImportError as error:
            raise InvalidInput(f"native build '{name}': it does not load: {error}") from None
    *faster, last = usable()
    for build in faster:
        with suppress(ImportError):
            return build, load(build)
    return last, load(last)
