"""What the vectors leave out: hostile text, and messages."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.text import shown
from dexaflow.kube import names
from dexaflow.kube.annotations import MAX_ANNOTATIONS_BYTES, annotations_problem
from dexaflow.kube.tolerations import Toleration, toleration_problem, toleration_text

CHECKS = (
    names.label_key_problem,
    names.annotation_key_problem,
    names.label_value_problem,
    names.dns1123_subdomain_problem,
    names.dns1123_label_problem,
    names.service_account_problem,
    names.priority_class_problem,
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=80) | st.text("aA0-_./\u212a\u0130\n", max_size=80)


@given(ANY_TEXT)
def test_any_text_at_all_gets_a_verdict_of_one_line(text: str) -> None:
    """Lone surrogates, NUL and newlines explode nowhere."""
    for check in CHECKS:
        problem = check(text)
        assert problem is None or (problem and shown(problem) == problem)


@given(ANY_TEXT)
def test_only_plain_ascii_is_ever_a_key_or_value(text: str) -> None:
    for check in CHECKS:
        if check(text) is None:
            folded = r"\u212a\u0130" if check is names.annotation_key_problem else ""  # to the letters k and i
            assert re.fullmatch(f"[-A-Za-z0-9_./{folded}]*", text)


@given(ANY_TEXT)
def test_what_may_be_a_dns_label_may_be_a_subdomain_and_a_label_value(text: str) -> None:
    if names.dns1123_label_problem(text) is None:
        assert names.dns1123_subdomain_problem(text) is None
        assert names.label_value_problem(text) is None
        assert names.label_key_problem(f"{text}/{text}") is None


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a-" * 500_000, "a." * 500_000 + "-", "é" * 300_000, "/" * 300_000])
def test_a_huge_name_is_refused_without_being_worked_through(text: str) -> None:
    for check in CHECKS:
        problem = check(text)
        assert problem is not None
        assert len(problem) < 200


def test_reserved_keys_are_those_with_the_literal_prefix() -> None:
    """`dexaflow.io/` and `leoflow.io/`; nothing is folded, no other domain is meant (R5.2)."""
    assert names.is_reserved("dexaflow.io/run")
    assert names.is_reserved("leoflow.io/")
    for key in ("dexaflow.io", "DEXAFLOW.io/run", "x.dexaflow.io/run", "dexaflow.io.evil/run", " dexaflow.io/run", ""):
        assert not names.is_reserved(key)


@given(st.builds(Toleration, ANY_TEXT, ANY_TEXT | st.sampled_from(["Equal", "Exists"]), ANY_TEXT, ANY_TEXT))
def test_any_toleration_at_all_gets_a_verdict_of_one_line(toleration: Toleration) -> None:
    problem = toleration_problem(toleration)
    assert problem is None or shown(problem) == problem


def test_a_toleration_reads_like_the_taint_it_tolerates() -> None:
    assert toleration_text(Toleration("tenant", "Equal", "acme", "NoSchedule")) == "tenant=acme:NoSchedule Equal"
    assert toleration_text(Toleration("tenant", "", "acme")) == "tenant=acme"
    assert toleration_text(Toleration(operator="Exists")) == "Exists"


def test_annotations_with_lone_surrogates_are_counted_and_do_not_explode() -> None:
    assert annotations_problem({"a": "\ud800"}) is None
    problem = annotations_problem({"a": "\ud800" * (MAX_ANNOTATIONS_BYTES // 3 + 1)})
    assert problem is not None
    assert str(MAX_ANNOTATIONS_BYTES) in problem


def test_a_bad_annotation_key_is_named_without_its_tricks() -> None:
    problem = annotations_problem({"a\n\u202eb": "x"})
    assert problem is not None
    assert problem.startswith(r"'a\u000a\u202eb': ")
