"""Kernels of the emulated device: the sources of cuzkd/kernels/gpu, compiled by g++ behind cuda.hpp.

`version` and `compile_module` take the places of those in backend/nvrtc.py. The cache there keeps shared objects just
as it keeps cubins: each under a digest of all sources, options and the version, which stands for what this folder and
the compiler add.
"""

import ctypes
import hashlib
import re
import subprocess
import tempfile
from functools import cache
from itertools import takewhile
from pathlib import Path
from unittest import mock

import numpy as np
from emulation import streams

from cuzkd.backend import nvrtc

ARCH = (9, 0)  # that the device says it has; no kernel looks
# -O1 takes the least time in all. A longjmp that is checked refuses to leave a stack for another.
FLAGS = ("-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-U_FORTIFY_SOURCE")
HEADER, ROWS = (Path(__file__).with_name(name) for name in ("cuda.hpp", "ptx.hpp"))
KERNEL = re.compile(
    r'^(?:KERNEL|extern "C" __global__ void)\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(', re.M
)


_flags = FLAGS


def with_rows():
    """From now on, products are those of arch_cuda.cuh, over the emulated PTX of ptx.hpp: slower, as on a device."""
    global _flags
    _flags = (*FLAGS, f'-DCUZKD_EMULATE_PTX="{ROWS}"')
    version.cache_clear()


@cache
def version():
    compiler = subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout
    parts = (compiler, " ".join(_flags).encode(), *(p.read_bytes() for p in (HEADER, ROWS, Path(__file__))))
    return int(hashlib.sha256(b"".join(parts)).hexdigest(), 16), 0


def compile_module(module, arch):
    options = [option for option in module.options(arch) if not option.startswith("--gpu")]
    return compile_source(module.path.read_text(), *options)


def compile_source(source, *options):
    """A shared object, as bytes, with all kernels of a CUDA source."""
    entries = "".join(f"EMULATE({name})\n" for name in KERNEL.findall(source))
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        unit, out = Path(folder, "unit.cpp"), Path(folder, "unit.so")
        unit.write_text(f'#include "{HEADER}"\n{source}\n{entries}')
        subprocess.run(["g++", *_flags, *options, str(unit), "-o", str(out)], check=True)
        return out.read_bytes()


def cache_dir():
    """In the folder of the real kernels, but not among them."""
    return nvrtc.default_cache_dir() / "emulated"


def compile_all():
    """Every module that is not in the cache yet, on all processors."""
    with mock.patch.multiple(nvrtc, version=version, compile_module=compile_module):
        nvrtc.CubinCache("sm_{}{}".format(*ARCH), cache_dir()).get_all(nvrtc.all_modules())


class RawModule:
    """Of cupy."""

    def __init__(self, *, path):
        self._library = ctypes.CDLL(path)

    def get_function(self, name):
        sizes = self._library[f"sizes_{name}"]
        sizes.restype = ctypes.POINTER(ctypes.c_int)
        return _Kernel(name, self._library[f"launch_{name}"], list(takewhile(bool, sizes())))


class _Kernel:
    def __init__(self, name, launch, sizes):
        self._name, self._launch, self._sizes = name, launch, sizes
        self.max_dynamic_shared_size_bytes = 0
        self.shared_size_bytes = 0  # what it declares is on the stack here

    def __call__(self, grid, block, arguments, shared_mem=0):
        """grid: (x,) or (x, y); block: (threads,); arguments: NumPy scalars as wide as the parameters.
        shared_mem: bytes that a kernel may have, having asked for if they are many; how many it uses is not seen.
        """
        most = max(48 << 10, self.max_dynamic_shared_size_bytes)
        assert shared_mem <= most <= 227 << 10, (self._name, shared_mem, most)
        schedule, (x, y), (threads,) = streams.schedule, (*grid, 1)[:2], block
        assert 0 < x < 1 << 31 and 0 < y < 1 << 16 and 0 < threads <= 1024, (self._name, grid, block)
        assert [value.itemsize for value in arguments] == self._sizes, (self._name, arguments, self._sizes)
        values = [np.array([value]) for value in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        shape = (ctypes.c_uint * 2)(x, y)

        def run(values=values):  # which `pointers` needs alive
            self._launch(pointers, shape, threads, schedule.backwards())

        schedule.issue(streams.current_stream(), run)
