"""For mistakes.py and narrow_setup.py: the fixture of the tests of the GPU. It finds the emulated one (plugin.py)."""

from gpu.conftest import gpu  # noqa: F401
