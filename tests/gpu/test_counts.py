"""The compiled kernels are what their design counts on: so many products, no spills, so many registers. No GPU needed.

A product of n words costs n^2 wide products and as many for its reduction; each pair of a low and a high product has
to be one instruction, which nothing but the compiled code can say. Slower code passes every other test.
"""

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from gpu import cubin

from cuzkd import errors
from cuzkd.backend import nvrtc

WORDS = {("bn254", "fr"): 8, ("bn254", "fq"): 8, ("bls12_381", "fr"): 8, ("bls12_381", "fq"): 12}


@pytest.fixture(scope="module", autouse=True)
def library():
    try:
        return nvrtc.version()
    except errors.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(params=cubin.ARCHS)
def arch(request):
    return request.param


@pytest.fixture(params=list(nvrtc.CURVE_TYPES))
def curve(request):
    return request.param


# Every way of a product that arch_cuda.cuh has, whichever it chooses.
WAYS = {
    "words": ("-DCUZKD_HALVES_FROM=99", "-DCUZKD_DOUBLES_FROM=99"),
    "halves": ("-DCUZKD_HALVES_FROM=8", "-DCUZKD_DOUBLES_FROM=99"),
    "summed doubles": ("-DCUZKD_DOUBLES_FROM=8", "-DCUZKD_DOUBLES_CHAINED=false"),
    "chained doubles": ("-DCUZKD_DOUBLES_FROM=8", "-DCUZKD_DOUBLES_CHAINED=true"),
}


@dataclass(frozen=True)
class Probe(nvrtc.Module):
    way: str = "words"

    path = Path(__file__).with_name("probe.cu")

    def options(self, arch):
        return (*super().options(arch), *WAYS[self.way])


@cache
def compiled(module, arch):
    known = cubin.compiled(arch).get(module)
    return cubin.kernels(known.read_bytes() if known else nvrtc.compile_module(module, arch))


@dataclass(frozen=True)
class Cost:
    """wide: what the design says, and one more where the compiler computes an address so; the others at most.
    imad: products of which the low half is enough. others: what runs on the other pipe, two for one wide product at no
    cost of time. doubles: on the floating-point unit, two for one as well.
    """

    wide: int
    imad: int
    others: int
    doubles: int = 0

    def covers(self, kernel, base):
        """Whether that is all that a kernel does beyond one that loads and stores alone."""
        more = Counter(kernel.counts)
        more.subtract(base.counts)
        others = sum(more[kind] for kind in OTHER_PIPE)
        found = Cost(kernel.wide - base.wide, more["imad"], others, more["dfma"] + more["dadd"])
        assert 0 <= found.wide - self.wide <= 1 and found.imad <= self.imad, (found, self)
        assert found.others <= self.others and 0 <= found.doubles - self.doubles <= 3, (found, self)
        assert kernel.local == 0
        return True


OTHER_PIPE = ("iadd3", "lea", "lop3", "sel", "shf", "isetp", "imnmx", "vimnmx", "p2r")


