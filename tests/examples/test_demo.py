"""`make demo`, ended before its end, and begun where one runs already."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Demo:
    """One demo, in a folder of its own in place of a clone, and in a session of its own as a CI runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / f"output-{time.monotonic_ns()}"
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "examples.demo"],
                cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        return self.output.read_text()

    def until(self, pattern: str) -> None:
        deadline = time.monotonic() + 120
        while not re.search(pattern, self.said()):
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)


def alive_in(folder: Path) -> list[int]:
    """Return whatever runs with the folder of a demo in its command line, its environment or as its own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(folder / ".demo").encode() in text + os.fsencode((process / "cwd").readlink()):
                found.append(int(process.name))
    return found


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], Demo]]:
    """Begins demos in one folder; nothing of them is left afterwards."""
    begun: list[Demo] = []

    def one() -> Demo:
        begun.append(Demo(tmp_path))
        return begun[-1]

    yield one
    for demo in begun:
        demo.process.terminate()
        demo.process.wait(60)
    for pid in alive_in(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("number", "moment", "whole_group"),
    [
        (signal.SIGTERM, r"nightly_etl\.\w+ is (queued|launching|running|success)", True),
        (signal.SIGINT, "the freeze|close_books is", False),
        (signal.SIGHUP, "starting the policy endpoint", True),
    ],
)
def test_demo_that_is_interrupted_leaves_nothing_alive_and_says_so_in_a_line(
    begin: Callable[[], Demo], number: signal.Signals, moment: str, whole_group: bool
) -> None:
    demo = begin()
    demo.until(moment)
    before = demo.said()

    if whole_group:
        os.killpg(demo.process.pid, number)
    else:
        demo.process.send_signal(number)

    assert demo.process.wait(60) == 128 + number
    assert alive_in(demo.folder) == []
    after = demo.said()[len(before) :].splitlines()
    assert after[-1] == f"interrupted by {number.name}: everything that the demo had started has ended"
    assert "Traceback" not in demo.said()


def test_second_demo_in_a_clone_is_refused_in_a_line_and_the_first_goes_on(begin: Callable[[], Demo]) -> None:
    first = begin()
    first.until("starting the policy endpoint")

    second = begin()

    assert second.process.wait(60) == 1
    (line,) = second.said().splitlines()
    assert line.startswith(
        f"a demo has {first.folder}/.demo already; wait for its end, or end it: kill {first.process.pid}"
    )
    first.until("nightly_etl.publish is success")


def test_what_a_killed_demo_left_alive_keeps_its_folder_until_it_is_ended_as_told(begin: Callable[[], Demo]) -> None:
    first = begin()
    first.until("nightly_etl.publish is success")
    first.process.kill()
    first.process.wait()

    second = begin()

    assert second.process.wait(60) == 1
    told = re.search(r"or end it: kill ([\d ]+)$", second.said())
    assert told, second.said()
    left = [int(word) for word in told[1].split()]
    assert len(left) == 2  # endpoint and server
    for pid in left:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 60
    while alive_in(first.folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    third = begin()
    third.until("starting the policy endpoint")
