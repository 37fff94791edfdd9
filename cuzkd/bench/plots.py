"""Pictures from what benches have written: traces (--timeline) and numbers (--json). Needs matplotlib.

    cuzkd bench plot pageable.trace.json zero-copy.trace.json --out picture.svg

Several traces are drawn below each other over the same time axis, so that what takes longer is longer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuzkd.bench.timeline import COMPUTE, COPY
from cuzkd.errors import InvalidInput, Unavailable

# Rows that say where the time goes, from what their names begin with.
SHOWN = {
    "synthesis": "synthesis",
    COPY: "copy to device",
    f"{COMPUTE} 2": "second stream",  # before the first, which begins alike
    COMPUTE: "kernels",
}
KINDS = (".svg", ".png")
COLOURS = {
    "witness": "#9aa5b1", "synthesis": "#52606d", "h2d": "#d64545", "ntt_h": "#2b6cb0", "prep_msm": "#63b3ed",
    "msm_h": "#276749", "msm_l": "#2f855a", "msm_a": "#38a169", "msm_b_g1": "#48bb78", "msm_b_g2": "#9ae6b4",
    "spmv": "#805ad5",
}  # fmt: skip


def draw(files: Sequence[Path], out: Path, seconds: float | None = None) -> None:
    """One picture of all files, which are of one kind. seconds: of each trace, at most so much from its first kernel.

    Raises Unavailable without matplotlib, InvalidInput for a file that is no result of ours, or a kind of picture that
    there is not.
    """
    if out.suffix not in KINDS:
        raise InvalidInput(f"{out}: expected a picture's name, ending in {' or '.join(KINDS)}")
    try:
        import matplotlib
    except ImportError as error:
        raise Unavailable(f"pictures need matplotlib ({error}): pip install 'cuzkd[bench]'") from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "cuzkd"  # the same numbers give the same file
    results = [_read(path) for path in files]
    if all("traceEvents" in result for result in results):
        _traces(files, results, out, seconds)
    elif len(results) == 1 and results[0].get("bench") == "pinning":
        _pinning(files[0], results[0], out)
    else:
        raise InvalidInput(f"{files[0]}: expected traces, or the numbers of one `cuzkd bench pinning`")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise InvalidInput(f"{path}: expected JSON of a bench: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{path}: expected a JSON object of a bench, found {type(found).__name__}")
    return found


def _traces(
    files: Sequence[Path], traces: Sequence[dict[str, Any]], out: Path, seconds: float | None
) -> None:
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    figure, axes = pyplot.subplots(
        len(traces), 1, figsize=(11, 1.0 + 1.3 * len(traces)), sharex=True, squeeze=False
    )
    used: set[str] = set()
    for axis, path, trace in zip(axes[:, 0], files, traces, strict=True):
        try:
            used |= _one_trace(axis, path.name.split(".")[0], trace, seconds)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{path}: expected a trace of a bench with kernels: {error!r}") from error
    axes[-1, 0].set_xlabel("seconds")
    handles = [Patch(color=colour, label=phase) for phase, colour in COLOURS.items() if phase in used]
    figure.legend(handles=handles, loc="upper center", ncols=len(handles), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)
    pyplot.close(figure)


def _one_trace(axis: Any, title: str, trace: dict[str, Any], seconds: float | None) -> set[str]:
    """Returns the phases that it drew."""
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    work = [(e, kind) for e in events if e["ph"] == "X" and (kind := _kind(names[e["tid"]]))]
    start = min(e["ts"] for e, kind in work if kind == SHOWN[COMPUTE])
    end = start + seconds * 1e6 if seconds else float("inf")
    there = {kind for _, kind in work}
    rows = [kind for kind in SHOWN.values() if kind in there or kind != "second stream"]
    drawn: set[str] = set()
    for event, kind in work:
        begin, stop = max(event["ts"], start), min(event["ts"] + event["dur"], end)
        if event["name"] in COLOURS and stop > begin:
            drawn.add(event["name"])
            place = ((begin - start) / 1e6, (stop - begin) / 1e6)
            axis.broken_barh([place], (rows.index(kind) - 0.38, 0.76), facecolors=COLOURS[event["name"]])
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    axis.invert_yaxis()
    axis.set_title(title, loc="left", fontsize=10)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    return drawn


def _kind(row: str) -> str | None:
    return next((shown for start, shown in SHOWN.items() if row.startswith(start)), None)


def _pinning(path: Path, result: dict[str, Any], out: Path) -> None:
    from matplotlib import pyplot

    curve = result.get("curve")
    if not curve:
        raise InvalidInput(f"{path}: has no curve of page-locking to draw (which needs a device)")
    figure, axis = pyplot.subplots(figsize=(7, 4))
    for regions in sorted({point["regions"] for point in curve}):
        points = sorted((p["nbytes"] / 2**30, p["register_s"]) for p in curve if p["regions"] == regions)
        axis.plot(*zip(*points, strict=True), marker="o", label=f"{regions} regions")
    axis.set_xlabel("GiB pinned in place")
    axis.set_ylabel("seconds of cudaHostRegister")
    axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)
    pyplot.close(figure)
