"""A prover process whose CUDA context breaks: `poisoned_prover.py --fd N`, as many times as STATE/poison says.

Each process takes one from the number in that file and, if it was not zero, has its first launch go after a
kernel that traps. From then on every call of this process fails, as after an illegal access.
"""

from pathlib import Path

from cuzkd.backend import cuda
from cuzkd.engine.prover import main as prover

WILD = r'extern "C" __global__ void wild() { __trap(); }'


def take_one(file):
    left = int(file.read_text())
    file.write_text(str(max(left - 1, 0)))
    return left > 0


class Poisoned(cuda.CudaBackend):
    """The real backend, until `poison` is set: then the next launch is its last."""

    poison = False

    def launch_batch(self, uploads):
        if Poisoned.poison:
            import cupy

            with self.gpu.guard(), self.gpu.compute.stream:
                cupy.RawKernel(WILD, "wild")((1,), (1,), ())
        return super().launch_batch(uploads)


def main():
    opened = prover.open_parts

    def open_parts(config, reporter, *rest):
        parts = opened(config, reporter, *rest)
        if parts.backend.name == "cuda":  # not before the self-test has passed
            Poisoned.poison = take_one(Path(config.state_dir) / "poison")
        return parts

    cuda.CudaBackend = Poisoned
    prover.open_parts = open_parts
    prover.main()


if __name__ == "__main__":
    main()
