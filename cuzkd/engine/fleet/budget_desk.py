"""The front's desk for host memory: how much there is, who holds how much, and what can never fit.

Problem. Provers pin and map most of the machine. Each must be told "wait" or "never"; a prover that dies
cannot give anything back itself; and a budget read from MemTotal alone ignores the container's limit and gets
it killed.

Design. One memory.Budget, owned here. Its queue calls back, so the event loop never waits for memory. Each
prover has an account of the grants that it holds; closing the account, when its process is really gone,
returns all of them at once and takes its requests out of the queue. What the front itself holds (large messages,
working intake processes) stands in the same queue (`reserve_async`). A request that has to wait is reported, so
that provers can be asked to shrink what they hold idle.

Life of a grant. GrantRequest -> place in the queue (-> withdrawn) -> Grant -> GrantReturn in pieces of any size, or
the account's end.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cuzkd.circuits.manifest import Manifest
from cuzkd.circuits.prepared import head_bytes, pouring_bytes
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, Exhausted, NeverFits
from cuzkd.memory.budget import Budget, Reservation, Ticket
from cuzkd.memory.upstream import round_to_pages

ELEMENT_BYTES = 32
MIN_MARGIN_BYTES = 256 << 20

Answer = Callable[[wire.Grant], None]


@dataclass(frozen=True)
class Limit:
    """limit_bytes to hand out; source: where the number is from, for the log."""

    limit_bytes: int
    source: str


def auto_limit(root: Path = Path("/"), margin_bytes: int | None = None) -> Limit:
    """The smallest of MemTotal and every limit of the control groups above this process, less a margin.

    A soft limit (memory.high) counts: beyond it the kernel slows a process down until it seems to hang.
    margin_bytes: by default a tenth, at least 256 MiB, for the front, the provers' code and the page cache.
    Control groups are read in both layouts. root: where proc and sys are, for tests.
    """
    found = [(_mem_total(root), "MemTotal"), *_cgroup_limits(root)]
    total_bytes, source = min(found)
    margin = max(total_bytes // 10, MIN_MARGIN_BYTES) if margin_bytes is None else margin_bytes
    return Limit(max(total_bytes - margin, 0), f"{source} {total_bytes} - {margin}")


def _mem_total(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise CuzkdError(f"{root / 'proc/meminfo'}: has no MemTotal")


def _cgroup_limits(root: Path) -> list[tuple[int, str]]:
    """(bytes, file) of every limit along the path of this process's control group."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    limits = []
    names: tuple[str, ...]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.high")
        elif controllers == "memory":
            top, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes",)
        else:
            continue
        folder = top / path.strip("/")
        for level in (folder, *folder.parents):
            if not level.is_relative_to(top):
                break
            for file in (level / name for name in names):
                if (value := _number(file)) is not None:
                    limits.append((value, str(file)))
    return limits


