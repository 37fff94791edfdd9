"""What is learned from proofs, kept over restarts, and told to clients. Closed forms, and a fluid to compare with."""

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cuzkd.engine.job import PHASES, Priority, Stage
from cuzkd.engine.scheduling.estimates import HANGS_AFTER, MAX_KNOWN, MEMORY, Estimates, forecast, queue_s
from cuzkd.engine.scheduling.scheduler import Held, ProverView

WORKING = (Stage.SYNTHESISING, Stage.PROVING, Stage.VERIFYING)


def phases(synthesis=1.0, proving=4.0, verifying=0.5, **others):
    return {"synthesis": synthesis, "msm_h": proving, "verify": verifying, **others}


def known(path=None, **circuits):
    estimates = Estimates(path)
    for digest, taken in circuits.items():
        for backend in ("cpu", "cuda"):
            estimates.learn(digest, backend, taken)
    return estimates


def test_phases_become_stages():
    estimates = Estimates(None)
    estimates.learn("d", "cuda", {name: 2.0**n for n, name in enumerate(PHASES)} | {"msm_h.tail": 1e9})
    power = {name: 2.0**n for n, name in enumerate(PHASES)}
    waits = {"queue_wait", "key_load", "gpu_wait", "total"}
    all_s = [estimates.stage_s("d", "cuda", stage) for stage in WORKING]
    assert sum(all_s) == sum(s for name, s in power.items() if name not in waits)
    assert all_s[0] == power["witness"] + power["synthesis"] + power["stage_copy"] + power["pin"]
    assert all_s[2] == power["assembly"] + power["verify"]
    assert estimates.stage_s("d", "cuda", Stage.READY) is None


def test_what_is_unknown_is_none():
    estimates = known(d=phases())
    for digest, backend in (("e", "cpu"), ("d", "reference")):
        assert estimates.stage_s(digest, backend, Stage.PROVING) is None
        assert estimates.service_s(digest, backend) is None and estimates.proof_s(digest, backend) is None


def test_beside_a_device_the_stages_overlap():
    estimates = known(d=phases(1, 4, 0.5))
    assert estimates.service_s("d", "cuda") == 4 and estimates.service_s("d", "cpu") == 5.5
    assert estimates.proof_s("d", "cuda") == estimates.proof_s("d", "cpu") == 5.5


def test_means_begin_as_means_and_decay():
    estimates = Estimates(None)
    for n in range(1, MEMORY + 1):
        estimates.learn("d", "cpu", phases(proving=float(n)))
        assert estimates.stage_s("d", "cpu", Stage.PROVING) == pytest.approx((n + 1) / 2)
    mean = (MEMORY + 1) / 2
    for _ in range(20):
        estimates.learn("d", "cpu", phases(proving=100.0))
        mean += (100 - mean) / MEMORY
        assert estimates.stage_s("d", "cpu", Stage.PROVING) == pytest.approx(mean)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_what_is_no_time_is_not_learned(wrong):
    estimates = known(d=phases())
    estimates.learn("d", "cpu", phases(proving=wrong))
    estimates.learn("e", "cpu", phases(verifying=wrong))
    assert estimates.stage_s("d", "cpu", Stage.PROVING) == 4 and estimates.service_s("e", "cpu") is None


def test_limits():
    estimates = known(d=phases(1, 4, 0.5), fast=phases(0, 0, 0))
    assert estimates.limit_s("d", "cpu", Stage.PROVING, 10.0, 3) == HANGS_AFTER * 4
    assert estimates.limit_s("d", "cpu", Stage.VERIFYING, 10.0, 3) == HANGS_AFTER * 0.5
    for stage in (Stage.OFFERED, Stage.READY):  # waits for others
        assert estimates.limit_s("d", "cpu", stage, 10.0, 3) == HANGS_AFTER * 4
    for stage in (*WORKING, Stage.OFFERED, Stage.READY):
        assert estimates.limit_s("fast", "cpu", stage, 10.0, 3) == 10
        assert estimates.limit_s("new", "cpu", stage, 10.0, 3) == 10
        assert estimates.limit_s("new", "cpu", stage, 10.0, 27) > 7 * 3600 / 2
    # the key may have to be loaded still, however fast its partitions are
    assert estimates.limit_s("fast", "cuda", Stage.SYNTHESISING, 10.0, 27) > 1000
    assert estimates.limit_s("fast", "cuda", Stage.PROVING, 10.0, 27) == 10


