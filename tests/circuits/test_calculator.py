"""Witness calculators: equal to circom's own runtimes, and no program gets out, on, or away with a lie."""

import contextlib
import gc
import io
import itertools
import json
import os
from pathlib import Path

import pytest
from circuits import wats

from cuzkd.circuits import inputs
from cuzkd.circuits.calculator import Calculator, Limits
from cuzkd.circuits.calculator_sandbox import Box
from cuzkd.errors import InvalidInput, InvalidWitness, MalformedFile, UnsatisfiedWitness
from cuzkd.formats import wtns

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
QUICK = Limits(memory_bytes=64 << 20, fuel=10**7)
RUNTIME = {
    "exceptionHandler": '(import "runtime" "exceptionHandler" (func $exception (param i32)))',
    "printErrorMessage": '(import "runtime" "printErrorMessage" (func $print))',
    "writeBufferMessage": '(import "runtime" "writeBufferMessage" (func $log))',
}
SECRET = 987654321987654321


def calculators(config):
    """Every folder below tests/vectors and --fixtures-dir that has circuit.wasm, input.json and circuit.wtns."""
    extra = config.getoption("--fixtures-dir")
    folders = [VECTORS] if extra is None else [VECTORS, extra.resolve(strict=True)]
    found = {}
    for path in itertools.chain.from_iterable(sorted(folder.rglob("circuit.wasm")) for folder in folders):
        if path.with_name("input.json").exists() and path.with_name("circuit.wtns").exists():
            found.setdefault(path.read_bytes(), path.parent)
    return list(found.values())


def pytest_generate_tests(metafunc):
    if "folder" in metafunc.fixturenames:
        metafunc.parametrize("folder", calculators(metafunc.config), ids=lambda folder: folder.name)


def run(wasm, document, limits=QUICK):
    """The wires, as ints."""
    calculator = Calculator(wasm, limits)
    out = io.BytesIO()
    calculator.calculate(inputs.parse(json.dumps(document).encode(), calculator.curve), out)
    values = out.getvalue()[-32 * calculator.n_wires :]
    return [int.from_bytes(values[i : i + 32], "little") for i in range(0, len(values), 32)]


def test_as_circom_itself(folder):
    calculator = Calculator((folder / "circuit.wasm").read_bytes())
    signals = inputs.parse((folder / "input.json").read_bytes(), calculator.curve)
    expected = (folder / "circuit.wtns").read_bytes()
    for _ in range(2):  # a calculation leaves nothing behind for the next one
        out = io.BytesIO()
        calculator.calculate(signals, out)
        assert out.getvalue() == expected
    header = wtns.read_header(folder / "circuit.wtns")
    calculator.facts.require_fits("it", header.curve, header.n_wires)
    for curve, n_wires in ((header.curve, header.n_wires + 1), ("bls12_377", header.n_wires)):
        with pytest.raises(InvalidWitness, match="circuit it"):
            calculator.facts.require_fits("it", curve, n_wires)


BUS = {"pts": [{"x": [1, 2], "y": 3}, {"x": [4, 5], "y": 6}], "one": {"x": [14], "y": 2}, "k": 7}


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        (
            {"k": 13},
            UnsatisfiedWitness,
            "assertion in template Sum_0 line 9, called from template Main_1 line 14",
        ),
        (
            {"k": SECRET},
            UnsatisfiedWitness,
            "assertion in template Sum_0 line 11, called from template Main_1 line 14",
        ),
        ({"k": [7, SECRET]}, InvalidInput, "signal k: too many values: expected 1, got 2"),
        ({"one": {"x": [], "y": 2}}, InvalidInput, "signal one.x: too few values: expected 1, got 0"),
        ({"nope": SECRET}, InvalidInput, "signal nope: the circuit has no such input"),
        (
            {"pts": BUS["pts"][:1]},
            InvalidInput,
            "the circuit takes 9 values, got 6: signals are missing .given: pts.0..x",
        ),
    ],
)
def test_wrong_inputs_circom2(changes, error, says):
    wasm = (VECTORS / "circom2_bus" / "circuit.wasm").read_bytes()
    assert run(wasm, BUS)[1] == 105
    with pytest.raises(error, match=says) as caught:
        run(wasm, {**BUS, **changes})
    assert type(caught.value) is error and str(SECRET) not in str(caught.value)


