"""Where the spawner and the user's Python process begin: ``python -I .../agent/__main__.py spawner|runner ...``.

Run by its path, so that an isolated interpreter finds the package also where it is not installed. The folder goes to
the end of the search path: nothing beside this package may hide the standard library.
"""

import sys
from pathlib import Path


def _main() -> int:
    source = str(Path(__file__).resolve().parents[2])
    if source not in sys.path:
        sys.path.append(source)
    part, *arguments = sys.argv[1:]
    if part == "runner":
        from dexaflow.agent.runner import main as run
    else:
        from dexaflow.agent.spawner import main as run
    return run(arguments)


if __name__ == "__main__":
    sys.exit(_main())
