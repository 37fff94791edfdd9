"""Which build of the native module is taken, and that the others can be had by name."""

import os
import subprocess
import sys

import pytest

from cuzkd.backend import native
from cuzkd.errors import InvalidInput


def flags(monkeypatch, text):
    monkeypatch.setattr(native, "cpuinfo", lambda field: text if field == "flags" else "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fpu sse2", ["portable"]),
        ("", ["portable"]),
        ("fpu bmi2 adx", ["adx", "portable"]),
        ("bmi2 adx avx2 fma avx512f avx512dq avx512bw avx512vl", ["adx", "portable"]),
        ("bmi2 adx avx2 fma avx512f avx512dq avx512bw avx512vl avx512ifma", ["ifma", "adx", "portable"]),
        ("adx avx2 fma avx512f avx512dq avx512bw avx512vl avx512ifma", ["portable"]),
    ],
)
def test_every_flag_of_a_build_is_needed(monkeypatch, text, expected):
    flags(monkeypatch, text)
    assert native.usable() == expected


def test_the_best_one_that_was_compiled(monkeypatch):
    flags(monkeypatch, "bmi2 adx avx2 fma avx512f avx512dq avx512bw avx512vl avx512ifma")
    there = {"cuzkd.kernels._native", "cuzkd.kernels._native_adx"}

    def import_module(name):
        if name not in there:
            raise ImportError(name)
        return name

    monkeypatch.setattr(native.importlib, "import_module", import_module)
    assert native.chosen("") == ("adx", "cuzkd.kernels._native_adx")
    there.remove("cuzkd.kernels._native_adx")
    assert native.chosen("") == ("portable", "cuzkd.kernels._native")
    there.clear()
    with pytest.raises(ImportError):
        native.chosen("")
    with pytest.raises(InvalidInput, match="'ifma': it does not load"):
        native.chosen("ifma")  # asked for: nothing else will do, plain ints neither


def test_what_the_processor_cannot_run_is_refused_by_name(monkeypatch):
    flags(monkeypatch, "bmi2 adx avx2 fma avx512f avx512dq avx512bw avx512vl")
    with pytest.raises(InvalidInput, match="'ifma': this processor has no avx512ifma"):
        native.chosen("ifma")
    with pytest.raises(InvalidInput, match="expected one of ifma, adx, portable, got 'avx2'"):
        native.chosen("avx2")


def test_a_processor_may_have_any_name(monkeypatch, tmp_path):
    """A hypervisor chooses it, byte by byte."""
    file = tmp_path / "cpuinfo"
    file.write_bytes(b"model name\t: X\xae 9000\nflags\t\t: bmi2 adx\n")
    monkeypatch.setattr(native, "Path", lambda _: file)
    assert native.usable() == ["adx", "portable"]
    assert native.cpuinfo("model name").endswith(" 9000")


@pytest.mark.parametrize("build", native.BUILDS)
def test_the_variable_decides_in_a_process_of_its_own(build):
    if build not in native.usable():
        pytest.skip(f"this processor lacks {', '.join(native.missing_flags(build))}")
    script = "from cuzkd.backend import cpu; print(cpu.build, cpu._native.__name__)"
    out = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, native.VARIABLE: build},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.split() == [build, f"cuzkd.kernels.{native.BUILDS[build][0]}"]


def test_provers_inherit_the_variable():
    from cuzkd.engine import process

    assert process.environment({native.VARIABLE: "adx", "SECRET": "x"}) == {native.VARIABLE: "adx"}
