"""Payloads that change on the disk: nothing is proved of them, nothing is believed of them, nobody waits for others."""

import os
import shutil

import pytest
from engine.front import begun, job, running, spooled
from engine.test_engine import PATIENCE_S, begins, proved, run, until

from cuzkd.engine.job import JobState
from cuzkd.engine.jobs import intact
from cuzkd.engine.payloads.spool import Spool
from cuzkd.errors import Cancelled, Exhausted, UnsatisfiedWitness


def path_of(engine, view, index=0):
    return engine._jobs.table.find(view.job_id).partitions[index].file.path


def alter(path, text):
    """Other bytes, in the same file or in another one of that name, as many as before."""
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.write(text.ljust(size, ".").encode())
    assert os.path.getsize(path) == size


async def killed(state_dir, target, *jobs):
    """The views of jobs, submitted behind one that never ends, and their files in a copy of that moment."""
    async with running(state_dir, ready_target=1, max_parallel_synthesis=1) as engine:
        views = [await engine.submit(job("hold"))]
        await until(engine, begins(views[0]))
        views += [await engine.submit(one) for one in jobs]
        paths = [
            path_of(engine, view, len(one.partitions) - 1) for view, one in zip(views[1:], jobs, strict=True)
        ]
        shutil.copytree(state_dir, target, ignore=shutil.ignore_patterns("begun"))
    return views, [path.replace(str(state_dir), str(target)) for path in paths]


def test_what_has_changed_over_a_crash_is_not_proved(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"

    async def body():
        jobs = [
            job("ok:good", request_id="good"),
            job("ok:one", "ok:flipped"),
            job("ok:replaced", request_id="r"),
            job("ok:gone"),
            job("ok:link"),
        ]
        (held, *views), paths = await killed(first, second, *jobs)
        alter(paths[1], "ok:flipqed")
        alter(paths[2], "ok:another")
        os.unlink(paths[3])
        os.unlink(paths[4])
        os.symlink("7 bytes", paths[4])
        async with running(second) as engine:
            await engine.cancel(held.job_id)
            ends = [await engine.wait(view.job_id, PATIENCE_S) for view in views]
            assert ends[0].state is JobState.DONE
            for end in ends[1:]:
                assert (end.state, end.error_code) == (JobState.FAILED, "internal")
            for end, index, path in zip(ends[1:3], (1, 0), paths[1:3], strict=True):
                name = os.path.basename(path)
                assert end.error_message == (
                    f"partition {index}: its payload, spool/{name}, has changed on the disk since it was accepted"
                )
            assert "is gone from the spool" in ends[3].error_message
            assert "is no regular file any more" in ends[4].error_message
            assert not {"ok:flipqed", "ok:another."} & {payload for payload, _ in begun(second)}
            again = await engine.submit(jobs[2])  # the same request: another try, with the right bytes
            assert again.job_id != views[2].job_id
            assert (await engine.wait(again.job_id, PATIENCE_S)).results[0].proof.endswith(b"ok:replaced")
            await engine._intake.settle()
            assert spooled(second) == []

    run(body())


def test_after_a_clean_end_nothing_is_read(tmp_path, monkeypatch):
    async def body():
        async with running(tmp_path) as engine:
            view = await engine.submit(job("hold"))
        monkeypatch.setattr(Spool, "trouble", None)
        async with running(tmp_path) as engine:
            await until(engine, begins(view))
            await engine.cancel(view.job_id)

    run(body())


def test_nobody_waits_for_what_is_read_long_not_even_a_stop(tmp_path, monkeypatch):
    first, second = tmp_path / "1", tmp_path / "2"
    trouble, slow = Spool.trouble, []

    def reading(spool, file, give_up):
        while file.path in slow:
            if give_up():
                raise Cancelled("nobody waits")
        return trouble(spool, file, give_up)

    monkeypatch.setattr(Spool, "trouble", reading)

    async def body():
        (held, *views), paths = await killed(first, second, job("ok:long"), job("ok:short"))
        slow.append(paths[0])
        async with running(second) as engine:
            await engine.cancel(held.job_id)
            assert (await engine.wait(views[1].job_id, PATIENCE_S)).state is JobState.DONE
            assert engine.view(views[0].job_id).state is JobState.QUEUED
            assert (await proved(engine, "ok:new")).state is JobState.DONE
            assert await engine.stop() == 1
        assert "ok:long" not in [payload for payload, _ in begun(second)]
        async with running(second) as engine:
            assert (await engine.wait(views[0].job_id, PATIENCE_S)).state is JobState.DONE

    run(body())


def test_what_cannot_be_read_now_is_read_later_and_one_that_is_cancelled_not_at_all(tmp_path, monkeypatch):
    first, second = tmp_path / "1", tmp_path / "2"
    trouble, failures = Spool.trouble, []

    def failing(spool, file, give_up):
        if len(failures) < 3:
            failures.append(file.path)
            raise Exhausted("no descriptors")
        return trouble(spool, file, give_up)

    monkeypatch.setattr(intact, "AGAIN_S", 0.01)
    monkeypatch.setattr(intact, "AT_ONCE", 1)
    monkeypatch.setattr(Spool, "trouble", failing)

    async def body():
        (held, *views), _ = await killed(first, second, job("ok:1"), job("ok:2"))
        async with running(second) as engine:
            await engine.cancel(views[0].job_id)
            await engine.cancel(held.job_id)
            assert (await engine.wait(views[1].job_id, PATIENCE_S)).state is JobState.DONE
            assert not len(engine._jobs.queue)

    run(body())


@pytest.mark.parametrize("changed", [False, True])
def test_a_payload_is_blamed_only_when_it_is_what_came(tmp_path, changed):
    async def body():
        async with running(tmp_path, ready_target=1, max_parallel_synthesis=1) as engine:
            blocker = await engine.submit(job("hold"))
            await until(engine, begins(blocker))
            sent = "ok: with room for another" if changed else "fail:unsatisfied_witness"
            view = await engine.submit(job("ok:1", sent))
            path = path_of(engine, view, 1)
            if changed:
                alter(path, "fail:unsatisfied_witness")
                os.truncate(path, len("fail:unsatisfied_witness"))
            await engine.cancel(blocker.job_id)
            end = await engine.wait(view.job_id, PATIENCE_S)
            assert end.state is JobState.FAILED
            if changed:
                assert end.error_code == "internal" and os.path.basename(path) in end.error_message
                assert (await proved(engine, sent)).state is JobState.DONE
            else:
                assert end.error_code == "unsatisfied_witness"
                with pytest.raises(UnsatisfiedWitness):
                    await engine.submit(job(sent))

    run(body())
