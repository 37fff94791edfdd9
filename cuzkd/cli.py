"""The command line.

Exit codes: 0 done · 1 the answer is no (proof invalid, job failed) · 2 input, files or settings are wrong ·
3 no daemon answers, or it cannot take work now · 4 an error of cuzkd itself · 130 interrupted.

Problem: people want one line that says what to change; scripts want a number.
Design: each command is a function from parsed arguments to an exit code. It raises errors of cuzkd.errors;
main() alone turns them into a line on standard error and a code. Commands import what they need when they
run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import cuzkd
from cuzkd import terminal
from cuzkd.bench import commands as bench
from cuzkd.errors import (
    AlreadyExists,
    Cancelled,
    CuzkdError,
    Exhausted,
    InvalidInput,
    InvalidKey,
    NeverFits,
    NotFound,
    Unavailable,
    UnsatisfiedWitness,
    Unsupported,
)

if TYPE_CHECKING:
    from cuzkd.client import Access, Client
    from cuzkd.service.v1 import proving_pb2 as pb

DONE, NO, WRONG_INPUT, NOT_NOW, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 4, 130


def exit_code(error: CuzkdError) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, UnsatisfiedWitness | Cancelled):
        return NO
    if isinstance(error, InvalidInput | InvalidKey | NotFound | AlreadyExists | NeverFits | Unsupported):
        return WRONG_INPUT
    return NOT_NOW if isinstance(error, Unavailable | Exhausted) else INTERNAL


# -- circuits --


def circuits_add(args: argparse.Namespace) -> int:
    from cuzkd.circuits.registry import Registry

    manifest = Registry(args.state_dir).add(args.name, args.zkey, args.vkey)
    print(
        f"{manifest.name}: {manifest.curve}, {manifest.n_constraints:,} constraints, "
        f"{manifest.n_public} public, {terminal.byte_count(manifest.key_bytes)}, "
        f"digest {manifest.digest[:16]}"
    )
    return DONE


def circuits_list(args: argparse.Namespace) -> int:
    from cuzkd.circuits.registry import Registry

    registry = Registry(args.state_dir)
    rows = [
        (m.name, m.curve, f"{m.n_constraints:,}", f"{m.n_wires:,}", str(m.n_public),
         terminal.byte_count(m.key_bytes), m.digest[:16])
        for m in registry.list()
    ]  # fmt: skip
    print(terminal.table(("circuit", "curve", "constraints", "wires", "public", "key", "digest"), rows))
    problems = registry.problems()
    for name, problem in problems.items():
        print(f"cuzkd: {name}: {problem}", file=sys.stderr)
    return WRONG_INPUT if problems else DONE


def circuits_remove(args: argparse.Namespace) -> int:
    from cuzkd.circuits.registry import Registry

    Registry(args.state_dir).remove(args.name)
    return DONE


# -- daemon --


def serve(args: argparse.Namespace) -> int:
    from cuzkd import config
    from cuzkd.daemon import run

    flags: dict[str, dict[str, object]] = {"daemon": {}, "proving": {}}
    for section, key, value in (
        ("daemon", "listen", args.listen),
        ("daemon", "state_dir", args.state_dir),
        ("daemon", "metrics", args.metrics),
        ("daemon", "log_level", args.log_level),
        ("proving", "backend", args.backend),
    ):
        if value is not None:
            flags[section][key] = value
    return run(config.load(args.config, flags))


def status(args: argparse.Namespace) -> int:
    with _client(args) as client:
        answer = client.status()
        circuits = client.circuits()
    word = "serving" if answer.serving else f"not serving: {answer.not_serving_reason}"
    print(f"cuzkd {answer.version}, up {answer.uptime_seconds} s, {word}")
    print(f"proofs {answer.total_proofs_completed}, failed {answer.total_proofs_failed}")
    print(f"pinned {terminal.byte_count(answer.pinned_memory_bytes)}")
    devices = [(d.device, d.backend, d.name, d.state, str(d.restarts)) for d in answer.devices]
    print("\n" + terminal.table(("device", "backend", "name", "state", "restarts"), devices))
    waiting = {q.proof_kind.removeprefix("circuit:"): (q.pending, q.in_progress) for q in answer.queues}
    rows = []
    for circuit in circuits:
        pending, running = waiting.get(circuit.circuit_id, (0, 0))
        rows.append(
            (circuit.circuit_id, circuit.curve, f"{circuit.n_constraints:,}", str(pending), str(running))
        )
    print("\n" + terminal.table(("circuit", "curve", "constraints", "waiting", "running"), rows))
    return DONE if answer.serving else NOT_NOW


# -- proofs --


def prove(args: argparse.Namespace) -> int:
    from cuzkd.client import require_done

    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"--out {args.out}: {error.strerror}") from None
    with _client(args) as client:
        curves = {circuit.circuit_id: circuit.curve for circuit in client.circuits()}
        job_id = client.submit(args.name, args.witness)
        _show_progress(client, job_id, len(args.witness))
        answer = require_done(client.wait(job_id))
    for result in answer.results:
        suffix = f"_{result.index}" if len(answer.results) > 1 else ""
        _write_result(args.out, suffix, curves[args.name], result)
    device = answer.results[0]
    print(
        f"{len(answer.results)} verified proof(s) in {answer.total_ms} ms "
        f"on {device.backend} {device.device}: {args.out}"
    )
    return DONE


def _show_progress(client: Client, job_id: str, n_partitions: int) -> None:
    bar = terminal.Bar(sys.stderr, n_partitions)
    try:
        for state in client.watch(job_id):
            bar.show(state.partitions_done, state.state)
    except KeyboardInterrupt:
        client.cancel(job_id)
        raise
    finally:
        bar.close()


def _write_result(folder: Path, suffix: str, curve: str, result: pb.PartitionResult) -> None:
    from cuzkd.formats import proof_bytes, snarkjs

    proof = proof_bytes.decode(curve, result.proof)
    publics = [int.from_bytes(value, "big") for value in result.public_inputs]
    (folder / f"proof{suffix}.json").write_text(snarkjs.proof_to_json(proof))
    (folder / f"public{suffix}.json").write_text(snarkjs.publics_to_json(publics))


def verify(args: argparse.Namespace) -> int:
    from cuzkd.formats import snarkjs
    from cuzkd.groth16 import verifier

    vk = snarkjs.read_vkey(args.vkey)
    proof = snarkjs.read_proof(args.proof, vk.curve)
    publics = snarkjs.read_publics(args.public, vk.curve)
    valid = verifier.verify(vk, proof, publics)
    print("valid" if valid else "INVALID: the proof does not prove this statement under this key")
    return DONE if valid else NO


def demo(args: argparse.Namespace) -> int:
    from cuzkd import demo

    return demo.run(
        curve=args.curve, n_partitions=args.partitions, n_rounds=args.rounds, backend=args.backend
    )


# -- parsing --


def _client(args: argparse.Namespace) -> Client:
    from cuzkd.client import Client

    return Client(args.address, _access(args.ca, args.token_file))


def _access(ca: Path | None, token_file: Path | None) -> Access | None:
    from cuzkd.client import Access

    if ca is None and token_file is None:
        return None
    if ca is None or token_file is None:
        raise InvalidInput("--ca and --token-file belong together")
    try:
        return Access(ca.read_bytes(), token_file.read_text().strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"--ca, --token-file: {error}") from None


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {text!r}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="cuzkd",
        description="Groth16 proving daemon",
        epilog=(__doc__ or "").split("\n\n")[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"cuzkd {cuzkd.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    kinds = commands.add_parser("circuits", help="add, list, remove circuits").add_subparsers(
        dest="kind", required=True, metavar="add|list|remove"
    )
    add = kinds.add_parser("add", help="check a key and prepare it for proving")
    add.add_argument("name")
    add.add_argument("--zkey", type=Path, required=True, help="proving key made by snarkjs")
    add.add_argument("--vkey", type=Path, help="verification_key.json that the key must agree with")
    add.set_defaults(run=circuits_add)
    kinds.add_parser("list", help="list installed circuits").set_defaults(run=circuits_list)
    remove = kinds.add_parser("remove", help="remove a circuit")
    remove.add_argument("name")
    remove.set_defaults(run=circuits_remove)
    for command in kinds.choices.values():
        command.add_argument("--state-dir", type=Path, required=True, help="the daemon's state directory")

    command = commands.add_parser("serve", help="run the daemon")
    command.add_argument("--config", type=Path, help="settings (TOML); flags win over it")
    command.add_argument("--state-dir", help="circuits and waiting work (default: /var/lib/cuzkd)")
    command.add_argument("--listen", metavar="ADDRESS", help="unix://PATH or HOST:PORT")
    command.add_argument("--backend", choices=("auto", "cpu", "cuda", "reference"))
    command.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics and /status there")
    command.add_argument("--log-level", choices=("debug", "info", "warning", "error"))
    command.set_defaults(run=serve)

    command = commands.add_parser("prove", help="prove witnesses, one proof each")
    command.add_argument("name", help="the circuit")
    command.add_argument(
        "--witness", type=Path, required=True, nargs="+", action="extend", help=".wtns files"
    )
    command.add_argument("--out", type=Path, required=True, help="folder for proof.json and public.json")
    _add_access(command)
    command.set_defaults(run=prove)

    command = commands.add_parser("verify", help="check a proof, without a daemon")
    command.add_argument("--vkey", type=Path, required=True, help="verification_key.json")
    command.add_argument("--proof", type=Path, required=True, help="proof.json")
    command.add_argument("--public", type=Path, required=True, help="public.json")
    command.set_defaults(run=verify)

    command = commands.add_parser("status", help="what a daemon is doing")
    _add_access(command)
    command.set_defaults(run=status)

    command = commands.add_parser("demo", help="start a daemon, prove, verify, stop; leaves nothing behind")
    command.add_argument("--curve", choices=("bn254", "bls12_381", "both"), default="both")
    command.add_argument("--partitions", type=_positive, default=4, metavar="N", help="proofs per curve")
    command.add_argument("--rounds", type=_positive, default=300, metavar="N", help="size of the circuit")
    command.add_argument("--backend", choices=("auto", "cpu", "cuda"), default="auto")
    command.set_defaults(run=demo)

    bench.add_parsers(commands)
    return top


def _add_access(command: argparse.ArgumentParser) -> None:
    command.add_argument("--address", required=True, help="the daemon's address: unix://PATH or HOST:PORT")
    command.add_argument("--ca", type=Path, help="its CA certificate, where it speaks TLS")
    command.add_argument("--token-file", type=Path, help="file with the bearer token, where it wants one")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line. Returns the exit code; errors for people are one line on standard error."""
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except CuzkdError as error:
        print(f"cuzkd: {error}", file=sys.stderr)
        return exit_code(error)
    except MemoryError as error:
        print(f"cuzkd: out of memory: {error}", file=sys.stderr)
        return NOT_NOW
    except KeyboardInterrupt:
        print("cuzkd: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `cuzkd ... | head`: whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if error.filename is None:  # of no file that somebody could have named
            raise
        print(f"cuzkd: {error.filename}: {error.strerror}", file=sys.stderr)
        return WRONG_INPUT


if __name__ == "__main__":
    sys.exit(main())
