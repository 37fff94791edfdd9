"""`cuzkd status`: what is wrong is said, whoever stands in."""

import pytest
from service.servers import serving, spelled

from cuzkd import cli
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

FAR_MS = 1 << 50


class Says(rpc.ProvingEngineServicer):
    def __init__(self, **fields):
        self.status = pb.GetStatusResponse(version="1", policy="prefer", **fields)

    async def GetStatus(self, request, context):
        return self.status

    async def ListCircuits(self, request, context):
        return pb.ListCircuitsResponse(circuits=[pb.Circuit(circuit_id="c", curve="bn254")])


def status(tmp_path, capsys, **fields):
    with serving(tmp_path, servicer=Says(**fields)) as server:
        code = cli.main(["status", "--address", spelled(server.address)])
    out, err = capsys.readouterr()
    assert err == ""
    return code, [line for line in out.splitlines() if not line.startswith("20")]  # the server's own log


def device(**fields):
    return pb.DeviceStatus(
        **{"backend": "cuda", "device": "GPU-1", "name": "a card", "state": "idle", **fields}
    )


def test_all_is_well(tmp_path, capsys):
    code, lines = status(tmp_path, capsys, serving=True, devices=[device()])
    assert code == 0 and lines[0] == "cuzkd 1, up 0 s, serving"
    assert "policy prefer, pinned 0 B, a job submitted now waits for nobody" in lines
    assert any(line.split() == ["GPU-1", "cuda", "a", "card", "idle", "0", "0"] for line in lines)
    assert not any("quarantine" in line for line in lines)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"expected_wait_ms": 12_400}, "waits about 12 s"),
        ({"queues": [pb.QueueStatus(proof_kind="circuit:c", pending=3)]}, "waits behind 3 partitions"),
    ],
)
def test_how_long_a_job_would_wait(tmp_path, capsys, fields, says):
    _, lines = status(tmp_path, capsys, serving=True, **fields)
    assert any(line.endswith(says) for line in lines)


def test_a_device_in_quarantine(tmp_path, capsys):
    stands_in = device(
        backend="cpu", device="cpu", state="proving", quarantined_device="GPU-1", failures=3,
        quarantined_until_unix_ms=FAR_MS, cause="a proof did not verify",
    )  # fmt: skip
    code, lines = status(tmp_path, capsys, serving=True, devices=[stands_in])
    (line,) = [line for line in lines if "quarantine" in line]
    assert code == 0 and line.startswith("GPU-1: in quarantine for another ")
    assert line.endswith(" s after 3 failures: a proof did not verify")


def test_a_dead_prover(tmp_path, capsys):
    dead = device(device="", backend="", name="", state="dead", cause="killed by SIGKILL", restarts=4)
    code, lines = status(tmp_path, capsys, not_serving_reason="no prover is ready", devices=[dead])
    assert code == 3 and lines[0].endswith("not serving: no prover is ready")
    assert "dead: killed by SIGKILL" in lines
    assert any(line.split() == ["none", "dead", "0", "4"] for line in lines)
