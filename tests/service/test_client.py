"""The client and daemons that come and go: what it asks again, what it does not, and for how long."""

import asyncio
import contextlib
import threading

import pytest
from service.servers import MIB, serving, spelled, wait_until

from cuzkd import errors
from cuzkd.client import Client, Unreachable
from cuzkd.service.servicer import Limits
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

STATUS = pb.GetStatusResponse(
    serving=True, max_message_bytes=4 * MIB, stream_above_bytes=MIB, max_upload_bytes=8 * MIB
)


class Scripted(rpc.ProvingEngineServicer):
    """Answers by script: an exception is raised, None never answers, anything else is the answer."""

    def __init__(self, *awaits, submits=(), watches=()):
        self.awaits, self.submits, self.watches = list(awaits), list(submits), list(watches)
        self.asked = []
        self.waiting, self.left = threading.Event(), threading.Event()

    async def _next(self, script, request):
        self.asked.append(request)
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await self._for_ever()
        return answer

    async def _for_ever(self):
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()

    async def GetStatus(self, request, context):
        return STATUS

    async def ListCircuits(self, request, context):
        return pb.ListCircuitsResponse(circuits=[pb.Circuit(circuit_id="square")])

    async def AwaitProof(self, request, context):
        return await self._next(self.awaits, request)

    async def SubmitProof(self, request, context):
        return await self._next(self.submits, request)

    async def WatchProof(self, request, context):
        for state in self.watches.pop(0):
            yield pb.JobState(state=state)
        if not self.watches:
            return
        await self._for_ever()


DONE = pb.AwaitProofResponse(job_id="j", status=pb.AwaitProofResponse.COMPLETED)
STOPPING = errors.Unavailable("the daemon is stopping; job j goes on when it is back")


@contextlib.contextmanager
def one_after_the_other(tmp_path, *servicers):
    """(client, go on to the next server) over one socket."""
    stack = contextlib.ExitStack()

    def advance(servicer):
        stack.close()
        return stack.enter_context(serving(tmp_path, servicer=servicer))

    server = advance(servicers[0])
    left = iter(servicers[1:])
    with Client(spelled(server.address), patience_s=30) as client:
        try:
            yield client, lambda: advance(next(left))
        finally:
            stack.close()


def in_thread(work):
    got = []
    thread = threading.Thread(target=lambda: got.append(work()))
    thread.start()
    return thread, got


def test_a_wait_goes_through_a_restart(tmp_path):
    first, second = Scripted(None), Scripted(STOPPING, STOPPING, DONE)
    with one_after_the_other(tmp_path, first, second) as (client, advance):
        thread, got = in_thread(lambda: client.wait("j"))
        assert first.waiting.wait(30)
        advance()
        thread.join(30)
        assert got == [DONE] and [request.job_id for request in second.asked] == ["j"] * 3


def test_a_wait_with_a_time_limit_counts_the_time_that_nobody_answered(tmp_path):
    with one_after_the_other(tmp_path, Scripted(STOPPING, DONE)) as (client, _):
        assert client.wait("j", 20.0) == DONE


def test_a_watch_goes_through_a_restart(tmp_path):
    first, second = Scripted(watches=[["queued", "proving"], []]), Scripted(watches=[["proving", "done"]])
    with one_after_the_other(tmp_path, first, second) as (client, advance):
        thread, got = in_thread(lambda: [state.state for state in client.watch("j")])
        assert first.waiting.wait(30)
        advance()
        thread.join(30)
        assert got == [["queued", "proving", "proving", "done"]]


def test_patience_ends_and_says_who_is_gone(tmp_path):
    with Client(f"unix://{tmp_path}/none", patience_s=0.3) as client:
        for call in (client.wait, lambda job: list(client.watch(job)), lambda job: client.reach(0.3)):
            with pytest.raises(Unreachable, match="no daemon answers"):
                call("j")