def test_inputs_in_any_order_and_nothing_on_the_terminal(capfd):
    wasm = (VECTORS / "circom2_bus" / "circuit.wasm").read_bytes()  # it logs k
    assert run(wasm, dict(reversed(BUS.items()))) == run(wasm, BUS)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"key": 1, "recipient": 2, "nope": SECRET}, "signal nope: the circuit has no such input"),
        ({"key": [1, SECRET], "recipient": 2}, "signal key: too many values: expected at most 1, got 2"),
    ],
)
def test_wrong_inputs_circom1(document, says):
    wasm = (VECTORS / "circom1_whitelist" / "circuit.wasm").read_bytes()
    with pytest.raises(InvalidInput, match=says) as caught:
        run(wasm, document, Limits())
    assert str(SECRET) not in str(caught.value)


@pytest.mark.parametrize("buffer", [True, False])
def test_circom1_elements_in_all_their_forms(buffer):
    fill = """(func $fill (local $i i32) (local $p i32)
        (loop $next
          (local.set $p (i32.add (i32.const 1024) (i32.mul (local.get $i) (i32.const 40))))
          (memory.copy (i32.add (i32.const 131072) (i32.shl (local.get $i) (i32.const 5)))
            (i32.add (local.get $p) (i32.const 8)) (i32.const 32))
          (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 5)))))"""
    large = wats.PRIME // 3
    if buffer:  # this little program knows the long form only
        values = run(
            wats.circom1(more=fill, on_set="(call $fill)"), {"x": large, "y": [large + 1, large + 2]}
        )
        assert values[1:3] == [large, large + 1]  # the last one is set after the buffer was filled
        return
    for x in (0, 1, -1, (1 << 31) - 1, 1 << 31, -(1 << 31), -(1 << 31) - 1, large, wats.PRIME - 1):
        assert run(wats.circom1(buffer=False), {"x": x, "y": [3, 4]}) == [1, x % wats.PRIME, 3, 4, 5]


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (7, UnsatisfiedWitness, "constraint at main.circom:12 does not hold"),
        (9, UnsatisfiedWitness, "constraint at main.circom:12 does not hold"),
        (6, InvalidInput, "setting signal x: a signal is set twice"),
        (5, InvalidInput, "it reports the error 5$"),
        (SECRET & 0x7FFFFFFF, InvalidInput, "it reports an error that circom does not have$"),
    ],
)
def test_circom1_reports(code, error, says):
    report = f"(call $error {' '.join(f'(i32.const {n})' for n in (code, 0, 0, 1024, 1064, 200))})"
    with pytest.raises(error, match=says) as caught:
        run(wats.circom1(on_set=report), {"x": SECRET, "y": [1, 2]})
    assert str(SECRET) not in str(caught.value) and "somebody" not in str(caught.value)


def test_circom1_pointers_out_of_its_memory():
    lies = wats.circom1(more='(func (export "getWitnessBuffer") (result i32) (i32.const -1))', buffer=False)
    with pytest.raises(InvalidInput, match="points outside of its memory"):
        run(lies, {"x": 1, "y": [1, 2]})


def test_the_small_honest_one():
    assert run(wats.circom2(), {"a": [5, -1]}) == [1, 5, wats.PRIME - 1]


LOOP = "(loop $ever (br $ever))"


