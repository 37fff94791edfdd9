"""A server in a thread, around an engine whose prover is the fake one of tests/engine, and clients for it."""

import asyncio
import contextlib
import threading

import grpc
from engine import front

from cuzkd.client import Client
from cuzkd.engine.engine import Engine
from cuzkd.metrics import Metrics
from cuzkd.service import listen
from cuzkd.service.server import Server
from cuzkd.service.servicer import Limits, Servicer
from cuzkd.service.v1 import proving_pb2_grpc as rpc

MIB = 1 << 20


class Serving:
    """What `serving` gives: the address, the parts, and a way to run something on their loop."""

    def __init__(self, loop, engine, server, address):
        self.loop = loop
        self.engine = engine
        self.server = server
        self.address = address

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)


@contextlib.contextmanager
def serving(folder, *, listen_at=None, servicer=None, limits=None, security=None, **settings):
    """A server over a Unix socket in `folder`. servicer: made from the engine by default."""
    limits = limits or Limits(max_message=32 * MIB, stream_above=MIB, max_upload=64 * MIB)
    ready, done = threading.Event(), None
    made = []

    async def main():
        nonlocal done
        done = asyncio.Event()
        metrics = Metrics("0")
        engine = Engine(front.settings(folder / "state", **settings), front.FakeRegistry())
        engine.subscribe(metrics.handle)
        server = Server(
            servicer or Servicer(engine, limits, metrics.text),
            engine.serving,
            max_message_bytes=limits.max_message,
            message_budget_bytes=2 * limits.max_message,
            security=security,
        )
        address = server.bind(listen.parse(listen_at or f"unix://{folder}/s.sock"))
        await engine.start()
        await server.start()
        made.append(Serving(asyncio.get_running_loop(), engine, server, address))
        ready.set()
        await done.wait()
        await engine.stop()
        await server.stop(1.0)

    def run():
        try:
            asyncio.run(main())
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    (folder / "state").mkdir(exist_ok=True)
    thread.start()
    try:
        assert ready.wait(30) and made, "the server did not start"
        yield made[0]
    finally:
        if made:
            made[0].loop.call_soon_threadsafe(done.set)
        thread.join(30)
        assert not thread.is_alive()


def spelled(address):
    return f"unix://{address.path}" if address.path else address.target


@contextlib.contextmanager
def client_of(serving_, access=None):
    with Client(spelled(serving_.address), access) as client:
        wait_until(lambda: client.status().serving)
        yield client


@contextlib.contextmanager
def raw(serving_):
    """(channel, stub) without the client's help."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(serving_.address.target, options=options) as channel:
        yield channel, rpc.ProvingEngineStub(channel)


def wait_until(fact, timeout_s=30.0):
    """Poll a fact; what it gave is returned once it is true."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.02)):
        if found := fact():
            return found
        pause.wait(0.02)
    raise AssertionError("it did not become true in time")
