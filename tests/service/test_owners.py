"""Tokens and their owners: how the file is read, who is told apart by it, and that they cannot see each other."""

import pytest
from service.servers import serving, wait_until

from cuzkd import errors
from cuzkd.client import Client, require_done
from cuzkd.errors import InvalidInput
from cuzkd.service import listen, owners
from cuzkd.service.servicer import Servicer
from cuzkd.service.v1 import proving_pb2 as pb

A, B = "a" * 16, "b" * 20


def test_a_token_alone_has_the_default_owner():
    assert owners.parse(f"  {A}\n\n", "file") == (owners.Token("default", A),)


def test_lines_name_owners():
    text = f"# made by hand\nalice {A}\n\nbob.2\t{B}\n  alice {A}x\n"
    tokens = owners.parse(text, "file")
    assert [(token.owner, token.secret) for token in tokens] == [
        ("alice", A),
        ("bob.2", B),
        ("alice", A + "x"),
    ]
    assert owners.find(tokens, f"Bearer {A}") == "alice" == owners.find(tokens, f"Bearer {A}x")
    assert owners.find(tokens, f"Bearer {B}") == "bob.2"
    for wrong in (
        "",
        A,
        f"bearer {A}",
        f"Bearer {A} ",
        f"Bearer {A}y",
        "Bearer ",
        "Bearer alice",
        "Bearer \udcff\u20ac",
    ):
        assert owners.find(tokens, wrong) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no token"),
        ("# only words\n", "no token"),
        ("short", "line 1: a token has at least 16"),
        (f"alice {A}\nbob short", "line 2: a token has at least 16"),
        (f"alice {A}\n{B}", "line 2: expected NAME TOKEN"),
        (f"{A}\n{B}", "line 1: expected NAME TOKEN"),
        (f"alice {A} {B}", "line 1: expected NAME TOKEN"),
        (f"../x {A}", "line 1: expected NAME TOKEN"),
        (f"alice {A}\nbob {A}", "line 2: this token has an owner already"),
        ("ä" * 20, "all ASCII"),
    ],
)
def test_what_is_wrong_is_named_by_its_line_and_no_token_is_shown(text, says):
    with pytest.raises(InvalidInput) as caught:
        owners.parse(text, "the-file")
    assert says in str(caught.value) and "the-file" in str(caught.value)
    assert A not in str(caught.value) and B not in str(caught.value)


def test_nobody_prints_a_token():
    (token,) = owners.parse(A, "file")
    assert A not in repr(token)


def test_outside_of_a_call_there_is_no_owner():
    assert owners.current() == ""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Clients of alice and of bob, at one daemon."""
    tokens = owners.parse(f"alice {A}\nbob {B}", "file")
    folder = tmp_path_factory.mktemp("two")
    with serving(folder, security=listen.Security(b"", b"", tokens)) as server:
        clients = []
        for token in tokens:
            client = Client(f"unix://{server.address.path}")
            client._metadata = (("authorization", f"Bearer {token.secret}"),)  # over a socket, without TLS
            wait_until(lambda client=client: client.status().serving)
            clients.append(client)
        clients[0].server = server
        yield clients
        for client in clients:
            client.close()


def said(call):
    with pytest.raises(errors.CuzkdError) as caught:
        call()
    return type(caught.value), str(caught.value)


def test_a_job_is_unknown_to_others(two):
    alice, bob = two
    job = alice.submit("square", [b"hold"], request_id="secret name")
    for some_id in (job, "secret name"):
        for call in (bob.wait, bob.cancel, lambda some_id: list(bob.watch(some_id))):
            kind, words = said(lambda call=call, some_id=some_id: call(some_id))
            _, unknown = said(lambda call=call: call("never was"))
            assert kind is errors.NotFound
            assert words.replace(some_id, "ID") == unknown.replace("never was", "ID"), "it tells nothing"
    assert next(alice.watch(job)).state in ("queued", "synthesising")
    assert alice.cancel("secret name")


def test_the_status_names_a_job_to_its_owner_alone(two):
    """What a card is at, among them."""
    alice, _ = two
    job = alice.submit("square", [b"hold"])
    servicer = Servicer(alice.server.engine, None, None)

    async def seen_by(owner):
        owners.enter(owner)
        return servicer._if_his(job), servicer._if_his("")

    assert [alice.server.call(seen_by(owner)) for owner in ("alice", "bob", "")] == [
        (job, ""),
        ("", ""),
        ("", ""),
    ]
    alice.cancel(job)


def test_the_same_request_id_is_anothers_own(two):
    alice, bob = two
    mine = alice.submit("square", [b"ok:a"], request_id="1")
    his = bob.submit("square", [b"ok:b"], request_id="1")
    assert mine != his
    for client, job in ((alice, mine), (bob, his)):
        assert require_done(client.wait("1")).job_id == job


def test_an_upload_is_its_owners(two):
    alice, bob = two
    upload = alice.upload(b"ok")
    request = pb_request(upload)
    kind, words = said(lambda: bob._call(bob._stub.SubmitProof, request))
    _, unknown = said(lambda: bob._call(bob._stub.SubmitProof, pb_request("never-was")))
    assert kind is errors.NotFound and words.replace(upload, "ID") == unknown.replace("never-was", "ID")
    assert require_done(alice.wait(alice._call(alice._stub.SubmitProof, request).job_id)).results


def pb_request(upload_id):
    return pb.SubmitProofRequest(circuit_id="square", partitions=[pb.Partition(upload_id=upload_id)])
