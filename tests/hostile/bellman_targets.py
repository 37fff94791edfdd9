"""bellman's files as targets: the parameters, and the verifying key in both of its spellings."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from hostile import answers, encodings
from hostile.fields import Field, Lie, words
from hostile.maps import BY_ITSELF, few
from hostile.targets import Honest, Target, as_bytes, large

from cuzkd.backend import cpu
from cuzkd.circuits import builtin, checks
from cuzkd.curves.params import CURVES
from cuzkd.formats import affine, bellman, bellman_vk, compressed
from cuzkd.groth16 import prover, setup, verifier
from cuzkd.groth16.keys import Proof, ProvingKey, VerifyingKey

SINGLE = {
    "alpha_g1": "g1", "beta_g1": "g1", "beta_g2": "g2", "gamma_g2": "g2", "delta_g1": "g1", "delta_g2": "g2",
}  # fmt: skip
LISTS = {"h": "g1", "l": "g1", "a": "g1", "b1": "g1", "b2": "g2"}
# What may be wrong with a point by itself.
POINT = words(
    "curve, compressed, as compressed, sorted, infinity and more, zero, at infinity, below q, not on"
)


@cache
def bellman_key(curve: str) -> ProvingKey:
    """For one round of the built-in chain, of the bellman reduction."""
    return setup.setup(builtin.constraints(curve, 1), reduction="bellman")


def _head(curve: str) -> Iterator[Field]:
    """The verifying key, at the beginning of both files."""
    at, data = 0, as_bytes(".vk", lambda path: bellman_vk.write_vk(path, bellman_key(curve)))
    of_key = words(
        "phase 2, pairing, vkey, rejected, transcript, same, cut, count, length, other curve, point"
    )
    for name, group in SINGLE.items():
        spelling = encodings.bellman(curve, group)
        yield Field(name, "point", at, spelling.size, POINT | of_key, "big", spelling)
        at += spelling.size
    (n,) = struct.unpack_from(">I", data, at)
    yield Field("ic", "number", at, 4, POINT | words("count, length, no IC, cut, list, rejected"), "big")
    spelling = encodings.bellman(curve, "g1")
    for k in few(n):
        where = at + 4 + k * spelling.size
        allowed = POINT | words("point, vkey, rejected, off the curve")
        yield Field(f"ic[{k}]", "point", where, spelling.size, allowed, "big", spelling)


def _lists(data: bytes, curve: str, at: int) -> Iterator[Field]:
    found = {what: BY_ITSELF[what] for what in ("outside the subgroup", "coordinate 0 + 1")}
    for name, group in LISTS.items():
        spelling = encodings.bellman(curve, group)
        (n,) = struct.unpack_from(">I", data, at)
        answer = POINT | words("count, list, cut, b1 and b2, transcript, point, fit, B1 is B2")
        yield Field(f"{name}: count", "number", at, 4, answer, "big")
        for k in few(n):
            where, allowed = (
                at + 4 + k * spelling.size,
                POINT | words("point, fit, B1 is B2, of C, true"),
            )
            yield Field(f"{name}[{k}]", "point", where, spelling.size, allowed, "big", spelling, found)
        at += 4 + n * spelling.size


def params_target(made: Callable[[], Honest]) -> Target:
    """Opened with its constraints, looked at as the registry does, proved with."""
    honest = made()
    curve, key = honest.vk.curve, bellman_key(honest.vk.curve)
    constraints, vk = key.constraints, key.vk
    data = as_bytes(".params", lambda path: bellman.write_params(path, key))
    begin = len(as_bytes(".vk", lambda path: bellman_vk.write_vk(path, key)))
    fields = [*_head(curve), *_lists(data, curve, begin)]

    def read(path: Path) -> ProvingKey:
        found = bellman.open_params(path, constraints).load()
        checks.require_sound(found, found.blocks, str(path), vk)
        return found

    def use(found: ProvingKey) -> str | None:
        proof = prover.prove(cpu.CpuBackend(), found, honest.witness)
        return answers.TRUE if verifier.verify(vk, proof, honest.publics) else None

    def more() -> Iterator[Lie]:
        delta = data[fields[4].at : fields[4].end]
        width = 3 * len(delta) + 2 * len(delta) + 64
        for n in (1, 3):
            body = bytes(64) + struct.pack(">I", n) + bytes(width * (n - 1))
            yield Lie(f"{n} contributions", data + body + delta + bytes(width - len(delta)), words("same"))
            yield Lie(f"{n} of another delta", data + body + bytes(width), words("transcript"))
            yield Lie(
                f"{n} that claim more",
                data + body[:64] + struct.pack(">I", n + 1) + bytes(width),
                words("same"),
            )
        yield Lie("a byte behind", data + b"?", words("same"))
        yield Lie("the file twice", data + data, words("same"))
        other = bellman_key(next(name for name in CURVES if name != curve))
        of_other = as_bytes(".params", lambda path: bellman.write_params(path, other))
        yield Lie("a key over the other curve", of_other, words("other curve"))
        for name in ("ic", "h", "l", "a", "b1"):
            shorter = _a_point_less(data, curve, begin, {name, "b2"} if name == "b1" else {name})
            yield Lie(f"a point less in {name}", shorter, words("list"))

    return Target(
        "params", honest.name, ".params", data, fields, answers.PARAMS, read,
        lambda found: found.digest() == key.digest(), use,
        cut=words("empty, cut, count, curve"), more=more, secrets=large(honest.witness),
    )  # fmt: skip


def _a_point_less(data: bytes, curve: str, head_bytes: int, names: set[str]) -> bytes:
    """The file with the last point of some lists left out, and counts that say so."""
    g1 = encodings.bellman(curve, "g1").size
    at = sum(encodings.bellman(curve, group).size for group in SINGLE.values())
    out, sizes = (
        data[:at],
        {"ic": g1} | {name: encodings.bellman(curve, group).size for name, group in LISTS.items()},
    )
    for name, size in sizes.items():
        (n,) = struct.unpack_from(">I", data, at)
        points = data[at + 4 : at + 4 + n * size]
        if name in names:
            n, points = n - 1, points[:-size]
        out += struct.pack(">I", n) + points
        at = head_bytes if name == "ic" else at + 4 + (n + (name in names)) * size
    return out


def vk_target(made: Callable[[], Honest]) -> Target:
    """Read, and judged by whether an honest proof convinces under it."""
    honest = made()
    curve, key = honest.vk.curve, bellman_key(honest.vk.curve)
    data = as_bytes(".vk", lambda path: bellman_vk.write_vk(path, key))
    return _vk(honest, data, list(_head(curve)), answers.VK, None)


def compressed_vk_target(made: Callable[[], Honest]) -> Target:
    """The spelling of polka-storage."""
    honest = made()
    curve, key = honest.vk.curve, bellman_key(honest.vk.curve)
    vk, data, fields = key.vk, b"", []
    points = (vk.alpha_g1, key.beta_g1, vk.beta_g2, vk.gamma_g2, key.delta_g1, vk.delta_g2)
    allowed = words(
        "not compressed, infinity and more, at infinity, below q, no such x, curve, rejected, same, cut, count"
    )

    def put(name: str, group: str, point: object) -> None:
        nonlocal data
        fields.append(Field(f"{name}: flags", "flags", len(data), 1, allowed, "big"))
        for half in range(0, 48 if group == "g1" else 96, 48):
            at = len(data) + half
            fields.append(
                Field(f"{name}: coordinate at {half}", "compressed", at, 48, allowed, "big", (curve, half))
            )
        if group == "g1":
            data += compressed.encode_g1(affine.g1_from_array(curve, point))
        else:
            data += compressed.encode_g2(affine.g2_from_array(curve, point))

    for (name, group), point in zip(SINGLE.items(), points, strict=True):
        put(name, group, point)
    fields.append(Field("ic", "number", len(data), 4, words("count, length, no IC, not compressed"), "big"))
    data += struct.pack(">I", len(vk.ic))
    for i, point in enumerate(vk.ic):
        put(f"ic[{i}]", "g1", point)
    whole = [
        (f.at, 96 if any(g.name == f"{f.name[:-7]}: coordinate at 48" for g in fields) else 48)
        for f in fields
    ]
    infinite = [
        Lie(f"infinity at {at}", data[:at] + b"\xc0" + bytes(size - 1) + data[at + size :], allowed)
        for f, (at, size) in zip(fields, whole, strict=True)
        if f.kind == "flags"
    ]
    return _vk(honest, data, fields, answers.COMPRESSED_VK, None, infinite)


def _vk(
    honest: Honest,
    data: bytes,
    fields: list[Field],
    table: answers.Table,
    curve: str | None,
    others: Sequence[Lie] = (),
) -> Target:
    key = bellman_key(honest.vk.curve)
    proof: Proof = prover.prove(cpu.CpuBackend(), key, honest.witness)

    def use(vk: VerifyingKey) -> str | None:
        # beta_g1 and delta_g1 are not for verifiers: where one of them lies, the same key is read.
        return None if verifier.verify(vk, proof, honest.publics) else answers.REJECTED

    def more() -> Iterator[Lie]:
        yield from others
        yield Lie("a byte behind", data + b"?", words("length"))
        yield Lie("the file twice", data + data, words("length"))

    return Target(
        "vk" if table is answers.VK else "compressed vk", honest.name, ".vk", data, fields, table,
        lambda path: bellman_vk.read_vk(path, curve), lambda vk: vk.digest() == key.vk.digest(), use,
        unnamed=words("off the curve, phase 2"), cut=words("empty, cut, count, curve"), more=more,
    )  # fmt: skip
