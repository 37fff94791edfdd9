"""How transforms are cut into passes, at sizes that no test can run. Needs CuPy, but no GPU."""

import pytest

pytest.importorskip("cupy")
from cuzkd.backend import cuda_ntt, cuda_twiddles
from cuzkd.backend.cuda_ntt import LOG_TILE, Shape, layers

SIZES = range(32)


@pytest.mark.parametrize("log_n", SIZES)
def test_every_layer_is_in_one_pass(log_n):
    cut = layers(log_n)
    assert sum(cut) == log_n and all(3 <= n <= LOG_TILE for n in cut if log_n >= 3)
    assert len(cut) == 1 + (log_n > 9) + (log_n > 20) + (log_n > 29)
    assert sum(-(-n // 3) for n in cut) <= -(-log_n // 3) + 1, "steps"


def test_the_sizes_that_count():
    assert layers(20) == (9, 11) and layers(27) == (9, 9, 9)
    assert sorted(layers(24)) == [6, 9, 9]


@pytest.mark.parametrize("log_n", SIZES)
@pytest.mark.parametrize("log_tile", range(8, LOG_TILE + 1))
def test_tiles_cover_a_transform(log_n, log_tile):
    begun = 0
    for number, mine in enumerate(layers(log_n)):
        shape = Shape.of(log_n, number, log_tile)
        assert shape.rows - shape.done == mine and shape.first + shape.done == begun
        size = shape.rows + shape.log_cols
        assert 3 <= size <= LOG_TILE and shape.log_tiles + size == max(log_n, 3)
        log_stride = log_n - shape.first - shape.rows
        assert 0 <= shape.log_cols <= log_stride, "neighbouring columns lie in one block"
        assert (shape.done == 0) or shape.log_cols == log_stride == 0, (
            "only the last pass has blocks side by side"
        )
        begun += mine


def test_a_table_read_backwards():
    """k and mirrored(k) have bit-reversed exponents that add up to the table's length."""
    bits = 7
    reversed_bits = [int(f"{k:0{bits}b}"[::-1], 2) for k in range(1 << bits)]
    assert cuda_twiddles.mirrored(0) == 0
    for k in range(1, 1 << bits):
        assert reversed_bits[k] + reversed_bits[cuda_twiddles.mirrored(k)] == 1 << bits


def test_constants_agree_with_the_kernels():
    source = (cuda_ntt.nvrtc.KERNELS / "gpu" / "tile.cuh").read_text()
    assert f"constexpr int LOG_TILE = {LOG_TILE};" in source
