"""Every RPC over a real socket, with a prover that proves nothing: what is tested here is the wire."""

import contextlib
import threading

import grpc
import pytest
import structlog.testing
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from service.servers import MIB, client_of, raw, serving, wait_until

from cuzkd import errors
from cuzkd.client import require_done
from cuzkd.service.interceptors import CODE_KEY
from cuzkd.service.servicer import Limits
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("service")) as server:
        yield server


@pytest.fixture
def client(server):
    with client_of(server) as client:
        yield client


def refused(call):
    """(status name, our code, message) of a call that must be refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error = caught.value
    return error.code().name, dict(error.trailing_metadata() or ()).get(CODE_KEY), error.details()


# -- jobs --


def test_submit_and_await(client):
    job_id = client.submit("square", [b"ok", b"ok:second"])
    answer = require_done(client.wait(job_id))
    assert answer.job_id == job_id and answer.status == pb.AwaitProofResponse.COMPLETED
    assert [result.index for result in answer.results] == [0, 1]
    assert answer.proof == answer.results[0].proof + answer.results[1].proof != b""
    assert all(result.backend == "cpu" and result.attempts == 1 for result in answer.results)
    assert answer.total_ms >= answer.queue_wait_ms
    assert require_done(client.wait(job_id)).proof == answer.proof, "results can be fetched again"


def test_prove_in_one_call(server, client):
    submit = pb.SubmitProofRequest(circuit_id="square", partitions=[pb.Partition(witness=b"ok")])
    with raw(server) as (_, stub):
        result = stub.Prove(pb.ProveRequest(submit=submit), timeout=30).result
    assert result.status == pb.AwaitProofResponse.COMPLETED and len(result.results) == 1
    assert wait_until(lambda: server.server.permits.used_bytes == 0)


def test_await_honours_its_timeout_and_the_job_goes_on(client):
    job_id = client.submit("square", [b"hold"])
    answer = client.wait(job_id, 0.1)
    assert answer.status == pb.AwaitProofResponse.TIMEOUT and not answer.results and not answer.error_message
    assert client.cancel(job_id) is True
    answer = client.wait(job_id)
    assert answer.status == pb.AwaitProofResponse.CANCELLED and answer.error_code == "cancelled"
    assert client.cancel(job_id) is False


def test_a_permit_is_not_held_while_a_job_runs(server, client):
    """The control plane answers however many wait."""
    held = client.submit("square", [b"hold"], request_id="slow")
    waiters = [threading.Thread(target=client.wait, args=("slow",)) for _ in range(20)]
    for waiter in waiters:
        waiter.start()
    assert client.status().serving and server.server.permits.used_bytes == 0
    client.cancel(held)
    for waiter in waiters:
        waiter.join(30)
        assert not waiter.is_alive()


def test_request_ids(client):
    first = client.submit("square", [b"ok"], request_id="wd post [1 2]")
    assert client.submit("square", [b"ok"], request_id="wd post [1 2]") == first
    assert require_done(client.wait("wd post [1 2]")).job_id == first
    with pytest.raises(errors.AlreadyExists, match=first):
        client.submit("square", [b"ok:other"], request_id="wd post [1 2]")


def test_watch(client):
    states = list(client.watch(client.submit("square", [b"ok", b"ok"])))
    assert states[-1].state == "done" and states[-1].partitions_done == states[-1].partitions == 2
    states = list(client.watch(client.submit("square", [b"fail:unsatisfied_witness"])))
    assert (states[-1].state, states[-1].error_code) == ("failed", "unsatisfied_witness")
    job_id = client.submit("square", [b"hold"])
    watched = client.watch(job_id)
    assert next(watched).state in ("queued", "synthesising")
    client.cancel(job_id)
    assert list(watched)[-1].state == "cancelled"


def test_a_failed_job_names_its_class(client):
    for word in ("invalid_witness", "unsatisfied_witness", "malformed_file", "never_fits"):
        answer = client.wait(client.submit("cube", [f"fail:{word}".encode()]))
        assert (answer.status, answer.error_code) == (
            pb.AwaitProofResponse.FAILED,
            word,
        ) and answer.error_message
        with pytest.raises(errors.BY_CODE[word]):
            require_done(answer)


def test_what_a_watcher_is_told(client):
    job_id = client.submit("square", [b"hold", b"ok"], request_id="watched")
    held = next(s for s in client.watch("watched") if s.partition_states[0].state == "synthesising")
    assert (held.job_id, held.request_id, held.circuit_id) == (job_id, "watched", "square")
    assert (held.state, held.partitions, held.partitions_done) == ("synthesising", 2, 0)
    assert [p.index for p in held.partition_states] == [0, 1] and held.partition_states[0].attempts == 1
    assert 0 <= held.progress <= 1 and not held.error_code
    client.cancel(job_id)
    last = list(client.watch(job_id))[-1]
    assert last.state == "cancelled" and last.expected_end_unix_ms == 0 and last.elapsed_ms >= held.elapsed_ms


def test_a_large_job_tells_of_what_is_under_way(client):
    job_id = client.submit("square", [b"hold"] + [b"ok"] * 300)
    held = next(s for s in client.watch(job_id) if s.state == "synthesising")
    assert 0 < len(held.partition_states) < 10 and held.partitions == 301
    assert all(p.state not in ("queued", "done") for p in held.partition_states)
    client.cancel(job_id)


def test_a_deadline_ends_a_job(client):
    answer = client.wait(client.submit("square", [b"hold"], deadline_s=0.1))
    assert (answer.status, answer.error_code) == (pb.AwaitProofResponse.FAILED, "deadline_exceeded")
    with pytest.raises(errors.DeadlineExceeded):
        require_done(answer)


# -- uploads --


def test_a_5_mib_witness_goes_by_upload(server, client):
    witness = b"ok:" + b"x" * (5 * MIB)
    with raw(server) as (_, stub):
        before = stub.GetStatus(pb.GetStatusRequest())
    assert before.stream_above_bytes < len(witness)
    assert len(require_done(client.wait(client.submit("square", [witness, b"ok"]))).results) == 2


def test_uploads_that_are_wrong(server):
    def parts(*messages):
        with raw(server) as (_, stub):
            return refused(lambda: stub.Upload(iter(messages), timeout=30))

    header = pb.UploadRequest(header=pb.UploadHeader(size_bytes=3))
    assert parts()[:2] == ("INVALID_ARGUMENT", "invalid_input")
    assert "header first" in parts(pb.UploadRequest(data=b"abc"))[2]
    assert "announced" in parts(header, pb.UploadRequest(data=b"ab"))[2]
    assert "announced" in parts(header, pb.UploadRequest(data=b"abcd"))[2]
    assert "data after the header" in parts(header, header)[2]
    large = (
        pb.UploadRequest(header=pb.UploadHeader(size_bytes=2 * MIB)),
        pb.UploadRequest(data=b"x" * (MIB + 1)),
    )
    assert "at most" in parts(*large)[2]
    huge = pb.UploadRequest(header=pb.UploadHeader(size_bytes=1 << 50))
    assert parts(huge)[0] == "INVALID_ARGUMENT"


def test_an_upload_is_used_up_by_its_job(client):
    upload_id = client.upload(b"ok")
    request = pb.SubmitProofRequest(circuit_id="square", partitions=[pb.Partition(upload_id=upload_id)])
    require_done(client.wait(client._stub.SubmitProof(request).job_id))
    assert refused(lambda: client._stub.SubmitProof(request))[:2] == ("NOT_FOUND", "not_found")


# -- refusals --


def test_filecoin_kinds_are_told_what_is_served(server):
    with raw(server) as (_, stub):
        for kind in (1, 2, 3, 4):
            request = pb.SubmitProofRequest(request_id="porep-1-2", proof_kind=kind, vanilla_proof=b"{}")
            status, code, message = refused(lambda request=request: stub.SubmitProof(request))
            assert (status, code) == ("UNIMPLEMENTED", "unsupported") and "circuit_id" in message
        assert refused(lambda: stub.Prove(pb.ProveRequest(submit=request)))[0] == "UNIMPLEMENTED"


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (pb.SubmitProofRequest(), "circuit_id is empty"),
        (pb.SubmitProofRequest(circuit_id="square"), "expected 1 to"),
        (pb.SubmitProofRequest(circuit_id="square", partitions=[pb.Partition()]), "partition 0"),
        (pb.SubmitProofRequest(circuit_id="square", partitions=[pb.Partition(witness=b"ok")] * 5000), "5000"),
        (
            pb.SubmitProofRequest(circuit_id="square", priority=9, partitions=[pb.Partition(witness=b"ok")]),
            "9",
        ),
        (
            pb.SubmitProofRequest(
                circuit_id="square", proof_kind=1, partitions=[pb.Partition(witness=b"ok")]
            ),
            "unset",
        ),
        (
            pb.SubmitProofRequest(circuit_id="square", partitions=[pb.Partition(server_path="/etc/passwd")]),
            "allowed folder",
        ),
    ],
)
def test_requests_that_make_no_sense(server, request_, says):
    with raw(server) as (_, stub):
        status, code, message = refused(lambda: stub.SubmitProof(request_))
    assert (status, code) == ("INVALID_ARGUMENT", "invalid_input") and says in message


def test_six_classes_of_trouble_have_six_statuses(tmp_path):
    """Wrong input, unknown, taken, too much, full, not now: a program can tell them apart, and each names its cause."""
    with serving(tmp_path, max_partitions=4) as server, client_of(server) as client, raw(server) as (_, stub):
        ok = pb.Partition(witness=b"ok")

        def submit(**fields):
            return refused(lambda: stub.SubmitProof(pb.SubmitProofRequest(**fields)))

        seen = [submit(circuit_id="", partitions=[ok])[:2], submit(circuit_id="nope", partitions=[ok])[:2]]
        client.submit("square", [b"ok"], request_id="x")
        seen.append(
            submit(circuit_id="square", request_id="x", partitions=[pb.Partition(witness=b"ok:2")])[:2]
        )
        seen.append(submit(circuit_id="square", partitions=[ok] * 50)[:2])
        with contextlib.suppress(errors.Exhausted):
            while True:
                client.submit("square", [b"hold"] * 4)
        seen.append(submit(circuit_id="square", partitions=[ok] * 4)[:2])
        server.loop.call_soon_threadsafe(server.engine.drain)
        wait_until(lambda: not client.status().serving)
        seen.append(submit(circuit_id="square", partitions=[ok])[:2])
    assert seen == [
        ("INVALID_ARGUMENT", "invalid_input"),
        ("NOT_FOUND", "not_found"),
        ("ALREADY_EXISTS", "already_exists"),
        ("FAILED_PRECONDITION", "never_fits"),
        ("RESOURCE_EXHAUSTED", "exhausted"),
        ("UNAVAILABLE", "unavailable"),
    ]


def test_unknown_jobs(client):
    for call in (client.wait, client.cancel, lambda job: list(client.watch(job))):
        with pytest.raises(errors.NotFound, match="nope"):
            call("nope")


class Full(rpc.ProvingEngineServicer):
    async def GetMetrics(self, request, context):
        raise MemoryError("witness 12345")


def test_a_call_that_finds_no_memory_is_told_to_come_later(tmp_path):
    with serving(tmp_path, servicer=Full()) as server, raw(server) as (channel, stub):
        status, code, message = refused(lambda: stub.GetMetrics(pb.GetMetricsRequest()))
        assert (status, code) == ("RESOURCE_EXHAUSTED", "exhausted") and "12345" not in message
        assert wait_until(lambda: health(channel) == "SERVING")


def test_a_refusal_is_counted_wherever_it_was_decided(client):
    def count(reason):
        (line,) = [
            x
            for x in client.metrics().splitlines()
            if x.startswith(f'cuzkd_refused_total{{reason="{reason}"')
        ]
        return float(line.split()[1])

    before = {reason: count(reason) for reason in ("not_found", "invalid_input")}
    for circuit, reason in (("nope", "not_found"), ("", "invalid_input")):
        request = pb.SubmitProofRequest(circuit_id=circuit, partitions=[pb.Partition(witness=b"ok")])
        refused(lambda request=request: client._stub.SubmitProof(request))
        assert count(reason) == before[reason] + 1


class Broken(rpc.ProvingEngineServicer):
    async def GetMetrics(self, request, context):
        raise ValueError("witness 12345")

    async def WatchProof(self, request, context):
        yield pb.JobState(job_id="1")
        raise ValueError("witness 12345")


def test_a_stray_exception_says_nothing_and_harms_nothing(tmp_path):
    with serving(tmp_path, servicer=Broken()) as server, raw(server) as (channel, stub):
        for call in (
            lambda: stub.GetMetrics(pb.GetMetricsRequest()),
            lambda: list(stub.WatchProof(pb.WatchProofRequest())),
        ):
            status, code, message = refused(call)
            assert (status, code) == ("INTERNAL", "internal") and "12345" not in message and "log" in message
        assert wait_until(lambda: health(channel) == "SERVING")


class Wordy(rpc.ProvingEngineServicer):
    def __init__(self, text):
        self.text = text

    async def GetMetrics(self, request, context):
        raise errors.NotFound(self.text)


@pytest.mark.parametrize(
    "text", ["a" * 9000, "%" * 9000, "\u20ac" * 9000, "\U0001f600%\n" * MIB, "\ud800" * 9000]
)
def test_a_long_message_is_cut_and_its_code_arrives(tmp_path, text):
    """What metadata cannot hold, or encode, would come as another status, without a code."""
    with (
        structlog.testing.capture_logs() as logged,
        serving(tmp_path, servicer=Wordy(text)) as server,
        raw(server) as (_, stub),
    ):
        status, code, message = refused(lambda: stub.GetMetrics(pb.GetMetricsRequest()))
    assert (status, code) == ("NOT_FOUND", "not_found")
    assert (
        message.endswith("... (cut)")
        and message[0] in (text[0], "\\")
        and 2000 < len(message.encode()) < 2100
    )
    assert [line["message"] for line in logged if line["event"] == "call_refused"] == [message]


@pytest.mark.parametrize("length", [5000, 8 * MIB])
@pytest.mark.parametrize("character", ["a", "/", "%"])
def test_a_long_server_path_is_refused_in_a_few_words(server, character, length):
    request = pb.SubmitProofRequest(
        circuit_id="square", partitions=[pb.Partition(server_path="/" + character * length)]
    )
    with structlog.testing.capture_logs() as logged, raw(server) as (_, stub):
        status, code, message = refused(lambda: stub.SubmitProof(request))
    assert (status, code) == ("INVALID_ARGUMENT", "invalid_input")
    assert f"{length + 1} characters, at most 4096" in message and len(message) < 200
    assert all(len(str(line)) < 500 for line in logged)


def test_a_message_above_the_limit_is_refused_by_name(tmp_path):
    limits = Limits(max_message=MIB, stream_above=MIB // 2, max_upload=4 * MIB)
    with (
        serving(tmp_path, limits=limits, max_upload_bytes=4 * MIB) as server,
        client_of(server) as client,
        raw(server) as (_, stub),
    ):
        assert client.status().max_message_bytes == MIB
        fits = pb.Partition(witness=b"ok:" + b"x" * (MIB - 100))
        assert stub.SubmitProof(pb.SubmitProofRequest(circuit_id="square", partitions=[fits])).job_id
        large = pb.Partition(witness=b"ok:" + b"x" * (2 * MIB))
        status, _, message = refused(
            lambda: stub.SubmitProof(pb.SubmitProofRequest(circuit_id="square", partitions=[large]))
        )
        assert status == "RESOURCE_EXHAUSTED" and str(MIB + (64 << 10)) in message
        assert client.submit("square", [b"ok:" + b"x" * (2 * MIB)]), "by upload it goes"
        with pytest.raises(errors.InvalidInput):
            client.upload(b"x" * (5 * MIB))


# -- what is going on --


def test_status_circuits_metrics(client):
    require_done(client.wait(client.submit("cube", [b"ok"])))
    status = client.status()
    (device,) = status.devices
    assert (device.backend, device.device, device.name) == ("cpu", "cpu", "a fake processor")
    assert device.prover_pid > 0 and not status.gpus and status.total_proofs_completed >= 1
    assert status.pinned_memory_bytes == 4096 and status.pinned_memory_limit_bytes == 1 << 20
    assert (
        {c.circuit_id for c in client.circuits()}
        == {s.circuit_id for s in status.loaded_srs}
        == {"square", "cube"}
    )
    assert client.circuits()[0].n_wires > 0
    job = client.submit("cube", [b"hold", b"hold"])
    queue = wait_until(lambda: [q for q in client.status().queues if q.in_progress])[0]
    assert queue.proof_kind == "circuit:cube" and queue.pending + queue.in_progress == 2
    client.cancel(job)
    assert "cuzkd_" in client.metrics()


def test_preload_and_evict(server):
    with raw(server) as (_, stub):
        done = stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id="cube"), timeout=30)
        assert done.load_time_ms == 250 or done.already_loaded
        assert stub.EvictSRS(pb.EvictSrsRequest(circuit_id="cube"), timeout=30).was_loaded
        assert not stub.EvictSRS(pb.EvictSrsRequest(circuit_id="cube"), timeout=30).was_loaded
        assert refused(lambda: stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id="nope")))[0] == "NOT_FOUND"


def health(channel, service=""):
    stub = health_pb2_grpc.HealthStub(channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def test_health_follows_facts(tmp_path):
    with serving(tmp_path) as server, raw(server) as (channel, stub):
        wait_until(lambda: health(channel) == "SERVING")
        assert health(channel, "cuzk.v1.ProvingEngine") == "SERVING"
        assert refused(lambda: health(channel, "nope"))[0] == "NOT_FOUND"
        server.loop.call_soon_threadsafe(server.engine.drain)
        wait_until(lambda: health(channel) == "NOT_SERVING")
        assert "draining" in stub.GetStatus(pb.GetStatusRequest()).not_serving_reason


def test_health_is_not_green_without_a_prover(tmp_path):
    with serving(tmp_path, fault="refuse") as server, raw(server) as (channel, stub):
        wait_until(lambda: stub.GetStatus(pb.GetStatusRequest()).devices[0].restarts > 0)
        assert health(channel) == "NOT_SERVING"
        assert "no such device" in wait_until(
            lambda: stub.GetStatus(pb.GetStatusRequest()).not_serving_reason
        )


def test_health_watchers_hear_of_changes(tmp_path):
    with serving(tmp_path) as server, raw(server) as (channel, _):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        states = [next(watch).status]
        while states[-1] != health_pb2.HealthCheckResponse.SERVING:
            states.append(next(watch).status)
        server.loop.call_soon_threadsafe(server.engine.drain)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()


def test_reflection_lists_services(server):
    with raw(server) as (channel, _):
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        (answer,) = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=10
        )
        names = {service.name for service in answer.list_services_response.service}
        assert {"cuzk.v1.ProvingEngine", "grpc.health.v1.Health"} <= names
        (answer,) = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol="cuzk.v1.ProvingEngine")]),
            timeout=10,
        )
        assert answer.file_descriptor_response.file_descriptor_proto


def test_a_job_of_too_many_partitions_is_refused_before_anything_is_sent(tmp_path):
    with serving(tmp_path) as server, client_of(server) as client:
        most = client.status().max_partitions
        with pytest.raises(
            errors.InvalidInput, match=f"{most + 1} partitions, the daemon takes at most {most}"
        ):
            client.submit("square", [b"ok:" + b"x" * MIB] * (most + 1))
        assert not list((tmp_path / "state" / "spool").iterdir())
