"""The table of answers: for each format, every way in which a lie is refused, and the words of that refusal.

No two rows of a table match one message, so each kind of lie has words of its own. Three answers are no refusals,
and have no words:

    same      what was read is what the honest file holds: the lie is in a part that the reader has no use for
    true      something else was read, and put to work, and what came of it is true by the honest file's
              verification key: no harm is possible that a verifier would not see
    rejected  a proof (or a statement, or a key) was read, and the verifier says that it shows nothing
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Table = Mapping[str, str]
SAME, TRUE, REJECTED = "same", "true", "rejected"
SILENT = frozenset({SAME, TRUE, REJECTED})

FRAME: Table = {
    "empty": r"file is empty",
    "cut short": r"file is cut$",
    "beyond the end": r"claims \d+ bytes from byte \d+, but the file ends at byte \d+: file is cut or the size",
    "number of sections": r"header claims \d+ sections; at most 64 are accepted",
    "bytes after": r"\d+ bytes after the last of \d+ sections",
    "twice": r"section \d+.* occurs twice",
    "missing": r"section \d+ \(.*\) is missing; found \[",
    "magic": r"expected magic b'\w+', found b['\"]",
    "version": r"expected version \d, found \d+",
    "size": r"section \d+ \([\w ]+\): expected \d+ bytes(?! \(\d+ entries).*, found \d+$",
}

POINTS: Table = {
    "point": r"(alpha1|beta1|delta1|beta2|gamma2|delta2|IC|A|B1|B2|C|H): point \d+ of \d+: expected a point of ",
    "infinity": r"(alpha|beta|gamma|delta)_g[12] is the point at infinity",
    "phase 2": r"gamma_g2 equals delta_g2",
    "fit": r"A, B and H do not fit the constraint matrices",
    "B1 is B2": r"B1 and B2 are not the same multiples of their generators",
    "pairing": r"(beta1 and beta2|delta1 and delta2) are not the same multiple",
    "vkey": r"(alpha_g1|beta_g2|gamma_g2|delta_g2|ic) differs from the verification key",
    "unsatisfied": r"the proof does not verify: the witness breaks a constraint, or the key does not fit it",
}

ZKEY: Table = {
    **FRAME,
    **POINTS,
    "no infinity": r"(IC|C): point \d+ of \d+ is infinity, but in A or B its wire has another point",
    "protocol": r"section 1 \(protocol\): expected 1 \(Groth16\), found \d+",
    "n8": r"section 2 \(Groth16 header\): expected n8[qr] = .*, found \d+",
    "prime": r"section 2 \(Groth16 header\): expected the prime [qr] of",
    "header size": r"section 2 \(Groth16 header\): expected (q and r|n8q and q), found \d+ bytes",
    "counts": r"section 2 \(Groth16 header\): expected n_public \+ 1 <= n_wires",
    "domain": r"section 2 \(Groth16 header\): expected a domain size that is a power of two",
    "domain too large": r"section 2 \(Groth16 header\): expected a domain of at most 2\^\d+",
    "entries": r"section 4 \(coefficients\): (expected \d+ bytes \(\d+ entries\)|expected a count|no coefficients)",
    "matrix index": r"section 4 \(coefficients\): entry \d+: expected a matrix index below 2, found \d+",
    "row index": r"section 4 \(coefficients\): entry \d+: expected a row index below \d+, found \d+",
    "wire index": r"section 4 \(coefficients\): entry \d+: expected a wire index below \d+, found \d+",
    "coefficient": r"section 4 \(coefficients\): entry \d+: coefficient is not below r",
    "binding": r"section 4 \(coefficients\): (the last \d+ rows do not bind|expected at least \d+ rows)",
}

WTNS: Table = {
    **FRAME,
    "n8": r"section 1 \(header\): expected values of n8 = 32 bytes",
    "prime": r"section 1 \(header\): expected the prime r of",
    "other curve": r"expected a witness over \w+ \(circuit [\w-]+\), found one over",
    "no values": r"section 1 \(header\): expected at least the constant wire, found 0 values",
    "range": r"value \d+ is not below r of",
    "constant": r"value 0, the constant wire, is not 1",
    "unsatisfied": POINTS["unsatisfied"],
}


DOCUMENT: Table = {
    "empty": FRAME["empty"],
    "not JSON": r"is not JSON",
    "array": r"expected an array of( \d+, found| decimal strings, found)",
    "decimal": r"expected a decimal string, found",
}

_OBJECT: Table = {
    **DOCUMENT,
    "object": r"\.json: expected an object, found",
    "left out": r"\.json: missing: [\w, ]+$",
    "below q": r"is not below q of",
    "affine": r"expected an affine point",
    "protocol": r"expected protocol 'groth16', found",
    "curve": r"curve: expected bn254 or bls12_381, found",
}

PROOF: Table = {**_OBJECT, "other curve": r"expected a proof over \w+, found one over"}

PUBLICS: Table = {
    **DOCUMENT,
    "below r": r"value \d+: is not below r of",
    "number of values": r"public inputs: expected \d+ \(the verification key's\), got \d+",
}

VKEY: Table = {
    **_OBJECT,
    "IC": r"IC: expected nPublic \+ 1 points",
    "off the curve": r"(alpha_g1|beta_g2|gamma_g2|delta_g2|ic): (point \d+ of \d+: )?expected a point of g[12] of",
    "infinity": POINTS["infinity"],
    "phase 2": POINTS["phase 2"],
    "other curve": r"proof: expected curve \w+ \(the verification key's\), got",
}
# Said by the verifier, which is given a key, a proof and values, and knows of no file.
OF_THE_VERIFIER = frozenset({"off the curve", "infinity", "phase 2", "number of values", "other curve"})

KEY_FILE: Table = {
    "length": r"key\.bin: expected \d+ bytes by its manifest, found \d+",
    "altered": r"key\.bin: bytes \d+ to \d+ \(section [\w.]+\) were altered",
}

MANIFEST: Table = {
    "empty": r"manifest\.json: file is empty",
    "not JSON": r"manifest\.json: is not JSON",
    "version": r"manifest\.json: expected a manifest of version \d+, found",
    "fields": r"manifest\.json: fields missing or unknown",
    "altered": r"manifest\.json: content was altered",
    "value": r"manifest\.json: (?!key_bytes|sections?)\w+: expected .*, found",
    "sections": r"manifest\.json: sections: (not a layout|a name occurs twice|expected a list)",
    "layout": r"manifest\.json: section [\w.]*: expected \d+ digests from byte",
    "name": r"manifest\.json: describes the circuit",
    "key_bytes": r"manifest\.json: key_bytes: expected",
    "array": r"key\.bin: section [\w.]+: expected uint(64|32)\[",
    "arrays": r"key\.bin: sections missing or unknown",
    "digest": KEY_FILE["altered"],
}

CALL_DATA: Table = {
    "shape": r"\.txt: expected call data",
    "below q": r"\.txt: [ABC]: a coordinate is not below q",
    "off the curve": r"\.txt: [ABC]: point is not on",
    "below r": r"\.txt: value \d+: is not below r",
    "number of values": PUBLICS["number of values"],
}

R1CS: Table = {
    **FRAME,
    "n8": r"section 1 \(header\): expected coefficients of n8 = 32 bytes",
    "prime": r"section 1 \(header\): expected the prime r of",
    "wires": r"section 1 \(header\): expected at least \d+ wires",
    "constraints": r"section 2 \(constraints\): expected at least \d+ bytes \(\d+ constraints by the header\)"
    r"|section 1 \(header\): expected at most \d+ rows on \w+, found \d+",
    "custom gates": r"section [45] \(custom gates \w+\): expected none",
    "count cut": r"section 2 \(constraints\): constraint \d+, [ABC]: expected a count of 4 bytes",
    "terms": r"section 2 \(constraints\): constraint \d+, [ABC]: claims \d+ terms of 36 bytes",
    "wire": r"section 2 \(constraints\): constraint \d+, [ABC]: term \d+: expected a wire below",
    "coefficient": r"section 2 \(constraints\): constraint \d+, [ABC]: term \d+: coefficient is not below r",
    "left over": r"section 2 \(constraints\): \d+ bytes after the last of \d+ constraints",
}

_NAMED = r"(alpha_g1|beta_g1|beta_g2|gamma_g2|delta_g1|delta_g2|(ic|h|l|a|b1|b2): point \d+ of \d+)"
VK: Table = {
    "empty": FRAME["empty"],
    "curve": r"alpha_g1: expected an uncompressed point of bn254 or bls12_381",
    "cut": r"file ends at byte \d+: file is cut$",
    "count": r"the count at byte \d+ claims \d+ points, .*file is cut or the count is wrong",
    "length": r"\.vk: expected \d+ bytes \(\d+ points in ic\), found \d+",
    "no IC": r"ic: expected at least the point of the constant wire",
    "compressed": _NAMED + ": flag 0x80 is set",
    "sorted": _NAMED + ": flag 0x20 is set",
    "infinity and more": _NAMED + ": the flag of infinity is set, and other bits",
    "zero": _NAMED + ": all coordinates are zero without the flag",
    "at infinity": _NAMED + ": is the point at infinity, which has no place here",
    "below q": _NAMED + ": a coordinate is not below q",
    "not on": _NAMED + ": point is not on",
    # Where the first byte says so, the file is read as a compressed one.
    "as compressed": _NAMED
    + ": (point at infinity with other bits set|the flag of a compressed point is missing|no point of .* has this x)",
    "off the curve": VKEY["off the curve"],
    "phase 2": POINTS["phase 2"],
}

COMPRESSED_VK: Table = {
    **{
        row: VK[row]
        for row in ("empty", "curve", "cut", "count", "length", "no IC", "at infinity", "below q")
    },
    "not compressed": _NAMED + ": the flag of a compressed point is missing",
    "infinity and more": _NAMED + ": point at infinity with other bits set",
    "no such x": _NAMED + ": no point of .* has this x",
}

PARAMS: Table = {
    **{row: words for row, words in VK.items() if row not in {"length", "off the curve", "as compressed"}},
    **{row: words for row, words in POINTS.items() if row not in {"infinity", "unsatisfied"}},
    "list": r"\.params: (ic|h|l|a|b1): expected \d+ points \(the constraint system has",
    "of C": r"L, IC or C: the key was not made for these constraints",
    "b1 and b2": r"\.params: b2: expected \d+ points, as in b1, found",
    "transcript": r"transcript: the last of \d+ contributions made another delta_g1",
    "other curve": r"expected a key over \w+, as the constraints are, found",
}

PROOF_BYTES: Table = {
    "length": r"proof: expected \d+ bytes on \w+, found \d+",
    "below q": r"proof: [ABC]: a coordinate is not below q",
    "off the curve": r"proof: [ABC]: (point is not on|no point of .* has this x)",
    "not compressed": r"proof: [ABC]: the flag of a compressed point is missing",
    "infinity": r"proof: [ABC]: point at infinity with other bits set",
}


def row_of(table: Table, message: str) -> str:
    """The one row whose words a message has."""
    found = [name for name, pattern in table.items() if re.search(pattern, message)]
    assert len(found) == 1, f"expected the words of one row of the table, found those of {found}: {message}"
    return found[0]
