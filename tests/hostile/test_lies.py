"""Every field of every format made to lie: each lie is refused in words of its own, or harmless, and costs little."""

import resource
import tracemalloc

import pytest
from hostile import answers
from hostile.catalogue import NAMES, TARGETS, target
from hostile.fields import lies
from hostile.targets import BYTES_PER_BYTE, SPARE_BYTES

from cuzkd.errors import CuzkdError


@pytest.mark.timeout(240)
@pytest.mark.parametrize("format", TARGETS)
def test_every_lie_is_answered(format, tmp_path):
    """With one of the rows that its map has for that field; and every row of the format's table answers something."""
    targets = [target(format, name) for name in TARGETS[format]]
    wrong, used, told = [], set(), 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for attacked in targets:
        path = tmp_path / f"lie{attacked.suffix}"
        for lie in attacked.lies():
            path.write_bytes(lie.data)
            told += 1
            try:
                answer = attacked.answer(path)
            except Exception as error:  # what no reader may raise, and what no reader may accept
                wrong.append(f"{attacked.name}: {lie.what}: {type(error).__name__}: {error}")
                continue
            used.add(answer)
            if answer not in lie.answers:
                wrong.append(
                    f"{attacked.name}: {lie.what}: {answer!r}, expected one of {sorted(lie.answers)}"
                )
    assert not wrong, f"{len(wrong)} of {told}:\n" + "\n".join(wrong)
    idle = targets[0].table.keys() - used
    assert not idle, f"{told} lies were told, and none was answered by {sorted(idle)}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 256 << 10  # KiB
    print(f"{format}: {told} lies, {len(used)} kinds of answer")


@pytest.mark.parametrize(("format", "name"), NAMES)
def test_no_lie_makes_a_reader_allocate(format, name, tmp_path):
    """What reading allocates is bounded by what the file holds, not by what it claims.

    Told are the lies in numbers, and files much longer or shorter than they should be: the others change no size.
    """
    attacked = target(format, name)
    path = tmp_path / f"lie{attacked.suffix}"
    numbers = [f for f in attacked.fields if f.kind == "number"]
    others = (lie for lie in attacked.more() if abs(len(lie.data) - len(attacked.data)) > 50)
    for lie in (*lies(attacked.data, numbers, attacked.cut), *others):
        path.write_bytes(lie.data)
        bound = BYTES_PER_BYTE * len(lie.data) + SPARE_BYTES
        # What a claim makes a reader allocate, it does each time; what some other thread does meanwhile, hardly twice.
        peak = allocated(attacked, path)
        if peak >= bound:
            peak = allocated(attacked, path)
        assert peak < bound, f"{lie.what}: {peak} bytes allocated for a file of {len(lie.data)}"


def allocated(attacked, path):
    """The most bytes that were held while a file was read."""
    tracemalloc.start()
    try:
        attacked.read(path)
    except CuzkdError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize(("format", "name"), NAMES)
def test_the_honest_file_is_read(format, name, tmp_path):
    attacked = target(format, name)
    path = tmp_path / f"honest{attacked.suffix}"
    path.write_bytes(attacked.data)
    assert attacked.answer(path) == answers.SAME
