"""What the engine does about keys whose circuits are not installed any more, and what preloads and drops wait for."""

import asyncio

from engine.front import FakeRegistry, job, manifest, running
from engine.test_engine import PATIENCE_S, begins, run, until

from cuzkd.engine.fleet.keys import Keys
from cuzkd.engine.stats import CircuitLoaded, ProverState
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import InvalidKey, NotFound


async def ready(engine):
    await until(engine, lambda event: isinstance(event, ProverState) and event.state == "ready")


def dropped(circuit):
    return lambda event: isinstance(event, CircuitLoaded) and event.circuit == circuit and not event.loaded


def held(engine):
    return sorted(circuit for circuit, _ in engine._fleet.loaded())


async def some_ticks(engine):
    await asyncio.sleep(10 * engine._settings.tick_s)


def test_a_removed_circuit_gives_way(tmp_path):
    async def body():
        registry = FakeRegistry()
        async with running(tmp_path, registry) as engine:
            await ready(engine)
            for circuit in ("square", "cube"):
                await engine.preload(circuit)
            del registry.circuits["square"]
            await until(engine, dropped("square"))
            await some_ticks(engine)
            assert held(engine) == ["cube"]

    run(body())


def test_a_replaced_circuit_gives_way_and_a_preload_has_the_new_one(tmp_path):
    async def body():
        registry = FakeRegistry()
        async with running(tmp_path, registry, tick_s=3600.0) as engine:
            await ready(engine)
            await engine.preload("square")
            registry.circuits["square"] = manifest("square", n_wires=12)
            assert not (await engine.preload("square")).already_loaded
            assert (await engine.preload("square")).already_loaded
            assert engine._fleet.loaded() == {("square", registry.circuits["square"].digest)}
            registry.circuits["square"] = manifest("square", n_wires=13)
            await engine._upkeep.drop_removed()
            assert not engine._fleet.loaded()

    run(body())


def test_a_key_stays_as_long_as_a_job_counts_on_it(tmp_path):
    async def body():
        registry = FakeRegistry()
        async with running(tmp_path, registry) as engine:
            await ready(engine)
            await engine.preload("square")
            view = await engine.submit(job("hold", "ok"))
            await until(engine, begins(view))
            del registry.circuits["square"]
            await some_ticks(engine)
            assert held(engine) == ["square"]
            await engine.cancel(view.job_id)
            await engine.wait(view.job_id, PATIENCE_S)
            await until(engine, dropped("square"))

    run(body())


def test_a_manifest_that_cannot_be_read_takes_no_key_away(tmp_path):
    class Damaged(FakeRegistry):
        damaged = False

        def get(self, name):
            if self.damaged:
                raise InvalidKey(f"{name}: is not JSON")
            return super().get(name)

    async def body():
        registry = Damaged()
        async with running(tmp_path, registry) as engine:
            await ready(engine)
            await engine.preload("square")
            registry.damaged = True
            await some_ticks(engine)
            assert held(engine) == ["square"]

    run(body())


def test_tiers_are_what_the_page_cache_says(tmp_path):
    async def body():
        registry = FakeRegistry()
        async with running(tmp_path, registry) as engine:
            await ready(engine)
            registry.cached = {"cube"}

            def seen():
                return {c.circuit: (c.loaded, c.cached) for c in engine.status().circuits}

            assert seen() == {"square": (False, False), "cube": (False, True)}
            await engine.preload("square")
            assert seen() == {"square": (True, True), "cube": (False, True)}

    run(body())


def test_which_states_answer_whom():
    """A preload is not answered by the end of the key before, nor a drop by a load that failed."""

    async def answered(asked, *states):
        keys = Keys(lambda message: None)
        asking = asyncio.ensure_future(asked(keys))
        await asyncio.sleep(0)
        for state in states:
            keys.heard(wire.CircuitState(circuit="c", **state))
        await asyncio.sleep(0)
        done = asking.done()
        asking.cancel()
        return done

    async def body():
        for yes in (
            {"loaded": True, "digest": "d2"},
            {"loaded": False, "digest": "d2", "error_code": NotFound.code},
        ):
            assert await answered(lambda keys: keys.load("c", "d2"), yes)
        for no in (
            {"loaded": True, "digest": "d1"},
            {"loaded": False, "was_loaded": True},
            {"loaded": False, "digest": "d1", "error_code": InvalidKey.code},
        ):
            assert not await answered(lambda keys: keys.load("c", "d2"), no)
        for yes in ({"loaded": False}, {"loaded": True, "digest": "d2", "was_loaded": True}):
            assert await answered(lambda keys: keys.evict("c"), yes)
        for no in ({"loaded": True, "digest": "d2"}, {"loaded": False, "error_code": NotFound.code}):
            assert not await answered(lambda keys: keys.evict("c"), no)

    run(body())
