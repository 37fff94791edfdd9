"""Settings: every key is documented, nothing unknown or malformed passes, flags win."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from cuzkd import config
from cuzkd.errors import InvalidInput

EXAMPLE = Path(__file__).resolve().parent.parent / "deploy" / "cuzkd.toml"


def test_the_example_names_every_setting_with_its_default():
    document = tomllib.loads(EXAMPLE.read_text())
    known = {entry.name: {f.name for f in fields(entry.default_factory)} for entry in fields(config.Config)}
    assert {name: set(keys) for name, keys in document.items()} == known
    assert config.load(EXAMPLE) == config.Config()


def test_the_example_explains_every_setting():
    before = ""
    for line in EXAMPLE.read_text().splitlines():
        if "=" in line and not line.startswith("#") and not before.startswith("[security]"):
            in_group = line.split(" = ")[0] in {"tls_key", "token_file"}
            assert before.startswith("#") or in_group, f"no comment above {line!r}"
        before = line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[daemon]\nlisen = 'x'", "unknown key daemon.lisen"),
        ("[pipline]\nready_target = 2", "unknown section or key pipline"),
        ("daemon = 3", "[daemon] must be a section"),
        ("[memory]\nbudget = '8 GIB of it'", "memory.budget"),
        ("[memory]\nbudget = -1", "memory.budget"),
        ("[memory]\nbudget = true", "memory.budget"),
        ("[memory]\nwipe = 'yes'", "memory.wipe: expected true or false"),
        ("[proving]\npolicy = 'gpu'", "expected one of prefer, require, cpu"),
        ("[proving]\ndevices = 'GPU-4f5a1b2c'", 'expected "first", "all" or a list of UUIDs'),
        ("[proving]\ndevices = []", "proving.devices: expected"),
        ("[proving]\ndevices = ['0', '1']", "expected a UUID as nvidia-smi -L shows it"),
        ("[proving]\ndevices = ['GPU-4f5a,GPU-77aa']", "expected a UUID"),
        ("[proving]\ndevices = [0]", "expected text, got 0"),
        ("[proving]\ndevices = ['GPU-4f5a', 'GPU-4f5a1b2c']", "may be the same device"),
        ("[proving]\nready_target = 0", "from 1 up"),
        ("[proving]\nready_target = 1.5", "proving.ready_target"),
        ("[daemon]\ndrain_s = '5 years'", "daemon.drain_s"),
        ("[daemon]\nlisten = 3", "daemon.listen: expected text"),
        ("[daemon", "is not TOML"),
    ],
)
def test_errors_name_file_and_key(tmp_path, text, says):
    file = tmp_path / "my.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        config.load(file)
    assert says in str(caught.value) and "my.toml" in str(caught.value)


def test_devices():
    def devices(value):
        return config.parse({"proving": {"devices": value}}, "x").proving.devices

    uuids = [
        "GPU-4f5a1b2c-0000-1111-2222-333344445555",
        "GPU-77aa",
        "MIG-12345678-0000-1111-2222-333344445555",
    ]
    assert (devices("first"), devices("all"), devices(uuids)) == ((), ("all",), tuple(uuids))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        config.load(tmp_path / "none.toml")


def test_flags_win_over_the_file(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("[proving]\npolicy = 'require'\nthreads = 3\n")
    loaded = config.load(file, {"proving": {"policy": "cpu"}, "daemon": {"state_dir": "/s"}})
    assert (loaded.proving.policy, loaded.proving.threads) == ("cpu", 3)
    assert loaded.daemon.state_dir == Path("/s")


@pytest.mark.parametrize(
    ("value", "n_bytes"),
    [
        (0, 0),
        (17, 17),
        ("17", 17),
        ("8GiB", 8 << 30),
        ("1.5 GB", 1_500_000_000),
        ("4 mib", 4 << 20),
        ("1b", 1),
    ],
)
def test_sizes(value, n_bytes):
    assert config.size(value) == n_bytes


@pytest.mark.parametrize(
    ("value", "seconds"), [(0, 0.0), (2.5, 2.5), ("90s", 90.0), ("5m", 300.0), ("250ms", 0.25)]
)
def test_spans(value, seconds):
    assert config.span(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [None, [], "", "GiB", "-1GiB", "1e9", "8 GiBs", float("inf"), -3, True])
def test_nonsense_is_no_size(value):
    with pytest.raises(ValueError, match="expected a size"):
        config.size(value)
