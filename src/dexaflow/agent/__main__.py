"""Where the spawner and the user's Python process begin: ``python -I .../agent/__main__.py spawner|runner ...``.

Run by its path, so that an isolated interpreter finds the very package that the server runs, also where it is not
installed, or installed a second time. Its folder comes before what is installed and after the standard library, which
nothing beside this package may hide.
"""

import sys
from pathlib import Path


def _main() -> int:
    source = str(Path(__file__).resolve().parents[2])
    installed = [place for place, path in enumerate(sys.path) if path.endswith(("site-packages", "dist-packages"))]
    if source not in sys.path[: installed[0] + 1 if installed else None]:
        sys.path.insert(installed[0] if installed else len(sys.path), source)
    part, *arguments = sys.argv[1:]
    if part == "runner":
        from dexaflow.agent.runner import main as run
    else:
        from dexaflow.agent.spawner import main as run
    return run(arguments)


if __name__ == "__main__":
    sys.exit(_main())
