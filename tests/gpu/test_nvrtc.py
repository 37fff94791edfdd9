"""Every CUDA module compiles to machine code without a GPU. Needs NVRTC (extras cuda12, cuda13)."""

import shutil

import pytest
from gpu import cubin

from cuzkd import errors
from cuzkd.backend import nvrtc

ELF = b"\x7fELF"


@pytest.fixture(scope="module", autouse=True)
def library():
    try:
        return nvrtc.version()
    except errors.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return nvrtc.CubinCache("sm_90", tmp_path_factory.mktemp("cubins"))


@pytest.mark.parametrize("arch", cubin.ARCHS)
def test_every_module_compiles(arch):
    modules = nvrtc.all_modules()
    sources = {path.stem for path in nvrtc.KERNELS.glob("gpu/*.cu")}
    assert {m.source for m in modules} == sources
    paths = cubin.compiled(arch)
    assert set(paths) == set(modules) and len(set(paths.values())) == len(modules)
    assert all(path.read_bytes().startswith(ELF) for path in paths.values())


def test_compiled_code_is_used_again_until_a_source_changes(cache, monkeypatch, tmp_path):
    module = nvrtc.Module("rows", "bn254")
    path = cache.get(module)
    made = path.stat().st_mtime_ns
    assert cache.get(module) == path and path.stat().st_mtime_ns == made
    assert path.parent.stat().st_mode & 0o077 == 0

    copy = tmp_path / "kernels"
    shutil.copytree(nvrtc.KERNELS, copy, ignore=shutil.ignore_patterns("*.so", "cpu", "__pycache__"))
    monkeypatch.setattr(nvrtc, "KERNELS", copy)
    nvrtc.source_digest.cache_clear()
    try:
        assert cache.path(module) == path  # wherever the sources lie
        with (copy / "sparse.cuh").open("a") as header:  # reached through an include only
            header.write("// one line more\n")
        nvrtc.source_digest.cache_clear()
        assert cache.path(module) != path
    finally:
        monkeypatch.undo()
        nvrtc.source_digest.cache_clear()
    assert cache.path(module) == path


def test_constants_can_be_set_to_measure_them(cache, monkeypatch):
    module = nvrtc.Module("chains", "bn254", field="fr")
    path = cache.path(module)
    monkeypatch.setenv("CUZKD_DEFINES", "CUZKD_DOUBLES_FROM=8 CUZKD_DOUBLES_CHAINED=false")
    assert module.options("sm_90")[-2:] == ("-DCUZKD_DOUBLES_FROM=8", "-DCUZKD_DOUBLES_CHAINED=false")
    assert cache.path(module) != path


def test_an_error_shows_options_and_numbered_source(monkeypatch, tmp_path):
    source = tmp_path / "gpu" / "broken.cu"
    source.parent.mkdir()
    source.write_text('extern "C" __global__ void k() {\n    nonsense;\n}\n')
    monkeypatch.setattr(nvrtc, "KERNELS", tmp_path)
    nvrtc.source_digest.cache_clear()
    try:
        with pytest.raises(errors.Unavailable) as caught:
            nvrtc.compile_module(nvrtc.Module("broken", "bn254"), "sm_90")
    finally:
        monkeypatch.undo()
        nvrtc.source_digest.cache_clear()
    message = str(caught.value)
    assert "nonsense" in message and "-DCUZKD_CURVE=Bn254" in message and "   2     nonsense;" in message


def test_where_compiled_code_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    assert nvrtc.CubinCache("sm_90").folder == tmp_path / "xdg" / "cuzkd" / "kernels"
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(errors.Unavailable, match="set CUPY_CACHE_DIR"):
        nvrtc.CubinCache("sm_90")
