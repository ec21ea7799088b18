"""R4.2, R4.3: an answer met before is not read anew, and is taken for nothing that it does not say."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from dexaflow.admission.decisions import Decision, admit
from dexaflow.admission.envelope import AnswerError, Answers, answer, read_answer

UIDS = [str(uuid.UUID(int=n * 0x11111111111111111111111111111111)) for n in range(1, 5)]

# %U: the uid of the question; %E: the same, its first digit as an escape; %O and %F: likewise of another question.
_UID_VALUES = ("%U", "%E", "%O", "%F", "%U%U", "x%U", "")
_KEYS = ("uid", "UID", "\\u0075id", "reason")


def said(read: "Answers | None", body: bytes, uid: str) -> Decision | str:
    try:
        return read_answer(body, uid) if read is None else read.read(body, uid)
    except AnswerError as error:
        return f"{error.cause} {error.ambiguous}"


def filled(template: str, uid: str, other: str) -> bytes:
    escaped = f"\\u{ord(uid[0]):04x}{uid[1:]}"
    other_escaped = f"\\u{ord(other[0]):04x}{other[1:]}"
    for mark, text in (("%U", uid), ("%E", escaped), ("%O", other), ("%F", other_escaped)):
        template = template.replace(mark, text)
    return template.encode()


@st.composite
def templates(draw: st.DrawFn) -> str:
    fields = draw(st.lists(st.tuples(st.sampled_from(_KEYS), st.sampled_from(_UID_VALUES)), max_size=4))
    decision = draw(st.sampled_from(["admit", "hold", "refuse", "%U"]))
    changes = draw(st.sampled_from(["", ',"changes":{"labels":{"a":"%U"}}', ',"changes":{"labels":{"%O":"b"}}']))
    response = ",".join([*(f'"{key}":"{value}"' for key, value in fields), f'"decision":"{decision}"']) + changes
    end = draw(st.sampled_from(["", " ", "%U"]))
    return f'{{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview","response":{{{response}}}}}{end}'


@given(st.lists(templates(), min_size=1, max_size=3), st.data())
def test_whatever_was_answered_before_each_answer_is_read_as_if_it_were_the_first(
    pages: list[str], data: st.DataObject
) -> None:
    """Also one that echoes another question's uid, spells its own in two ways, or has it in other places."""
    answers = Answers()
    for _ in range(data.draw(st.integers(1, 8))):
        template, uid, other = (data.draw(st.sampled_from(of)) for of in (pages, UIDS, UIDS))
        body = filled(template, uid, other)
        assert said(answers, body, uid) == said(None, body, uid)


def test_the_same_answer_to_another_question_is_the_same_value() -> None:
    answers = Answers()
    first, second = (answers.read(answer(uid, admit(labels={"a": "b"})), uid) for uid in UIDS[:2])
    assert first is second


def test_what_is_remembered_is_bounded() -> None:
    """A hook that says something new each time costs no memory (R8.3's spirit for what it says)."""
    answers = Answers()
    for n in range(1_000):
        answers.read(answer(UIDS[0], admit(labels={"run": str(n)})), UIDS[0])
    assert len(answers._known) <= 256
