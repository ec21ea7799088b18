"""One target under the coverage-guided fuzzer: `python -m tests.fuzz.one TARGET [arguments of libFuzzer]`.

`all` is every target at once, chosen by the first byte.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace

import atheris

__all__ = ["main"]


def _broken(data: bytes) -> None:
    assert len(data) < 3, "planted"


def main(arguments: list[str]) -> None:
    """Run until the time given to libFuzzer is over, or a promise is broken."""
    name = arguments.pop(1)
    with atheris.instrument_imports(include=["dexaflow", "cronsim"]):
        from tests.fuzz.targets import TARGETS
    targets = dict(TARGETS)
    if os.environ.get("FUZZ_BROKEN") == name:  # to show that a finding is one
        targets[name] = replace(targets[name], run=_broken)
    runs = [target.run for target in targets.values()]

    def each(data: bytes) -> None:
        if data:
            runs[data[0] % len(runs)](data[1:])

    run: Callable[[bytes], None] = each if name == "all" else targets[name].run
    atheris.Setup(arguments, run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
