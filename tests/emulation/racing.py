"""Kernels whose threads run at the same time, watched by ThreadSanitizer: races.hpp in cuda.hpp's place.

In a process that has loaded it before all else:

LD_PRELOAD=$(g++ -print-file-name=libtsan.so) PYTHONPATH=tests setarch -R pytest -p emulation.plugin --emulated lazy \
    --races -m gpu tests/gpu/test_tree.py
"""

import os
from pathlib import Path

from emulation import kernels


def install():
    """From now on in this process. What it starts, compilers above all, is not watched."""
    os.environ.pop("LD_PRELOAD", None)
    kernels.HEADER = Path(__file__).with_name("races.hpp")
    kernels._flags = (*kernels.FLAGS, "-g1", "-fsanitize=thread", "-pthread")
    kernels.version.cache_clear()
