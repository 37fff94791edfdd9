"""Frames survive being cut and joined by the pipe, and an end in the middle of one is an end."""

import asyncio
import socket
import threading

import pytest

from cuzkd.engine.channel import MAX_FRAME_BYTES, AsyncChannel, Channel, pack
from cuzkd.engine.wire.prover_pb2 import FromProver, Heartbeat, Offer, PartitionDone, ToProver


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    yield left, right
    left.close()
    right.close()


def offer(index):
    return ToProver(offer=Offer(partition_id=f"job/{index}", sequence=index, priority=2))


def done(size):
    return FromProver(done=PartitionDone(partition_id="x", proof=bytes(size)))


def test_blocking_ends_talk(pair):
    front, prover = Channel(pair[0], FromProver), Channel(pair[1], ToProver)
    for index in range(3):
        front.send(offer(index))
    assert [prover.receive().offer.sequence for _ in range(3)] == [0, 1, 2]
    prover.send(FromProver(heartbeat=Heartbeat(ready=2)))
    assert front.receive().WhichOneof("kind") == "heartbeat"
    front.close()
    assert prover.receive() is None


def test_frames_of_many_threads_stay_whole(pair):
    front, prover = Channel(pair[0], FromProver), Channel(pair[1], ToProver)
    sizes = [0, 1, 70_000, 300_000]
    threads = [
        threading.Thread(target=lambda size=size: [prover.send(done(size)) for _ in range(20)])
        for size in sizes
    ]
    for thread in threads:
        thread.start()
    got = [len(front.receive().done.proof) for _ in range(80)]
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(sizes * 20)


@pytest.mark.parametrize("keep", [0, 1, 3, 4, 5, 12])
def test_an_end_in_the_middle_is_an_end(pair, keep):
    frame = pack(offer(7))
    pair[0].sendall(frame + frame[:keep])
    pair[0].close()
    prover = Channel(pair[1], ToProver)
    assert prover.receive().offer.sequence == 7
    assert prover.receive() is None


def test_a_length_that_lies_is_refused_before_anything_is_allocated(pair):
    pair[0].sendall((MAX_FRAME_BYTES + 1).to_bytes(4, "little"))
    with pytest.raises(ValueError, match=str(MAX_FRAME_BYTES + 1)):
        Channel(pair[1], ToProver).receive()
    with pytest.raises(ValueError, match="frame"):
        pack(done(MAX_FRAME_BYTES))


def test_sending_to_nobody_is_an_error(pair):
    pair[1].close()
    with pytest.raises(OSError):
        Channel(pair[0], FromProver).send(offer(1))


def test_the_event_loop_end(pair):
    async def front():
        channel = await AsyncChannel.open(pair[0], FromProver)
        channel.post(offer(1))
        await channel.send(offer(2))
        got = [len((await channel.receive()).done.proof) for _ in range(2)]
        assert await channel.receive() is None
        await channel.close()
        return got

    def back():
        prover = Channel(pair[1], ToProver)
        assert [prover.receive().offer.sequence for _ in range(2)] == [1, 2]
        prover.send(done(5))
        prover.send(done(500_000))
        prover.close()

    thread = threading.Thread(target=back)
    thread.start()
    assert asyncio.run(front()) == [5, 500_000]
    thread.join()
