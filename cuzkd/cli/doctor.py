"""`cuzkd doctor`: is this machine fit to prove, and what is to be done where it is not.

Problem: a daemon that is slow, or that proves on the processor although there is a card, says so in its log at best;
and what is missing lies outside of cuzkd: a driver, a package, a limit.
Design: a check looks at one thing and tells what it found as a `Finding`. What can be tried is tried (memory is
page-locked and copied, a known circuit is proved and the proof verified) rather than read off a setting.
Life of data: checks yield findings -> each is printed as it comes, or all together as JSON -> the worst decides the
exit code: 1 when there is a problem.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from cuzkd import terminal
from cuzkd.cli.codes import DONE, NO
from cuzkd.curves.params import CURVES
from cuzkd.errors import CuzkdError, Exhausted

OK, WARNING, PROBLEM = "OK", "warning", "problem"
NVIDIA, DISPLAY = "0x10de", "0x03"  # of PCI: the maker, and the beginning of a graphics card's class
CUPYS = ("cupy-cuda12x", "cupy-cuda13x")  # one of them
COPIED_BYTES = 256 << 20
SLOW_BYTES_S = 10e9  # from page-locked memory: less is no link of 16 lanes, or an old one
FULL = 0.5  # of a device's memory, taken by others: then keys may find no room


@dataclass(frozen=True)
class Finding:
    """check: what was looked at. remedy: what to do about it; empty where all is well."""

    check: str
    level: str
    found: str
    remedy: str = ""


def examine(policy: str, root: Path = Path("/")) -> Iterator[Finding]:
    """Every check. policy: the daemon's, one of "prefer", "require", "cpu". root: above proc and sys."""
    backend: Any = None
    try:
        from cuzkd.backend import cpu, select
    except ImportError as error:
        yield Finding("processor", PROBLEM, f"the native module does not load: {error}", "install cuzkd anew")
        return
    yield _processor(cpu, root)
    yield _huge_pages(root)
    if policy != "cpu":
        try:
            backend = select.load("cuda")
        except Exception as error:  # a CuPy that is damaged fails in ways of its own
            yield _no_device(str(error), policy, root)
    yield _memlock(backend is not None)
    if backend is not None:
        try:
            yield from _device(backend, root)
            yield from _canary(backend)
        finally:
            with suppress(CuzkdError):  # of a device that failed: it has been told
                backend.close()
    yield from _canary(select.load("cpu"))


# -- the machine -----------------------------------------------------------------------------------------------


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text()
    return ""


def _processor(cpu: Any, root: Path) -> Finding:
    """The fastest build of the native module that it can run should be the one in use."""
    cpuinfo = _read(root / "proc/cpuinfo")
    fields = {
        name.strip(): value.strip() for name, _, value in (s.partition(":") for s in cpuinfo.splitlines())
    }
    flags = set(fields.get("flags", "").split())
    wanted = [flag for flag in ("bmi2", "adx", "avx512ifma") if flag in flags]
    build = cpu._native.__name__.rpartition(".")[2]
    found = (
        f"{fields.get('model name', 'of unknown name')}, {len(os.sched_getaffinity(0))} threads, "
        f"{' '.join(wanted) or 'no mulx or adx'}; native module {build}"
    )
    if {"bmi2", "adx"} <= flags and build == "_native":
        remedy = (
            "a faster build of the native module is missing or not wanted (CUZKD_NATIVE): install cuzkd anew"
        )
        return Finding("processor", WARNING, found, remedy)
    return Finding("processor", OK, found)


def _huge_pages(root: Path) -> Finding:
    setting = root / "sys/kernel/mm/transparent_hugepage/enabled"
    chosen = re.search(r"\[(\w+)\]", _read(setting))
    if chosen and chosen[1] in ("always", "madvise"):
        return Finding("huge pages", OK, chosen[1])
    remedy = (
        f"echo madvise > {setting}, at every start: large memory is made and page-locked several times faster"
    )
    return Finding("huge pages", WARNING, chosen[1] if chosen else "the kernel has none", remedy)


