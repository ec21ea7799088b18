"""A newcomer who follows a page: saves its files, runs its commands, keeps its servers open, reads what they print."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from dexaflow.loading.loader import Loaded, load_file
from tests.docs.blocks import ROOT, Block, Stop
from tests.system.lite import wait_for

__all__ = ["Reader", "free_port", "same_shape"]

PORTS = ("8080", "8443")  # written in the pages; others are taken here, so that tests can run side by side
COMMAND_SECONDS = 60.0

_RULES = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"incident [0-9a-f]{12}"), "incident ID"),
    (re.compile(r"\d+(?:[.:,-]\d+)*(?: (?:ms|s|min|h|d)\b)?"), "N"),
    (re.compile(r"[─\s]+"), " "),
)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _plain(line: str) -> str:
    for pattern, sign in _RULES:
        line = pattern.sub(sign, line)
    return line.strip()


def same_shape(expected: str, printed: str) -> str:
    """Return the first line of `expected` that `printed` has not, in order, or "".

    Numbers, times and ids are alike; ``...`` in a line stands for anything, alone for any lines.
    """
    left = [_plain(line) for line in printed.splitlines()]
    for line in expected.splitlines():
        wanted = _plain(line)
        if wanted in ("", "..."):
            continue
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in wanted.split("...")))
        found = next((i for i, have in enumerate(left) if pattern.fullmatch(have)), None)
        if found is None:
            return line
        left = left[found + 1 :]
    return ""


class Reader:
    """Follows one page in a folder of its own. `close()` ends everything that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / ".venv").symlink_to(sys.prefix)
        self.ports = {written: str(free_port()) for written in PORTS}
        self.printed = ""  # by the last command
        self.where = self.folder  # the reader types all commands in one terminal, which stays where they leave it
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self.environ = {
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "DEXAFLOW_SERVER__PORT": self.ports["8080"],
            "DEXAFLOW_EXECUTION__ADMISSION__TIMEOUT": "10s",  # a machine busy with other tests is no broken hook
            "GOCACHE": os.environ.get("GOCACHE", str(Path.home() / ".cache" / "go-build")),
            "GOTOOLCHAIN": "local",
        }

    def here(self, text: str) -> str:
        """Return a block's text with the ports that are used here."""
        for written, port in self.ports.items():
            text = re.sub(rf"\b{written}\b", port, text)
        # The endpoint's default port stands in no text; Lite's is set by the environment.
        return re.sub(r"\bdexaflow endpoint serve (?!.*--port)", rf"\g<0>--port {self.ports['8443']} ", text)

    def take(self, step: Block | Stop) -> None:
        """Do what the page says next."""
        if isinstance(step, Stop):
            self.stop(step.name)
        elif step.file:
            self.save(step)
        elif step.language == "sh" and "clone" in step.words:
            self.look_at_clone(step)
        elif step.language == "sh" and "server" in step.words:
            self._serve(step)
        elif step.language == "sh":
            self._run(step)
        elif step.language == "text" and "shape" not in step.words:
            missing = same_shape(step.text, self.printed)
            assert not missing, f"{step.place}: nobody printed {missing!r} but\n{self.printed}"

    def save(self, block: Block) -> Path:
        """Write the file that a block is."""
        path = self.folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(block.text))
        return path

    async def load(self, block: Block) -> Loaded:
        """Load a block that is a DAG file, as the server would."""
        path = self.save(block)
        loaded = await load_file(path.parent, path.name, timeout=30)
        assert isinstance(loaded, Loaded), f"{block.place}: {loaded}"
        assert not loaded.errors, f"{block.place}: {loaded.errors[0]}"
        return loaded

    def _bash(self, text: str) -> subprocess.Popen[bytes]:
        left = f"trap 'pwd > {self.folder / '.where'}' EXIT\n"
        return subprocess.Popen(
            ["bash", "-eu", "-o", "pipefail", "-c", left + self.here(text)],
            cwd=self.where, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def _run(self, block: Block) -> None:
        process = self._bash(block.text)
        try:
            output = process.communicate(timeout=COMMAND_SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
        self.printed = output.decode(errors="replace")
        self.where = Path((self.folder / ".where").read_text().strip())
        failed = process.returncode != 0
        said = f"{block.place}: ended with {process.returncode}\n{self.printed}\n{self.server_output()}"
        assert failed == ("fails" in block.words), said

    def _serve(self, block: Block) -> None:
        name = "endpoint" if re.search(r"endpoint|go run|node ", block.text) else "lite"
        self.stop(name)
        with (self.folder / f".{name}.out").open("wb") as output:
            self._servers[name] = subprocess.Popen(
                ["bash", "-eu", "-c", self.here(block.text)],
                cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        port = int(self.ports["8080" if name == "lite" else "8443"])
        wait_for(lambda: self._answers(block, name, port), what=f"{block.place} to answer")

    def _answers(self, block: Block, name: str, port: int) -> bool:
        assert self._servers[name].poll() is None, f"{block.place}: ended\n{self.server_output()}"
        if name == "lite":
            asked = ["curl", "--silent", "--fail", f"http://127.0.0.1:{port}/health/ready"]
            return subprocess.run(asked, stdout=subprocess.DEVNULL, check=False).returncode == 0
        with socket.socket() as found:
            return found.connect_ex(("127.0.0.1", port)) == 0

    def server_output(self) -> str:
        """Return the end of what the servers have printed."""
        return "".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob(".*.out"))

    def stop(self, name: str) -> None:
        """Press Ctrl-C where that server runs."""
        process = self._servers.pop(name, None)
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise

    @staticmethod
    def look_at_clone(block: Block) -> None:
        """See that the targets which a block makes are there. They are not made: their tests are elsewhere."""
        for target in re.findall(r"^make (\w+)", block.text, re.MULTILINE):
            done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{block.place}: {done.stderr}"

    def close(self) -> None:
        """End all servers, and what they left running."""
        for name in list(self._servers):
            self.stop(name)
