"""snarkjs, as the conformance tests have it."""

from conformance.conftest import call_snarkjs  # noqa: F401
