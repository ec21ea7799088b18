"""The end of the process does not wait for what hooks have left behind (R8.3)."""

import json
import subprocess
import sys
import textwrap

import pytest

LEFT_BEHIND = {
    "a thread": "threading.Thread(target=forever, name='of a hook').start()",
    "a thread that computes": "threading.Thread(target=spin, name='of a hook').start()",
    "a pool": "concurrent.futures.ThreadPoolExecutor().submit(forever)",
    "an exit handler": "atexit.register(forever)",
    "an exit handler that computes": "atexit.register(spin)",
}

PROGRAM = """
import atexit, concurrent.futures, threading
from dexaflow.observe.logs import configure_logs
from dexaflow.server.leaving import leave_in_time

def forever():
    threading.Event().wait()

def spin():
    while True:
        pass

configure_logs(form="json")
{left}
leave_in_time({status}, seconds=0.2)
print("the last line", flush=True)
"""


def ended(left: str, status: int) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(PROGRAM).format(left=left, status=status)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("what", LEFT_BEHIND)
@pytest.mark.parametrize("status", [0, 1])
def test_process_ends_in_its_own_time_whatever_was_left_behind(what: str, status: int) -> None:
    end = ended(LEFT_BEHIND[what], status)

    assert end.returncode == status, end.stderr
    assert end.stdout == "the last line\n"
    said = [json.loads(line) for line in end.stderr.splitlines() if line.startswith("{")]
    assert [line["event"] for line in said] == ["exit_held_up"]
    if what.startswith("a thread"):
        assert said[0]["threads"] == ["of a hook"]


def test_what_ends_by_itself_is_waited_for() -> None:
    """An exit handler that writes what it has to, say."""
    end = ended("atexit.register(lambda: print('flushed', flush=True))", 0)

    assert end.returncode == 0
    assert end.stdout == "the last line\nflushed\n"
    assert end.stderr == ""


def test_program_that_goes_on_is_left_alone() -> None:
    """`server.run()` may have returned, and its program have more to do."""
    program = PROGRAM.format(left="", status=1) + "import time; time.sleep(0.6); print('and on', flush=True)"
    end = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert end.returncode == 0
    assert end.stdout == "the last line\nand on\n"
