"""What is said about an answer holds nothing that the endpoint was sent in confidence (R2.3)."""

import pytest

from dexaflow.hooks.hiding import hidden

TOKEN = "a/b+c-0123456789=="


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("nothing", "nothing"),
        (f"Bearer {TOKEN}", "Bearer (hidden)"),
        (f"{TOKEN}{TOKEN} and {TOKEN}.", "(hidden)(hidden) and (hidden)."),
        (r"{'token': 'a\/b+c-0123456789=='}", "{'token': '(hidden)'}"),
        ("?token=a%2Fb%2Bc-0123456789%3D%3D&x", "?token=(hidden)&x"),
        ("'Bearer a/b+c-0123...' is not a field", "'Bearer (hidden)...' is not a field"),
        ("a/b+c", "a/b+c"),
        ("a/b... a/b+c... a/b+c-0123456789=...", "a/b... (hidden)... (hidden)..."),
    ],
)
def test_a_secret_is_hidden_also_where_it_is_cut_off_or_spelt_in_another_way(text: str, shown: str) -> None:
    assert hidden(text, (None, "", TOKEN)) == shown


def test_a_short_secret_is_hidden_as_a_whole() -> None:
    assert hidden("abc ab", ("abc",)) == "(hidden) ab"
