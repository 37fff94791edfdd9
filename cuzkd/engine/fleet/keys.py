"""Which keys one prover has loaded, as far as the front has heard, and who waits to hear of one.

A key that the prover was told to drop counts as gone at once: nobody may rely on it any more. Whoever asks is answered
by the prover's word about that circuit, or by its end.

Life. ask -> message -> CircuitState -> answer. With the prover's process all of it is gone. What concerns all provers
alike is at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, from_code

Answers = Callable[[wire.CircuitState], bool]  # is this the answer that somebody waits for?
Answer = asyncio.Future[wire.CircuitState]


@dataclass(frozen=True)
class _Loaded:
    digest: str
    nbytes: int


class Keys:
    """send: a message to the prover, in order, lost when it is gone. used_s: by circuit, when it was last needed
    here, on the engine's clock; whoever needs it writes that down.
    """

    def __init__(self, send: Callable[[wire.ToProver], None]) -> None:
        self._send = send
        self.used_s: dict[str, float] = {}
        self._loaded: dict[str, _Loaded] = {}  # by circuit
        # Circuits whose keys make room, until the prover says that they are gone.
        self.giving_way: set[str] = set()
        self._asked: dict[str, list[tuple[Answers, Answer]]] = {}

    @property
    def loaded(self) -> set[tuple[str, str]]:
        """(circuit, digest)."""
        return {(circuit, held.digest) for circuit, held in self._loaded.items()}

    @property
    def circuits(self) -> frozenset[str]:
        return frozenset(self._loaded)

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for an answer."""
        return any(not future.done() for asked in self._asked.values() for _, future in asked)

    def has(self, circuit: str, digest: str = "") -> bool:
        """Whether a circuit's key is loaded, or the one with this digest."""
        held = self._loaded.get(circuit)
        return held is not None and digest in ("", held.digest)

    def nbytes(self, circuit: str) -> int:
        """Of a key that is loaded, else 0."""
        held = self._loaded.get(circuit)
        return held.nbytes if held else 0

    def longest_idle(self, but: Collection[str]) -> tuple[float, str] | None:
        """Since when it has not been needed, and the circuit, of those whose keys are loaded. but: circuits in use."""
        idle = [(self.used_s.get(circuit, 0.0), circuit) for circuit in self._loaded if circuit not in but]
        return min(idle, default=None)

    def load(self, circuit: str, digest: str) -> Answer:
        """Ask for a key. The answer may be an error; it raises what `gone` is given."""

        def answers(state: wire.CircuitState) -> bool:
            return state.digest == digest and (state.loaded or bool(state.error_code))

        preload = wire.Preload(circuit=circuit, digest=digest)
        return self._ask(circuit, wire.ToProver(preload=preload), answers)

    def evict(self, circuit: str) -> Answer:
        """Have a key dropped. Answered when nothing uses it any more; raises what `gone` is given."""

        def answers(state: wire.CircuitState) -> bool:
            return not state.error_code and (state.was_loaded or not state.loaded)

        self._loaded.pop(circuit, None)
        return self._ask(circuit, wire.ToProver(drop=wire.Drop(circuit=circuit)), answers)

    def drop(self, circuit: str, digest: str = "") -> None:
        """Have a circuit's key dropped if it is loaded, or only one with this digest. Does not wait."""
        if self.has(circuit, digest):
            held = self._loaded.pop(circuit)
            self._send(wire.ToProver(drop=wire.Drop(circuit=circuit, digest=held.digest)))

    def make_way(self, circuit: str) -> None:
        """Have a key dropped whose memory others wait for."""
        self.giving_way.add(circuit)
        self.drop(circuit)

    def heard(self, state: wire.CircuitState) -> None:
        """The prover's word. One that could not be loaded changes nothing but for those who wait."""
        if not state.error_code:
            self.giving_way.discard(state.circuit)
        if state.loaded and not state.error_code:
            self._loaded[state.circuit] = _Loaded(state.digest, state.bytes)
        elif not state.error_code:
            self._loaded.pop(state.circuit, None)
        asked = self._asked.pop(state.circuit, [])
        if late := [one for one in asked if not one[0](state)]:
            self._asked[state.circuit] = late
        for answers, future in asked:
            if answers(state) and not future.done():
                future.set_result(state)

    def gone(self, error: CuzkdError) -> None:
        """The process is: nothing is loaded, and whoever waits is told why in vain."""
        self._loaded.clear()
        self.giving_way.clear()
        asked, self._asked = self._asked, {}
        for future in (future for waiting in asked.values() for _, future in waiting):
            if not future.done():
                future.set_exception(error)

    def _ask(self, circuit: str, message: wire.ToProver, answers: Answers) -> Answer:
        """Does not wait, so that the prover cannot be gone between the question and the place in the book."""
        future: Answer = asyncio.get_running_loop().create_future()
        self._asked.setdefault(circuit, []).append((answers, future))
        self._send(message)
        return future


async def load_everywhere(provers: Sequence[Keys], circuit: str, digest: str, now_s: float) -> float | None:
    """Have those load a key that lack it; seconds that it took, None when none did. Raises what loading raises."""
    for keys in provers:
        keys.used_s[circuit] = now_s
    lacking = [keys for keys in provers if not keys.has(circuit, digest)]
    states = await asyncio.gather(*(keys.load(circuit, digest) for keys in lacking))
    for state in states:
        if state.error_code:
            raise from_code(state.error_code, state.error_message)
    return max((state.load_s for state in states), default=None)


async def evict_everywhere(provers: Iterable[Keys], circuit: str) -> int | None:
    """Have all let go of a key, and wait until nothing uses it. Returns the bytes that were resident, None when none
    had it.
    """
    holders = [keys for keys in provers if keys.has(circuit)]
    nbytes = sum(keys.nbytes(circuit) for keys in holders)
    await asyncio.gather(*(keys.evict(circuit) for keys in holders))
    return nbytes if holders else None
