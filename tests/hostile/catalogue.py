"""Every target, by the format and by the name of its honest file. Nothing is made before it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from hostile import bellman_targets, other_targets, r1cs_target, state_targets
from hostile.targets import KEYS, Target, chain, from_folder, vector, wtns_target, zkey_target

from cuzkd.curves.params import CURVES

# More real keys, up to this size, for the long run: every circuit.zkey below the folder with its .wtns and vkey.json.
EXTRA, LARGEST_BYTES = os.environ.get("CUZKD_ATTACKED_KEYS"), 8 << 20
_EXTRA = {
    f"{path.parent.name}, given": partial(from_folder, path.parent)
    for path in (sorted(Path(EXTRA).rglob("circuit.zkey")) if EXTRA else ())
    if path.stat().st_size <= LARGEST_BYTES and path.with_name("vkey.json").exists()
}
_PROVED = {name: partial(vector, name) for name in ("edge_nopub", "merkle_1k", "merkle_1k_bls12381")}
_CHAINS = {f"chain {curve}": partial(chain, curve) for curve in CURVES}
_BY_FORMAT = {
    "zkey": (zkey_target, KEYS | _EXTRA),
    "wtns": (wtns_target, KEYS | _EXTRA),
    "r1cs": (r1cs_target.r1cs_target, {curve: partial(str, curve) for curve in CURVES}),
    "params": (bellman_targets.params_target, _CHAINS),
    "vk": (bellman_targets.vk_target, _CHAINS),
    "compressed vk": (bellman_targets.compressed_vk_target, {"chain bls12_381": _CHAINS["chain bls12_381"]}),
    "manifest": (state_targets.manifest_target, _CHAINS),
    "key.bin": (state_targets.key_file_target, _CHAINS),
    "proof bytes": (other_targets.bytes_target, _PROVED),
    "proof.json": (other_targets.proof_target, _PROVED),
    "public.json": (other_targets.publics_target, _PROVED),
    "vkey.json": (
        other_targets.vkey_target,
        {name: _PROVED[name] for name in ("merkle_1k", "merkle_1k_bls12381")},
    ),
    "call data": (other_targets.call_data_target, _PROVED),
}
TARGETS: dict[str, dict[str, Callable[[], Target]]] = {
    format: {name: partial(make, made) for name, made in files.items()}
    for format, (make, files) in _BY_FORMAT.items()
}
NAMES = [(format, name) for format, makers in TARGETS.items() for name in makers]


@cache
def target(format: str, name: str) -> Target:
    return TARGETS[format][name]()
