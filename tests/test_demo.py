"""The demo leaves nothing behind, however it ends."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from service.servers import wait_until


def gone(pid):
    """Ended, or at least dead and not yet waited for by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_a_demo_that_is_ended_takes_its_daemon_along(tmp_path, number):
    command = [sys.executable, "-P", "-m", "cuzkd.cli", "demo", "--curve", "bn254", "--policy", "cpu",
               "--rounds", "2000", "--partitions", "30"]  # fmt: skip
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as demo:
        try:
            daemon = next(
                int(found[1]) for line in demo.stdout if (found := re.match(r"daemon (\d+) ", line))
            )
            assert not gone(daemon)
            demo.send_signal(number)
            demo.wait(60)
        finally:
            demo.kill()
    assert demo.returncode == (143 if number == signal.SIGTERM else -number)
    wait_until(lambda: gone(daemon))
    if number == signal.SIGTERM:
        assert not list(tmp_path.iterdir())
