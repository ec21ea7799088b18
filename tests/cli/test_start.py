"""How the program begins."""

import signal
import subprocess
import sys

INTERRUPTED_WHILE_IT_LOADS = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from dexaflow.cli.start import main
main()
"""


def test_ctrl_c_while_it_loads_ends_it_without_a_word() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_WHILE_IT_LOADS], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
