"""`cuzkd setup`: from .r1cs to keys that prove; what it says, what it refuses, and that nothing half-made stays."""

import pytest

from cuzkd import cli
from cuzkd.circuits import builtin
from cuzkd.cli.codes import DONE, WRONG_INPUT
from cuzkd.curves import limbs
from cuzkd.formats import bellman, r1cs, snarkjs, zkey
from cuzkd.groth16 import constraints, hosts, prover, verifier

ROUNDS = 5


@pytest.fixture(params=["bn254", "bls12_381"])
def curve(request):
    return request.param


@pytest.fixture
def circuit(curve, tmp_path):
    path = tmp_path / "chain.r1cs"
    r1cs.write(path, builtin.constraints(curve, ROUNDS))
    return path


def run(*arguments):
    return cli.main(["setup", *map(str, arguments)])


def require_proves(key, vkey_path, curve):
    """A proof under the key verifies by verification_key.json, which is the key's own."""
    z = hosts.scalars(builtin.witness(curve, ROUNDS, 3))
    proof = prover.prove(hosts.best().backend, key, z)
    vk = snarkjs.read_vkey(vkey_path)
    assert vk.digest() == key.vk.digest()
    assert verifier.verify(vk, proof, limbs.to_ints(z[1 : vk.n_public + 1]))


def test_a_zkey(circuit, curve, tmp_path, capsys):
    out, vkey = tmp_path / "chain.zkey", tmp_path / "vkey.json"
    assert run("--r1cs", circuit, "--zkey", out, "--vkey", vkey) == DONE
    said = capsys.readouterr()
    assert "INSECURE" in said.err and "INSECURE" in said.out and str(out) in said.out
    require_proves(zkey.read(out), vkey, curve)
    assert {path.name for path in tmp_path.iterdir()} == {"chain.r1cs", "chain.zkey", "vkey.json"}


def test_params(circuit, curve, tmp_path, capsys):
    out, vkey = tmp_path / "chain.params", tmp_path / "vkey.json"
    assert run("--r1cs", circuit, "--params", out, "--vkey", vkey) == DONE
    assert "INSECURE" in capsys.readouterr().err
    key = bellman.open_params(out, r1cs.read(circuit)).load()
    assert key.arrays.reduction == "bellman"
    require_proves(key, vkey, curve)
    assert out.read_bytes().endswith(b"INSECURE\n")
    assert bellman.read_params_head(out, curve).transcript is None


def test_params_have_no_place_for_an_idle_wire(curve, tmp_path, capsys):
    source, out = tmp_path / "idle.r1cs", tmp_path / "idle.params"
    r1cs.write(source, constraints.from_rows(curve, 4, 1, [{1: 1}], [{2: 1}], [{2: 1}]))
    assert run("--r1cs", source, "--params", out) == WRONG_INPUT
    assert str(out) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]
    assert run("--r1cs", source, "--zkey", out) == DONE


def test_what_is_there_stays_unless_forced(circuit, tmp_path, capsys):
    out, vkey = tmp_path / "chain.zkey", tmp_path / "vkey.json"
    for there in (out, vkey):
        there.write_text("somebody's")
        assert run("--r1cs", circuit, "--zkey", out, "--vkey", vkey) == WRONG_INPUT
        assert f"{there}: is there already: --force" in capsys.readouterr().err
        assert there.read_text() == "somebody's"
        assert not {out, vkey} - {there} & set(tmp_path.iterdir())
        there.unlink()
    out.write_text("somebody's")
    assert run("--r1cs", circuit, "--zkey", out, "--force") == DONE
    assert zkey.read(out).constraints.n_constraints == r1cs.read(circuit).n_constraints


def test_places_are_looked_at_before_the_work(circuit, tmp_path, capsys):
    for arguments, complaint in (
        (["--zkey", circuit, "--force"], "named twice"),
        (["--zkey", tmp_path / "a", "--vkey", tmp_path / "a"], "named twice"),
        (["--zkey", tmp_path / "nowhere" / "a"], "no folder"),
        (["--zkey", tmp_path, "--force"], "is there already"),
    ):
        assert run("--r1cs", circuit, *arguments) == WRONG_INPUT
        assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [circuit]


def test_a_bad_circuit_leaves_nothing(tmp_path, capsys):
    source = tmp_path / "bad.r1cs"
    source.write_bytes(b"r1cs" + bytes(40))
    assert run("--r1cs", source, "--zkey", tmp_path / "a") == WRONG_INPUT
    assert str(source) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]


def test_one_kind_of_key_at_a_time(circuit, tmp_path):
    for arguments in ((), ("--zkey", tmp_path / "a", "--params", tmp_path / "b")):
        with pytest.raises(SystemExit):
            run("--r1cs", circuit, *arguments)
