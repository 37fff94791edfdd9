"""What clients entrust to the daemon is in nothing that it writes or says, and in no other process."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import grpc
import pytest
from faults.harness import ROUNDS, Caller, Ledger, code_of
from secrecy.marks import MARKER, in_files, in_text, marks, secrets
from service.servers import wait_until

from cuzkd.circuits import builtin
from cuzkd.curves.params import CURVES
from cuzkd.formats import wtns
from cuzkd.service.v1 import proving_pb2 as pb

PAGES = 'metrics = "127.0.0.1:0"\nlog_level = "debug"'


def page(here, name):
    address = wait_until(lambda: here.events("serving"))[-1]["metrics"]
    with urllib.request.urlopen(f"http://{address}{name}", timeout=10) as answer:
        return answer.read().decode()


def product(value):
    """Inputs for the circuit a b = 391, of which one is the secret."""
    r = CURVES["bn254"].r
    return json.dumps({"a": str(value), "b": str(391 * pow(value, -1, r) % r)}).encode()


def witnesses(curve, preimage):
    """{what is wrong with it: witness file}"""
    wires = builtin.witness(curve, ROUNDS, preimage)
    good = wtns.head(curve, len(wires)) + b"".join(wire.to_bytes(32, "little") for wire in wires)
    flipped, large = bytearray(good), bytearray(good)
    flipped[-1 - 40] ^= 1
    large[-32:] = b"\xff" * 32
    return {
        "unsatisfied_witness": bytes(flipped),
        "invalid_witness": bytes(large),
        "malformed_file": good[:-1],
        "malformed_file, too": good + b"x",
    }


def use_all(here, ledger, caller):
    """Jobs of every way and every end, with the marker in each. Returns all that was said about them."""
    said = []
    for curve in CURVES:
        for way in ("bytes", "upload", "path"):
            ledger.add([ledger.template.chain(curve, MARKER)], way=way)
        for data in witnesses(curve, MARKER).values():
            try:
                request = pb.SubmitProofRequest(
                    circuit_id=f"chain-{curve}", partitions=[pb.Partition(witness=data)]
                )
                job = caller.call("SubmitProof", request).job_id
                said.append(str(caller.wait(job, 20)))
                said += map(str, caller.stub.WatchProof(pb.WatchProofRequest(job_id=job)))
            except grpc.RpcError as error:
                said.append(error.details())
    for data in (product(MARKER), json.dumps({"a": str(MARKER), "b": "1"}).encode(), f'{{"a": {MARKER}'.encode(),
                 json.dumps({"a": str(MARKER), "c": "1"}).encode(), b'{"a": ["%d", 1]}' % MARKER):  # fmt: skip
        try:
            request = pb.SubmitProofRequest(circuit_id="product", partitions=[pb.Partition(input_json=data)])
            said.append(str(caller.wait(caller.call("SubmitProof", request).job_id, 20)))
        except grpc.RpcError as error:
            said.append(error.details())
    ledger.see_through(here)
    return said


def wanted():
    return {
        f"{curve}: {name}": mark
        for curve in CURVES
        for name, mark in marks(curve, secrets(curve, ROUNDS, MARKER)).items()
    }


def test_no_secret_is_written_or_said(place, template):
    """Through faults, retries, a prover's death and the front's; while jobs run and when they are over."""
    here, ledger = place(daemon=PAGES), Ledger(template)
    here.plan.write_text("kill:launch:1,memory:synthesis:1@9,fault:verify:1@2,flip:sums:1@4")
    here.start().serves()
    marked = wanted()
    with Caller(here.address) as caller:
        said = use_all(here, ledger, caller)
        for curve in CURVES:  # one of each waits while the front dies
            here.plan.write_text("hang:launch:1")
            ask = ledger.add([template.chain(curve, MARKER)])
            ask.job_id = caller.submit(ask)
        wait_until(lambda: len(here.acted()) > 3 and here.acted()[-1][0] == "hang")
        running = in_files(here.state, marked)
        assert all(name.startswith("spool/") for name in running), running
        assert running, "the search would find it"
        said += [page(here, "/status"), page(here, "/metrics"), str(caller.status())]
        for pid in [here.process.pid, *here.children()]:
            said += [about(pid, name).decode(errors="replace") for name in ("environ", "cmdline", "status")]
        here.kill(signal.SIGKILL)
    here.start().serves()
    ledger.see_through(here)
    with Caller(here.address) as caller:
        said += [page(here, "/status"), page(here, "/metrics"), str(caller.status())]
        said += [str(caller.wait(ask.job_id)) for ask in ledger.asks]
    here.idle()
    assert in_files(here.state, marked) == {}
    here.end()
    assert in_files(here.folder, marked) == {}, "log, journal, estimates, whatever else lies there"
    assert [in_text(text, marked) for text in said if in_text(text, marked)] == []
    assert not [name for name in os.listdir("/tmp") if name.startswith("cuzkd") and in_files_of(name, marked)]


def in_files_of(name, marked):
    path = f"/tmp/{name}"
    if not os.path.isfile(path):
        return []
    with open(path, "rb") as file:
        return in_text(file.read(), marked)


def test_files_are_for_their_owner_alone(place, template):
    """Whatever the mask of the process says: payloads, the journal and its key, while jobs wait."""
    here, ledger = place(), Ledger(template)
    here.plan.write_text("hang:launch:1")
    before = os.umask(0)
    try:
        here.start().serves()
    finally:
        os.umask(before)
    with Caller(here.address) as caller:
        for way in ("bytes", "upload", "path"):
            ledger.ask("bn254", way=way)
        ledger.add([template.product()], way="input")
        for ask in ledger.asks:
            ask.job_id = caller.submit(ask)
    wait_until(here.acted)
    private = [*(here.state / "spool").iterdir(), *here.state.glob("journal*"), here.state / "spool.key"]
    assert len(private) >= 6
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in private}
    assert set(modes.values()) == {"0o600"}, modes
    assert (here.state / "spool").stat().st_mode & 0o077 == 0


def about(pid, name):
    """A page of /proc; of a process that is not dumpable some are root's."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except PermissionError:
        return b""


