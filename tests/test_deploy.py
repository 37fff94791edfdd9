"""What is shipped for operators fits together."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cuzkd import config
from cuzkd.engine.job import JobState, PartitionResult
from cuzkd.engine.stats import Heartbeat, JobFinished, PartitionFinished, ProverState
from cuzkd.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "deploy" / "cuzkd.service"


def unit_values(key):
    lines = UNIT.read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.partition("=")[0] == key]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    text = UNIT.read_text()
    copy = tmp_path / "cuzkd.service"
    copy.write_text(
        text.replace("/opt/cuzkd/bin/cuzkd", shutil.which("true"))
    )  # it must exist to be accepted
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "cuzkd.service" not in done.stderr, done.stderr
    copy.write_text(copy.read_text().replace("Type=notify", "Type=notfy"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert "notfy" in done.stderr, "the check sees a mistake"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "notify"),
        ("ProtectSystem", "strict"),
        ("LimitMEMLOCK", "infinity"),
        ("LimitCORE", "0"),
        ("Restart", "on-failure"),
        ("StateDirectory", "cuzkd"),
        ("CacheDirectory", "cuzkd"),
    ],
)
def test_the_unit_keeps_its_promises(key, value):
    assert unit_values(key) == [value]


def test_the_unit_waits_longer_than_the_daemon_drains():
    assert float(unit_values("TimeoutStopSec")[0]) > config.Daemon().drain_s


def test_prometheus_scrapes_what_the_readme_serves():
    target = "127.0.0.1:9410"
    assert target in (ROOT / "deploy" / "prometheus.yml").read_text()
    assert target in (ROOT / "README.md").read_text()


def test_docker_and_the_script_agree():
    assert "/src/deploy/install.sh" in (ROOT / "Dockerfile").read_text()
    assert (ROOT / "deploy" / "install.sh").stat().st_mode & 0o111
    assert "deploy/install.sh" in (ROOT / ".ci" / "run").read_text()


# -- alerts --

ALERTS = ROOT / "deploy" / "alerts.yml"
# Series that tell of trouble: somebody must hear of each.
TROUBLE = {
    "cuzkd_serving", "cuzkd_provers_ready", "cuzkd_prover_deaths_total", "cuzkd_device_quarantined",
    "cuzkd_selftests_total", "cuzkd_wrong_proofs_total", "cuzkd_cpu_fallback_proofs_total", "cuzkd_retries_total",
    "cuzkd_jobs_total", "cuzkd_journal_failing", "cuzkd_journal_failures_total", "cuzkd_refused_total",
    "cuzkd_budget_requests", "cuzkd_pinned_bytes", "cuzkd_vram_free_bytes", "cuzkd_jobs_resumed_total",
}  # fmt: skip


def alerts():
    """Rules of the file, which is written so that this reads it: one key a line, values plain or in quotes."""
    rules = []
    for line in ALERTS.read_text().splitlines():
        found = re.fullmatch(r"      (- |  |    )(\w+):(?: (.+))?", line)
        if found is None:
            assert re.fullmatch(r"\s*(#.*)?|groups:|  - name: cuzkd|    rules:", line), line
            continue
        indent, key, text = found.groups()
        if indent == "- ":
            rules.append({})
        if text is not None:
            rules[-1][key] = text.removeprefix('"').removesuffix('"')
    return rules


def samples():
    """(name, labels) of everything that a daemon with a device exports after one proof."""
    metrics = Metrics("1")
    metrics.handle(ProverState("p", "ready", backend="cuda", device="GPU-1"))
    metrics.handle(Heartbeat("p", 0, 0, 0, 0, 0, 0, 0, 0, 0, False, 0))
    proof = PartitionResult(0, b"", (), {"queue_wait": 1.0}, "cuda", "GPU-1", 1, "d", 0)
    metrics.handle(PartitionFinished("j", "c", proof))
    metrics.handle(JobFinished("j", "c", JobState.DONE, "", 1.0))
    found = {("up", (("instance", "x"), ("job", "cuzkd")))}
    for family in metrics.registry.collect():
        found |= {(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples}
    return found


RULES = {rule["alert"]: rule for rule in alerts()}


def selectors(rule):
    """(series, {label: wanted values}) of an expression."""
    for name, matchers in re.findall(r"\b(cuzkd_\w+|up)\b(?:{(.*?)})?", rule["expr"]):
        wanted = re.findall(r'(\w+)(?:=~?)"(.*?)"', matchers)
        assert matchers.count("=") == len(wanted), rule["expr"]
        yield name, {label: values.split("|") for label, values in wanted}


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_asks_for_series_that_are_there(alert):
    rule, known = RULES[alert], samples()
    asked = list(selectors(rule))
    assert asked and rule["expr"].count("(") == rule["expr"].count(")")
    labels = set()
    for name, matchers in asked:
        mine = [dict(own) for series, own in known if series == name]
        assert mine, f"{alert}: no series {name}"
        labels |= mine[0].keys()
        for label, values in matchers.items():
            for value in values:
                assert any(own.get(label) == value for own in mine), f"{alert}: {name} has no {label}={value}"
    if grouped := re.search(r"sum by \((.*?)\)", rule["expr"]):
        labels &= set(grouped[1].split(", "))
    assert set(re.findall(r"\$labels\.(\w+)", rule["summary"])) <= labels


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_says_what_to_do(alert):
    rule = RULES[alert]
    assert rule["labels"] in ("{severity: page}", "{severity: ticket}")
    assert rule["summary"] and len(rule["action"]) > 30


def test_somebody_hears_of_all_trouble():
    heard = {name for rule in RULES.values() for name, _ in selectors(rule)}
    assert heard >= TROUBLE and len(RULES) == ALERTS.read_text().count("- alert:")


def test_prometheus_reads_the_alerts_and_they_are_installed():
    assert "- alerts.yml" in (ROOT / "deploy" / "prometheus.yml").read_text()
    assert "deploy/alerts.yml" in (ROOT / "deploy" / "install.sh").read_text()
