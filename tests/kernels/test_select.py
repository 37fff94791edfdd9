"""Which backend comes for which name, with and without cupy."""

import sys

import pytest

from cuzkd.backend import select
from cuzkd.errors import DeviceFault, Unavailable


@pytest.fixture
def no_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # import cupy raises


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_by_name(name):
    assert select.load(name).name == name


def test_cuda_without_cupy_says_what_to_install(no_cupy):
    with pytest.raises(Unavailable, match=r"needs cupy.*cuzkd\[cuda12\]"):
        select.load("cuda")


def test_auto_without_cupy_is_the_cpu_and_says_why(no_cupy):
    choice = select.choose("auto")
    assert choice.backend.name == "cpu" and "needs cupy" in choice.reason


def test_auto_with_a_broken_device_is_the_cpu(monkeypatch):
    def broken(vram_bytes):
        raise DeviceFault("CUDA: no answer")

    monkeypatch.setattr(select, "_cuda", broken)
    choice = select.choose("auto")
    assert choice.backend.name == "cpu" and "no answer" in choice.reason


def test_unknown_name():
    with pytest.raises(ValueError, match="cpu, cuda, reference, auto"):
        select.load("tpu")
