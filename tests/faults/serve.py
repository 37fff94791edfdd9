"""`cuzkd serve` with what only tests may set: `serve.py CHANGES.json serve --config ...`.

CHANGES: {"engine": {...}, "timing": {...}, "intake": {...}} on top of the settings that the configuration gives, and
"report": a file that says, once the daemon has ended by itself, what its engine has kept: bytes of the budget.
"""

import dataclasses
import json
import sys
from pathlib import Path

from cuzkd import cli, daemon
from cuzkd.engine.engine import Engine


def main(changes, arguments):
    engines = []
    real = daemon.engine_settings

    class Kept(Engine):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            engines.append(self)

    def changed(config):
        settings = real(config)
        return dataclasses.replace(
            settings,
            timing=dataclasses.replace(settings.timing, **changes["timing"]),
            intake=dataclasses.replace(settings.intake, **changes["intake"]),
            **changes["engine"],
        )

    daemon.engine_settings, daemon.Engine = changed, Kept
    code = cli.main(arguments)
    report = {"budget": sum(engine._desk.budget.used_bytes for engine in engines), "engines": len(engines)}
    Path(changes["report"]).write_text(json.dumps(report))
    return code


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2:]))