def _memlock(device: bool) -> Finding:
    """Drivers differ in whether they heed it; what can be page-locked for real is tried with the device."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY:
        return Finding("memlock", OK, "unlimited")
    found = terminal.byte_count(limit)
    if not device:
        return Finding("memlock", OK, f"{found}; it matters beside a device alone")
    remedy = "LimitMEMLOCK=infinity in the systemd unit, --ulimit memlock=-1 of docker, or limits.conf"
    return Finding("memlock", WARNING, found, remedy)


# -- the device ------------------------------------------------------------------------------------------------


def _driver(root: Path) -> str:
    """The version of NVIDIA's driver, or nothing where it is not loaded."""
    found = re.search(r"\s(\d{3,}(?:\.\d+)+)\s", _read(root / "proc/driver/nvidia/version"))
    return found[1] if found else ""


def _cards(root: Path) -> int:
    """NVIDIA's graphics cards on the bus, whether or not anything drives them."""
    vendors = (root / "sys/bus/pci/devices").glob("*/vendor")
    return sum(
        _read(vendor).strip() == NVIDIA and _read(vendor.parent / "class").startswith(DISPLAY)
        for vendor in vendors
    )


def _no_device(error: str, policy: str, root: Path) -> Finding:
    """Why there is none: no card, no driver, no CuPy, or one that does not answer."""
    driver, cards = _driver(root), _cards(root)
    if driver:
        remedy = "what the error says; does nvidia-smi show the device, and may this user open /dev/nvidia*?"
        return Finding("device", PROBLEM, f"driver {driver}, but {error}", remedy)
    if cards:
        remedy = "install NVIDIA's driver; in a container: --gpus all, and its container toolkit on the host"
        return Finding(
            "device", PROBLEM, f"{terminal.counted(cards, 'card')}, but no driver: {error}", remedy
        )
    if policy == "require":
        remedy = "a machine with an NVIDIA card, or --policy prefer"
        return Finding("device", PROBLEM, f"no NVIDIA card here: {error}", remedy)
    remedy = "nothing, if the processor is to prove: --policy cpu says so"
    return Finding("device", WARNING, "no NVIDIA card here: the processor proves", remedy)


def _device(backend: Any, root: Path) -> Iterator[Finding]:
    gpu = backend.gpu
    yield Finding("device", OK, f"{gpu.name}, {gpu.cubins.arch}, {gpu.uuid}")
    for check in (_versions, _device_memory, _kernels, _bandwidth):
        try:
            yield check(backend, root)
        except CuzkdError as error:
            name = check.__name__.strip("_").replace("_", " ")
            yield Finding(name, PROBLEM, str(error), "mend that first; nvidia-smi and dmesg may say more")


def _versions(backend: Any, root: Path) -> Finding:
    """A driver loads code of its own major version of CUDA, and of older ones."""
    from cuzkd.backend import cuda_probe, nvrtc

    speaks, compiles = cuda_probe.cuda_version(), nvrtc.version()
    cupys = {name: version for name in CUPYS if (version := _installed(name))}
    packages = ", ".join(f"{name} {version}" for name, version in cupys.items()) or "CuPy"
    found = (
        f"driver {_driver(root) or 'of unknown version'} for CUDA {speaks[0]}.{speaks[1]}, "
        f"NVRTC {compiles[0]}.{compiles[1]}, {packages}"
    )
    if speaks[0] < compiles[0]:
        return Finding("versions", PROBLEM, found, f"a newer driver, or pip install 'cuzkd[cuda{speaks[0]}]'")
    if len(cupys) > 1:
        remedy = "two of CuPy are in each other's way: pip uninstall one, install the other anew"
        return Finding("versions", PROBLEM, found, remedy)
    return Finding("versions", OK, found)


