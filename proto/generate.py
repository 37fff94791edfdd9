"""Generate the protobuf code that is committed under cuzkd/.

    python proto/generate.py            write it
    python proto/generate.py --check    fail if the committed code differs (CI)

Needs the pinned grpcio-tools of `pip install '.[dev]'`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

# proto file -> (package that holds its code, import that protoc writes, import that works there, services?)
TARGETS = {
    "cuzk/v1/proving.proto": (
        "cuzkd/service/v1",
        "from cuzk.v1 import",
        "from cuzkd.service.v1 import",
        True,
    ),
    "cuzkd/prover/v1/prover.proto": (
        "cuzkd/engine/wire",
        "from cuzkd.prover.v1 import",
        "from cuzkd.engine.wire import",
        False,
    ),
}


def generate(out_root: Path) -> list[Path]:
    written = []
    for proto, (package, wrong, right, services) in TARGETS.items():
        with tempfile.TemporaryDirectory() as tmp:
            args = ["protoc", f"-I{HERE}", f"--python_out={tmp}", f"--pyi_out={tmp}"]
            if services:
                args.append(f"--grpc_python_out={tmp}")
            if protoc.main([*args, str(HERE / proto)]) != 0:
                raise SystemExit(f"protoc failed on {proto}")
            target = out_root / package
            target.mkdir(parents=True, exist_ok=True)
            init = target / "__init__.py"
            init.write_text(f'"""Generated from proto/{proto} by proto/generate.py. Do not edit."""\n')
            written.append(init)
            for made in sorted((Path(tmp) / proto).parent.iterdir()):
                path = target / made.name
                path.write_text(made.read_text().replace(wrong, right))
                written.append(path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        for path in generate(ROOT):
            print(path.relative_to(ROOT))
        return
    with tempfile.TemporaryDirectory() as tmp:
        stale = []
        for path in generate(Path(tmp)):
            committed = ROOT / path.relative_to(tmp)
            if not committed.exists() or committed.read_text() != path.read_text():
                stale.append(str(committed.relative_to(ROOT)))
    if stale:
        sys.exit("generated code is stale, run `python proto/generate.py`: " + ", ".join(stale))
    print("generated code is up to date")


if __name__ == "__main__":
    main()
