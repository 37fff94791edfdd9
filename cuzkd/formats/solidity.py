"""A proof and its public values as arguments of a Solidity verifier, as `snarkjs zkey export soliditycalldata` prints
them: to be pasted into a call of verifyProof(a, b, c, input).

    ["A.x", "A.y"],[["B.x.c1", "B.x.c0"],["B.y.c1", "B.y.c0"]],["C.x", "C.y"],["public 0","public 1",...]

Numbers are hexadecimal with 0x, filled up to 64 digits (those of BLS12-381's base field have up to 96). Fq2 puts c1
first, as the EVM's precompile wants it. Infinity is (0, 0), as there; snarkjs itself prints (0, 1), which no verifier
takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cuzkd.curves import params
from cuzkd.errors import MalformedFile
from cuzkd.formats import affine
from cuzkd.groth16.keys import Proof

_NUMBER = '"0x(?:[0-9a-f]{64}|[1-9a-f][0-9a-f]{64,95})"'
_PAIR = rf"\[{_NUMBER},{_NUMBER}\]"
_TEXT = re.compile(rf"{_PAIR},\[{_PAIR},{_PAIR}\],{_PAIR},\[(?:{_NUMBER}(?:,{_NUMBER})*)?\]", re.ASCII)
_SPACE = re.compile(r"(?<=[],[])\s++|(?<!\s)\s++(?=[],[])")  # each run is looked at once, however long
_DIGITS = re.compile("0x([0-9a-f]+)")
_N_PROOF = 8  # numbers of a proof


def call_data(proof: Proof, publics: Sequence[int]) -> str:
    """What snarkjs prints for public.json and proof.json, without the newline at its end."""
    a, c = (affine.g1_from_array(proof.curve, point) or (0, 0) for point in (proof.a, proof.c))
    x, y = affine.g2_from_array(proof.curve, proof.b) or ((0, 0), (0, 0))
    values = ",".join(_hex(value) for value in publics)
    return f"{_pair(*a)},[{_pair(x[1], x[0])},{_pair(y[1], y[0])}],{_pair(*c)},[{values}]"


def parse_call_data(text: str, where: str, curve: str) -> tuple[Proof, list[int]]:
    """The inverse; white space around commas and brackets means nothing. where: a name for messages.

    Raises MalformedFile for another shape, a coordinate not below q, a point off its curve, a public value not below r.
    """
    dense = _SPACE.sub("", text)
    if not _TEXT.fullmatch(dense):
        raise MalformedFile(
            f'{where}: expected call data, ["0x..","0x.."],[["0x..","0x.."],["0x..","0x.."]],["0x..",..],["0x..",..], '
            "each number with 64 lower-case digits, or more where it needs them"
        )
    numbers = [int(digits, 16) for digits in _DIGITS.findall(dense)]
    ax, ay, x1, x0, y1, y0, cx, cy = numbers[:_N_PROOF]
    a = (ax, ay) if ax or ay else None
    b = ((x0, x1), (y0, y1)) if x0 or x1 or y0 or y1 else None
    c = (cx, cy) if cx or cy else None
    problems = (affine.g1_problem(curve, a), affine.g2_problem(curve, b), affine.g1_problem(curve, c))
    for point, problem in zip("ABC", problems, strict=True):
        if problem:
            raise MalformedFile(f"{where}: {point}: {problem}")
    publics = numbers[_N_PROOF:]
    for i, value in enumerate(publics):
        if value >= params.CURVES[curve].r:
            raise MalformedFile(f"{where}: value {i}: is not below r of {curve}")
    arrays = (affine.g1_to_array(curve, a), affine.g2_to_array(curve, b), affine.g1_to_array(curve, c))
    return Proof(curve, *arrays), publics


def _hex(value: int) -> str:
    return f'"0x{value:064x}"'


def _pair(first: int, second: int) -> str:
    return f"[{_hex(first)}, {_hex(second)}]"
