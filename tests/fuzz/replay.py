"""One saved input once more: `python -m tests.fuzz.replay TARGET FILE`."""

import os
import sys
import tempfile
from pathlib import Path

from tests.fuzz.golang import GO_READER, build


def main(name: str, file: str) -> None:
    """Run the target on the file's content; a broken promise raises."""
    with tempfile.TemporaryDirectory() as folder:
        reader = build(Path(folder))
        if reader is not None:
            os.environ[GO_READER] = str(reader)
        from tests.fuzz.targets import TARGETS

        data = Path(file).read_bytes()
        if name == "all":
            name, data = list(TARGETS)[data[0] % len(TARGETS)], data[1:]
        print(f"{name}: {data!r}")
        TARGETS[name].run(data)
        print("it keeps its promises")


if __name__ == "__main__":
    main(*sys.argv[1:])
