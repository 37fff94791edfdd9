"""`cuzkd serve`, `status`, `preload`, `evict`, `demo`: a daemon, what it is doing and holds, and all of it once."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cuzkd import config, terminal
from cuzkd.cli import access
from cuzkd.cli.codes import DONE, NOT_NOW

if TYPE_CHECKING:
    from cuzkd.service.v1 import proving_pb2 as pb


def _serve(args: argparse.Namespace) -> int:
    from cuzkd.daemon import run

    flags: dict[str, dict[str, object]] = {"daemon": {}, "proving": {}}
    for section, key, value in (
        ("daemon", "listen", args.listen),
        ("daemon", "state_dir", args.state_dir),
        ("daemon", "metrics", args.metrics),
        ("daemon", "log_level", args.log_level),
        ("proving", "policy", args.policy),
    ):
        if value is not None:
            flags[section][key] = value
    return run(config.load(args.config, flags))


def _status(args: argparse.Namespace) -> int:
    from cuzkd.service.v1 import proving_pb2 as pb

    with access.client(args) as client:
        answer = client.status()
        circuits = client.circuits()
    word = "serving" if answer.serving else f"not serving: {answer.not_serving_reason}"
    print(f"cuzkd {answer.version}, up {answer.uptime_seconds} s, {word}")
    print(f"proofs {answer.total_proofs_completed}, failed jobs {answer.total_proofs_failed}")
    pinned = terminal.byte_count(answer.pinned_memory_bytes)
    print(f"policy {answer.policy}, pinned {pinned}, a job submitted now waits {_wait(answer)}")
    devices = [
        (d.device or "none", d.backend, d.name, d.state, str(d.failures), str(d.restarts))
        for d in answer.devices
    ]
    print("\n" + terminal.table(("device", "backend", "name", "state", "failures", "restarts"), devices))
    for line in (trouble for device in answer.devices if (trouble := _trouble(device, time.time()))):
        print(line)
    tiers = {srs.circuit_id: pb.SRSStatus.Tier.Name(srs.tier).lower() for srs in answer.loaded_srs}
    waiting = {q.proof_kind.removeprefix("circuit:"): (q.pending, q.in_progress) for q in answer.queues}
    rows = []
    for circuit in circuits:
        pending, running = waiting.get(circuit.circuit_id, (0, 0))
        name, tier = circuit.circuit_id, tiers.get(circuit.circuit_id, "")
        rows.append((name, circuit.curve, f"{circuit.n_constraints:,}", tier, str(pending), str(running)))
    print("\n" + terminal.table(("circuit", "curve", "constraints", "key", "waiting", "running"), rows))
    return DONE if answer.serving else NOT_NOW


def _wait(answer: pb.GetStatusResponse) -> str:
    """How long a job would wait; 0 is nobody before it, or nobody who knows."""
    waiting = sum(queue.pending for queue in answer.queues)
    if answer.expected_wait_ms:
        return f"about {answer.expected_wait_ms / 1000:.0f} s"
    return f"behind {terminal.counted(waiting, 'partition')}" if waiting else "for nobody"


def _trouble(device: pb.DeviceStatus, now_unix_s: float) -> str:
    """One line about a device that does not work, or did not; "" when there is nothing to say."""
    if device.quarantined_device:
        left_s = max(device.quarantined_until_unix_ms / 1000 - now_unix_s, 0.0)
        failures = terminal.counted(device.failures, "failure")
        return f"{device.quarantined_device}: in quarantine for another {left_s:.0f} s after {failures}: {device.cause}"
    return f"{device.device or device.state}: {device.cause}" if device.cause else ""


def _preload(args: argparse.Namespace) -> int:
    with access.client(args) as client:
        answer = client.preload(args.name)
    print(
        f"{args.name}: " + ("was loaded" if answer.already_loaded else f"loaded in {answer.load_time_ms} ms")
    )
    return DONE


def _evict(args: argparse.Namespace) -> int:
    with access.client(args) as client:
        answer = client.evict(args.name)
    freed = f"{terminal.byte_count(answer.freed_bytes)} freed"
    print(f"{args.name}: " + (freed if answer.was_loaded else "was not loaded"))
    return DONE


def _demo(args: argparse.Namespace) -> int:
    from cuzkd import demo

    return demo.run(curve=args.curve, n_partitions=args.partitions, n_rounds=args.rounds, policy=args.policy)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {text!r}")
    return int(text)


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("serve", help="run the daemon")
    command.add_argument("--config", type=Path, help="settings (TOML); flags win over it")
    command.add_argument("--state-dir", help="circuits and waiting work (default: /var/lib/cuzkd)")
    command.add_argument(
        "--listen", metavar="ADDRESS", help=f"unix://PATH or HOST:PORT (default: {config.Daemon().listen})"
    )
    command.add_argument(
        "--policy",
        choices=config.POLICIES,
        help="who computes (default: prefer: a CUDA device where one answers, else the processor)",
    )
    command.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve /metrics and /status there (default: nowhere)",
    )
    command.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="the least that is logged (default: info)",
    )
    command.set_defaults(run=_serve)

    command = commands.add_parser("status", help="what a daemon is doing")
    access.add_options(command)
    command.set_defaults(run=_status)

    for word, run, says in (
        ("preload", _preload, "have a daemon load a circuit's key now"),
        ("evict", _evict, "have a daemon let go of a circuit's key"),
    ):
        command = commands.add_parser(word, help=says)
        command.add_argument("name", help="the circuit")
        access.add_options(command)
        command.set_defaults(run=run)

    command = commands.add_parser("demo", help="start a daemon, prove, verify, stop; leaves nothing behind")
    command.add_argument("--curve", choices=("bn254", "bls12_381", "both"), default="both")
    command.add_argument("--partitions", type=_positive, default=4, metavar="N", help="proofs per curve")
    command.add_argument("--rounds", type=_positive, default=300, metavar="N", help="size of the circuit")
    command.add_argument(
        "--policy",
        choices=("prefer", "require", "cpu"),
        default="prefer",
        help="who computes (default: prefer)",
    )
    command.set_defaults(run=_demo)
