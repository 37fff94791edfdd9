"""snarkjs, the other side of every conformance test: installed once into a cache, called in batches.

Starting node and snarkjs takes about half a second, so tests hand over lists of calls. The cache lies outside
the repository: $XDG_CACHE_HOME/cuzkd (or ~/.cache/cuzkd)/snarkjs-VERSION.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

VERSION = "0.7.6"
SCRIPT = Path(__file__).with_name("calls.cjs")


class SnarkjsMissing(Exception):
    """snarkjs cannot be had here; the message says why."""


def install() -> Path:
    """The node_modules folder that holds snarkjs, installing it from the npm registry if need be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuzkd"
    home = cache / f"snarkjs-{VERSION}"
    modules = home / "node_modules"
    if modules.joinpath("snarkjs", "package.json").exists():
        return modules
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise SnarkjsMissing(f"{tool} is not installed")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, f"snarkjs@{VERSION}"],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        if made.returncode:
            raise SnarkjsMissing(f"npm install failed: {made.stderr[-300:]}")
        home.mkdir(exist_ok=True)
        if not modules.exists():
            os.rename(Path(folder) / "node_modules", modules)
    return modules


def call(modules: Path, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run calls (see calls.cjs) in one node process: for each {"value": ...} or {"error": text}."""
    done = subprocess.run(
        ["node", str(SCRIPT), str(modules)],
        input=json.dumps(calls), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"node ended with {done.returncode}: {done.stderr[-2000:]}")
    # snarkjs may log before the answer, which is the last line.
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert len(answers) == len(calls)
    return answers
