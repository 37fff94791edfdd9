"""Faults that are known and not yet mended: each of these tests fails, and says so when it does not any more."""

import pytest
from hostile.catalogue import target

from cuzkd.errors import InvalidWitness
from cuzkd.formats import wtns


@pytest.mark.xfail(
    strict=True, reason="the number found in the place of the prime is printed, and may be a value"
)
def test_no_value_stands_in_for_the_prime(tmp_path):
    """Of a witness whose parts are shifted: what lies where the prime should be is a value of the witness."""
    honest = target("wtns", "edge_pub100")
    secret = honest.secrets[0]
    path = tmp_path / "shifted.wtns"
    path.write_bytes(honest.data[:28] + secret.to_bytes(32, "little") + honest.data[60:])
    with pytest.raises(InvalidWitness) as caught:
        wtns.read_header(path)
    assert str(secret) not in str(caught.value)
