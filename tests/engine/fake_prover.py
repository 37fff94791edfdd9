"""A prover process that proves nothing: it speaks the protocol, and does what the payload says.

Payloads: text `action[:argument]`, per partition.
    ok                 a "proof" that names partition, attempt and payload
    die:N              the process exits while the partition is in synthesis, in its first N attempts
    die-proving:N      the same, after it has said "proving"
    fail:CODE          PartitionFailed, not retryable
    retry:N            PartitionFailed, retryable, in its first N attempts
    fault:N            the same, because of the device
    hold               stays in synthesis until it is cancelled
    grant:BYTES        asks for memory, proves once it is granted, gives it back; fails with the grant's error
    keep:BYTES         the same, but dies with the memory in its first attempt
    twice              answers two times

STATE/device: a device is there, for the backends "auto" and "cuda"; STATE/device-UUID: for a process that is to see
UUID. Its text: `ok`; `broken` fails its self-test; `wrong` makes each proof twice; `faulty` fails each partition;
`slow` gets ready when it is not slow any more.

Configure.fault: `mute` never gets ready; `waits` says so and does not listen;
`refuse` sends Fatal; `silent` sends no second heartbeat;
`garbage` sends a broken frame. What was begun is appended to STATE/begun, one line each; who was started, to
STATE/started: UUID, backend, threads.
"""

import argparse
import heapq
import os
import socket
import threading
import time
from pathlib import Path

from cuzkd.engine.channel import Channel
from cuzkd.engine.wire import prover_pb2 as wire

VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES", "")
GPU = VISIBLE if VISIBLE.startswith("GPU-") else "GPU-00000000-fake"


