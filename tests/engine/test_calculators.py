"""The front's intake processes: started when needed, bounded, replaced; and what goes wrong stays with its request."""

import asyncio
import contextlib
import functools
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from circuits import wats
from engine.folder_intake import digest

from cuzkd.engine.channel import pack
from cuzkd.engine.fleet.budget_desk import BudgetDesk
from cuzkd.engine.payloads import calculators as calculators_module
from cuzkd.engine.payloads import intake_process
from cuzkd.engine.payloads.calculators import Calculators, IntakeSettings
from cuzkd.engine.wire import intake_pb2 as wire
from cuzkd.errors import (
    CuzkdError,
    Exhausted,
    InvalidInput,
    InvalidWitness,
    NeverFits,
    NotFound,
    Unavailable,
    UnsatisfiedWitness,
    Unsupported,
)

COMMAND = (sys.executable, str(Path(__file__).with_name("folder_intake.py")))
LOOP = "(loop $ever (br $ever))"
FOREVER = 1 << 62  # of fuel
FAILS = {
    "imports": '(import "runtime" "exceptionHandler" (func $exception (param i32)))',
    "on_set": "(call $exception (i32.const 4))",
}
MEMORY = 1 << 30  # of one calculation
SECRET = 987654321987654321


def on_a_loop(test):
    """Run a test that is a coroutine."""

    @functools.wraps(test)
    def run(*arguments, **named):
        asyncio.run(test(*arguments, **named))

    return run


