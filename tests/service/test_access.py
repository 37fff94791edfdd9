"""Who may speak: bearer tokens and TLS."""

import asyncio
import shutil
import subprocess

import grpc
import pytest
from service.servers import client_of, raw, serving, wait_until

from cuzkd.client import Access, Client
from cuzkd.errors import CuzkdError, Unavailable
from cuzkd.service import listen, owners
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

TOKEN = "correct-horse-battery-staple"
OTHER = "another-horse-another-staple"


def test_every_call_needs_the_token(tmp_path):
    with (
        serving(tmp_path, security=listen.Security(b"", b"", owners.parse(TOKEN, "token"))) as server,
        raw(server) as (_, stub),
    ):
        calls = (
            lambda metadata: stub.GetStatus(pb.GetStatusRequest(), metadata=metadata),
            lambda metadata: stub.SubmitProof(pb.SubmitProofRequest(), metadata=metadata),
            lambda metadata: list(stub.WatchProof(pb.WatchProofRequest(), metadata=metadata)),
            lambda metadata: stub.Upload(iter(()), metadata=metadata),
        )
        for call in calls:
            for metadata in (None, (("authorization", TOKEN),), (("authorization", "Bearer wrong"),)):
                with pytest.raises(grpc.RpcError) as caught:
                    call(metadata)
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
                assert TOKEN not in caught.value.details()
        good = (("authorization", f"Bearer {TOKEN}"),)
        assert stub.GetStatus(pb.GetStatusRequest(), metadata=good).version
        with pytest.raises(grpc.RpcError) as caught:
            stub.SubmitProof(pb.SubmitProofRequest(), metadata=good)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


class WhoAmI(rpc.ProvingEngineServicer):
    """Says, one after the other and both together, whose call it is."""

    def __init__(self):
        self.both = None

    async def GetMetrics(self, request, context):
        self.both = self.both or asyncio.Barrier(2)
        await self.both.wait()
        return pb.GetMetricsResponse(prometheus_text=owners.current())

    async def WatchProof(self, request, context):
        yield pb.JobState(job_id=owners.current())


def test_each_call_is_its_own_callers(tmp_path):
    tokens = owners.parse(f"alice {TOKEN}\nbob {OTHER}", "token")
    security = listen.Security(b"", b"", tokens)
    with serving(tmp_path, servicer=WhoAmI(), security=security) as server, raw(server) as (_, stub):
        alice, bob = ((("authorization", f"Bearer {token.secret}"),) for token in tokens)
        calls = [stub.GetMetrics.future(pb.GetMetricsRequest(), metadata=who) for who in (alice, bob)]
        assert [call.result(30).prometheus_text for call in calls] == ["alice", "bob"]
        (state,) = stub.WatchProof(pb.WatchProofRequest(), metadata=bob)
        assert state.job_id == "bob"


@pytest.fixture(scope="module")
def security(tmp_path_factory):
    """A certificate of its own for localhost."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", folder / "key", "-out", folder / "cert"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "token").write_text(TOKEN + "\n")
    for name in ("key", "token"):
        (folder / name).chmod(0o600)
    return listen.read_security(folder / "cert", folder / "key", folder / "token")


def test_tls(tmp_path, security):
    with serving(tmp_path, listen_at="0.0.0.0:0", security=security) as server:
        port = server.address.port
        with Client(f"127.0.0.1:{port}", Access(security.cert, TOKEN)) as client:
            wait_until(lambda: client.status().serving)
            assert client.prove("square", [b"ok"]).results
        stranger = Client(f"127.0.0.1:{port}", Access(security.cert, OTHER))
        with stranger, pytest.raises(CuzkdError, match="UNAUTHENTICATED"):
            stranger.status()
        with Client(f"127.0.0.1:{port}") as client, pytest.raises(Unavailable):
            client.status()


def test_on_a_socket_nothing_is_needed(tmp_path):
    with serving(tmp_path) as server, client_of(server) as client:
        assert client.circuits()