@pytest.mark.parametrize(
    ("parts", "error", "says"),
    [
        ({"on_set": LOOP}, InvalidInput, "used more than the limit of 10000000 instructions"),
        ({"on_get": LOOP}, InvalidInput, "used more than the limit of 10000000 instructions"),
        ({"on_init": LOOP}, InvalidInput, "used more than the limit of 10000000 instructions"),
        ({"on_set": "(unreachable)"}, InvalidInput, "broke off for these inputs: unreachable"),
        ({"on_get": "(i32.store (i32.const -1) (i32.const 0))"}, InvalidInput, "memory out of bounds"),
        (
            {"on_set": "(drop (i32.div_u (i32.const 1) (i32.const 0)))"},
            InvalidInput,
            "integer division by zero",
        ),
        ({"on_set": "(call $deep)", "more": "(func $deep (call $deep))"}, InvalidInput, "stack overflow"),
        (
            {"on_set": "(if (i32.eq (memory.grow (i32.const 2000)) (i32.const -1)) (then (unreachable)))"},
            InvalidInput,
            "unreachable",
        ),
        (
            {"imports": RUNTIME["exceptionHandler"], "on_set": "(call $exception (i32.const 5))"},
            InvalidInput,
            "ran out of memory",
        ),
        (
            {"imports": RUNTIME["exceptionHandler"], "on_set": "(call $exception (i32.const 77))"},
            InvalidInput,
            "it reports an error that circom does not have$",
        ),
        (
            {"imports": RUNTIME["exceptionHandler"], "on_set": "(call $exception (i32.const 4))"},
            UnsatisfiedWitness,
            "an assertion failed$",
        ),
    ],
)
def test_hostile_runs(parts, error, says):
    with pytest.raises(error, match=says) as caught:
        run(wats.circom2(**parts), {"a": [SECRET, 2]})
    assert str(SECRET) not in str(caught.value)


@pytest.mark.parametrize(
    ("wasm", "says"),
    [
        (b"", "its magic is missing"),
        (b"\0asm", "is no valid WebAssembly module"),
        (b"{}" * 50, "its magic is missing"),
        (wats.circom2()[:-7], "is no valid WebAssembly module"),
        (wats.circom2(version=3), "made by circom 3, expected 1 or 2"),
        (wats.circom2(prime=wats.PRIME - 2), "expected the prime r of"),
        (wats.circom2(n_wires=0), "claims 0 wires"),
        (wats.circom2(n_wires=-1), "claims 4294967295 wires"),
        (wats.circom2(leave_out=["getWitness"]), "does not export getWitness"),
        (wats.circom2(leave_out=["getVersion"]), "it is no witness calculator of circom"),
        (
            wats.circom2(leave_out=["getWitness"], more='(func (export "getWitness"))'),
            "exports getWitness with another type",
        ),
        (
            wats.circom2(leave_out=["init"], more='(global (export "init") i32 (i32.const 0))'),
            "exports init with another type",
        ),
        (
            wats.circom2(imports='(import "wasi_snapshot_preview1" "fd_write" (func (param i32)))'),
            "imports wasi_snapshot",
        ),
        (
            wats.circom2(imports='(import "runtime" "system" (func))'),
            "imports runtime.system, which no circom",
        ),
        (
            wats.circom2(imports='(import "runtime" "printErrorMessage" (func (param i64)))'),
            "with another type",
        ),
        (b"\0asm\1\0\0\0", "no witness calculator"),
    ],
)
def test_files_that_are_no_calculators(wasm, says):
    with pytest.raises(MalformedFile, match=f"mine: .*{says}"):
        Calculator(wasm, QUICK, where="mine")


def test_asking_for_too_much_memory():
    greedy = wats.circom2(
        leave_out=["getInputSize"],
        more='(memory 2000) (func (export "getInputSize") (result i32) (i32.const 2))',
    )
    with pytest.raises(InvalidInput, match="needs more memory than the limit of 67108864 bytes"):
        Calculator(greedy, QUICK)


def test_a_start_function_is_bounded_too():
    with pytest.raises(InvalidInput, match="more than the limit"):
        Calculator(wats.circom2(more=f"(start $ever) (func $ever {LOOP})"), QUICK)


