"""Whose processor works while no device does.

Problem. Where the processor may stand in for a device that is left alone, several devices that fail would have as many
processes share its cores, beside devices that do well without it. Design. One at most, and only while no device works:
the one that does so already, until its process is gone; else the prover that has just lost its device, which waits for
nothing; else the first one whose device is left alone. All others wait for the end of their quarantines. Pure.
Life. Asked after each change of a prover, and on every tick.
"""

from __future__ import annotations

from collections.abc import Mapping

from cuzkd.engine.fleet.ward import Ward


def elect(wards: Mapping[str, Ward], current: str, latest: str) -> str:
    """The prover whose processor may work, "" for none. current: who could so far. latest: who has just changed."""
    if any(ward.works() for ward in wards.values()):
        return ""
    left_alone = [name for name, ward in wards.items() if ward.left_alone()]
    for name in (current, latest, *left_alone):
        if name in left_alone:
            return name
    return ""
