"""The disk is full: by plan at each write, and really."""

import contextlib
import subprocess

import grpc
import pytest
from faults.harness import Caller, Ledger, code_of
from service.servers import wait_until

POINTS = ("spool_write", "spool_sync", "journal_write", "journal_commit")


CASES = [("full", point) for point in POINTS] + [("memory", "spool_write"), ("memory", "spool_sync")]


@pytest.mark.parametrize("skip", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
@pytest.mark.parametrize(("action", "point"), CASES)
def test_no_room_is_not_now_and_never_a_lost_job(place, template, action, point, skip):
    """Whoever is refused hears "exhausted" and finds nothing begun; whoever was accepted gets a proof."""
    here, ledger = place(), Ledger(template)
    here.start().serves()
    here.front_plan.write_text(f"{action}:{point}:2@{skip}")
    for _ in range(3):
        ledger.ask("bn254")
        ledger.ask("bls12_381", way="upload")
    refusals = []
    with Caller(here.address) as caller:
        while ledger.open:
            for ask in ledger.open:
                try:
                    ask.job_id = ask.job_id or caller.submit(ask)
                except grpc.RpcError as error:
                    refusals.append((code_of(error), error.details()))
            ledger.advance(caller)
    acted = here.acted(here.front_plan)
    assert acted == [(action, point)] * 2
    assert {code for code, _ in refusals} <= {"exhausted"}, refusals
    if point.startswith("spool"):
        assert len(refusals) == len(acted)
    ledger.settled(here)
    here.idle()
    # What could not be recorded then has been recorded since.
    here.kill()
    here.start().serves()
    ledger.settled(here)
    here.end()


@contextlib.contextmanager
def small_disk(folder, size_bytes):
    """A file system of its own. Needs leave to mount."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "cuzkd-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder):
    """Take all that is left; returns the file to remove."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler


def test_a_disk_that_is_really_full(place, template, tmp_path):
    """Filled while jobs wait and run: they end, others are refused; with room again all goes on, restart and all."""
    with small_disk(tmp_path / "disk", 24 << 20) as disk:
        here, ledger = place(state=disk / "state"), Ledger(template)
        here.plan.write_text("hold:launch:2")  # the disk is full before they have ended
        here.start().serves()
        try:
            with Caller(here.address) as caller:
                for curve in ("bn254", "bls12_381", "bn254"):
                    ledger.ask(curve, 2)
                for ask in ledger.asks:
                    ask.job_id = caller.submit(ask)
                filler = fill(disk)
                late = ledger.ask("bn254")
                with pytest.raises(grpc.RpcError) as caught:
                    caller.submit(late)
                assert code_of(caught.value) == "exhausted", caught.value
                for ask in ledger.asks[:-1]:
                    wait_until(lambda ask=ask: ledger._look(caller, ask, 1.0) or ask.end, 30)
                assert caller.status().serving
                filler.unlink()
            ledger.see_through(here)
            ledger.settled(here)
            here.idle()
            here.kill()
            here.start().serves()
            ledger.settled(here)
            here.end()
        finally:
            here.wreck()


def test_a_start_on_a_full_disk_says_so_and_loses_nothing(place, template, tmp_path):
    with small_disk(tmp_path / "disk", 24 << 20) as disk:
        here, ledger = place(state=disk / "state"), Ledger(template)
        here.plan.write_text("hold:launch:4")
        here.start().serves()
        try:
            for _ in range(3):
                ledger.ask("bn254", 2)
            with Caller(here.address) as caller:
                for ask in ledger.asks:
                    ask.job_id = caller.submit(ask)
            here.kill()
            filler = fill(disk)
            here.start()
            # It may serve, or say that it cannot: what it may not do is to forget.
            wait_until(lambda: here.process.poll() is not None or here.events("serving"), 30)
            here.kill()
            filler.unlink()
            here.start()
            ledger.see_through(here)
            ledger.settled(here)
            here.idle()
            here.end()
        finally:
            here.wreck()
