"""Files changed at random: no reader crashes on one, and none is taken for what it is not.

A file is well answered when a cuzkd error refuses it, in the words of one row of its format's table; or the same is
read as from the honest file; or what was read makes nothing false when put to work: a key's proof for the honest
witness does not verify (and never leaves `prove`), or it verifies under the honest verification key, and then it is a
true proof; a changed proof, statement or verification key is rejected by the verifier.
"""

import pytest
from hostile.catalogue import NAMES, target
from hostile.mutate import mutations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(("format", "name"), NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_files_are_well_answered(format, name, data, tmp_path_factory):
    attacked = target(format, name)
    changed = data.draw(mutations(attacked.data, attacked.fields))
    path = tmp_path_factory.getbasetemp() / f"changed{attacked.suffix}"
    path.write_bytes(changed)
    attacked.answer(path)  # raises for a wrong answer
