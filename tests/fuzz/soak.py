"""Hours of hostile input, and what came of them.

Each target runs under the coverage-guided fuzzer in a process of its own, beginning with the corpus. What breaks a
promise is saved, and `python -m tests.fuzz.replay` shows it again.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.golang import GO_READER, build
from tests.fuzz.targets import TARGETS

__all__ = ["Outcome", "soak"]

_HANG_SECONDS = 20  # for one input; the slowest of them takes some milliseconds
_MEMORY_MIB = 2048


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one target. `finding` is the input that broke a promise, `said` the end of what it said."""

    name: str
    seconds: float
    executions: int
    edges: int
    inputs: int
    finding: Path | None
    said: str


def soak(
    names: Sequence[str],
    seconds: float,
    findings: Path,
    *,
    jobs: int = 1,
    keep: Path | None = None,
    runs: int | None = None,
) -> Iterator[Outcome]:
    """Run each target for `seconds`, `jobs` of them at a time, and yield what came of each as it ends.

    Args:
        findings: Where inputs that broke a promise are saved.
        keep: Where all inputs that reached new code are left, a folder for each target; None: nowhere.
        runs: At most so many executions, and the same ones each time; None: as many as there is time for.
    """
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dexaflow-soak-") as temporary:
        folder = Path(temporary)
        reader = build(folder)
        environ = {**os.environ, **({GO_READER: str(reader)} if reader else {})}
        with ThreadPoolExecutor(jobs) as pool:
            work = [pool.submit(_one, name, seconds, folder, findings, keep, environ, runs) for name in names]
            for done in as_completed(work):
                yield done.result()


def _one(
    name: str,
    seconds: float,
    folder: Path,
    findings: Path,
    keep: Path | None,
    environ: dict[str, str],
    runs: int | None,
) -> Outcome:
    place = folder / name
    inputs = (keep or place) / name
    given = place / "seeds"
    given.mkdir(parents=True)
    inputs.mkdir(parents=True, exist_ok=True)
    _fill(given, _seeds(name))
    words = place / "words"
    words.write_text("".join(_word(word) for target in _targets(name) for word in TARGETS[target].words))
    prefix = f"{findings / name}-"
    before = set(findings.glob(f"{name}-*"))
    began = time.monotonic()
    ended = subprocess.run(
        [
            sys.executable, "-m", "tests.fuzz.one", name, f"-max_total_time={max(1, round(seconds))}",
            f"-max_len={max(TARGETS[target].max_bytes for target in _targets(name))}", f"-dict={words}",
            f"-timeout={_HANG_SECONDS}", f"-rss_limit_mb={_MEMORY_MIB}", f"-artifact_prefix={prefix}",
            "-print_final_stats=1", *([] if runs is None else [f"-runs={runs}", "-seed=1"]), str(inputs), str(given),
        ],
        capture_output=True, text=True, errors="replace", env=environ, check=False,
    )  # fmt: skip
    took = time.monotonic() - began
    new = sorted(set(findings.glob(f"{name}-*")) - before)
    finding = new[0] if new else None
    if ended.returncode and finding is None:  # it never came to fuzzing
        finding = Path(f"{prefix}failed.txt")
        finding.write_text(ended.stderr)
    outcome = Outcome(
        name,
        took,
        _number(r"stat::number_of_executed_units:\s+(\d+)", ended.stderr) or _number(r"#(\d+)\s", ended.stderr),
        _number(r"cov: (\d+)", ended.stderr),
        sum(1 for _ in inputs.iterdir()),
        finding,
        "\n".join(_said(ended.stdout + ended.stderr)) if ended.returncode else "",
    )
    shutil.rmtree(place, ignore_errors=True)
    return outcome


def _targets(name: str) -> list[str]:
    return list(TARGETS) if name == "all" else [name]


def _seeds(name: str) -> Iterable[bytes]:
    if name != "all":
        return corpus.seeds(name)
    return (bytes([number]) + data for number, target in enumerate(TARGETS) for data in corpus.seeds(target))


def _fill(folder: Path, inputs: Iterable[bytes]) -> None:
    for number, data in enumerate(inputs):
        (folder / str(number)).write_bytes(data)


def _word(word: str) -> str:
    """Return a line of libFuzzer's dictionary."""
    data = word.encode("utf-8", "surrogatepass")
    return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"\n'


def _number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def _said(text: str) -> list[str]:
    """Return what Python said of the end: libFuzzer's own lines say nothing about the promise."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", "stat::", "INFO:", "=="))]
    return lines[-25:]