def test_messages_may_not_carry_values():
    """A program that prints its inputs as a message, and one that prints without end, from inside printing."""
    place = "Error in template Sum line: 3"
    long = "x" * 64
    printing = """(data (i32.const 4096) "TEXT\\00") (global $at (mut i32) (i32.const 4096))
        (func (export "getMessageChar") (result i32) MORE
          (global.set $at (i32.add (global.get $at) (i32.const 1)))
          (i32.load8_u (i32.sub (global.get $at) (i32.const 1))))"""
    parts = {
        "imports": RUNTIME["exceptionHandler"] + RUNTIME["printErrorMessage"],
        "on_set": "(call $print) (call $print) (call $exception (i32.const 4))",
    }
    for written, more, says in (
        (place, "", "assertion in template Sum line 3"),
        (str(SECRET), "", "an assertion failed"),
        (f"{place} {SECRET}", "", "an assertion failed"),
        (f"{SECRET} {place}", "", "an assertion failed"),
        (f"Error in template Sum line: {SECRET}", "", "an assertion failed"),
        (f"Error in template {long}{SECRET} line: 3", "", "an assertion failed"),
        (f"Error in template {long} line: 123456", "", f"assertion in template {long} line 123456"),
        (place, "(call $print)", "assertion in template Sum line 3"),
    ):
        with pytest.raises(UnsatisfiedWitness) as caught:
            run(
                wats.circom2(**parts, more=printing.replace("TEXT", written).replace("MORE", more)),
                {"a": [1, 2]},
            )
        assert str(caught.value) == f"the inputs do not satisfy the circuit: {says}"


def test_names_in_messages_are_printable_and_short():
    name = "\x1b[2J\ncuzkd: proved" + "\u202e" * 200
    for wasm in (wats.circom2(), wats.circom1()):
        with pytest.raises(InvalidInput, match=r"signal \\x1b\[2J\\ncuzkd: proved\\u202e") as caught:
            run(wasm, {name: 1})
        assert str(caught.value).isprintable() and len(str(caught.value)) < 600
    with pytest.raises(InvalidInput, match="signals are missing") as caught:
        run(wats.circom2(leave_out=["getInputSignalSize"]), {name: 1})
    assert str(caught.value).isprintable() and len(str(caught.value)) < 3000


def test_calls_of_ours_are_bounded_as_instructions_are():
    calls = {"imports": RUNTIME["writeBufferMessage"], "on_set": "(loop $ever (call $log) (br $ever))"}
    with pytest.raises(InvalidInput, match="stopped: more than 1000 calls of the runtime"):
        run(wats.circom2(**calls), {"a": [1, 2]})


def test_blocks_of_many_values():
    """More values than the loop moves at once, for one signal."""
    n = 70_000
    wasm = wats.circom2(
        n_wires=n + 1,
        leave_out=["getInputSize", "getInputSignalSize"],
        on_init="(drop (memory.grow (i32.const 40)))",
        more=f'(func (export "getInputSize") (result i32) (i32.const {n}))',
    )
    values = [(i * 0x9E3779B97F4A7C15) % wats.PRIME for i in range(n)]
    assert run(wasm, {"a": values}, Limits(64 << 20, 10**9)) == [1, *values]


def test_nothing_of_a_calculation_stays():
    for wasm, document in (
        (wats.circom2(), {"a": [1, 2]}),
        (wats.circom1(buffer=False), {"x": 1, "y": [2, 3]}),
        (wats.circom2(on_set=LOOP), {"a": [1, 2]}),
    ):
        with contextlib.suppress(InvalidInput):
            run(wasm, document)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, Box)]


def test_the_cache_of_compiled_modules(tmp_path):
    settings = tmp_path / "cache.toml"
    settings.write_text(f'[cache]\ndirectory = "{tmp_path}/modules"\n')
    Calculator(wats.circom2(), QUICK, cache=str(settings))
    assert any(files for _, _, files in os.walk(tmp_path / "modules"))
