"""The engine with real intake processes: what inputs do before they are a job, and what stays of them."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from circuits import wats
from engine.folder_intake import digest
from engine.front import FakeRegistry, job, manifest, running, spooled
from engine.test_calculators import COMMAND, FAILS, FOREVER, LOOP, inputs, on_a_loop, processes, until, wires

from cuzkd.engine.job import InputJson, WitnessBytes
from cuzkd.engine.payloads.calculators import IntakeSettings
from cuzkd.engine.stats import WitnessCalculated
from cuzkd.errors import AlreadyExists, InvalidInput, NotFound, Unavailable, UnsatisfiedWitness

SECRET = 987654321987654321


@contextlib.asynccontextmanager
async def daemon(folder, **settings):
    """An engine whose prover never gets ready, so that jobs wait, with the circuits good, bad and slow."""
    circuits = [manifest("plain", n_wires=3)]
    for name, parts in {"good": {}, "bad": FAILS, "slow": {"on_get": LOOP}}.items():
        wasm = wats.circom2(**parts)
        (folder / f"{name}.wasm").write_bytes(wasm)
        circuits.append(manifest(name, n_wires=3, calculator=digest(wasm)))
    intake = IntakeSettings(**{"command": COMMAND, "max_instructions": FOREVER, **settings})
    memory = {"budget_bytes": 4 * intake.memory_bytes}
    async with running(folder, FakeRegistry(*circuits), fault="mute", intake=intake, **memory) as engine:
        yield engine
        await engine._intake.settle()
        waiting = [record.file.path for job in engine._jobs.table.running for record in job.partitions]
    # What was accepted is there for the next start, and nothing else.
    assert spooled(folder) == sorted(Path(path).name for path in waiting) and not processes(folder)


def given(*values, circuit="good", request_id=""):
    return job(
        *(InputJson(inputs(value).encode()) for value in values), circuit=circuit, request_id=request_id
    )


def calculated(engine):
    return [event for event in engine.events if isinstance(event, WitnessCalculated)]


def witnesses(folder):
    return sorted(wires(folder / "spool" / name)[1] for name in spooled(folder))


@pytest.mark.parametrize("n", [1, 2, 5])
@on_a_loop
async def test_inputs_become_witnesses(tmp_path, n):
    async with daemon(tmp_path, processes=n) as engine:
        freed = []
        view = await engine.submit(given(7, 8, 9), lambda: freed.append(spooled(tmp_path)))
        assert view.partitions == 3 and not view.state.ended
        assert len(freed) == 1 and len(freed[0]) == 3  # it may forget them before anything is calculated
        await engine._intake.settle()
        assert witnesses(tmp_path) == [7, 8, 9]
        records = engine._jobs.table.find(view.job_id).partitions
        assert [wires(record.file.path)[1] for record in records] == [7, 8, 9]
        assert [event.reason for event in calculated(engine)] == [""] * 3
        assert set(calculated(engine)[0].phases) == {"calculation_wait", "calculation_compile", "calculation"}


@on_a_loop
async def test_witnesses_and_inputs_in_one_job(tmp_path):
    async with daemon(tmp_path) as engine:
        mixed = job(WitnessBytes(b"x" * 108), InputJson(inputs(5).encode()), circuit="good")
        view = await engine.submit(mixed)
        first, second = engine._jobs.table.find(view.job_id).partitions
        assert first.file.nbytes == 108 and wires(second.file.path) == [1, 5, 2]


@on_a_loop
async def test_a_repeated_request_is_not_calculated_again(tmp_path):
    async with daemon(tmp_path) as engine:
        first = await engine.submit(given(7, request_id="r"))
        again = await engine.submit(given(7, request_id="r"))
        assert again.job_id == first.job_id and len(calculated(engine)) == 1
        with pytest.raises(AlreadyExists, match="with other content"):
            await engine.submit(given(8, request_id="r"))
        with pytest.raises(AlreadyExists):  # the same bytes, but as a witness
            await engine.submit(job(WitnessBytes(inputs(7).encode()), circuit="good", request_id="r"))
        assert len(calculated(engine)) == 1
        await engine._intake.settle()
        assert len(spooled(tmp_path)) == 1


@pytest.mark.parametrize(
    ("circuit", "payload", "error", "says"),
    [
        ("bad", inputs(SECRET), UnsatisfiedWitness, "partition 1: the inputs do not satisfy the circuit"),
        ("good", f'{{"a": [{SECRET}]}}', InvalidInput, "partition 1: input JSON: signal a: too few values"),
        ("good", "{" * 5000, InvalidInput, "5000 bytes, at most 4096"),
        ("plain", inputs(SECRET), NotFound, "circuit plain: has no witness calculator"),
    ],
)
@on_a_loop
async def test_what_fails_leaves_nothing(tmp_path, circuit, payload, error, says, capfd):
    async with daemon(tmp_path, max_input_bytes=4096) as engine:
        witness = WitnessBytes(b"x" * 108)
        with pytest.raises(error, match=says) as caught:
            await engine.submit(job(witness, InputJson(payload.encode()), circuit=circuit))
        assert str(SECRET) not in str(caught.value)
        await engine._intake.settle()
        assert not spooled(tmp_path) and not len(engine._jobs.table)
    assert str(SECRET) not in "".join(capfd.readouterr())


@on_a_loop
async def test_one_bad_input_of_many_ends_the_others(tmp_path):
    async with daemon(tmp_path, processes=3) as engine:
        slow, bad = InputJson(inputs(1).encode()), InputJson(b"{}")
        with pytest.raises(InvalidInput, match="partition 1: input JSON: the circuit takes 2 values, got 0"):
            await engine.submit(job(slow, bad, circuit="slow"))
        await engine._intake.settle()
        assert not spooled(tmp_path)


@on_a_loop
async def test_a_client_that_leaves(tmp_path):
    async with daemon(tmp_path) as engine:
        submitting = asyncio.create_task(engine.submit(given(1, circuit="slow")))
        await until(lambda: len(spooled(tmp_path)) == 2)  # the input, and a witness that is being made
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        await engine._intake.settle()
        assert not spooled(tmp_path) and not processes(tmp_path)
        await engine.submit(given(7))
        await engine._intake.settle()
        assert witnesses(tmp_path) == [7]


@on_a_loop
async def test_a_stop_in_the_middle(tmp_path):
    async with daemon(tmp_path) as engine:
        submitting = asyncio.create_task(engine.submit(given(1, circuit="slow")))
        await until(lambda: len(spooled(tmp_path)) == 2)
        await engine.stop()
        with pytest.raises(Unavailable, match="the daemon is stopping"):
            await submitting
        await engine._intake.settle()
