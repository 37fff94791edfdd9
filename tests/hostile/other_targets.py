"""Targets that are no containers: proofs as bytes, and the documents of snarkjs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from hostile import answers, documents, encodings
from hostile.fields import Field, Lie, words
from hostile.targets import VECTORS, Honest, Target

from cuzkd.curves.params import CURVES
from cuzkd.formats import proof_bytes, snarkjs, solidity
from cuzkd.groth16 import verifier
from cuzkd.groth16.keys import Proof, VerifyingKey

WHOLE = words("empty, not JSON, object, array, left out")


def _verdict(honest: Honest, proof: Proof) -> str | None:
    """Only the honest proof convinces, and what anybody can make of it: (-A, -B, C)."""
    if not verifier.verify(honest.vk, proof, honest.publics):
        return answers.REJECTED
    return (
        answers.TRUE
        if snarkjs.proof_to_json(proof) == snarkjs.proof_to_json(_negated(_proof(honest)))
        else None
    )


def _proof(honest: Honest) -> Proof:
    return snarkjs.read_proof(VECTORS / honest.name / "proof.json", honest.vk.curve)


def _negated(proof: Proof) -> Proof:
    record = json.loads(snarkjs.proof_to_json(proof))
    q = CURVES[proof.curve].q
    record["pi_a"][1] = str(q - int(record["pi_a"][1]))
    record["pi_b"][1] = [str(-int(n) % q) for n in record["pi_b"][1]]
    return snarkjs.proof_from_json(json.dumps(record), "negated", proof.curve)


def bytes_target(made: Callable[[], Honest]) -> Target:
    """192 or 256 bytes of a proof."""
    honest = made()
    curve = honest.vk.curve
    data = proof_bytes.encode(_proof(honest))
    fields = _evm_fields(curve) if curve == "bn254" else _compressed_fields(curve)
    return Target(
        "proof bytes", honest.name, ".proof", data, fields, answers.PROOF_BYTES,
        lambda path: proof_bytes.decode(curve, path.read_bytes()),
        lambda proof: proof_bytes.encode(proof) == data,
        lambda proof: _verdict(honest, proof),
        unnamed=frozenset(answers.PROOF_BYTES), cut=words("length"),
        more=lambda: iter([Lie("a byte more", data + b"\0", words("length")), Lie("twice", data * 2, words("length"))]),
    )  # fmt: skip


def _evm_fields(curve: str) -> list[Field]:
    out, at = [], 0
    for name, group in (("A", "g1"), ("B", "g2"), ("C", "g1")):
        spelling = encodings.evm(curve, group)
        allowed = words("below q, off the curve, rejected")
        out.append(Field(name, "point", at, spelling.size, allowed, "big", spelling))
        at += spelling.size
    return out


def _compressed_fields(curve: str) -> list[Field]:
    out, at = [], 0
    for name, size in (("A", 48), ("B", 96), ("C", 48)):
        allowed = words("below q, off the curve, not compressed, infinity, rejected")
        out.append(Field(f"{name}: flags and top of x", "flags", at, 1, allowed, "big"))
        for half in range(0, size, 48):
            out.append(
                Field(
                    f"{name}: coordinate {half // 48}",
                    "compressed",
                    at + half,
                    48,
                    allowed,
                    "big",
                    (curve, half),
                )
            )
        at += size
    return out


def call_data_target(made: Callable[[], Honest]) -> Target:
    """What `snarkjs zkey export soliditycalldata` prints."""
    honest = made()
    curve = honest.vk.curve
    text = solidity.call_data(_proof(honest), honest.publics)

    def read(path: Path) -> tuple[Proof, list[int]]:
        return solidity.parse_call_data(path.read_text(errors="replace"), str(path), curve)

    def use(found: tuple[Proof, list[int]]) -> str | None:
        proof, publics = found
        return None if verifier.verify(honest.vk, proof, publics) else answers.REJECTED

    def more() -> Iterator[Lie]:
        c = CURVES[curve]
        for i, number in enumerate(re.finditer("0x[0-9a-f]+", text)):
            n = int(number[0], 16)
            others = {
                hex(n),
                number[0].upper(),
                number[0][:-1],
                str(n),
                "",
                "0x",
                "-" + number[0],
                number[0] + "0",
            }
            others |= {
                f"0x{m:064x}"
                for m in (0, n + 1, n - 1, c.q, c.r, n + c.q, n + c.r, c.q - n, 2**256 - 1, 2**400)
            }
            for other in others - {number[0]}:
                changed = text[: number.start()] + other + text[number.end() :]
                answer = words("shape, below q, off the curve, below r, rejected, same")
                yield Lie(f"number {i}: {other}", changed.encode(), answer)
        for i, sign in enumerate(re.finditer('[][",]', text)):
            for other in ("", sign[0] * 2, "[", "]", ","):
                changed = text[: sign.start()] + other + text[sign.end() :]
                if changed != text:
                    yield Lie(f"sign {i}: {other!r}", changed.encode(), words("shape"))
        for keep in range(0, len(text), 37):
            yield Lie(f"cut to {keep} characters", text[:keep].encode(), words("shape"))
        answer = words("number of values, rejected" if honest.publics else "number of values")
        yield Lie(
            "a value more", (text[:-1] + "," * bool(honest.publics) + f'"0x{1:064x}"]').encode(), answer
        )
        yield Lie("white space", text.replace(",", " ,\n\t").encode(), words("same"))
        yield Lie("twice", (text * 2).encode(), words("shape"))
        yield Lie("not UTF-8", text.encode() + b"\xff", words("shape"))
        yield Lie("a million brackets", b"[" * 1_000_000, words("shape"))
        yield Lie("a million spaces", b" " * 1_000_000, words("shape"))

    return Target(
        "call data", honest.name, ".txt", text.encode(), [], answers.CALL_DATA, read,
        lambda found: solidity.call_data(*found) == text, use, unnamed=words("number of values"), more=more,
    )  # fmt: skip


def proof_target(made: Callable[[], Honest]) -> Target:
    """proof.json"""
    honest = made()
    curve = honest.vk.curve
    text = (VECTORS / honest.name / "proof.json").read_bytes()
    point = words("array, decimal, below q, affine, rejected, left out")
    by_key = {
        "pi_a": point, "pi_b": point, "pi_c": point,
        "protocol": words("protocol, same"), "curve": words("curve, other curve, same"),
    }  # fmt: skip
    return _document(
        "proof.json", honest.name, answers.PROOF, text, by_key, CURVES[curve].q,
        lambda path: snarkjs.read_proof(path, curve),
        lambda proof: snarkjs.proof_to_json(proof) == text.decode(),
        lambda proof: _verdict(honest, proof),
    )  # fmt: skip


def publics_target(made: Callable[[], Honest]) -> Target:
    """public.json, judged with the honest proof."""
    honest = made()
    curve, proof = honest.vk.curve, _proof(honest)
    text = (VECTORS / honest.name / "public.json").read_bytes()
    allowed = words("array, decimal, below r, number of values, rejected, same")
    return _document(
        "public.json", honest.name, answers.PUBLICS, text, {}, CURVES[curve].r,
        lambda path: snarkjs.read_publics(path, curve),
        lambda values: values == honest.publics,
        lambda values: None if verifier.verify(honest.vk, proof, values) else answers.REJECTED,
        everywhere=allowed,
    )  # fmt: skip


def vkey_target(made: Callable[[], Honest]) -> Target:
    """verification_key.json, judged with the honest proof. vk_alphabeta_12 follows from the rest, and is not read."""
    honest = made()
    text = (VECTORS / honest.name / "vkey.json").read_bytes()
    point = words("array, decimal, below q, affine, infinity, phase 2, off the curve, rejected, left out")
    by_key = {
        "protocol": words("protocol, left out"),
        # Punctuation in a name means nothing, so one lie is the honest name.
        "curve": words("curve, below q, off the curve, other curve, left out, same"),
        "nPublic": words("IC, left out"), "IC": point | words("IC"),
        "vk_alpha_1": point, "vk_beta_2": point, "vk_gamma_2": point, "vk_delta_2": point,
        "vk_alphabeta_12": words("same"),
    }  # fmt: skip
    honest_text = snarkjs.vkey_to_json(snarkjs.read_vkey(VECTORS / honest.name / "vkey.json"))

    def use(vk: VerifyingKey) -> str | None:
        return None if verifier.verify(vk, _proof(honest), honest.publics) else answers.REJECTED

    return _document(
        "vkey.json", honest.name, answers.VKEY, text, by_key, CURVES[honest.vk.curve].q,
        snarkjs.read_vkey, lambda vk: snarkjs.vkey_to_json(vk) == honest_text, use,
    )  # fmt: skip


def _document(format, name, table, text, by_key, modulus, read, same, use, everywhere=frozenset()) -> Target:
    record = json.loads(text)

    def allowed(path: documents.Path) -> frozenset[str]:
        return by_key[path[0]] if path and path[0] in by_key else everywhere | WHOLE

    def more() -> Iterator[Lie]:
        yield from documents.lies(record, allowed, WHOLE, modulus)
        for key, value in _well_formed_lies(record):
            if value != record[key]:
                yield Lie(
                    f"{key}: {str(value)[:40]}", json.dumps(record | {key: value}).encode(), by_key[key]
                )

    return Target(
        format, name, ".json", text, [], table, read, same, use,
        unnamed=answers.OF_THE_VERIFIER & table.keys(), more=more,
    )  # fmt: skip


def _well_formed_lies(record: object) -> Iterator[tuple[str, object]]:
    """Members that could be those of another honest document: the other curve, infinity, one point for another."""
    members = record if isinstance(record, dict) else {}
    if "curve" in members:
        yield "curve", "bls12381" if members["curve"] == "bn128" else "bn128"
        yield "protocol", "plonk"
    for key in members.keys() & {"pi_a", "pi_c", "vk_alpha_1"}:
        yield key, ["0", "1", "0"]
    for key in members.keys() & {"pi_b", "vk_beta_2", "vk_gamma_2", "vk_delta_2"}:
        yield key, [["0", "0"], ["1", "0"], ["0", "0"]]
    if "vk_delta_2" in members:
        yield "vk_delta_2", members["vk_gamma_2"]
        yield "vk_beta_2", members["vk_gamma_2"]
        yield "IC", members["IC"][::-1]
