"""Clients that wait: a process that `bench load` starts, and kills or stops to see what becomes of the others.

    python -m cuzkd.bench.waiters TARGET PARENT < ids of jobs, a line each, then an empty line

Each id gets a connection of its own, and on it an AwaitProof without a limit. When the daemon has all of them, a line
says so. From then on each line of input is answered with a line of JSON: how many calls wait still, and how many have
ended, by status. "end" first waits until all of them have. The process ends with its input, and with PARENT, a process
id: also when it has been stopped.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cuzkd.engine import process
from cuzkd.service.v1 import proving_pb2 as pb
from cuzkd.service.v1 import proving_pb2_grpc as rpc

READY = "waiting"


async def wait(target: str, job_ids: list[str]) -> None:
    channels = [
        grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in job_ids
    ]
    calls = [
        asyncio.ensure_future(_await(rpc.ProvingEngineStub(channel), job_id))
        for channel, job_id in zip(channels, job_ids, strict=True)
    ]
    for channel in channels:  # what is answered on a connection was asked after what it was asked before
        await channel.channel_ready()
    await asyncio.sleep(0)
    for channel in channels:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    print(READY, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip() == "end":
            await asyncio.wait(calls)
        ended = Counter(call.result() for call in calls if call.done())
        print(json.dumps({"waiting": len(calls) - ended.total(), "ended": ended}), flush=True)
    for channel in channels:
        await channel.close()


async def _await(stub: Any, job_id: str) -> str:
    try:
        answer = await stub.AwaitProof(pb.AwaitProofRequest(job_id=job_id), wait_for_ready=True)
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return str(pb.AwaitProofResponse.Status.Name(answer.status))


if __name__ == "__main__":
    process.die_with(int(sys.argv[2]))
    asyncio.run(wait(sys.argv[1], list(iter(lambda: sys.stdin.readline().strip(), ""))))