class FakeProver:
    def __init__(self, sock):
        self.channel = Channel(sock, wire.ToProver)
        self.changed = threading.Condition()
        self.waiting = []
        self.cancelled = set()
        self.grants = {}
        self.loaded = set()
        self.device = ""

    def send(self, **kind):
        self.channel.send(wire.FromProver(**kind))

    def run(self):
        config = self.channel.receive().configure
        self.state_dir = Path(config.state_dir)
        with open(self.state_dir / "started", "a") as file:
            file.write(f"{GPU} {config.backend} {config.threads}\n")
        if config.fault == "mute":
            self.channel.receive()
            os._exit(3)
        if config.fault == "waits":
            self.send(log=wire.LogRecord(level="warning", event="prover_waits"))
            threading.Event().wait()
        if config.fault == "refuse":
            self.send(fatal=wire.Fatal(error_code="unavailable", error_message="no such device"))
            os._exit(1)
        self.open_device(config.backend)
        self.send(heartbeat=wire.Heartbeat(pinned_slab_bytes=4096, pinned_free_bytes=4096, slabs_made=1))
        if config.fault == "garbage":
            self.channel._socket.sendall(b"\xff\xff\xff\xff")
        threading.Thread(target=self.work, daemon=True).start()
        while (message := self.channel.receive()) is not None:
            self.take(message)
        os._exit(1)

    def open_device(self, backend):
        several = any(self.state_dir.glob("device-*"))
        file = self.state_dir / (f"device-{VISIBLE}" if several else "device")
        if backend in ("auto", "cuda") and file.exists():
            while (text := file.read_text()) in ("", "slow"):  # "": it is being written
                time.sleep(0.01)
            self.device = text
        elif backend == "cuda":
            self.send(
                fatal=wire.Fatal(error_code="unavailable", error_message="no CUDA device", stage="start")
            )
            os._exit(1)
        if self.device == "broken":
            self.send(
                fatal=wire.Fatal(
                    error_code="device_fault",
                    error_message="self-test: a known proof does not verify",
                    stage="selftest",
                    device=GPU,
                )
            )
            os._exit(1)
        known = ("cuda", GPU, "a fake card") if self.device else ("cpu", "cpu", "a fake processor")
        names = dict(zip(("backend", "device", "device_name"), known, strict=True))
        self.send(ready=wire.Ready(pid=os.getpid(), selftest_s=0.25, **names))

    def take(self, message):
        kind = message.WhichOneof("kind")
        if kind == "shutdown":
            os._exit(0)
        if kind == "preload":
            self.loaded.add(message.preload.circuit)
            self.send(
                circuit=wire.CircuitState(
                    circuit=message.preload.circuit,
                    loaded=True,
                    digest=message.preload.digest,
                    bytes=100,
                    load_s=0.25,
                )
            )
        if kind == "drop":
            was = message.drop.circuit in self.loaded
            self.loaded.discard(message.drop.circuit)
            self.send(circuit=wire.CircuitState(circuit=message.drop.circuit, loaded=False, was_loaded=was))
        with self.changed:
            if kind == "offer":
                heapq.heappush(
                    self.waiting,
                    (-message.offer.priority, message.offer.sequence, id(message), message.offer),
                )
            if kind == "cancel":
                self.cancelled.add(message.cancel.partition_id)
            if kind == "grant":
                self.grants[message.grant.request_id] = message.grant
            self.changed.notify_all()

    def work(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting)
                offer = heapq.heappop(self.waiting)[-1]
            self.prove(offer)

    def stage(self, offer, stage):
        self.send(event=wire.PartitionEvent(partition_id=offer.partition_id, stage=stage))

    def failed(self, offer, code, retryable=False):
        self.send(
            failed=wire.PartitionFailed(
                partition_id=offer.partition_id,
                error_code=code,
                error_message=f"made to fail with {code}",
                stage="synthesising",
                retryable=retryable,
            )
        )

    def prove(self, offer):
        if offer.partition_id in self.cancelled:
            return self.failed(offer, "cancelled")
        payload = Path(offer.spool_path).read_text()
        with open(self.state_dir / "begun", "a") as file:
            file.write(f"{offer.partition_id} {offer.attempt} {payload}\n")
        action, _, argument = payload.partition(":")
        self.stage(offer, "synthesising")
        if action in ("die", "die-proving") and offer.attempt <= int(argument):
            if action == "die-proving":
                self.stage(offer, "proving")
            os._exit(9)
        if action == "fail":
            return self.failed(offer, argument)
        if action in ("retry", "fault") and offer.attempt <= int(argument):
            return self.failed(offer, {"retry": "exhausted", "fault": "device_fault"}[action], retryable=True)
        if action == "hold":
            with self.changed:
                self.changed.wait_for(lambda: offer.partition_id in self.cancelled)
            return self.failed(offer, "cancelled")
        if action in ("grant", "keep"):
            grant = self.ask(offer, int(argument))
            if grant.error_code:
                return self.failed(offer, grant.error_code)
            if action == "keep" and offer.attempt == 1:
                os._exit(9)
            self.send(grant_return=wire.GrantReturn(bytes=grant.bytes, what="slab"))
        for stage in ("ready", "proving", "verifying"):
            self.stage(offer, stage)
        if self.device == "faulty":
            return self.failed(offer, "device_fault", retryable=True)
        for _ in range(2 if action == "twice" else 1):
            self.done(offer, payload)

    def ask(self, offer, nbytes):
        self.send(
            grant_request=wire.GrantRequest(request_id=offer.sequence, bytes=nbytes, what="slab", now=False)
        )
        with self.changed:
            self.changed.wait_for(lambda: offer.sequence in self.grants)
        return self.grants[offer.sequence]

    def done(self, offer, payload):
        phases = {"witness": 0.001, "synthesis": 0.002, "h2d": 0.003, "verify": 0.004}
        self.send(
            done=wire.PartitionDone(
                partition_id=offer.partition_id,
                proof=f"{offer.partition_id} {offer.attempt} {payload}".encode(),
                publics=[bytes(31) + b"\x07"],
                phases=[wire.Phase(name=name, seconds=seconds) for name, seconds in phases.items()],
                h2d_bytes=64,
                key_digest=offer.circuit_digest,
                attempts_inside=1 + (self.device == "wrong"),
            )
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--lock")
    FakeProver(socket.socket(fileno=parser.parse_args().fd)).run()