def test_a_daemon_that_keeps_stopping_is_not_asked_for_ever(tmp_path):
    with serving(tmp_path, servicer=Scripted(*[STOPPING] * 1000)) as server:
        with (
            Client(spelled(server.address), patience_s=0.5) as client,
            pytest.raises(errors.Unavailable) as caught,
        ):
            client.wait("j")
        assert "goes on when it is back" in str(caught.value)


def test_other_errors_are_not_asked_again(tmp_path):
    scripted = Scripted(errors.NotFound("job j is unknown"), submits=[errors.Unavailable("draining")])
    with one_after_the_other(tmp_path, scripted) as (client, _):
        with pytest.raises(errors.NotFound):
            client.wait("j")
        with pytest.raises(errors.Unavailable, match="draining"):
            client.submit("square", [b"ok"])
        assert len(scripted.asked) == 2


def test_a_submission_whose_answer_was_lost_is_sent_again_under_its_id(tmp_path):
    first, second = Scripted(submits=[None]), Scripted(submits=[pb.SubmitProofResponse(job_id="j")])
    with one_after_the_other(tmp_path, first, second) as (client, advance):
        thread, got = in_thread(lambda: client.submit("square", [b"ok"], deadline_s=2.5))
        assert first.waiting.wait(30)
        advance()
        thread.join(30)
        assert got == ["j"] and first.asked == second.asked
        (request,) = first.asked
        assert request.request_id and request.deadline_ms == 2500


def test_closing_a_watch_ends_its_call(tmp_path):
    scripted = Scripted(watches=[["queued"], []])
    with serving(tmp_path, servicer=scripted) as server, Client(spelled(server.address)) as client:
        states = client.watch("j")
        assert next(states).state == "queued"
        assert scripted.waiting.wait(30) and not scripted.left.is_set()
        states.close()
        assert scripted.left.wait(30)


def test_a_hint_when_to_try_again_arrives(tmp_path):
    full = errors.Exhausted("queue full")
    full.retry_after_s = 3.25
    with one_after_the_other(tmp_path, Scripted(submits=[full, errors.Exhausted("x")])) as (client, _):
        for expected in (3.25, None):
            with pytest.raises(errors.Exhausted) as caught:
                client.submit("square", [b"ok"])
            assert caught.value.retry_after_s == expected


def test_what_the_daemon_would_refuse_is_not_sent(tmp_path):
    scripted = Scripted(submits=[])
    large, small = b"x" * (2 * MIB), b"ok"
    with one_after_the_other(tmp_path, scripted) as (client, _):
        for given, says in (
            (
                {"witnesses": [large, b"x" * (9 * MIB)]},
                "witness 1: 9437184 bytes, the daemon takes at most 8388608",
            ),
            ({"inputs": [large, large, small]}, "one message takes at most 4194304"),
        ):
            with pytest.raises(errors.InvalidInput, match=says):
                client.submit("square", **given)
        with pytest.raises(errors.NotFound, match="nope"):
            client.submit("nope", [large])
    assert not scripted.asked


def test_what_travels_how(tmp_path):
    limits = Limits(max_message=2 * MIB, stream_above=MIB, max_upload=8 * MIB)
    with serving(tmp_path, limits=limits) as server, Client(spelled(server.address)) as client:
        wait_until(lambda: client.status().serving)
        assert client._plan("square", [MIB // 2, MIB // 2, 1, 2 * MIB], 4, 0) == [False, False, True, True]
        assert client._plan("square", [1024, MIB], 3, 2 * MIB - 1024) == [False, True]
        assert client._plan("square", [], 1, 5) == []


def test_a_daemon_that_is_being_started_is_waited_for(tmp_path):
    with contextlib.ExitStack() as stack, Client(f"unix://{tmp_path}/s.sock") as client:
        thread, got = in_thread(lambda: client.reach(30) or "there")
        stack.enter_context(serving(tmp_path, servicer=Scripted()))
        thread.join(30)
        assert got == ["there"]
