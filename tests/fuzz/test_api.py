"""The API keeps the word that it publishes."""

from pathlib import Path

from tests.fuzz.world import ask_a_real_server


def test_every_answer_of_a_real_server_is_as_documented(tmp_path: Path) -> None:
    asked = ask_a_real_server(tmp_path, examples=2)

    assert asked.findings == {}
    good = {label for label, status in asked.statuses if status < 300}
    assert len(good) > 30, "most operations were asked about nothing that is there"