class World:
    """A folder of calculators, and files like the spool's."""

    def __init__(self, folder):
        self.folder = folder
        self.inputs = 0

    def circuit(self, name, **parts):
        wasm = wats.circom2(**parts)
        (self.folder / f"{name}.wasm").write_bytes(wasm)
        n_wires = parts.get("n_wires", 3)
        return SimpleNamespace(name=name, calculator=digest(wasm), curve="bn254", n_wires=n_wires)

    def files(self, text):
        self.inputs += 1
        given = self.folder / f"in{self.inputs}"
        given.write_text(text)
        return str(given), str(self.folder / f"out{self.inputs}")

    @contextlib.asynccontextmanager
    async def calculators(self, **settings):
        self.desk = BudgetDesk(10 * MEMORY, lambda nbytes: None)
        known = {"command": COMMAND, "timeout_s": 60.0, "memory_bytes": MEMORY}
        made = Calculators(self.folder, IntakeSettings(**{**known, **settings}), self.desk.reserve_async)
        try:
            yield made
        finally:
            await made.stop()
        assert not processes(self.folder)
        assert self.desk.budget.used_bytes == self.desk.budget.waiting == 0


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def processes(folder):
    """Pids of intake processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"folder_intake" in (path / "cmdline").read_bytes() and os.readlink(path / "cwd") == str(
                folder
            ):
                found.append(int(path.name))
    return found


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


def wires(path):
    values = Path(path).read_bytes()[76:]
    return [int.from_bytes(values[i : i + 32], "little") for i in range(0, len(values), 32)]


def inputs(a, b=2):
    return f'{{"a": [{a}, {b}]}}'


@on_a_loop
async def test_nothing_is_started_before_it_is_needed(world):
    async with world.calculators() as calculators:
        assert not processes(world.folder)
        circuit = world.circuit("square")
        given, made = world.files(inputs(5))
        took = await calculators.calculate(circuit, given, made)
        assert wires(made) == [1, 5, 2] and took.calculate_s > 0 and took.compile_s > 0
        assert os.stat(made).st_mode & 0o777 == 0o600
        (pid,) = processes(world.folder)
        given, made = world.files(inputs(-1))
        took = await calculators.calculate(circuit, given, made)
        assert wires(made) == [1, wats.PRIME - 1, 2] and processes(world.folder) == [pid]


@pytest.mark.parametrize("n", [1, 2])
@on_a_loop
async def test_jobs_at_once_do_not_mix(world, n):
    async with world.calculators(processes=n) as calculators:
        circuits = [
            world.circuit("one"),
            world.circuit("two", on_get="(i32.store (i32.const 168) (i32.const 9))"),
        ]
        jobs = [(circuits[i % 2], *world.files(inputs(i))) for i in range(12)]
        await asyncio.gather(*(calculators.calculate(*job) for job in jobs))
        for i, (_, _, made) in enumerate(jobs):
            assert wires(made) == [1, i + (9 << 64 if i % 2 else 0), 2]
        assert len(processes(world.folder)) == n


@pytest.mark.parametrize(
    ("parts", "text", "error", "says"),
    [
        (
            {"on_set": LOOP},
            inputs(SECRET),
            InvalidInput,
            "circuit it: .*more than the limit of 1000000 instructions",
        ),
        (FAILS, inputs(SECRET), UnsatisfiedWitness, "the inputs do not satisfy the circuit"),
        ({}, f'{{"a": [{SECRET}, 0.5]}}', InvalidInput, r"signal a\[1\]: has a fraction"),
        ({}, f'{{"a": [{SECRET}]}}', InvalidInput, "too few values: expected 2, got 1"),
        ({}, " " * 5000, InvalidInput, "5000 bytes, at most 4608 are allowed for the 2 values"),
        ({}, " " * 9000, InvalidInput, "9000 bytes, at most 8192 are allowed"),
        ({}, f'{{"\\ud800": {SECRET}}}', InvalidInput, "a name is no Unicode text"),
        ({"version": 3}, inputs(1), InvalidInput, "circuit it: witness calculator: made by circom 3"),
    ],
)
@on_a_loop
async def test_what_is_the_submitters_to_hear(world, parts, text, error, says):
    async with world.calculators(max_instructions=10**6, max_input_bytes=8192) as calculators:
        with pytest.raises(error, match=says) as caught:
            await calculators.calculate(world.circuit("it", **parts), *world.files(text))
        assert str(SECRET) not in str(caught.value)
        (pid,) = processes(world.folder)  # an error is an answer
        given, made = world.files(inputs(7))
        await calculators.calculate(world.circuit("other"), given, made)
        assert wires(made) == [1, 7, 2] and processes(world.folder) == [pid]


@on_a_loop
async def test_a_witness_of_another_size_is_refused_before_the_inputs_are_read(world):
    async with world.calculators() as calculators:
        circuit = world.circuit("it")
        circuit.n_wires = 4
        with pytest.raises(InvalidWitness, match=r"expected 4 wires over bn254 .circuit it., found 3"):
            await calculators.calculate(circuit, "/nonexistent", "/nonexistent")


@on_a_loop
async def test_a_calculator_that_was_replaced(world):
    async with world.calculators() as calculators:
        circuit = world.circuit("it")
        world.circuit("it", version=2, n_wires=2)
        with pytest.raises(NotFound, match="has been replaced"):
            await calculators.calculate(circuit, *world.files(inputs(1)))


@on_a_loop
async def test_time_is_bounded(world):
    async with world.calculators(max_instructions=FOREVER, timeout_s=2.0) as calculators:
        with pytest.raises(
            InvalidInput, match="circuit it: the calculation took longer than the limit of 2 s"
        ):
            await calculators.calculate(world.circuit("it", on_set=LOOP), *world.files(inputs(1)))
        assert not processes(world.folder)
        given, made = world.files(inputs(7))
        await calculators.calculate(world.circuit("other"), given, made)
        assert wires(made) == [1, 7, 2]


@on_a_loop
async def test_who_leaves_ends_the_calculation(world):
    async with world.calculators(max_instructions=FOREVER) as calculators:
        given, made = world.files(inputs(1))
        task = asyncio.create_task(calculators.calculate(world.circuit("it", on_get=LOOP), given, made))
        await until(lambda: Path(made).exists())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not processes(world.folder)
        given, made = world.files(inputs(7))
        await calculators.calculate(world.circuit("other"), given, made)
        assert wires(made) == [1, 7, 2]


@on_a_loop
async def test_a_process_that_dies_fails_its_calculation_alone(world):
    async with world.calculators(max_instructions=FOREVER, processes=2) as calculators:
        given, made = world.files(inputs(1))
        doomed = asyncio.create_task(calculators.calculate(world.circuit("it", on_get=LOOP), given, made))
        await until(lambda: Path(made).exists())
        (pid,) = processes(world.folder)
        given, made = world.files(inputs(7))
        other = world.circuit("other")
        await calculators.calculate(other, given, made)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(
            CuzkdError, match="circuit it: the process that calculated the witness died: killed by SIGKILL"
        ):
            await doomed
        assert wires(made) == [1, 7, 2]
        for pid in processes(world.folder):  # idle ones
            os.kill(pid, signal.SIGKILL)
        await until(lambda: all(process.process.returncode is not None for process in calculators._idle))
        given, made = world.files(inputs(8))
        await calculators.calculate(other, given, made)
        assert wires(made) == [1, 8, 2]


@on_a_loop
async def test_only_so_many_of_a_circuit_wait(world):
    async with world.calculators(max_instructions=FOREVER, processes=1, max_waiting=1) as calculators:
        stuck, other = world.circuit("it", on_get=LOOP), world.circuit("other")
        given, made = world.files(inputs(1))
        first = asyncio.create_task(calculators.calculate(stuck, given, made))
        await until(lambda: Path(made).exists())
        second = asyncio.create_task(calculators.calculate(stuck, *world.files(inputs(1))))
        given, made = world.files(inputs(7))
        third = asyncio.create_task(calculators.calculate(other, given, made))
        await asyncio.sleep(0)
        for circuit in (stuck, other):
            with pytest.raises(
                Exhausted, match=f"circuit {circuit.name}: 1 calculations wait, at most 1 may"
            ):
                await calculators.calculate(circuit, *world.files(inputs(8)))
        second.cancel()
        first.cancel()
        await third
        assert wires(made) == [1, 7, 2]


@on_a_loop
async def test_a_circuit_that_hangs_leaves_a_process_to_others(world):
    async with world.calculators(max_instructions=FOREVER) as calculators:
        stuck = world.circuit("it", on_get=LOOP)
        tasks = [asyncio.create_task(calculators.calculate(stuck, *world.files(inputs(1)))) for _ in range(3)]
        for i in range(3):
            given, made = world.files(inputs(i))
            await calculators.calculate(world.circuit("other"), given, made)
            assert wires(made) == [1, i, 2]
        assert not any(task.done() for task in tasks) and len(processes(world.folder)) == 2
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@on_a_loop
async def test_memory_is_reserved_while_a_process_is_at_work(world):
    async with world.calculators(max_instructions=FOREVER) as calculators:
        budget = world.desk.budget
        square, loop = world.circuit("square"), world.circuit("loop", on_get=LOOP)
        others = await world.desk.reserve_async(9 * MEMORY + 1, "others")
        waits = asyncio.create_task(calculators.calculate(square, *world.files(inputs(5))))
        await until(lambda: budget.waiting)
        assert not processes(world.folder)
        others.release()
        await waits
        assert budget.used_bytes == 0 and len(processes(world.folder)) == 1
        hangs = asyncio.create_task(calculators.calculate(loop, *world.files(inputs(5))))
        await until(lambda: budget.used_bytes)
        assert budget.used_bytes == MEMORY
        hangs.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hangs
        assert budget.used_bytes == 0


@on_a_loop
async def test_who_gets_no_memory_is_refused_and_leaves_the_line(world, monkeypatch):
    monkeypatch.setattr(calculators_module, "MEMORY_WAIT_S", 0.05)
    async with world.calculators() as calculators:
        others = await world.desk.reserve_async(10 * MEMORY, "others")
        with pytest.raises(Exhausted, match=rf"square.*intake\.memory.*{MEMORY} bytes.*try again later"):
            await calculators.calculate(world.circuit("square"), *world.files(inputs(5)))
        assert world.desk.budget.waiting == 0
        others.release()
        await calculators.calculate(world.circuit("square"), *world.files(inputs(5)))
    async with world.calculators(memory_bytes=11 * MEMORY) as calculators:
        with pytest.raises(NeverFits, match=rf"intake\.memory.*{11 * MEMORY} bytes.*{10 * MEMORY} bytes"):
            await calculators.calculate(world.circuit("square"), *world.files(inputs(5)))
        assert not processes(world.folder)


@on_a_loop
async def test_a_stop_ends_what_runs_and_what_waits(world):
    async with world.calculators(max_instructions=FOREVER) as calculators:
        stuck = world.circuit("it", on_get=LOOP)
        given, made = world.files(inputs(1))
        tasks = [asyncio.create_task(calculators.calculate(stuck, given, made))]
        await until(lambda: Path(made).exists())
        tasks.append(asyncio.create_task(calculators.calculate(stuck, *world.files(inputs(2)))))
        await asyncio.sleep(0)
        await calculators.stop()
        for task in tasks:
            with pytest.raises(Unavailable, match="the daemon is stopping"):
                await task


@on_a_loop
async def test_circuits_without_and_daemons_without(world):
    circuit = world.circuit("it")
    async with world.calculators(processes=0) as none:
        with pytest.raises(Unsupported, match="this daemon calculates no witnesses"):
            await none.calculate(circuit, *world.files(inputs(1)))
    async with world.calculators() as calculators:
        circuit.calculator = ""
        with pytest.raises(NotFound, match="circuit it: has no witness calculator"):
            await calculators.calculate(circuit, *world.files(inputs(1)))


@on_a_loop
async def test_a_process_that_cannot_be_started(world):
    async with world.calculators(command=("/nonexistent",)) as calculators:
        with pytest.raises(Unavailable, match="no process can be started"):
            await calculators.calculate(world.circuit("it"), *world.files(inputs(1)))


def test_it_ends_with_the_front(world):
    """Even in the middle of a calculation."""
    circuit = world.circuit("it", on_get=LOOP)
    given, made = world.files(inputs(1))
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [*COMMAND, "--fd", str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=world.folder
    )
    theirs.close()
    configure = wire.Configure(
        state_dir=str(world.folder), memory_bytes=64 << 20, fuel=FOREVER, max_input_bytes=1 << 20
    )
    ours.sendall(pack(wire.ToIntake(configure=configure)))
    ask = wire.Calculate(
        circuit="it",
        calculator_digest=circuit.calculator,
        curve="bn254",
        n_wires=3,
        input_path=given,
        output_path=made,
    )
    ours.sendall(pack(wire.ToIntake(calculate=ask)))
    deadline = time.monotonic() + 60
    while not Path(made).exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == (0, 0)
    limit = (64 << 20) + intake_process.WORKING_BYTES
    assert resource.prlimit(process.pid, resource.RLIMIT_DATA) == (limit, limit)
    ours.close()
    assert process.wait(60) == 0


class Bug:
    def get(self, name):
        raise RuntimeError(f"with a value: {SECRET}")


class Full:
    def get(self, name):
        raise MemoryError


@pytest.mark.parametrize(
    ("registry", "code", "says"),
    [
        (Bug(), "internal", "the calculation failed: RuntimeError"),
        (Full(), "invalid_input", "the calculation needs more memory than the limit of 77 bytes"),
    ],
)
def test_errors_that_nobody_expected_say_nothing(registry, code, says):
    intake = intake_process.Intake(wire.Configure(memory_bytes=77, fuel=1, max_input_bytes=1), registry, "")
    failed = intake.answer(wire.Calculate(circuit="it", calculator_digest="0")).failed
    assert (failed.error_code, failed.error_message) == (code, says)


def test_an_answer_is_sent_whatever_it_quotes():
    class Odd:
        def get(self, name):
            raise NotFound("no \ud800 here")

    intake = intake_process.Intake(wire.Configure(memory_bytes=77, fuel=1, max_input_bytes=1), Odd(), "")
    failed = intake.answer(wire.Calculate(circuit="it", calculator_digest="0")).failed
    assert (failed.error_code, failed.error_message) == ("not_found", "no \\ud800 here")


def test_memory_is_bounded_by_the_system():
    code = (
        "from cuzkd.engine.payloads.intake_process import limit_memory; limit_memory(300 << 20)\n"
        "try: bytearray(400 << 20)\nexcept MemoryError: print('refused')"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


def test_the_front_does_not_load_the_sandbox():
    code = (
        "import sys, cuzkd.daemon\n"
        "print([name for name in sys.modules if name.startswith(('wasmtime', 'cuzkd.kernels'))])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
