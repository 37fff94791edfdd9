"""Places for tests of faults."""

import pytest
from faults.harness import Place, Template


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    return Template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def place(template, tmp_path):
    """make(**settings) -> a Place that is not started yet; whatever is left of it is gone after the test."""
    made = []

    def make(**settings):
        made.append(Place(tmp_path / f"place-{len(made)}", template, **settings))
        return made[-1]

    yield make
    for one in made:
        one.wreck()
