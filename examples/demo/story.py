"""The story of `make demo`: real tasks of two tenants, placed, held, refused and released by a real HTTPS endpoint.

It shows what happens as it happens, ends with a table, and exits non-zero when anything differs from what it promises.
"""

import argparse
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.demo.folder import Folder, InUse
from examples.demo.interruptions import Interrupted, Interruptions
from examples.demo.parts import DemoFailed, Endpoint, Lite, Processes, until

FOLDER = Path(".demo")
console = Console(highlight=False)
started = time.monotonic()
interrupted = threading.Event()


def say(text: str, style: str = "") -> None:
    """Print one line of the story with the time since the start; none when it was interrupted."""
    if interrupted.is_set():
        return
    console.print(f"[dim]{time.monotonic() - started:6.1f} s[/dim]  {text}", style=style, soft_wrap=True)


@dataclass(frozen=True)
class Row:
    """One line of the last table."""

    workflow: str
    asked: int
    answered: str
    changed: str
    ran: str


def expect(found: object, wanted: object, what: str) -> None:
    """Raises `DemoFailed` when they differ."""
    if found != wanted:
        raise DemoFailed(f"{what}: found {found!r}, promised {wanted!r}")


class Follower:
    """Prints every change of a task's state as it happens."""

    def __init__(self, lite: Lite) -> None:
        self._lite = lite
        self._runs: dict[str, str] = {}
        self._seen: dict[tuple[str, str], tuple[str, str]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def run(self, run_id: str, label: str) -> None:
        """Follow one more run."""
        self._runs[run_id] = label

    def stop(self) -> None:
        """Print what is left to print, and stop."""
        self._stopped.set()
        self._thread.join(5)

    def _follow(self) -> None:
        last = False
        while not last:
            last = self._stopped.wait(0.15)
            for run_id, label in list(self._runs.items()):
                try:
                    self._look(run_id, label)
                except (OSError, ValueError, KeyError, DemoFailed):
                    continue

    def _look(self, run_id: str, label: str) -> None:
        for task_id, task in self._lite.tasks(run_id).items():
            now = (task["state"], task["reason"])
            if self._seen.get((run_id, task_id)) != now and task["state"] not in ("none", "scheduled"):
                self._seen[run_id, task_id] = now
                colour = {"success": "green", "failed": "red", "held": "yellow"}.get(task["state"], "cyan")
                by = f" by {task['hook']}" if task["hook"] else ""
                why = f": {task['reason']}" if task["reason"] else ""
                say(f"  {label}.{task_id} is [{colour}]{task['state']}[/{colour}]{by}{why}")


class Demo:
    """The four workflows, and what is promised of each."""

    def __init__(self, lite: Lite, endpoint: Endpoint) -> None:
        self.lite = lite
        self.endpoint = endpoint
        self.rows: list[Row] = []
        self.follower = Follower(lite)

    def trigger(self, dag_id: str, tenant: str) -> str:
        """Trigger a workflow and follow it."""
        run_id = self.lite.trigger(dag_id)
        self.follower.run(run_id, f"{tenant}/{dag_id}")
        return run_id

    def ended(self, run_id: str, seconds: float = 60.0) -> str:
        """Wait for the end of a run and return its state."""

        def look() -> str | None:
            state = str(self.lite.get(f"/dexaflow/v1/runs/{run_id}")["state"])
            return state if state in ("success", "failed") else None

        return until(look, f"run {run_id} to end", seconds)

    def explain(self, run_id: str, task_id: str) -> Any:
        """Return the walk of a task's last try."""
        return self.lite.get(f"/dexaflow/v1/runs/{run_id}/tasks/{task_id}/explain")

    def asked(self, run_id: str) -> tuple[int, list[str]]:
        """Return how many questions were put for a run, and the outcomes in order."""
        reviews = self._reviews(run_id)
        put = sum(r["count"] for r in reviews if r["outcome"] != "breaker_open")
        return put, [r["outcome"] for r in reviews]

    def _reviews(self, run_id: str) -> list[Any]:
        return list(self.lite.get(f"/dexaflow/v1/runs/{run_id}/reviews?limit=200")["reviews"])

    def add_row(self, run_id: str, workflow: str, task_id: str) -> None:
        """Add a line to the last table, from what the server has kept."""
        put, _ = self.asked(run_id)
        pod = self.explain(run_id, task_id)["pod"] or {"settings": []}
        changed = ", ".join(
            f"{s['field']}.{s['key']}={s['value']}" if s["field"] != "tolerations" else f"toleration {s['value']}"
            for s in pod["settings"]
            if s["by"].startswith("hook:")
        )
        tasks = self.lite.tasks(run_id)
        ran = ", ".join(f"{name} {task['state']}" for name, task in sorted(tasks.items()))
        times: Counter[str] = Counter()
        for review in self._reviews(run_id):
            if review["outcome"] != "breaker_open":  # nobody was asked
                times[review["outcome"]] += review["count"]
        expect(times.total(), put, f"the answers about {workflow}")
        answered = ", ".join(f"{count} x {outcome}" for outcome, count in times.items())
        self.rows.append(Row(workflow, put, answered, changed or "nothing", ran))

    def placed(self) -> None:
        """One workflow is placed on its tenant's nodes and labelled."""
        say("1. acme/nightly_etl: the endpoint places it on acme's nodes and labels it for cost", "bold")
        run_id = self.trigger("nightly_etl", "acme")
        expect(self.ended(run_id), "success", "acme/nightly_etl")
        pod = self.explain(run_id, "load")["pod"]
        expect(pod["execution"]["node_selector"], {"tenant": "acme"}, "the node selector of acme/nightly_etl")
        expect(pod["execution"]["labels"], {"cost-center": "4711"}, "the labels of acme/nightly_etl")
        expect(self.asked(run_id), (3, ["admit"] * 3), "questions about acme/nightly_etl")
        log = self.lite.request("GET", f"/dexaflow/v1/runs/{run_id}/tasks/publish/logs")[1]
        expect("the sum is 22" in log, True, "the log of acme/nightly_etl.publish")
        self.add_row(run_id, "acme/nightly_etl", "load")

    def held(self) -> None:
        """One workflow is held by a freeze, then released."""
        say("2. globex/quarter_close: a freeze is on; it is held without a token, a process or a pool slot", "bold")
        self.endpoint.freeze.write_text("06:00 UTC\n")
        run_id = self.trigger("quarter_close", "globex")
        until(lambda: self.lite.tasks(run_id)["close_books"]["state"] == "held", "globex/quarter_close to be held")
        until(lambda: self.asked(run_id)[0] >= 2, "globex/quarter_close to be asked again")
        task = self.lite.tasks(run_id)["close_books"]
        expect(task["reason"], "quarter_close is frozen until 06:00 UTC", "the reason of globex/quarter_close")
        say("  the freeze ends")
        self.endpoint.freeze.unlink()
        expect(self.ended(run_id), "success", "globex/quarter_close")
        expect(self.asked(run_id)[1], ["hold", "admit"], "answers about globex/quarter_close")
        self.add_row(run_id, "globex/quarter_close", "close_books")

    def refused(self) -> None:
        """One workflow is refused: it never runs, and is not retried."""
        say("3. globex/train_model: the budget does not cover it; it has 3 retries and uses none", "bold")
        run_id = self.trigger("train_model", "globex")
        expect(self.ended(run_id), "failed", "globex/train_model")
        task = self.lite.tasks(run_id)["train"]
        expect((task["state"], task["try_number"], task["started_at"]), ("failed", 1, None), "globex/train_model.train")
        expect(self.asked(run_id), (1, ["refuse"]), "questions about globex/train_model")
        self.add_row(run_id, "globex/train_model", "train")

    def killed(self) -> None:
        """One workflow's endpoint is killed: the breaker opens, nothing runs unchecked; then it is back."""
        say("4. acme/ingest: the endpoint is killed; six tasks come due", "bold")
        self.endpoint.kill()
        run_id = self.trigger("ingest", "acme")
        until(lambda: self._breaker() != "closed", "the breaker to open")
        say("  the breaker is [red]open[/red]: nothing is asked for 30 s, nothing runs")
        expect({t["state"] for t in self.lite.tasks(run_id).values()}, {"held"}, "the tasks of acme/ingest")
        say("  the endpoint is started again; one attempt will be tried when the 30 s end")
        self.endpoint.start()
        expect(self.ended(run_id, 90), "success", "acme/ingest")
        expect(self._breaker(), "closed", "the breaker")
        outcomes = self.asked(run_id)[1]
        expect((outcomes.count("admit"), "error" in outcomes), (6, True), "answers about acme/ingest")
        self.add_row(run_id, "acme/ingest", "part_0")

    def _breaker(self) -> str:
        return str(self.lite.get("/dexaflow/v1/hooks")["hooks"][0]["breaker"])

    def table(self) -> None:
        """Print what was asked, answered, changed and run."""
        table = Table(title="What was asked, answered, changed and run", show_lines=True)
        for heading in ("workflow", "asked", "answered", "changed by the hook", "ran"):
            table.add_column(heading, overflow="fold")
        for row in self.rows:
            table.add_row(row.workflow, str(row.asked), row.answered, row.changed, row.ran)
        console.print(table)


def tell(processes: Processes, *, keep: bool) -> None:
    """Tell the whole story. Raises `DemoFailed`."""
    endpoint = Endpoint(processes)
    lite = Lite(processes, endpoint)
    say("starting the policy endpoint (HTTPS, its own CA, bearer token) and Dexaflow Lite", "bold")
    endpoint.start()
    lite.start()
    demo = Demo(lite, endpoint)
    demo.placed()
    demo.held()
    demo.refused()
    demo.killed()
    demo.follower.stop()
    demo.table()
    if keep:
        console.print(f"left running: {lite.url}, data in {FOLDER}/data; try:")
        console.print("  export DEXAFLOW_DATA=.demo/data; .venv/bin/dexaflow dags list")
        for name, process in (("Lite", lite), ("endpoint", endpoint)):
            assert process.child is not None
            console.print(f"  stop {name}: kill {process.child.pid}")
    say("everything came out as promised", "bold green")


def main() -> int:
    """Run the demo; return its exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave server and endpoint running")
    keep = parser.parse_args().keep
    interruptions = Interruptions()
    processes: Processes | None = None
    left_running = False
    status = 0
    try:
        try:
            processes = Processes(Folder(FOLDER.absolute()), interruptions)
            tell(processes, keep=keep)
            left_running = keep
        except InUse as in_use:
            print(in_use, file=sys.stderr)
            status = 1
        except DemoFailed as failed:
            say(f"not as promised: {failed}; logs are in {FOLDER}", "bold red")
            status = 1
        finally:
            interruptions.ignore()
    except Interrupted as signalled:  # at most once, wherever in there
        interrupted.set()
        left_running = False
        status = 128 + signalled.number
    finally:
        if processes is not None and left_running:
            processes.leave_running()
        elif processes is not None:
            processes.end()
    if interrupted.is_set():
        name = signal.Signals(status - 128).name
        console.print(f"interrupted by {name}: everything that the demo had started has ended", style="bold red")
    return status
