"""Places as for tests of faults."""

from faults.conftest import place, template

__all__ = ["place", "template"]
