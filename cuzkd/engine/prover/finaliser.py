"""The finaliser: from kernels in flight to a proof that has been verified, or to the reason why there is
none.

result() blocks until the sums are there (on the CPU it is the work itself). The device goes to the next partition when
it is about to be through with a large one, so that it need not wait for us, or else with the first result of those that
were launched together; then the vectors of an in-place backend have gone back. The rest is a few milliseconds of host
code: fresh r and s from the operating system, assembly, verification. Nothing leaves unverified.

A proof that does not verify may be the fault of the witness (a key without C cannot tell beforehand), of the
key, or of the device. The partition is computed once more, from its file on; what then verifies was a counted
retry. What fails again is answered, after the device has been asked for a proof whose outcome is known
(canary.py): if that fails, too, it was the device. Who was launched with others is computed again alone.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cuzkd.backend.protocol import Backend, MsmSums, nothing
from cuzkd.engine.faults import NoFaults
from cuzkd.engine.prover.device import on_device
from cuzkd.engine.prover.occupancy import Occupancy
from cuzkd.engine.prover.partition import Partition
from cuzkd.engine.prover.report import Reporter
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import DeviceFault, InvalidKey, UnsatisfiedWitness
from cuzkd.formats import proof_bytes
from cuzkd.groth16.keys import KeyHead, Proof, VerifyingKey

ATTEMPTS_INSIDE = 2
HOST_PHASES = ("key_load", "pin", "witness", "synthesis", "assembly", "verify")


class Groth16(Protocol):
    """What groth16/ does with the sums."""

    def assemble(self, key: KeyHead, sums: MsmSums, r: int, s: int) -> Proof: ...

    def verify(self, vk: VerifyingKey, proof: Proof, publics: Sequence[int]) -> bool: ...


class Finaliser:
    def __init__(
        self,
        backend: Backend,
        groth16: Groth16,
        order: Callable[[str], int],
        regime: str,
        device_is_right: Callable[[str], bool],
        occupancy: Occupancy,
        reporter: Reporter,
        faults: NoFaults,
    ) -> None:
        """order(curve): r, the order of its groups. regime: how vectors got to the device, for the log.
        device_is_right(curve): the canary; it waits for the device. occupancy: of the device; told of each partition.
        """
        self._backend = backend
        self._groth16 = groth16
        self._order = order
        self._regime = regime
        self._device_is_right = device_is_right
        self._occupancy = occupancy
        self._asking = threading.Lock()  # one finaliser at a time: somebody must serve whoever has the device
        self._reporter = reporter
        self._faults = faults

    def run(self, partition: Partition) -> bool:
        """True: done and reported. False: it has to be computed once more, and holds nothing any more.

        Raises DeviceFault, Exhausted, Cancelled, UnsatisfiedWitness, InvalidKey.
        """
        sums = self._sums(partition)
        partition.check()
        partition.stage = "verifying"
        self._reporter.stage(partition.id, partition.stage)
        proving = partition.key.proving
        order = self._order(proving.arrays.curve)
        self._faults.at("assembly")
        with partition.timed("assembly"):
            proof = self._groth16.assemble(proving, sums, secrets.randbelow(order), secrets.randbelow(order))
        self._faults.at("verify")
        with partition.timed("verify"):
            good = self._groth16.verify(proving.vk, proof, partition.publics)
        if not good:
            partition.release()
            partition.alone = True
            self._judge(partition, proving)
            return False
        phases = partition.phases
        self._log(partition, phases)
        message = wire.PartitionDone(
            partition_id=partition.id,
            proof=proof_bytes.encode(proof),
            publics=[value.to_bytes(32, "big") for value in partition.publics],
            phases=[wire.Phase(name=name, seconds=seconds) for name, seconds in phases.items()],
            h2d_bytes=partition.h2d_bytes,
            key_digest=partition.digest,
            attempts_inside=partition.attempts_inside,
            launch_set=partition.launch_set,
        )
        partition.release()  # before it is told: whoever hears "done" may count on the memory
        self._reporter.done(message)
        return True

    def _sums(self, partition: Partition) -> MsmSums:
        if partition.run is None:
            raise RuntimeError("a result without a run")
        self._faults.at("result")
        with on_device("result", self._backend.device):
            sums = partition.run.result(partition.device.ending if partition.device else nothing)
        sums = self._faults.sums(sums)
        partition.upload = partition.run = None
        partition.drop_vectors()  # before the device: its next holder gives up a slot, and vectors are counted
        if partition.device is not None:
            partition.device.done()
        partition.free("device")
        partition.spans += sums.spans
        if work := self._occupancy.add(sums.spans):
            partition.work = work.after(partition.work)
        partition.h2d_bytes += sums.h2d_bytes
        return sums

    def _judge(self, partition: Partition, proving: KeyHead) -> None:
        """A proof did not verify. Returns if it is to be computed once more."""
        attempts, circuit, device = partition.attempts_inside, partition.circuit, self._backend.device
        fields = {"partition_id": partition.id, "circuit": circuit, "device": device}
        self._reporter.log("warning", "proof_did_not_verify", fields, {"attempt": attempts})
        if attempts < ATTEMPTS_INSIDE or not self._asking.acquire(blocking=False):
            return
        try:
            right = self._device_is_right(proving.arrays.curve)
        finally:
            self._asking.release()
        if not right:
            raise DeviceFault(
                f"{attempts} proofs for circuit {circuit} did not verify, and neither does a proof of the built-in "
                f"circuit: device {device} is wrong"
            )
        if proving.constraints.c is None:
            raise UnsatisfiedWitness(
                f"the witness does not satisfy circuit {circuit}, or the key does not fit it: "
                f"{attempts} proofs from it did not verify"
            )
        raise InvalidKey(
            f"{attempts} proofs for circuit {circuit} did not verify, although the witness satisfies all constraints "
            f"and device {device} proves the built-in circuit well: the key is not one for these constraints, or "
            "its copy in memory is damaged (it will be loaded anew)"
        )

    def _log(self, partition: Partition, phases: Mapping[str, float]) -> None:
        fields = {
            "partition_id": partition.id,
            "circuit": partition.circuit,
            "backend": self._backend.name,
            "device": self._backend.device,
            "regime": self._regime,
        }
        device = {f"{name}_s": s for name, s in phases.items() if name not in HOST_PHASES}
        counts = {
            "mutex_wait_s": partition.mutex_wait_s,
            "h2d_bytes": partition.h2d_bytes,
            "attempts_inside": partition.attempts_inside,
            "launch_set": partition.launch_set,
        }
        work = partition.work
        when = {f"kernels_{name}": value for name, value in vars(work).items()} if work else {}
        self._reporter.log("info", "gpu_timing", fields, device | counts | when)
        host = {f"{name}_s": phases.get(name, 0.0) for name in HOST_PHASES}
        self._reporter.log("info", "fin_timing", fields, host | {"free_s": partition.freed_s})