@settings(deadline=None)
@given(
    some.sampled_from(["d", "new"]),
    some.sampled_from(["cpu", "cuda"]),
    some.sampled_from(list(Stage)),
    some.floats(0, 1e6),
    some.integers(0, 28),
)
def test_no_limit_is_below_the_least_nor_below_the_work(digest, backend, stage, least_s, log_domain):
    estimates = known(d=phases(1, 4, 0.5))
    limit_s = estimates.limit_s(digest, backend, stage, least_s, log_domain)
    assert limit_s >= least_s and math.isfinite(limit_s)
    assert limit_s >= HANGS_AFTER * (estimates.stage_s(digest, backend, stage) or 0)


def test_the_share_grows_from_nothing_to_all():
    estimates = known(d=phases(1, 4, 0.5))
    steps = [
        (Stage.QUEUED, 99.0),
        (Stage.OFFERED, 99.0),
        *((Stage.SYNTHESISING, s) for s in (0.0, 0.5, 1.0, 9.0)),
        (Stage.READY, 0.0),
        (Stage.READY, 99.0),
        *((Stage.PROVING, s) for s in (0.0, 2.0, 4.0, 99.0)),
        *((Stage.VERIFYING, s) for s in (0.0, 0.5, 99.0)),
        (Stage.DONE, 0.0),
    ]
    for digest in ("d", "new"):
        shares = [estimates.share(digest, "cpu", stage, s) for stage, s in steps]
        assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1
        assert estimates.share(digest, "cpu", Stage.PROVING, -1.0) < 1
    assert estimates.share("d", "cpu", Stage.PROVING, 2.0) == pytest.approx(3 / 5.5)


# -- the file --


def test_it_is_kept_over_restarts(tmp_path):
    path = tmp_path / "estimates.json"
    first = known(path, d=phases(), e=phases(2, 3, 4))
    assert not path.exists()
    first.save()
    assert path.stat().st_mode & 0o777 == 0o600 and list(tmp_path.iterdir()) == [path]
    again = Estimates(path)
    for digest in "de":
        for stage in WORKING:
            assert again.stage_s(digest, "cpu", stage) == first.stage_s(digest, "cpu", stage)
    again.learn("d", "cpu", phases(proving=10.0))
    assert again.stage_s("d", "cpu", Stage.PROVING) == 7  # its weight was kept, too


def test_nothing_new_writes_nothing(tmp_path):
    path = tmp_path / "estimates.json"
    estimates = known(path, d=phases())
    estimates.save()
    path.unlink()
    estimates.save()
    assert not path.exists()
    Estimates(None).save()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "7",
        '{"d": 1}',
        "[" * 100_000,
        "\x00\xff",
        '[["d", "cpu", 1, {"synthesising": NaN, "proving": 1, "verifying": 1}]]',
        '[["d", "cpu", 1, {"synthesising": 1e999, "proving": 1, "verifying": 1}]]',
        '[["d", "cpu", 1, {"synthesising": -1, "proving": 1, "verifying": 1}]]',
        '[["d", "cpu", 1, {"synthesising": true, "proving": 1, "verifying": 1}]]',
        '[["d", "cpu", 1, {"synthesising": "1", "proving": 1, "verifying": 1}]]',
        '[["d", "cpu", 0, {"synthesising": 1, "proving": 1, "verifying": 1}]]',
        '[["d", "cpu", 9e9, {"synthesising": 1, "proving": 1, "verifying": 1}]]',
        '[["d", "cpu", 1, {"proving": 1, "verifying": 1}]]',
        '[["d", "cpu", 1, {"synthesising": 1, "proving": 1, "verifying": 1, "more": 1}]]',
        '[["d", "cpu", 1]]',
        '[[1, "cpu", 1, {"synthesising": 1, "proving": 1, "verifying": 1}]]',
    ],
)
def test_a_damaged_file_means_learning_again(tmp_path, text):
    path = tmp_path / "estimates.json"
    path.write_bytes(text.encode("latin-1"))
    estimates = Estimates(path)
    assert estimates.service_s("d", "cpu") is None
    estimates.learn("d", "cpu", phases())
    estimates.save()
    assert Estimates(path).service_s("d", "cpu") == 5.5


