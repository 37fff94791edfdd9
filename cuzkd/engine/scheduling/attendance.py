"""Was the front's own loop away?

Problem. A machine that is suspended, a container that is paused, a process that is stopped: when the front goes on, its
clock has run, and provers that could not be heard look as if they had been silent. Design. The loop signs in every tick
and before every decision; a gap of more than a few ticks was an absence, whatever it was of. Pure.
Life. One, for as long as the engine. An absence is taken off all counts: they go on where they were, also when
absences are frequent.
"""

from __future__ import annotations


class Attendance:
    """after_s: a gap this long is an absence."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._seen_s: float | None = None

    def away_s(self, now_s: float) -> float:
        """Sign in. For how long the loop was away until now; 0 when it was not."""
        before_s, self._seen_s = self._seen_s, now_s
        gap_s = 0.0 if before_s is None else now_s - before_s
        return gap_s if gap_s > self._after_s else 0.0
