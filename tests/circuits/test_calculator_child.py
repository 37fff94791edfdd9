"""What a calculator says of itself, asked in a child: the honest are known, no file keeps the one who asks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from circuits import wats

from cuzkd.circuits import calculator_child
from cuzkd.circuits.calculator import Calculator
from cuzkd.circuits.calculator_child import Facts, ask
from cuzkd.circuits.calculator_sandbox import CALL_FUEL
from cuzkd.errors import InvalidInput, InvalidWitness, MalformedFile

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
PRINT = '(import "runtime" "printErrorMessage" (func $print))'


def starts_with(body, imports=""):
    return wats.circom2(imports=imports, more=f"(func $start {body}) (start $start)")


def compile_bomb():
    """Some hundred KB that keep the compiler busy for minutes, and take more memory by the second."""
    n = 40_000  # variables that all live through a loop of as many branches
    branches = (
        f"(if (i32.load (i32.const {i % 1000})) (then"
        f" (local.set {i} (i64.add (local.get {i * 7 % n}) (i64.const 1)))))"
        for i in range(n)
    )
    return starts_with(f"{'(local i64)' * n} (loop $ever {' '.join(branches)} (br $ever))")


@pytest.mark.parametrize("name", ["edge_nopub", "circom1_whitelist"])
def test_the_child_says_what_the_calculator_would(name, tmp_path):
    wasm = (VECTORS / name / "circuit.wasm").read_bytes()
    facts = ask(wasm, "mine", tmp_path)
    assert facts == Calculator(wasm, where="mine").facts
    assert any(files for _, _, files in os.walk(tmp_path / "wasm-cache" / "modules"))
    facts.require_fits("it", facts.curve, facts.n_wires)
    with pytest.raises(InvalidWitness, match="mine: expected 1 wires"):
        facts.require_fits("it", facts.curve, 1)


def test_the_small_honest_one():
    assert ask(wats.circom2(), "mine") == Facts("mine", "circom 2.0.0", "bn254", 3, 2, ())


@pytest.mark.parametrize(
    ("wasm", "error", "says"),
    [
        (b"", MalformedFile, "its magic is missing"),
        (wats.circom2(version=3), MalformedFile, "made by circom 3"),
        (
            starts_with("(loop $ever (br $ever))"),
            InvalidInput,
            f"used more than the limit of {calculator_child.FUEL} instructions",
        ),
        (
            starts_with("(loop $ever (call $print) (br $ever))", PRINT),
            InvalidInput,
            f"more than {calculator_child.FUEL // CALL_FUEL} calls of the runtime",
        ),
        (
            wats.circom2(more=" ".join(f'(func (export "e{i}"))' for i in range(3000))),
            MalformedFile,
            "301[0-9] exports, expected at most 1000",
        ),
        (
            wats.circom2(
                imports=" ".join('(import "runtime" "showSharedRWMemory" (func))' for _ in range(2000))
            ),
            MalformedFile,
            "2000 imports, expected at most 1000",
        ),
        (
            wats.circom2(imports=r'(import "x\1b[2J\0acuzkd: fine" "y\1b[31m" (func))'),
            MalformedFile,
            r"imports x\\x1b\[2J\\ncuzkd: fine.y\\x1b\[31m, which",
        ),
    ],
)
def test_errors_and_limits_come_back(wasm, error, says):
    with pytest.raises(error, match=f"^mine: .*{says}") as caught:
        ask(wasm, "mine")
    assert type(caught.value) is error and str(caught.value).isprintable()


def test_time_is_bounded_where_fuel_is_not():
    with pytest.raises(InvalidInput, match=r"^mine: compiling it and asking it .* than the limit of 2 s"):
        ask(compile_bomb(), "mine", time_s=2)


def test_memory_is_bounded_for_the_compiler_too(monkeypatch):
    """So many bytes that the interpreter itself just starts."""
    code = (
        "import sys; from cuzkd.circuits import calculator_child as child\n"
        "child.MEMORY_BYTES = 150 << 20; child.main(sys.argv[1:])"
    )
    run = subprocess.run

    def small(command, **named):
        return run([sys.executable, "-c", code, *command[4:]], **named)

    monkeypatch.setattr(subprocess, "run", small)
    many = "(local.set 0 (i32.add (local.get 0) (i32.const 1)))" * 400_000
    with pytest.raises(InvalidInput, match=r"died \(signal 6\); its limits are"):
        ask(wats.circom2(more=f"(func $large (local i32) {many})"), "mine")


def test_an_interrupt_ends_both(tmp_path):
    """At a command of ours: it ends at once, and so does the child."""
    path = tmp_path / "mine.wasm"
    path.write_bytes(compile_bomb())
    code = (
        "import signal, sys; from pathlib import Path; from cuzkd.circuits.calculator_child import ask\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what runs in the background ignores it
        "ask(Path(sys.argv[1]).read_bytes(), sys.argv[1])"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (child := children(process.pid, path)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in error
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists():  # killed; giving gigabytes back takes a while
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(pid, path):
    """The child that asks about a file."""
    for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
        if b"cuzkd.circuits.calculator_child" in words and str(path).encode() in words:
            return number
    return None