def test_of_a_damaged_file_what_is_whole_is_kept(tmp_path):
    path = tmp_path / "estimates.json"
    known(path, d=phases()).save()
    entries = json.loads(path.read_text())
    path.write_text(json.dumps([None, *entries, ["e"]]))
    assert Estimates(path).service_s("d", "cpu") == 5.5


def test_where_it_cannot_be_written_the_numbers_stay(tmp_path):
    estimates = known(tmp_path / "no such folder" / "estimates.json", d=phases())
    estimates.save()
    assert estimates.service_s("d", "cpu") == 5.5


def test_it_is_bounded_and_forgets_what_was_longest_not_proved(tmp_path):
    path = tmp_path / "estimates.json"
    estimates = Estimates(path)
    for n in range(MAX_KNOWN):
        estimates.learn(f"{n:064x}", "cpu", phases())
    estimates.learn(f"{0:064x}", "cpu", phases())
    for n in range(MAX_KNOWN, MAX_KNOWN + 10):
        estimates.learn(f"{n:064x}", "cpu", phases())
    estimates.save()
    for found in (estimates, Estimates(path)):
        there = [n for n in range(MAX_KNOWN + 10) if found.service_s(f"{n:064x}", "cpu") is not None]
        assert there == [0, *range(11, MAX_KNOWN + 10)]


# -- forecasts --


def prover(*held, name="p", backend="cuda"):
    """held: (id, stage, since_s)."""
    return ProverView(
        name,
        0.0,
        tuple(Held(pid, stage, since_s, digest="d") for pid, stage, since_s in held),
        backend=backend,
    )


def test_an_idle_daemon_takes_one_proof():
    estimates = known(d=phases(1, 4, 0.5))
    one = forecast(0.0, [prover()], estimates, "d", waiting=1)
    assert (one.begin_s, one.end_s) == (0, 5.5)
    # then each further one takes the device, and two devices take half
    assert forecast(0.0, [prover()], estimates, "d", waiting=10).end_s == pytest.approx(40.5)
    assert forecast(0.0, [prover(), prover(name="q")], estimates, "d", waiting=10).end_s == pytest.approx(
        20.5
    )


def test_what_goes_before_and_what_is_held_counts():
    estimates = known(d=phases(1, 4, 0.5), e=phases(0, 10, 0))
    busy = prover(("x", Stage.PROVING, 0.0), ("y", Stage.READY, 0.0))
    told = forecast(2.0, [busy], estimates, "d", waiting=1, ahead={"e": 3})
    left_s = 4 * (1 - 3 / 5.5) + 4 * (1 - 1 / 5.5)
    assert told.begin_s == pytest.approx(left_s + 30)
    assert told.end_s == pytest.approx(told.begin_s + 5.5)


def test_what_provers_hold_of_it():
    estimates = known(d=phases(1, 4, 0.5))
    busy = prover(("a", Stage.PROVING, 0.0), ("b", Stage.READY, 0.0), ("c", Stage.OFFERED, 0.0))
    ends = [forecast(2.0, [busy], estimates, "d", held=[pid]).end_s for pid in "abc"]
    assert ends[0] == pytest.approx(2.5)
    assert ends == sorted(ends) and ends[2] < 2.5 + 4.5 + 5.5
    assert forecast(2.0, [busy], estimates, "d", held=list("abc")).end_s == ends[2]
    assert forecast(2.0, [busy], estimates, "d", held=["a"], waiting=1).end_s > ends[2]
    assert forecast(2.0, [busy], estimates, "d", held=[]).end_s == 0


def closing(*held):
    return replace(prover(*held, name="closing"), closing=True)


def test_a_prover_that_closes_takes_nothing_that_waits():
    estimates = known(d=phases(1, 4, 0.5))
    view = closing(("a", Stage.PROVING, 0.0))
    assert forecast(2.0, [view], estimates, "d", held=["a"]).end_s == pytest.approx(2.5)
    assert forecast(2.0, [view], estimates, "d", held=["a"], waiting=1) is None
    assert forecast(2.0, [view, prover()], estimates, "d", waiting=1).end_s == 5.5