def _number(file: Path) -> int | None:
    """None: no such file, or "max"."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def need_bytes(manifest: Manifest, in_place: bool) -> int:
    """The least host memory with which one partition of this circuit can be proved, in bytes.

    in_place: the backend works in host memory (the CPU's): the key and three domain-sized vectors are there
    at once. A key's points pass to a device piece by piece, and it takes vectors of n_rows.
    """
    loading = manifest.key_bytes if in_place else head_bytes(manifest) + pouring_bytes(manifest)
    return max(loading, working_bytes(manifest, in_place))


def working_bytes(manifest: Manifest, in_place: bool) -> int:
    """The least with which a prover that has loaded the key proves one partition after the other."""
    domain = 1 << manifest.log_domain
    rows, vectors = (domain, 3) if in_place else (manifest.n_rows, 2)
    leases = vectors * round_to_pages(rows * ELEMENT_BYTES) + round_to_pages(manifest.n_wires * ELEMENT_BYTES)
    stays = manifest.key_bytes if in_place else head_bytes(manifest)
    return stays + leases


@dataclass
class _Account:
    grants: list[Reservation] = field(default_factory=list)
    waiting: dict[int, Ticket] = field(default_factory=dict)
    closed: bool = False


class BudgetDesk:
    """Owned by the engine's loop. short_of(nbytes): called when a request has to wait for that much."""

    def __init__(self, limit_bytes: int, short_of: Callable[[int], None]) -> None:
        self.budget = Budget(limit_bytes, "host")
        self._short_of = short_of
        self._accounts: dict[str, _Account] = {}
        self._own: dict[int, Ticket] = {}  # what the front itself waits for
        self._numbers = itertools.count()

    def require_possible(self, manifest: Manifest, in_place: bool) -> None:
        """Raises NeverFits, with both numbers, for a circuit that this budget can never prove."""
        need = need_bytes(manifest, in_place)
        if need > self.budget.limit_bytes:
            raise NeverFits(
                f"circuit {manifest.name}: one partition needs at least {need} bytes of host memory, "
                f"the whole budget is {self.budget.limit_bytes} bytes"
            )

    def copies(self, manifest: Manifest, in_place: bool) -> int:
        """How many provers can prove a circuit at once without waiting for each other's memory, at least one."""
        left = self.budget.limit_bytes - need_bytes(manifest, in_place)
        return 1 + max(left, 0) // working_bytes(manifest, in_place)

    def open(self, prover: str) -> None:
        """A new process speaks for this prover. Its predecessor's account must be closed."""
        self._accounts[prover] = _Account()

    def ask(self, prover: str, request: wire.GrantRequest, answer: Answer) -> None:
        """answer(Grant) is called once, now or later, unless the account is closed or the request withdrawn first: that
        is the same id again, with 0 bytes. One that was granted meanwhile is the prover's to return.
        """
        account = self._accounts[prover]
        number, nbytes = request.request_id, request.bytes
        if not nbytes and (withdrawn := account.waiting.pop(number, None)):
            withdrawn.cancel()
            return
        if not nbytes:  # takes nothing, so waits for nothing
            answer(wire.Grant(request_id=number))
            return
        try:
            if request.now:
                account.grants.append(self.budget.reserve(nbytes, request.what, timeout_s=0))
                answer(wire.Grant(request_id=number, bytes=nbytes))
                return
            self._queue(account, request, answer)
        except (NeverFits, Exhausted) as error:
            answer(wire.Grant(request_id=number, error_code=error.code, error_message=str(error)))

    def _queue(self, account: _Account, request: wire.GrantRequest, answer: Answer) -> None:
        number, nbytes = request.request_id, request.bytes
        granted_already = False

        def granted(reservation: Reservation) -> None:
            nonlocal granted_already
            granted_already = True
            account.waiting.pop(number, None)
            if account.closed:
                reservation.release()
                return
            account.grants.append(reservation)
            answer(wire.Grant(request_id=number, bytes=nbytes))

        ticket = self.budget.request(nbytes, request.what, granted)
        if not granted_already:
            account.waiting[number] = ticket
            self._short_of(self.short_bytes())

    async def reserve_async(self, nbytes: int, what: str) -> Reservation:
        """Memory of the front's own or of its intake, in line with the provers' requests. Release it on the loop.

        Waits for as long as it is not cancelled; then it leaves the line, and nothing stays reserved. Raises NeverFits,
        with both numbers, when nbytes is more than the whole budget.
        """
        future: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()

        def granted(reservation: Reservation) -> None:
            if future.cancelled():  # it has only not come to leaving the line yet
                reservation.release()
            else:
                future.set_result(reservation)

        ticket = self.budget.request(nbytes, what, granted)
        number = next(self._numbers)
        if not future.done():
            self._own[number] = ticket
            self._short_of(self.short_bytes())
        try:
            return await future
        except asyncio.CancelledError:
            if not ticket.cancel() and not future.cancelled():
                future.result().release()
            raise
        finally:
            self._own.pop(number, None)

    def short_bytes(self) -> int:
        """How much more would have to be free for the oldest waiting request of any prover or of the front; 0 when
        none waits.

        It may be another one that is served next.
        """
        lines = [self._own, *(account.waiting for account in self._accounts.values())]
        waiting = [next(iter(line.values())) for line in lines if line]
        free_bytes = self.budget.limit_bytes - self.budget.used_bytes
        return max([0, *(ticket.nbytes - free_bytes for ticket in waiting)])

    def waits(self, prover: str) -> Counter[str]:
        """Requests of a prover that wait, by what they are for."""
        account = self._accounts.get(prover)
        return Counter(ticket.what for ticket in account.waiting.values()) if account else Counter()

    @property
    def front_waits(self) -> bool:
        return bool(self._own)

    @property
    def front_holds(self) -> bool:
        """Whether the front has memory, which it gives back after a while."""
        return self.budget.used_bytes > sum(map(self.held_bytes, self._accounts))

    def press(self) -> None:
        """Say once more that memory is short, if it is."""
        if short := self.short_bytes():
            self._short_of(short)

    def give_back(self, prover: str, nbytes: int) -> None:
        """A prover returns bytes of whatever grants. Raises CuzkdError when it never held so many."""
        account = self._accounts[prover]
        if nbytes > self.held_bytes(prover):
            raise CuzkdError(f"{prover} returns {nbytes} bytes and holds {self.held_bytes(prover)}")
        while nbytes:
            grant = account.grants[-1]
            piece = min(nbytes, grant.nbytes)
            if piece == grant.nbytes:
                account.grants.pop()
            nbytes -= piece
            grant.shrink(grant.nbytes - piece)  # may call granted(), which appends

    def close(self, prover: str) -> None:
        """The process is gone: everything comes back, nothing is answered any more. Idempotent."""
        account = self._accounts.pop(prover, None)
        if account is None:
            return
        account.closed = True
        for ticket in list(account.waiting.values()):
            ticket.cancel()
        for grant in account.grants:
            grant.release()

    def held_bytes(self, prover: str) -> int:
        account = self._accounts.get(prover)
        return sum(grant.nbytes for grant in account.grants) if account else 0