READ = """
import sys
try:
    with open(f"/proc/{sys.argv[1]}/mem", "rb") as memory, open(f"/proc/{sys.argv[1]}/maps") as maps:
        memory.seek(int(maps.readline().split("-")[0], 16))
        memory.read(1)
except PermissionError:
    sys.exit(3)
"""


def without_trace():
    """A command prefix that takes from root the right to look at everybody, so that the rules for users hold."""
    if os.geteuid():
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed: root sees everything")
    return ("setpriv", "--bounding-set", "-sys_ptrace")


def test_no_core_and_no_look_from_another_process_of_the_same_user(place, template):
    prefix = without_trace()
    here, ledger = place(prefix=prefix), Ledger(template)
    here.start().serves()
    ledger.add([template.product()], way="input")
    ledger.see_through(here)
    children = here.children()
    assert len(children) >= 2, children
    plain = subprocess.Popen([*prefix, sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"],
                             stdout=subprocess.PIPE)  # fmt: skip
    plain.stdout.readline()
    try:
        looks = {
            pid: subprocess.run([*prefix, sys.executable, "-c", READ, str(pid)], check=False).returncode
            for pid in [plain.pid, here.process.pid, *children]
        }
    finally:
        plain.kill()
        plain.communicate()
    assert looks.pop(plain.pid) == 0, "an ordinary process can be looked at: the test tests something"
    assert set(looks.values()) == {3}, (looks, here.process.pid, children)
    for pid in [here.process.pid, *children]:
        (line,) = [
            line
            for line in about(pid, "limits").decode().splitlines()
            if line.startswith("Max core file size")
        ]
        assert line.split()[-3:-1] == ["0", "0"], line
    here.end()


def test_only_what_it_needs_is_inherited(place, template):
    """No descriptor of ours but its channel, and no word of our environment that is none of its business."""
    here, ledger = place(), Ledger(template)
    secret = "TOKEN_OF_A_NEIGHBOUR"
    os.environ[secret] = secret
    try:
        here.start().serves()
    finally:
        del os.environ[secret]
    ledger.add([template.product()], way="input")
    ledger.see_through(here)
    for pid, line in here.children().items():
        assert secret.encode() not in about(pid, "environ"), line
        targets = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        assert not [t for t in targets if t.endswith((".sock", "daemon.lock", ".sqlite", ".sqlite-wal"))], (
            line,
            targets,
        )
        assert sum(target.startswith("socket:") for target in targets) <= 1, (line, targets)
    here.end()


# -- owners --

ALICE, BOB = "correct-horse-battery-staple", "another-horse-another-staple"


@pytest.fixture(scope="module")
def security(tmp_path_factory):
    """The section [security], and the certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "key", "-out", folder / "cert"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "tokens").write_text(f"alice {ALICE}\nbob {BOB}\n")
    for name in ("key", "tokens"):
        (folder / name).chmod(0o600)
    names = {"tls_cert": "cert", "tls_key": "key", "token_file": "tokens"}
    lines = [f"{name} = '{folder / file}'" for name, file in names.items()]
    return "\n".join(["[security]", *lines]), (folder / "cert").read_bytes()


class Owner(Caller):
    """A caller with a token."""

    def __init__(self, address, cert, token):
        credentials = grpc.ssl_channel_credentials(cert)
        self._channel = grpc.secure_channel(address, credentials, [("grpc.use_local_subchannel_pool", 1)])
        self._metadata = (("authorization", f"Bearer {token}"),)
        from cuzkd.service.v1 import proving_pb2_grpc as rpc

        self.stub = rpc.ProvingEngineStub(self._channel)

    def call(self, name, request, timeout_s=10.0):
        return getattr(self.stub, name)(
            request, timeout=timeout_s, wait_for_ready=True, metadata=self._metadata
        )

    def states(self, job_id):
        return list(self.stub.WatchProof(pb.WatchProofRequest(job_id=job_id), metadata=self._metadata))


def refusal(call, *arguments):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments)
    return code_of(caught.value), caught.value.details()


def test_owners_do_not_see_each_other(place, template, security):
    """Before a restart and after it; what is another's looks exactly like what is not there."""
    toml, cert = security
    here, ledger = place(toml=toml), Ledger(template)
    text = (here.folder / "toml").read_text().replace(here.address, "127.0.0.1:0")
    (here.folder / "toml").write_text(text)
    here.start()
    unknown = "00000000-0000-4000-8000-000000000000"
    ask = ledger.ask("bn254", way="upload")
    for life in range(2):
        address = wait_until(lambda life=life: here.events("serving")[life:])[0]["listen"]
        with Owner(address, cert, ALICE) as alice, Owner(address, cert, BOB) as bob:
            wait_until(lambda alice=alice: alice.status().serving)
            if not life:
                upload_id = alice.upload(ask.statements[0].witness.read_bytes())
                theirs = pb.SubmitProofRequest(
                    request_id="mine",
                    circuit_id="chain-bn254",
                    partitions=[pb.Partition(upload_id=upload_id)],
                )
                code, words = refusal(bob.call, "SubmitProof", theirs)
                assert code == "not_found" and "mine" not in words
                ask.job_id = alice.call("SubmitProof", theirs).job_id
            ask.end = ask.end or ledger._judge(ask, alice.wait(ask.job_id, 20))
            assert ledger._judge(ask, alice.wait("mine")) == ask.end
            for theirs, nobodys in ((ask.job_id, unknown), ("mine", "none"))[
                : 2 - life
            ]:  # by then he has one
                for look in (bob.wait, bob.cancel, bob.states):
                    (code, words), (other_code, other_words) = refusal(look, theirs), refusal(look, nobodys)
                    assert code == other_code == "not_found"
                    assert words.replace(theirs, "ID") == other_words.replace(nobodys, "ID")
            other = template.chain("bls12_381", 4711)
            own = bob.call("SubmitProof", pb.SubmitProofRequest(
                request_id="mine", circuit_id=other.circuit,
                partitions=[pb.Partition(witness=other.witness.read_bytes())],
            ))  # fmt: skip
            assert own.job_id != ask.job_id, "request_ids are each owner's own"
            bob.wait(own.job_id, 20)
            assert ledger._judge(ask, alice.wait("mine")) == ask.end
        if not life:
            here.kill()
            here.start()
    here.end()


def test_tokens_are_in_no_file_and_no_log(place, template, security):
    toml, cert = security
    here = place(toml=toml, daemon='log_level = "debug"')
    (here.folder / "toml").write_text((here.folder / "toml").read_text().replace(here.address, "127.0.0.1:0"))
    here.start()
    address = wait_until(lambda: here.events("serving"))[0]["listen"]
    with Owner(address, cert, ALICE) as alice, Owner(address, cert, "a-token-of-nobody-at-all") as stranger:
        wait_until(lambda: alice.status().serving)
        refusal(stranger.call, "GetStatus", pb.GetStatusRequest())
    here.end()
    tokens = {"alice": ALICE.encode(), "stranger": b"a-token-of-nobody-at-all"}
    assert in_files(here.folder, tokens) == {}


def test_the_tests_see_what_they_look_for(tmp_path):
    """A mark in a file, in a text and in this process is found."""
    marked = marks("bn254", [MARKER])
    (tmp_path / "x").write_bytes(b"before" + MARKER.to_bytes(32, "little") + b"after")
    assert in_files(tmp_path, marked) == {"x": ["little of 0"]}
    assert in_text(f"witness {MARKER:X} and {MARKER}", marked) == ["decimal of 0", "hexadecimal of 0"]
    from secrecy.marks import in_memory

    kept = ctypes.create_string_buffer(MARKER.to_bytes(32, "little"))
    assert any("little of 0" in names for names in in_memory(os.getpid(), marked).values())
    del kept