@pytest.mark.parametrize("digest", ["new", "d"])
def test_nobody_knows(digest):
    estimates = known(d=phases())
    assert forecast(0.0, [], estimates, "d", waiting=1) is None
    ahead = {"new": 1} if digest == "d" else {}
    assert forecast(0.0, [prover()], estimates, digest, waiting=1, ahead=ahead) is None
    assert forecast(0.0, [prover(backend="reference")], estimates, "d", waiting=1) is None
    assert queue_s([prover()], estimates, {digest: 1, "new": 1}, 1) is None


def test_until_there_is_a_place():
    estimates = known(d=phases(1, 4, 0.5))
    assert queue_s([prover()], estimates, {"d": 100}, 10) == pytest.approx(40)
    assert queue_s([prover(), prover()], estimates, {"d": 100}, 1000) == pytest.approx(200)
    assert queue_s([], estimates, {"d": 100}, 1) is queue_s([closing()], estimates, {"d": 100}, 1) is None
    assert queue_s([prover()], estimates, {}, 1) is None


def test_against_a_fluid():
    """Provers of unequal speed and load take the work that waits in tiny steps, whoever is free first."""
    source = random.Random(8)
    for _ in range(100):
        estimates, provers = Estimates(None), []
        for n in range(source.randint(1, 4)):
            backend = f"backend {n}"
            estimates.learn("d", backend, {"msm_h": source.uniform(1, 9)})
            held = [(f"{n}/{k}", Stage.READY, 0.0) for k in range(source.randint(0, 3))]
            provers.append(prover(*held, name=backend, backend=backend))
        waiting, steps = source.randint(1, 20), 2000
        service_s = [estimates.service_s("d", view.backend) for view in provers]
        free_s = [len(view.held) * s for view, s in zip(provers, service_s, strict=True)]
        longest_s = max(service_s)
        for _ in range(steps):
            first = min(range(len(free_s)), key=free_s.__getitem__)
            free_s[first] += waiting * service_s[first] / steps
        end_s = min(free_s)
        told = forecast(0.0, provers, estimates, "d", waiting=waiting)
        slack_s = waiting * longest_s / steps
        assert told.end_s == pytest.approx(max(end_s, told.begin_s + longest_s), abs=slack_s)


@settings(deadline=None)
@given(some.data())
def test_more_work_never_ends_earlier(data):
    estimates = known(d=phases(1, 4, 0.5), e=phases(0, 10, 0))
    stage = some.sampled_from(list(Stage)[1:6])
    views = [
        prover(
            *((f"{n}/{k}", data.draw(stage), data.draw(some.floats(0, 10))) for k in range(n)), name=str(n)
        )
        for n in range(data.draw(some.integers(1, 3)))
    ]
    ahead = {"d": data.draw(some.integers(0, 50)), "e": data.draw(some.integers(0, 50))}
    waiting = data.draw(some.integers(1, 50))
    told = forecast(10.0, views, estimates, "d", waiting=waiting, ahead=ahead)
    assert 0 <= told.begin_s < told.end_s < math.inf
    for more in (
        forecast(10.0, views, estimates, "d", waiting=waiting + 1, ahead=ahead),
        forecast(10.0, views, estimates, "d", waiting=waiting, ahead={**ahead, "e": ahead["e"] + 1}),
    ):
        assert more.end_s >= told.end_s - 1e-9 and more.begin_s >= told.begin_s - 1e-9
    faster = forecast(10.0, [*views, prover(name="new")], estimates, "d", waiting=waiting, ahead=ahead)
    assert faster.end_s <= told.end_s + 1e-9


def test_critical_work_in_a_prover_goes_first():
    estimates = known(d=phases(1, 4, 0.5))
    held = (
        Held("normal", Stage.READY, 0.0, digest="d"),
        Held("critical", Stage.READY, 0.0, digest="d", priority=Priority.CRITICAL),
    )
    view = ProverView("p", 0.0, held, backend="cuda")
    ends = [forecast(0.0, [view], estimates, "d", held=[pid]).end_s for pid in ("critical", "normal")]
    assert ends[0] < ends[1]
