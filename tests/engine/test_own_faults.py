"""What goes wrong in the front itself is logged, costs an attempt at most, and keeps nobody waiting."""

import asyncio
from unittest.mock import Mock

import pytest
from engine.front import job, running

from cuzkd.engine.job import JobState
from cuzkd.engine.stats import PartitionRetried, ProverState

PATIENCE_S = 30.0


async def proved(engine, *payloads, **options):
    view = await engine.submit(job(*payloads, **options))
    return await engine.wait(view.job_id, PATIENCE_S)


def of(engine, kind):
    return [event for event in engine.events if isinstance(event, kind)]


@pytest.mark.parametrize("plan", ["raise:result:1", "memory:result:1", "raise:ended:1", "memory:ended:1"])
def test_an_answer_that_meets_a_fault_of_ours(tmp_path, plan):
    async def body():
        async with running(tmp_path, front_fault=plan) as engine:
            view = await proved(engine, "ok", "ok")
            assert view.state is JobState.DONE and [len(r.publics) for r in view.results] == [1, 1]
            retried = [event.message for event in of(engine, PartitionRetried)]
            assert len(retried) == ("result" in plan) and all("fault planned at result" in m for m in retried)
            assert not [state for state in of(engine, ProverState) if state.state == "dead"]
            await asyncio.wait_for(engine._jobs.rest(), PATIENCE_S)

    asyncio.run(body())


def test_one_that_is_met_by_a_fault_of_ours_each_time_fails_alone(tmp_path):
    async def body():
        async with running(tmp_path, front_fault="raise:result:3") as engine:
            view = await proved(engine, "ok")
            assert (view.state, view.error_code) == (JobState.FAILED, "internal")
            assert "its answer could not be taken" in view.error_message
            assert (await proved(engine, "ok")).state is JobState.DONE
            assert not [state for state in of(engine, ProverState) if state.state == "dead"]

    asyncio.run(body())


def test_an_offer_that_meets_a_fault_of_ours(tmp_path):
    async def body():
        async with running(tmp_path, front_fault="raise:offered:1") as engine:
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            assert (await proved(engine, "ok", "ok", "ok")).state is JobState.DONE

    asyncio.run(body())


def test_a_subscriber_that_fails_is_its_own_affair(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            engine._subscribers.insert(0, Mock(side_effect=RuntimeError("a bad metric")))
            assert (await proved(engine, "ok")).state is JobState.DONE
            assert of(engine, ProverState)

    asyncio.run(body())


def test_an_end_that_the_journal_cannot_even_be_asked_for_is_announced(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            journal = engine._journal
            ended, journal.ended = journal.ended, Mock(side_effect=MemoryError())
            view = await proved(engine, "ok")
            assert view.state is JobState.DONE
            journal.ended = ended  # its files are the next run's to sweep

    asyncio.run(body())


def test_nobody_reads_of_others_jobs_why_a_prover_was_given_up(tmp_path):
    async def body():
        async with running(tmp_path, least_stage_s=0.1, heartbeat_s=600.0, max_attempts=1) as engine:
            view = await proved(engine, "hold")
            assert "a partition of circuit square has been synthesising for" in view.error_message
            causes = [state.cause for state in of(engine, ProverState) if state.cause]
            assert causes and not [cause for cause in causes if view.job_id in cause]

    asyncio.run(body())
