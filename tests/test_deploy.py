"""What is shipped for operators fits together."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cuzkd import config

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
