"""A plugin for pytest: tests of the GPU meet an emulated one. By hand, in the root of the repository:

PYTHONPATH=tests pytest -p emulation.plugin --emulated random:3 -m gpu tests/gpu/test_batches.py
"""

from emulation import fake_cupy, kernels, racing


def pytest_addoption(parser):
    parser.addoption("--emulated", metavar="POLICY", required=True, help="lazy, or random:SEED")
    parser.addoption("--races", action="store_true", help="threads at the same time, for ThreadSanitizer")
    parser.addoption("--rows", action="store_true", help="products of arch_cuda.cuh, not of portable loops")


def pytest_configure(config):
    if config.getoption("--races"):
        racing.install()
    if config.getoption("--rows"):
        kernels.with_rows()
    fake_cupy.install(config.getoption("--emulated"))


def pytest_report_header(config):
    return f"GPU: emulated, {config.getoption('--emulated')}"