def _installed(package: str) -> str:
    """Its version, or nothing."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def _device_memory(backend: Any, root: Path) -> Finding:
    memory = backend.vram()
    free, total = terminal.byte_count(memory.free_bytes), terminal.byte_count(memory.total_bytes)
    found = f"{free} free of {total}"
    if memory.used_bytes > FULL * memory.total_bytes:
        remedy = "nvidia-smi shows who holds it (a daemon that runs is one); keys without room are slower"
        return Finding("device memory", WARNING, found, remedy)
    return Finding("device memory", OK, found)


def _kernels(backend: Any, root: Path) -> Finding:
    from cuzkd.backend import nvrtc

    cubins = backend.gpu.cubins
    wanted = [module for curve in CURVES for module in nvrtc.proving_modules(curve)]
    there = len(wanted) - len(cubins.missing(wanted))
    found = f"{there} of {len(wanted)} are compiled, in {cubins.folder}"
    if there < len(wanted):
        return Finding("kernels", WARNING, found, "cuzkd warmup, as the user who runs the daemon")
    return Finding("kernels", OK, found)


def _bandwidth(backend: Any, root: Path) -> Finding:
    """Of copies to the device out of memory that is page-locked as the daemon does it."""
    from cuzkd.backend import cpu, cuda_probe
    from cuzkd.backend.cuda import register_host, unregister_host
    from cuzkd.memory.upstream import PagesUpstream, RegisteringUpstream

    slab = RegisteringUpstream(PagesUpstream(cpu.threads()), register_host, unregister_host).make(
        COPIED_BYTES
    )
    try:
        seconds = min(cuda_probe.copy_seconds(backend.gpu, slab.address, COPIED_BYTES, 5))
    finally:
        slab.close()
    rate = COPIED_BYTES / seconds
    found = f"{rate / 1e9:.1f} GB/s to the device"
    if rate < SLOW_BYTES_S:
        remedy = "nvidia-smi -q -d PCI: is it a link of 16 lanes? Witnesses and streamed keys wait for it"
        return Finding("bandwidth", WARNING, found, remedy)
    return Finding("bandwidth", OK, found)


# -- proofs ----------------------------------------------------------------------------------------------------


def _canary(backend: Any) -> Iterator[Finding]:
    """A known circuit is proved on each curve, and the proof verified."""
    from cuzkd.engine.prover.canary import Canary

    canary = Canary(backend)
    for curve in CURVES:
        check, began = f"proof, {backend.name}, {curve}", time.monotonic()
        try:
            canary.test(curve)
        except Exhausted as error:
            yield Finding(
                check, WARNING, f"not tried: {error}", "again when whoever holds the memory is done"
            )
        except CuzkdError as error:
            yield Finding(check, PROBLEM, str(error), "do not prove on it: it is broken, or its driver is")
        else:
            yield Finding(check, OK, f"verifies; {time.monotonic() - began:.1f} s with the making of its key")


# -- the command -----------------------------------------------------------------------------------------------


def _doctor(args: argparse.Namespace) -> int:
    found = []
    for finding in examine(args.policy):
        found.append(finding)
        if not args.json:
            print(_line(finding), flush=True)
    problems = sum(finding.level == PROBLEM for finding in found)
    if args.json:
        print(json.dumps({"healthy": not problems, "findings": [asdict(f) for f in found]}, indent=2))
    else:
        print(_verdict(found))
    return NO if problems else DONE


def _line(finding: Finding) -> str:
    line = f"{finding.level:8} {finding.check}: {finding.found}"
    return line + (f"\n{'':8} -> {finding.remedy}" if finding.remedy else "")


def _verdict(found: Iterable[Finding]) -> str:
    levels = [finding.level for finding in found]
    counted = [terminal.counted(n, level) for level in (PROBLEM, WARNING) if (n := levels.count(level))]
    return ", ".join(counted) or "all is well"


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "doctor", help="is this machine fit to prove, and what to do where it is not"
    )
    command.add_argument(
        "--policy",
        choices=("prefer", "require", "cpu"),
        default="prefer",
        help="of the daemon: with require no device is a problem, with cpu none is looked for (default: prefer)",
    )
    command.add_argument("--json", action="store_true", help="the findings, for programs")
    command.set_defaults(run=_doctor)
