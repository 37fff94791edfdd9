"""Input JSON to signals: circom's names, canonical values, and a clear refusal of everything else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkd.circuits import inputs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput

R = CURVES["bn254"].r


def parsed(text, curve="bn254"):
    """{signal: its values as ints}."""
    data = text if isinstance(text, bytes) else (text if isinstance(text, str) else json.dumps(text)).encode()
    return {
        name: [int.from_bytes(packed[i : i + 32], "little") for i in range(0, len(packed), 32)]
        for name, packed in inputs.parse(data, curve).items()
    }


@pytest.mark.parametrize(
    ("document", "signals"),
    [
        ({}, {}),
        ({"a": 5}, {"a": [5]}),
        ({"a": "5", "b": "0x1F", "c": True, "d": False}, {"a": [5], "b": [31], "c": [1], "d": [0]}),
        ({"a": [[1, 2], [3, "4"]]}, {"a": [1, 2, 3, 4]}),
        ({"a": []}, {"a": []}),
        ({"a": -1, "b": "-2"}, {"a": [R - 1], "b": [R - 2]}),
        ({"a": str(R - 1), "b": str(1 - R)}, {"a": [R - 1], "b": [1]}),
        ({"a": "007"}, {"a": [7]}),
        ({"p": {"x": 1, "y": {"z": [2, 3]}}}, {"p.x": [1], "p.y.z": [2, 3]}),
        ({"p": [{"x": 1}, {"x": 2}]}, {"p[0].x": [1], "p[1].x": [2]}),
        ({"p": [[{"x": 1}], [{"x": [2, 3]}]]}, {"p[0][0].x": [1], "p[1][0].x": [2, 3]}),
    ],
)
def test_signals(document, signals):
    assert parsed(document) == signals


def test_a_byte_order_mark_is_no_error():
    assert parsed(b'\xef\xbb\xbf{"a": 1}') == {"a": [1]}


@pytest.mark.parametrize("curve", CURVES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_is_below_r_is_itself_and_what_is_not_is_refused(curve, data):
    r = CURVES[curve].r
    value = data.draw(st.integers(-2 * r, 2 * r) | st.integers(-3, 3) | st.integers(r - 3, r + 3))
    for written in (value, str(value), *([hex(value)] if value >= 0 else [])):
        if abs(value) < r:
            assert parsed({"a": [written]}, curve) == {"a": [value % r]}
        else:
            with pytest.raises(InvalidInput, match=r"signal a\[0\]: is not smaller than the prime"):
                parsed({"a": [written]}, curve)


SECRET = "98765432123456789"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'{{"a": {SECRET}.5}}', "signal a: has a fraction"),
        (f'{{"a": [1, {SECRET}e5]}}', r"signal a\[1\]: has a fraction or an exponent"),
        ('{"a": [[0], [0, null]]}', r"signal a\[1\]\[1\]: is null"),
        ('{"a": NaN}', "signal a: is not a number"),
        ('{"a": [-Infinity]}', r"signal a\[0\]: is not a number"),
        (f'{{"a": "{SECRET}x"}}', "signal a: is text, but no number"),
        (f'{{"a": " {SECRET}"}}', "is text, but no number"),
        ('{"a": ""}', "is text, but no number"),
        (f'{{"a": "+{SECRET}"}}', "is text, but no number"),
        ('{"a": "0x"}', "is text, but no number"),
        ('{"a": "٣"}', "is text, but no number"),
        ('{"a": "0b1"}', "is text, but no number"),
        (f'{{"a": {"9" * 101}}}', "signal a: has 101 digits, at most 100"),
        (f'{{"a": ["{"9" * 100_000}"]}}', r"signal a\[0\]: has 100000 digits"),
        (f'{{"a": {"9" * 5_000_000}}}', "has 5000000 digits"),
        (f'{{"a": {R}}}', "signal a: is not smaller than the prime r"),
        (f'{{"a": 1, "a": {SECRET}}}', "the name a occurs twice"),
        (f'{{"p": {{"x": 1}}, "p.x": {SECRET}}}', "signal p.x is given twice"),
        (f'{{"p": [{{"x": 1}}, {SECRET}]}}', r"p\[1\]: is no object"),
        (f'{{"a": [{SECRET}, {{"x": 1}}]}}', r"signal a\[1\]: is an object"),
        ('{"a": ' + "[" * 100 + "1" + "]" * 100 + "}", "nested deeper than 64"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper than 64"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested deeper than 64"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested deeper than 64"),
        ('{"a": ' + "[" * 100 + '{"x": 1}' + "]" * 100 + "}", "nested deeper than 64"),
        (f"[{SECRET}]", "expected an object of signals, got an array"),
        (SECRET, "expected an object of signals, got a single value"),
        ("null", "got null"),
        ("", "is not JSON at line 1 column 1"),
        (f'{{"a": {SECRET}', "is not JSON at line 1"),
        (f'{{"a": {SECRET}}} {{}}', "is not JSON"),
        (b'{"a": "\xff"}', "is not UTF-8, from byte 7"),
        ('{"a": 1}'.encode("utf-16"), "is not UTF-8"),
        (f'{{"{"n" * 257}": 1}}', "a name of 257 characters"),
        (f'{{"{"n" * 200}": {{"{"m" * 56}": 1}}}}', "a name of 257 characters"),
        (f'{{"{"n" * 200}": [{{"{"m" * 53}": 1}}]}}', "a name of 257 characters"),
        ('{"a": ' + f'{{"{"n" * 250}":' * 60 + "1.5" + "}" * 61, "a name of 503 characters"),
        (r'{"\ud800": 1.5}', "a name is no Unicode text"),
        (r'{"a": {"\udfffx": 1}}', "a name is no Unicode text"),
        (r'{"\ud83d\ude00": 1.5}', "signal \N{GRINNING FACE}: has a fraction"),
        (
            r'{"\u001b[2J\ncuzkd: sound\u202e": 1.5}',
            r"signal \\x1b\[2J\\ncuzkd: sound\\u202e: has a fraction",
        ),
        (r'{"\u0007": 1, "\u0007": 2}', r"the name \\x07 occurs twice"),
        (r'{"p": {"\u0007": 1}, "p.\u0007": 2}', r"signal p.\\x07 is given twice"),
        (r'{"\u0007": [{"x": 1}, 3]}', r"JSON: \\x07\[1\]: is no object"),
        ('{"a": ' + f'"{"n" * 200}"' + "}", "signal a: has 200 digits"),
        (f'{{"{"n" * 200}": 1.5}}', f"signal {'n' * 80}[.]{{3}}: has a fraction"),
    ],
)
def test_refusals_name_the_place_and_never_the_value(text, says):
    with pytest.raises(InvalidInput, match=says) as caught:
        parsed(text)
    assert SECRET not in str(caught.value) and "9999" not in str(caught.value)
    assert len(str(caught.value)) < 400 and str(caught.value).isprintable()


def test_size_is_looked_at_first():
    with pytest.raises(InvalidInput, match="input JSON: 11 bytes, at most 10"):
        inputs.parse(b'{"a": 1234}', "bn254", max_bytes=10)


def test_size_is_bounded_by_what_the_circuit_can_take():
    largest = {"a": [f"0x{R - 1:064x}"] * 1000}
    for written in (json.dumps(largest), json.dumps(largest, indent=64)):
        assert len(inputs.parse(written.encode(), "bn254", n_values=1000)["a"]) == 32_000
    small = b'{"a": [1, 2]}'
    assert inputs.parse(small.ljust(4096 + 512), "bn254", n_values=2)
    for data in (small.ljust(4096 + 513), b"?" * (4096 + 513)):  # not looked at
        with pytest.raises(
            InvalidInput, match="4609 bytes, at most 4608 are allowed for the 2 values that the circuit takes"
        ):
            inputs.parse(data, "bn254", n_values=2)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_signals_or_refused(data):
    try:
        signals = inputs.parse(data, "bn254")
    except InvalidInput:
        return
    assert all(len(packed) % 32 == 0 for packed in signals.values())
