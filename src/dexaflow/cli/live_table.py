"""A run on a terminal: a table that is drawn anew as the run goes on."""

import io
import sys
from types import TracebackType

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dexaflow.base.text import shown
from dexaflow.cli.moments import ago, local_now, span
from dexaflow.cli.watching import Event, Progress, Task, why_of

__all__ = ["LiveTable"]

_STYLES = {
    "success": "green",
    "failed": "red",
    "upstream_failed": "red",
    "running": "bold",
    "launching": "bold",
    "held": "yellow",
    "up_for_retry": "yellow",
    "none": "dim",
    "skipped": "dim",
}
# Where there is no room for all: what somebody may have to do something about, then what moves, then the rest.
_FIRST = ("failed", "held", "up_for_retry", "running", "launching", "queued", "scheduled", "upstream_failed", "success")
_OTHER_LINES = 7  # of the screen: title, head, rule, counts, and room for a few cells that take two lines


class LiveTable:
    """Draws a run four times a second while it is entered; the last drawing stays, with all tasks."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._lost = False
        self._ended = False
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks
        console = Console(highlight=False, markup=False, emoji=False)
        self._height = console.height
        self._live = Live(console=console, get_renderable=self._drawing, refresh_per_second=4)

    def __enter__(self) -> "LiveTable":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def take(self, event: Event) -> None:
        """Take in what happened; it is drawn at the next turn."""
        if event.name in ("lost", "back"):
            self._lost = event.name == "lost"
        self._ended = self._ended or event.name == "end"
        self._progress.take(event)

    def _drawing(self) -> Group:
        progress, run = self._progress, self._progress.run
        if not run:
            return Group()
        now = local_now()
        title = Text(shown(f"{run.get('dag_id')}  {run.get('run_id')}  "))
        title.append(shown(str(run.get("state"))), _STYLES.get(str(run.get("state")), ""))
        took = run.get("seconds")
        if took is None and isinstance(run.get("started_at"), str):
            title.append(f"  {ago(run['started_at'], now)}")
        elif took is not None:
            title.append(f"  {span(took)}")
        if self._lost:
            title.append("  the server is gone; waiting for it to come back", "red")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for column in ("task", "state", "try", "why"):
            table.add_column(column, overflow="fold")
        tasks = list(progress.tasks.values())
        chosen = tasks if self._ended else _that_fit(tasks, self._height - _OTHER_LINES)
        for task in chosen:
            state = str(task.get("state"))
            table.add_row(
                Text(shown(str(task.get("task_id")))),
                Text(shown(state), _STYLES.get(state, "")),
                Text(shown(str(task.get("try_number")))),
                Text(shown(why_of(task))),
            )
        more = f"{len(tasks) - len(chosen)} more; " if len(chosen) < len(tasks) else ""
        return Group(title, table, Text(shown(f"{more}{progress.counts()}"), "dim"))


def _that_fit(tasks: list[Task], room: int) -> list[Task]:
    """Return the tasks to draw, in their own order: the most pressing ones where there is no room for all."""
    if len(tasks) <= room:
        return tasks

    def pressing(task: Task) -> int:
        state = str(task.get("state"))
        return _FIRST.index(state) if state in _FIRST else len(_FIRST)

    chosen = {id(task) for task in sorted(tasks, key=pressing)[: max(room, 3)]}
    return [task for task in tasks if id(task) in chosen]
