"""The command line as a process, with pipes or on a terminal."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Ended = subprocess.CompletedProcess[str]
_MAIN = [sys.executable, "-m", "dexaflow.cli.main"]


class Program:
    """`dexaflow`, for one data folder."""

    def __init__(self, data: Path, cwd: Path) -> None:
        self.data = data
        self.cwd = cwd

    def environ(self, environ: dict[str, str | None]) -> dict[str, str]:
        """Return a small environment; None in `environ` takes a variable out."""
        made: dict[str, str | None] = {
            "PATH": os.environ["PATH"], "DEXAFLOW_DATA": str(self.data), "TZ": "UTC", "LANG": "C.UTF-8",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **environ,
        }  # fmt: skip
        return {name: value for name, value in made.items() if value is not None}

    def run(self, *arguments: str, code: int = 0, input: str = "", **environ: Any) -> Ended:  # noqa: A002 - as subprocess has it
        """Run it to its end with pipes; it must end with `code`."""
        ended = subprocess.run(
            [*_MAIN, *arguments], cwd=self.cwd, env=self.environ(environ), input=input, capture_output=True,
            encoding="utf-8", timeout=90,
        )  # fmt: skip
        assert ended.returncode == code, (arguments, ended.returncode, ended.stdout[-2000:], ended.stderr[-2000:])
        assert "Traceback" not in ended.stderr
        return ended

    def json(self, *arguments: str, code: int = 0, **environ: Any) -> Any:
        """Return what it prints with `--output json`: one document in ASCII, so no reader is led astray."""
        ended = self.run(*arguments, "--output", "json", code=code, **environ)
        assert ended.stdout.isascii()
        assert len(ended.stdout.splitlines()) == 1
        return json.loads(ended.stdout)

    @contextlib.contextmanager
    def started(self, *arguments: str, **environ: Any) -> Iterator["subprocess.Popen[str]"]:
        """Start it with pipes; it is gone afterwards."""
        process = subprocess.Popen(
            [*_MAIN, *arguments], cwd=self.cwd, env=self.environ(environ), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        with process:
            try:
                yield process
            finally:
                process.kill()

    @contextlib.contextmanager
    def on_terminal(self, *arguments: str, columns: int = 100, lines: int = 30) -> Iterator["Terminal"]:
        """Start it on a terminal of its own; it is gone afterwards."""
        controller, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (lines, columns))
        process = subprocess.Popen(
            [*_MAIN, *arguments], cwd=self.cwd, env=self.environ({"TERM": "xterm-256color"}), stdin=terminal,
            stdout=terminal, stderr=terminal, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        try:
            yield Terminal(process, controller)
        finally:
            process.kill()
            process.wait()
            os.close(controller)


@dataclass(slots=True)
class Terminal:
    """A program on a terminal, and what it has written there."""

    process: "subprocess.Popen[bytes]"
    controller: int
    written: str = ""

    def until(self, text: str, seconds: float = 60.0) -> str:
        """Return all that is written once `text` is there."""
        deadline = time.monotonic() + seconds
        while text not in self.written:
            assert self._read(deadline), f"{text!r} never came: {self.written[-2000:]!r}"
        return self.written

    def end(self, seconds: float = 60.0) -> int:
        """Return its exit status, and have all that it wrote in `written`."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(seconds)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def _read(self, deadline: float) -> bool:
        left = deadline - time.monotonic()
        assert left > 0, f"the program does not end: {self.written[-2000:]!r}"
        if not select.select([self.controller], [], [], left)[0]:
            return True
        try:
            piece = os.read(self.controller, 65_536)
        except OSError:  # Linux says so when the other side is closed
            return False
        self.written += piece.decode("utf-8", "replace")
        return bool(piece)
