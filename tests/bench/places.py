"""A small subject on a fake device, and the surroundings of a regime."""

import dataclasses
from types import SimpleNamespace

from bench.fake_device import FakeDevice

from cuzkd.bench.pipeline import Setting, opened
from cuzkd.bench.regimes import REGIMES, Place
from cuzkd.bench.slabs import Pinning
from cuzkd.memory.upstream import PagesUpstream, round_to_pages


def afresh(subject, folder):
    """The same key on a device of its own, witnesses in a folder of its own."""
    return dataclasses.replace(subject, backend=FakeDevice(), folder=folder)


def place_of(subject, in_flight):
    device = subject.backend
    constraints = subject.key.constraints
    rows = device.vector_rows(subject.key.arrays)
    return Place(
        backend=device,
        pinning=Pinning(device.driver.register, device.driver.unregister),
        pages=PagesUpstream(),
        threads=3,
        sizes=[round_to_pages(32 * n) for n in (subject.key.arrays.n_wires, rows, rows, rows)],
        in_flight=in_flight,
        pending=lambda: 0,
        ring=lambda: SimpleNamespace(close=lambda: None),
        attach=lambda: device.attach_matrices(subject.loaded, constraints.a, constraints.b),
        detach=lambda: device.detach_matrices(subject.loaded),
    )


class Tried:
    """A regime's pipeline, for a block: .run(...)."""

    def __init__(self, subject, name, in_flight, **setting):
        self.place = place_of(subject, in_flight)
        self.device = subject.backend
        self.in_flight = in_flight
        regime = REGIMES[name]
        self._transfer = regime.opened(self.place)
        self._subject, self._regime = subject, regime
        self._setting = {"ready_target": in_flight, "wipe": False} | setting

    def __enter__(self):
        transfer = self._transfer.__enter__()
        setting = Setting(transfer=transfer, upstream=self._regime.upstream(self.place), **self._setting)
        self._opened = opened(self._subject, setting)
        self.pipeline = self._opened.__enter__()
        self.place.pending = lambda: self.pipeline.pending
        self.device.mutex = self.pipeline.workers._mutex
        return self

    def run(self, count):
        return self.pipeline.run(count, self.in_flight)

    def __exit__(self, *error):
        self._opened.__exit__(*error)
        self._transfer.__exit__(*error)
