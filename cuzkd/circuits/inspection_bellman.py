"""What is in a bellman .params or .vk file. See inspection.py.

Without the constraint system nobody can say which wires the points are of; that they are points can be checked.
"""

from __future__ import annotations

from cuzkd.circuits.findings import Findings
from cuzkd.circuits.inspection_circom import require_good
from cuzkd.formats import bellman, bellman_points, bellman_vk
from cuzkd.formats.files import RawFile
from cuzkd.groth16.keys import VerifyingKey
from cuzkd.groth16.setup import DEVELOPMENT

DEVELOPMENT_NOTE = f"cuzkd {DEVELOPMENT}\n".encode()  # what `cuzkd setup` writes behind the last list


def look_at_params(found: Findings, file: RawFile, points: bool) -> None:
    """points: every point is checked against its curve and subgroup, too."""
    begin = bellman_vk.read_head(file)
    curve = begin.vk.curve
    found.facts |= {"curve": curve, "protocol": "groth16"}
    found.verifying_key(begin.vk)
    places = _lists(found, file, curve, begin.nbytes)
    head = bellman.read_params_head(file.path)
    found.facts |= {
        "domain": head.counts["h"] + 1,
        "private wires": head.counts["l"],
        "bytes after the last list": head.trailing_bytes,
        "contributions": "not listed" if head.transcript is None else head.transcript,
    }
    if _ends_with_note(file, head.trailing_bytes):
        found.warnings.append(f"INSECURE: the file says of itself that it is a {DEVELOPMENT}")
    for name, at in places.items() if points else ():
        _check(file, curve, name, at, head.counts[name])
        found.section(name)["checked"] = "on the curve, order r"


def _ends_with_note(file: RawFile, nbytes: int) -> bool:
    return (
        nbytes == len(DEVELOPMENT_NOTE) and bytes(file.read(file.size - nbytes, nbytes)) == DEVELOPMENT_NOTE
    )


def _lists(found: Findings, file: RawFile, curve: str, at: int) -> dict[str, int]:
    """Where the points of each list begin, as far as the counts go; of a list that is cut, how much there is."""
    found.sections.append({"section": "verifying key", "at byte": 0, "bytes": at})
    places = {}
    for name, group in bellman.LISTS.items():
        if file.size - at < bellman_points.COUNT.size:
            break
        (n,) = bellman_points.COUNT.unpack(file.read(at, bellman_points.COUNT.size))
        at += bellman_points.COUNT.size
        size = n * bellman_points.point_bytes(curve, group)
        places[name] = at
        found.sections.append({"section": name, "at byte": at, "bytes": size, "points": n})
        if size > file.size - at:
            found.sections[-1]["of these bytes there are"] = file.size - at
            break
        at += size
    return places


def look_at_vk(found: Findings, file: RawFile, points: bool) -> None:
    """Both spellings, uncompressed and compressed."""
    vk = bellman_vk.read_vk(file.path)
    found.facts |= {"curve": vk.curve, "compressed": bool(file.read(0, 1)[0] & 0x80)}
    found.verifying_key(vk)
    if points:
        check_key(found, vk)


def check_key(found: Findings, vk: VerifyingKey) -> None:
    """Raises InvalidKey for the first point of a verifying key that is not in its subgroup."""
    for name in ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2"):
        require_good(vk.curve, name[-2:], getattr(vk, name)[None], f"{found.path}: {name}", 0)
    require_good(vk.curve, "g1", vk.ic, f"{found.path}: IC", 0)
    found.facts["points checked"] = True


def _check(file: RawFile, curve: str, name: str, at: int, n: int) -> None:
    """Infinity, where snarkjs has written it as zeros, is as good as any other point."""
    points = bellman_points.PointList(file, name, curve, bellman.LISTS[name], at, n)
    for first in range(0, n, bellman_points.BLOCK_POINTS):
        block = points.read_places(first, min(bellman_points.BLOCK_POINTS, n - first))
        require_good(curve, points.group, block, f"{file.path}: {name}", first)
