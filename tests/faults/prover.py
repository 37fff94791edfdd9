"""The real prover process, with a book of what it works on: `prover.py BOOK DEVICE --fd N`.

BOOK: a file that all provers of a state directory share. Each partition that is begun is a line `begun ID PID`. Who
begins one while another process that has begun any is still alive writes `twice ID PID OTHER`: a process that hangs or
was stopped may go on at any moment, so being alive is enough.
DEVICE: a name for a device that is the processor in disguise: chosen for the backends "auto" and "cuda", it says that
it is of CUDA and meets the faults that are planned, which then the fallback does not. Empty: none is there.
"visible": the one that CUDA_VISIBLE_DEVICES names.
"""

import dataclasses
import fcntl
import os
import sys
from pathlib import Path

from cuzkd.engine import process
from cuzkd.engine.prover import main as prover
from cuzkd.engine.prover.synthesis import Synthesis
from cuzkd.errors import Unavailable


class Book:
    def __init__(self, path):
        self._path = Path(path)

    def begin(self, partition_id):
        with self._path.open("a+") as book:
            fcntl.flock(book, fcntl.LOCK_EX)
            book.seek(0)
            pids = {int(line.split()[2]) for line in book if line.startswith("begun ")} - {os.getpid()}
            book.writelines(f"twice {partition_id} {os.getpid()} {pid}\n" for pid in pids if self._lives(pid))
            book.write(f"begun {partition_id} {os.getpid()}\n")

    def _lives(self, pid):
        """A process that has ended and is not reaped does nothing any more; a number may have another owner by now."""
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state not in "ZX" and str(self._path).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False


class Disguised:
    """A backend under the name of another one."""

    name = "cuda"

    def __init__(self, backend, device):
        self._backend = backend
        self.device = self.device_name = device

    def __getattr__(self, name):
        return getattr(self._backend, name)


def main(book_path, device, *arguments):
    book = Book(book_path)
    device = os.environ["CUDA_VISIBLE_DEVICES"] if device == "visible" else device

    class Booked(Synthesis):
        def run(self, partition):
            book.begin(partition.id)
            super().run(partition)

    choose, open_parts = prover.select.choose, prover.open_parts

    def chosen(name, vram_bytes=0):
        if device and name in ("auto", "cuda"):
            choice = choose("cpu")
            return dataclasses.replace(choice, backend=Disguised(choice.backend, device))
        if name == "cuda":
            raise Unavailable("no CUDA device is here")
        return choose("cpu" if name == "auto" else name)

    def opened(config, *rest, **more):
        return dataclasses.replace(open_parts(config, *rest, **more), synthesis=Booked)

    prover.select.choose = chosen
    prover.upstream_for = lambda backend: prover.PagesUpstream(prover.cpu.threads())
    prover.open_parts = opened

    def serve(sock):
        if device:
            hide_faults_from_the_fallback()
        prover.serve(sock)

    process.main("prover", serve, arguments)


def hide_faults_from_the_fallback():
    channel = prover.Channel

    class Channel(channel):
        def receive(self):
            message = super().receive()
            if message is not None and message.HasField("configure") and message.configure.backend == "cpu":
                message.configure.fault = ""
            return message

    prover.Channel = Channel


if __name__ == "__main__":
    main(*sys.argv[1:])
