"""Grants over the desk, the auto limit, and what can never fit."""

from dataclasses import replace

import pytest
from engine.front import manifest

from cuzkd.circuits.manifest import SectionEntry
from cuzkd.engine.budget_desk import BudgetDesk, auto_limit, need_bytes
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, NeverFits

GIB = 1 << 30


class Desk(BudgetDesk):
    """With answers and shortages written down."""

    def __init__(self, limit_bytes):
        self.answers, self.shortages = [], []
        super().__init__(limit_bytes, self.shortages.append)

    def request(self, prover, number, nbytes, now=False):
        request = wire.GrantRequest(request_id=number, bytes=nbytes, what="slab", now=now)
        self.ask(prover, request, lambda g: self.answers.append((g.request_id, g.bytes, g.error_code)))


def test_first_come_first_served_over_all_provers():
    desk = Desk(100)
    desk.open("p")
    desk.open("q")
    desk.request("p", 1, 60)
    desk.request("q", 1, 50)
    desk.request("p", 2, 10)
    assert desk.answers == [(1, 60, "")] and desk.shortages == [10, 10]
    assert desk.short_bytes() == 10
    desk.give_back("p", 20)
    assert desk.answers == [(1, 60, ""), (1, 50, ""), (2, 10, "")]
    assert (desk.held_bytes("p"), desk.held_bytes("q"), desk.budget.used_bytes) == (50, 50, 100)
    assert desk.short_bytes() == 0
    with pytest.raises(CuzkdError, match="returns 51 bytes and holds 50"):
        desk.give_back("q", 51)


def test_returns_come_in_any_size():
    desk = Desk(100)
    desk.open("p")
    for number, nbytes in enumerate((10, 20, 30)):
        desk.request("p", number, nbytes)
    for nbytes in (1, 34, 5, 20):
        desk.give_back("p", nbytes)
    assert desk.held_bytes("p") == desk.budget.used_bytes == 0


def test_now_or_never_or_later():
    desk = Desk(100)
    desk.open("p")
    desk.request("p", 1, 101)
    desk.request("p", 2, 101, now=True)
    desk.request("p", 3, 90, now=True)
    desk.request("p", 4, 11, now=True)
    assert desk.answers == [(1, 0, "never_fits"), (2, 0, "never_fits"), (3, 90, ""), (4, 0, "exhausted")]
    assert desk.budget.waiting == 0


def test_death_returns_everything_and_serves_the_others():
    desk = Desk(100)
    desk.open("p")
    desk.open("q")
    desk.request("p", 1, 70)
    desk.request("p", 2, 80)
    desk.request("q", 1, 90)
    desk.close("p")
    desk.close("p")
    assert desk.answers == [(1, 70, ""), (1, 90, "")]
    assert (desk.held_bytes("p"), desk.budget.used_bytes) == (0, 90)
    desk.open("p")
    desk.request("p", 1, 10)
    assert desk.answers[-1] == (1, 10, "")


def lay(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemFree: 1 kB\n"}


GROUPS, TOP = "proc/self/cgroup", "sys/fs/cgroup"
OLD = f"{TOP}/memory/j/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("files", "total", "source"),
    [
        ({}, 64 * GIB, "MemTotal"),
        ({GROUPS: "0::/a/b\n"}, 64 * GIB, "MemTotal"),
        (
            {
                GROUPS: "0::/a/b\n",
                f"{TOP}/a/b/memory.max": "max",
                f"{TOP}/a/memory.max": str(8 * GIB),
                f"{TOP}/memory.max": str(9 * GIB),
            },
            8 * GIB,
            "a/memory.max",
        ),
        ({GROUPS: "0::/not/here\n", f"{TOP}/memory.max": str(4 * GIB)}, 4 * GIB, "cgroup/memory.max"),
        ({GROUPS: "5:cpu:/x\n4:memory:/j\n", OLD: str(2 * GIB)}, 2 * GIB, "memory.limit_in_bytes"),
        ({GROUPS: "4:memory:/j\n", OLD: str(2**63 - 4096)}, 64 * GIB, "MemTotal"),
    ],
)
def test_auto_limit_is_the_smallest_one_less_a_margin(tmp_path, files, total, source):
    limit = auto_limit(lay(tmp_path, {**MEMINFO, **files}), margin_bytes=1000)
    assert limit.limit_bytes == total - 1000 and source in limit.source and str(total) in limit.source


def test_auto_limit_of_this_machine():
    limit = auto_limit()
    assert limit.limit_bytes > 0 and limit.source


def test_never_fits_has_both_numbers():
    points = SectionEntry("a_g1", GIB, "uint64", (GIB // 2,), ())
    circuit = manifest(log_domain=20, n_wires=1000, key_bytes=5 * GIB, sections=(points,))
    need = need_bytes(circuit, in_place=True)
    assert need == 5 * GIB + 3 * 32 * 2**20 + 32768
    assert need_bytes(circuit, in_place=False) == 5 * GIB
    many = replace(circuit, n_constraints=1 << 26)  # their vectors, and of the key all but its points
    assert need_bytes(many, in_place=False) == GIB + 2 * (2**31 + 4096) + 32768
    desk = Desk(need - 1)
    with pytest.raises(NeverFits, match=f"{need} bytes.*{need - 1} bytes"):
        desk.require_possible(circuit, in_place=True)
    Desk(need).require_possible(circuit, in_place=True)
