"""What was found in a file, as it is found: so that of a broken one there is still what could be read.

Life of data: an inspection fills it in; the command line prints it as text or as JSON. It never holds a value of a
witness or of an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidKey
from cuzkd.formats import affine
from cuzkd.groth16.keys import VerifyingKey

Fact = bool | int | float | str | Sequence[str]  # a float is a share of 1


@dataclass
class Findings:
    """facts: by name, in order. sections: the parts of a file in its order, as rows of named columns; a column may be
    missing in a row. warnings: what makes the file dangerous, though it can be read. problem: why reading ended, "" if
    it came to its end.
    """

    path: str
    kind: str = "unknown"
    nbytes: int = 0
    facts: dict[str, Fact] = field(default_factory=dict)
    sections: list[dict[str, Fact]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problem: str = ""

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def section(self, name: str) -> dict[str, Fact]:
        """The row of that name; a new one if there is none yet."""
        for row in self.sections:
            if row.get("section") == name:
                return row
        self.sections.append({"section": name})
        return self.sections[-1]

    def verifying_key(self, vk: VerifyingKey) -> None:
        """What it says of a key, and whether it is secure."""
        generator = affine.g2_to_array(vk.curve, CURVES[vk.curve].g2)
        self.facts["public"] = vk.n_public
        self.facts["gamma is the generator"] = bool(np.array_equal(vk.gamma_g2, generator))
        self.facts["verifying key digest"] = vk.digest()
        try:
            vk.require_secure()
        except InvalidKey as error:
            self.warnings.append(f"INSECURE: {error}")