def costs(curve, n):
    """By operation, for a field of n words: what the rows of arch_rows.cuh come to."""
    special = curve == "bls12_381" and n == 8  # Fr: two low words of the modulus cost additions instead
    redc = n * n - 2 * n * special
    return {
        "add": Cost(0, 0, 3 * n),
        "sub": Cost(0, 0, 3 * n),
        "neg": Cost(0, 0, 4 * n),
        "mul": Cost(n * n + redc, n + 2, 6 * n + 6 * n * special),
        "sqr": Cost(n * (n + 1) // 2 + redc, n + 4, 11 * n + 4 * n * special),
        "to_canonical": Cost(redc, n + 2, 6 * n + 6 * n * special),
        "mul_add": Cost(2 * n * n + redc, n, 7 * n),
        "mul_sub": Cost(2 * n * n + redc, n, 9 * n),
        "fq2_mul": Cost(3 * n * n + 2 * redc, 2 * n + 8, 36 * n),
        "fq2_sqr": Cost(2 * n * n + 2 * redc, 2 * n, 22 * n),
    }


@pytest.mark.parametrize("op", ["add", "sub", "neg", "mul", "sqr", "to_canonical"])
@pytest.mark.parametrize("fld", ["fr", "fq"])
def test_operations_of_a_field(arch, curve, fld, op):
    found = compiled(Probe("probe", curve), arch)
    assert costs(curve, WORDS[curve, fld])[op].covers(found[f"{fld}_{op}"], found[f"{fld}_none"])


@pytest.mark.parametrize("way", [way for way in WAYS if way != "words"])
@pytest.mark.parametrize("fld", ["fr", "fq"])
def test_products_in_other_ways(arch, curve, fld, way):
    """The reduction is that of words in all of them."""
    n = WORDS[curve, fld]
    limbs = (n + 2) // 3 * 2  # of a factor in doubles
    plain, special = costs(curve, n)["mul"], curve == "bls12_381" and n == 8
    redc = plain.wide - n * n
    cost = {
        "halves": Cost(3 * n * n // 4 + redc, n + 8, 20 * n + 6 * n * special),
        "summed doubles": Cost(redc, n + 4, 29 * n + 6 * n * special, 3 * limbs**2 + 2 * limbs),
        "chained doubles": Cost(redc, n + 4, 20 * n + 6 * n * special, 4 * limbs**2 + 2 * limbs),
    }[way]
    found = compiled(Probe("probe", curve, way=way), arch)
    assert cost.covers(found[f"{fld}_mul"], found[f"{fld}_none"])


@pytest.mark.parametrize("op", ["mul_add", "mul_sub"])
def test_two_products_and_one_reduction(arch, curve, op):
    found = compiled(Probe("probe", curve), arch)
    assert costs(curve, WORDS[curve, "fq"])[op].covers(found[f"fq_{op}"], found["fq_none"])


@pytest.mark.parametrize("op", ["fq2_mul", "fq2_sqr"])
def test_operations_of_the_extension(arch, curve, op):
    """Calls by value: were the words to travel in memory, there would be loads and stores of local memory."""
    found = compiled(Probe("probe", curve), arch)
    assert costs(curve, WORDS[curve, "fq"])[op].covers(found[op], found["fq2_none"])


def test_spills_would_be_seen(arch, curve):
    kernel = compiled(Probe("probe", curve), arch)["spilling"]
    assert kernel.registers <= 64 and kernel.local > 0 and kernel.frame_bytes > 0


@pytest.mark.parametrize("way", WAYS)
def test_instructions_are_those_of_the_disassembler(arch, way, tmp_path):
    if shutil.which("nvdisasm") is None:
        pytest.skip("no nvdisasm")
    code = nvrtc.compile_module(Probe("probe", "bls12_381", way=way), arch)
    path = tmp_path / "probe.cubin"
    path.write_bytes(code + bytes(1))  # CuPy hands out a cubin without its last byte
    shown = subprocess.run(["nvdisasm", "-hex", str(path)], capture_output=True, text=True, check=True).stdout
    line = re.compile(
        r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?PT?\d* +)?(\S+)[^/]*; +/\* 0x([0-9a-f]{16}) \*/"
        r"\s+/\* 0x([0-9a-f]{16}) \*/"
    )
    seen = Counter()
    for mnemonic, low, high in line.findall(shown):
        kind = cubin.kind((int(low, 16), int(high, 16)))
        parts = mnemonic.split(".")
        if kind == "imad.other":
            assert parts[0] == "IMAD" and (len(parts) == 1 or parts[1] in ("MOV", "IADD", "SHL", "X")), (
                mnemonic
            )
        elif not kind.startswith("0x"):
            named = kind.upper().split(".")
            assert parts[: len(named)] == named, mnemonic
        seen[kind] += 1
    assert seen == sum((kernel.counts for kernel in cubin.kernels(code).values()), Counter())


# Kernels that live on products: by source, group and name the registers that leave room for the warps their design
# counts on. They have no local memory at all.
TRANSFORMS = {
    "ntt": ("ntt_down", "ntt_up", "ntt_turn"),
    "quotient": ("quotient_open", "quotient_circom", "quotient_bellman", "quotient_close"),
}
HOT = {
    (source, None, kernel): {"bn254": 128, "bls12_381": 128}
    for source, kernels in TRANSFORMS.items()
    for kernel in kernels
}
# These live on memory, so on warps: of 64 registers there are threads for two blocks of 512 or one of 1024.
HOT |= {
    ("digits", None, kernel): dict.fromkeys(nvrtc.CURVE_TYPES, registers)
    for kernel, registers in {
        "classify_scalars": 64, "count_bins": 64, "fill_bins": 64, "count_buckets": 64, "fill_buckets": 64,
    }.items()
}  # fmt: skip
HOT["rows", None, "sparse_rows"] = {"bn254": 72, "bls12_381": 72}  # seven blocks of 128


@pytest.mark.parametrize(("kernel", "products"), [("ntt_down", 4), ("ntt_up", 4), ("ntt_turn", 4 + 4 + 2)])
def test_transforms_are_products(arch, curve, kernel, products):
    """Code for a layer of an octet each way, and for two of its eight factors; the rest is for addresses."""
    n, special = 8, curve == "bls12_381"  # two low words of the modulus cost additions instead
    factor = n * (n + 1) // 2 + (n - 1) + n * (n - 1) - (2 * n - 3) * special
    found = compiled(nvrtc.Module("ntt", curve), arch)[kernel]
    assert 0 <= found.wide - products * factor <= 30


@pytest.mark.parametrize("source, group, kernel", HOT)
def test_hot_kernels_stay_in_registers(arch, curve, source, group, kernel):
    found = compiled(nvrtc.Module(source, curve, group=group), arch)[kernel]
    assert found.local == 0
    assert found.registers <= HOT[source, group, kernel][curve]


# The pair tree: how many of its blocks a multiprocessor is to hold (RESIDENT in gpu/tree.cu) decides the registers. In
# local memory are the operands of a block's one inversion.
TREE = {
    ("bn254", "g1"): (96, 20), ("bls12_381", "g1"): (128, 30),
    ("bn254", "g2"): (168, 20), ("bls12_381", "g2"): (255, 30),
}  # fmt: skip


@pytest.mark.parametrize("group", nvrtc.GROUP_TYPES)
@pytest.mark.parametrize("kernel", ["add_round", "halve"])
def test_the_pair_tree_leaves_room_for_its_blocks(arch, curve, group, kernel):
    found = compiled(nvrtc.Module("tree", curve, group=group), arch)[kernel]
    registers, local = TREE[curve, group]
    assert found.registers <= registers and found.local <= local
