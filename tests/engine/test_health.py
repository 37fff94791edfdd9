"""Who computes next, how long to wait, and when a device is left alone: by a clock that is a number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzkd.engine.fleet.health import BACKENDS, HOSTS, Death, Health, Quarantine, Returned, Rules
from cuzkd.engine.fleet.standin import elect

GPU = "GPU-1"
RULES = Rules("prefer", 3, 60.0, 200.0, 0.5, 60.0)
FAULT = Death("an illegal address", "msm_h", "device_fault", GPU)
TEST_FAILED = Death("a known proof does not verify", "selftest", "device_fault", GPU)


def make(policy="prefer", **changes):
    return Health(Rules(**{**RULES.__dict__, "policy": policy, **changes}))


def up(health, now_s=0.0, backend="cuda"):
    """A life begins and becomes ready."""
    asked = health.began(now_s)
    return asked, health.ready(now_s, backend, GPU if backend == "cuda" else "cpu")


def quarantined(policy="prefer", now_s=0.0, **changes):
    """A device that failed three times: in quarantine from now_s on, for 60 s."""
    health = make(policy, **changes)
    for _ in range(2):
        up(health, now_s)
        assert health.died(now_s, FAULT) is None
    up(health, now_s)
    assert health.died(now_s, FAULT) == Quarantine(GPU, FAULT.cause, "msm_h", 3, 60.0)
    return health


@pytest.mark.parametrize("policy", BACKENDS)
def test_the_policy_names_the_backend(policy):
    assert make(policy).began(0.0) == BACKENDS[policy]


def test_without_a_device_the_processor_works_quietly():
    health = make()
    assert up(health, backend="cpu") == ("auto", None)
    for _ in range(9):
        assert health.died(1.0, Death("killed by SIGSEGV", suspect=True)) is None
        assert up(health, 1.0, "cpu") == ("auto", None)
    assert health.view(1.0).state == "ready" and health.view(1.0).failures == 0
    assert not health.to_make_way(1e9)


def test_a_processor_that_fails_its_test_is_no_device():
    health, failed = make(quarantine_after=1), Death("wrong", "selftest", "device_fault", "cpu", suspect=True)
    for _ in range(3):
        assert health.began(0.0) == "auto"
        assert health.died(0.0, failed) is None
    assert health.useless(0.0) and health.view(0.0).device == ""


def test_a_device_that_fails_its_first_test_is_known_by_name():
    health = make()
    health.began(0.0)
    health.died(0.0, TEST_FAILED)
    assert health.view(0.0).device == GPU


def test_three_failures_in_a_row_and_the_processor_stands_in():
    health = quarantined(now_s=100.0)
    view = health.view(100.0)
    assert (view.state, view.until_s, view.failures, view.backend) == ("quarantined", 160.0, 3, "")
    assert view.cause == FAULT.cause
    assert health.pause_s(100.0) == 0.5
    assert up(health, 101.0, "cpu") == ("cpu", None)
    assert (health.view(101.0).state, health.view(101.0).backend) == ("quarantined", "cpu")
    assert not health.to_make_way(159.0) and health.to_make_way(160.0)
    health.died(160.0, Death("makes way", asked=True))
    assert health.pause_s(160.0) == 0.5
    assert up(health, 160.0) == ("auto", Returned(GPU))
    view = health.view(160.0)
    assert (view.state, view.until_s, view.failures, view.cause) == ("ready", None, 0, "")
    assert not health.to_make_way(160.0)


def test_a_proof_that_verified_at_once_ends_the_row():
    health = make()
    for _ in range(5):
        up(health)
        assert health.died(0.0, FAULT) is None
        up(health)
        assert health.died(0.0, FAULT) is None
        up(health)
        assert health.proved(0.0, 1) is None
        health.died(0.0, Death("killed by SIGKILL"))


def test_on_probation_one_failure_doubles_the_quarantine_up_to_the_longest():
    health, now_s = quarantined(), 0.0
    for seconds in (60.0, 120.0, 200.0, 200.0):
        now_s += seconds
        assert health.began(now_s) == "auto"
        again = health.died(now_s, TEST_FAILED)
        assert again == Quarantine(
            GPU, TEST_FAILED.cause, "selftest", again.failures, min(2 * seconds, 200.0)
        )
        assert up(health, now_s, "cpu") == ("cpu", None)
        health.died(now_s, Death("makes way", asked=True))


def test_whatever_it_dies_of_on_probation_it_has_not_passed():
    health = quarantined()
    health.began(60.0)
    assert health.died(60.0, Death("killed by SIGKILL")).seconds == 120.0


def test_a_device_that_returns_and_fails_again_is_left_alone_for_longer_until_it_has_proved():
    health = quarantined()
    assert up(health, 60.0)[1] == Returned(GPU)
    for _ in range(2):
        assert health.died(60.0, FAULT) is None
        up(health, 60.0)
    assert health.died(60.0, FAULT).seconds == 120.0
    assert up(health, 180.0)[1] == Returned(GPU)
    health.proved(180.0, 1)
    for _ in range(2):
        assert health.died(180.0, FAULT) is None
        up(health, 180.0)
    assert health.died(180.0, FAULT).seconds == 60.0


@pytest.mark.parametrize(
    ("death", "counts"),
    [
        (FAULT, True),
        (Death("was not ready within 600 s", suspect=True), True),
        (Death("killed by SIGSEGV", suspect=True), True),
        (Death("no CUDA device", code="unavailable"), True),  # there was one
        (Death("killed by SIGKILL"), False),
        (Death("exited with status 1"), False),
        (Death("thread ended: KeyError", code="internal"), False),
        (Death("the daemon wants it", asked=True), False),
    ],
)
def test_what_speaks_against_a_device(death, counts):
    health = make(quarantine_after=1)
    up(health)
    assert (health.died(0.0, death) is not None) == counts


def test_a_device_that_was_never_seen_may_hang_whoever_looks_for_it():
    health = make(quarantine_after=2)
    for expected in (None, 60.0):
        assert health.began(0.0) == "auto"
        verdict = health.died(0.0, Death("was not ready", suspect=True))
        assert (verdict and verdict.seconds) == expected
    assert up(health, 0.0, "cpu") == ("cpu", None)
    assert health.to_make_way(60.0)
    assert health.began(60.0) == "auto"  # it is not there at all now: looked for again, ever more seldom
    assert health.ready(60.0, "cpu", "cpu").seconds == 120.0
    assert not health.to_make_way(60.0)


def test_a_device_that_vanishes_is_looked_for_again():
    health = make()
    up(health)
    health.died(0.0, Death("killed by SIGKILL"))
    asked, verdict = up(health, 1.0, "cpu")
    assert asked == "auto" and verdict == Quarantine(GPU, "no CUDA device answers any more", "start", 1, 60.0)
    assert health.view(1.0).backend == "cpu" and not health.to_make_way(2.0) and health.to_make_way(61.0)


def test_wrong_proofs_that_a_second_attempt_put_right():
    health = make()
    up(health)
    assert health.proved(0.0, 2) is None and health.proved(0.0, 2) is None
    assert health.proved(0.0, 1) is None and health.view(0.0).failures == 0
    assert [health.proved(0.0, 2) for _ in range(2)] == [None, None]
    verdict = health.proved(0.0, 3)
    assert (verdict.stage, verdict.failures, verdict.device) == ("verify", 3, GPU)
    assert health.to_make_way(0.0)  # it ends what it holds first
    assert health.proved(0.0, 2) is None and health.proved(0.0, 1) is None
    assert health.view(0.0).failures == 3
    health.died(1.0, Death("makes way", asked=True))
    assert health.began(1.0) == "cpu"


def test_on_the_processor_nothing_is_held_against_a_device():
    for policy in ("cpu", "reference"):
        health = make(policy)
        for _ in range(5):
            up(health, backend=policy)
            assert health.proved(0.0, 2) is None and health.died(0.0, FAULT) is None
        assert health.view(0.0).state == "dead"


def test_required_means_nobody_stands_in():
    health = quarantined("require", longest_pause_s=1.0)
    assert health.pause_s(10.0) == 50.0  # to the end of the quarantine
    assert health.useless(10.0) and not health.hopeless(10.0)
    assert up(health, 60.0) == ("cuda", Returned(GPU))
    assert not health.useless(60.0)


def test_required_and_not_there():
    health, none = make("require"), Death("no CUDA device", code="unavailable")
    for count in range(3):
        assert not health.useless(0.0)
        assert health.began(float(count)) == "cuda"
        assert health.died(float(count), none) is None
    assert health.useless(3.0) and not health.hopeless(199.0) and health.hopeless(200.0)
    assert health.view(3.0).state == "dead" and health.view(3.0).cause == "no CUDA device"


def test_pauses_double_while_nothing_is_proved():
    health = make("cpu", longest_pause_s=3.0)
    lengths = []
    for _ in range(5):
        up(health, backend="cpu")
        health.died(0.0, Death("exited with status 1"))
        lengths.append(health.pause_s(0.0))
    assert lengths == [0.5, 1.0, 2.0, 3.0, 3.0]
    up(health, backend="cpu")
    health.proved(0.0, 1)
    health.died(0.0, Death("exited with status 1"))
    assert health.pause_s(0.0) == 0.5


def test_stopped():
    health = quarantined()
    health.stopped()
    assert health.view(0.0).state == "stopped"


happenings = st.lists(
    st.tuples(
        st.sampled_from(["ready", "missing", "fault", "test", "kill", "good", "wrong", "asked"]),
        st.floats(0.0, 50.0),
    ),
    max_size=60,
)


@given(happenings, st.sampled_from(["prefer", "require"]))
def test_in_any_order_a_quarantine_is_kept_and_ends(steps, policy):
    """No device is opened in a quarantine, no quarantine is longer than the longest, and each is left again."""
    health, now_s, until_s, alive, ready = make(policy), 0.0, 0.0, False, ""
    deaths = {"fault": FAULT, "test": TEST_FAILED, "kill": Death("killed"), "asked": Death("-", asked=True)}
    for what, later_s in steps:
        now_s += later_s
        if not alive:
            now_s += health.pause_s(now_s)
            backend = health.began(now_s)
            alive = True
            assert backend == ("cpu" if policy == "prefer" and now_s < until_s else BACKENDS[policy])
            assert now_s >= until_s or backend in HOSTS
        verdict = None
        if what in ("ready", "missing") and not ready and (what == "ready" or policy == "prefer"):
            ready = "cpu" if backend == "cpu" or what == "missing" else "cuda"
            verdict = health.ready(now_s, ready, GPU)
        elif what in ("good", "wrong") and ready:
            verdict = health.proved(now_s, 1 + (what == "wrong"))
        elif what in deaths:
            verdict = health.died(now_s, deaths[what])
            alive, ready = False, ""
        if isinstance(verdict, Quarantine):
            assert 0 < verdict.seconds <= RULES.longest_quarantine_s and now_s >= until_s
            until_s = now_s + verdict.seconds
        view = health.view(now_s)
        assert (view.state == "quarantined") == (now_s < until_s)
        assert view.until_s is None or view.until_s == until_s
        assert health.pause_s(now_s) <= max(RULES.longest_pause_s, until_s - now_s)
        if ready and until_s and ready == "cpu":
            assert health.to_make_way(until_s)


# -- several --


def test_a_named_device_that_is_not_there_is_a_failure_and_never_quietly_the_processor():
    health, absent = Health(RULES, GPU), Death("no CUDA device", "start", "unavailable")
    for _ in range(2):
        assert health.began(0.0) == "cuda"
        assert health.died(0.0, absent) is None
    health.began(0.0)
    assert health.died(0.0, absent) == Quarantine(GPU, absent.cause, "start", 3, 60.0)
    assert health.began(1.0) == "cpu" and Health(Rules("require"), GPU).began(0.0) == "cuda"


def test_one_that_may_not_stand_in_waits():
    health = quarantined(now_s=100.0)
    health.may_stand_in(False)
    assert health.pause_s(110.0) == 50.0 and health.useless(110.0)
    health.may_stand_in(True)
    assert health.pause_s(110.0) == 0.5 and not health.useless(110.0)
    up(health, 110.0, "cpu")
    assert not health.to_make_way(110.0)
    health.may_stand_in(False)
    assert health.to_make_way(110.0)
    strict = quarantined("require")
    strict.may_stand_in(True)
    assert strict.pause_s(10.0) == 50.0


def test_a_device_works_until_it_is_left_alone_and_again_when_it_has_passed():
    health = quarantined()
    assert not health.works() and health.left_alone(59.0) and not health.left_alone(60.0)
    up(health, 1.0, "cpu")
    assert not health.works() and health.left_alone(61.0), "until the one that stands in is gone"
    health.died(61.0, Death("makes way", asked=True))
    assert not health.left_alone(61.0)
    health.began(61.0)
    assert not health.works() and not health.left_alone(61.0), "on probation"
    health.ready(62.0, "cuda", GPU)
    assert health.works()


def test_one_that_never_starts_does_not_work():
    health = make()
    for _ in range(3):
        assert health.works()
        health.began(0.0)
        health.died(0.0, Death("exited with status 7"))
    assert not health.works() and not health.left_alone(0.0)


class Of:
    """A ward as elect() sees it."""

    def __init__(self, what):
        self.works = lambda: what == "works"
        self.left_alone = lambda: what == "alone"


@pytest.mark.parametrize(
    ("a", "b", "c", "current", "latest", "elected"),
    [
        ("works", "alone", "alone", "b", "c", ""),
        ("alone", "alone", "alone", "b", "c", "b"),
        ("alone", "alone", "alone", "", "c", "c"),
        ("probation", "alone", "alone", "a", "a", "b"),
        ("probation", "probation", "probation", "a", "b", ""),
        ("alone", "probation", "alone", "", "", "a"),
    ],
)
def test_whose_processor_works(a, b, c, current, latest, elected):
    assert elect({"a": Of(a), "b": Of(b), "c": Of(c)}, current, latest) == elected
