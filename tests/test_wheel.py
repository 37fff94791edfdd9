"""What an installation holds. Runs where cuzkd is installed as a distribution, as the README's first command does."""

import importlib.metadata
from pathlib import PurePosixPath

import pytest

import cuzkd


@pytest.fixture(scope="module")
def installed():
    try:
        files = importlib.metadata.files("cuzkd")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("cuzkd is used from its source tree")
    return {str(PurePosixPath(file)) for file in files}


def test_native_module_and_kernel_sources_are_in(installed):
    assert any(name.startswith("cuzkd/kernels/_native.") for name in installed)
    for name in ("field.cuh", "constants.cuh", "curve.cuh", "msm.cuh", "ntt.cuh", "gpu/msm.cu", "gpu/ntt.cu"):
        assert f"cuzkd/kernels/{name}" in installed


def test_generated_code_and_the_map_are_in(installed):
    assert "cuzkd/service/v1/proving_pb2_grpc.py" in installed
    assert "cuzkd/engine/wire/prover_pb2.py" in installed
    assert "cuzkd/ARCHITECTURE.md" in installed


def test_nothing_else_is_in(installed):
    tops = {name.split("/")[0] for name in installed if not name.startswith("..")}
    assert tops == {"cuzkd", f"cuzkd-{cuzkd.__version__}.dist-info"}
    assert not [name for name in installed if name.startswith("cuzkd/kernels/cpu/") or "CMakeLists" in name]
    assert not [name for name in installed if name.startswith("cuzkd/bench/results/")]


def test_the_version_is_one(installed):
    assert importlib.metadata.version("cuzkd") == cuzkd.__version__


def test_dependencies_are_the_documented_ones(installed):
    plain = [line for line in importlib.metadata.requires("cuzkd") if "extra ==" not in line]
    names = {line.split(">")[0].split("[")[0].strip() for line in plain}
    assert names == {
        "grpcio", "grpcio-health-checking", "grpcio-reflection", "protobuf", "numpy", "prometheus-client", "structlog",
        "wasmtime",
    }  # fmt: skip
