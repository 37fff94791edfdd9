"""Small witness calculators, written by hand: honest ones of both interfaces, and parts of hostile ones."""

import wasmtime

from cuzkd.circuits.calculator_circom2 import fnv1a
from cuzkd.curves.params import CURVES

PRIME = CURVES["bn254"].r


def words(value):
    return "".join(f"\\{byte:02x}" for byte in value.to_bytes(32, "little"))


def high_low(name):
    return fnv1a(name) >> 32, fnv1a(name) & 0xFFFFFFFF


def circom2(
    *, imports="", version=2, prime=PRIME, n_wires=3, on_set="", on_get="", on_init="", more="", leave_out=()
):
    """A circuit with the inputs a[2], whose wires are 1, a[0], a[1]. Memory: the shared buffer at 0, the prime at 64,
    wires from 128 on.
    """
    high, low = high_low("a")
    exports = {
        "getVersion": f"(result i32) (i32.const {version})",
        "getFieldNumLen32": "(result i32) (i32.const 8)",
        "getRawPrime": "(memory.copy (i32.const 0) (i32.const 64) (i32.const 32))",
        "readSharedRWMemory": "(param i32) (result i32) (i32.load (i32.shl (local.get 0) (i32.const 2)))",
        "writeSharedRWMemory": "(param i32 i32) (i32.store (i32.shl (local.get 0) (i32.const 2)) (local.get 1))",
        "getWitnessSize": f"(result i32) (i32.const {n_wires})",
        "getInputSize": "(result i32) (i32.const 2)",
        "getInputSignalSize": f"""(param i32 i32) (result i32)
            (if (result i32) (i32.and (i32.eq (local.get 0) (i32.const {high}))
                                      (i32.eq (local.get 1) (i32.const {low})))
              (then (i32.const 2)) (else (i32.const -1)))""",
        "init": f"(param i32) (i32.store8 (i32.const 128) (i32.const 1)) {on_init}",
        "setInputSignal": f"""(param i32 i32 i32) {on_set}
            (memory.copy (i32.add (i32.const 160) (i32.shl (local.get 2) (i32.const 5))) (i32.const 0)
                         (i32.const 32))""",
        "getWitness": f"""(param i32) {on_get}
            (memory.copy (i32.const 0) (i32.add (i32.const 128) (i32.shl (local.get 0) (i32.const 5)))
                         (i32.const 32))""",
    }
    functions = [
        f'(func ${name} (export "{name}") {body})' for name, body in exports.items() if name not in leave_out
    ]
    text = f"""(module {imports} (memory (export "memory") 1) (data (i32.const 64) "{words(prime)}")
               {" ".join(functions)} {more})"""
    return bytes(wasmtime.wat2wasm(text))


def circom1(*, buffer=True, prime=PRIME, on_set="", more=""):
    """A circuit with the inputs x and y[2] at offsets 1 to 3, whose wires are 1, x, y[0], y[1], and, in Montgomery
    form, 2^256 mod r times 5. Elements of wires from 1024 on, 40 bytes each.
    """
    (xh, xl), (yh, yl) = high_low("x"), high_low("y")
    is_x = f"(i32.and (i32.eq (local.get 2) (i32.const {xh})) (i32.eq (local.get 3) (i32.const {xl})))"
    is_y = f"(i32.and (i32.eq (local.get 2) (i32.const {yh})) (i32.eq (local.get 3) (i32.const {yl})))"
    five = (5 << 256) % prime
    text = f"""(module
      (import "env" "memory" (memory 2))
      (import "runtime" "error" (func $error (param i32 i32 i32 i32 i32 i32)))
      (import "runtime" "log" (func $log (param i32)))
      (data (i32.const 0) "\\00\\10\\00\\00")
      (data (i32.const 64) "{words(prime)}")
      (data (i32.const 200) "/home/somebody/circuits/main.circom:12:4\\00")
      (data (i32.const 1024) "\\01\\00\\00\\00")
      (data (i32.const 1184) "\\00\\00\\00\\00\\00\\00\\00\\c0{words(five)}")
      (func (export "init") (param i32))
      (func (export "getNVars") (result i32) (i32.const 5))
      (func (export "getFrLen") (result i32) (i32.const 40))
      (func (export "getPRawPrime") (result i32) (i32.const 64))
      (func (export "getPWitness") (param i32) (result i32)
        (i32.add (i32.const 1024) (i32.mul (local.get 0) (i32.const 40))))
      (func (export "getSignalOffset32") (param i32 i32 i32 i32)
        (if {is_x} (then (i32.store (local.get 0) (i32.const 1)))
          (else (if {is_y} (then (i32.store (local.get 0) (i32.const 2)))
            (else (call $error (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))))))
      (func (export "setSignal") (param i32 i32 i32 i32) {on_set}
        (memory.copy (i32.add (i32.const 1024) (i32.mul (local.get 2) (i32.const 40))) (local.get 3) (i32.const 40)))
      {'(func (export "getWitnessBuffer") (result i32) (i32.const 131072))' if buffer else ""}
      {more})"""
    return bytes(wasmtime.wat2wasm(text))
