"""R4.2, R4.3: an answer met before is not read anew, and is taken for nothing that it does not say."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexaflow.admission.decisions import Decision, admit
from dexaflow.admission.envelope import AnswerError, Answers, answer, read_answer

UIDS = [str(uuid.UUID(int=n * 0x11111111111111111111111111111111)) for n in (10, 11)]

# What stands where a uid may stand: the question's (%U), another's (%O), each also with an escape in it (%E, %F).
_UIDS_THERE = ("%U", "%O", "%E", "%F", "x")


def said(read: Answers | None, body: bytes, uid: str) -> Decision | str:
    try:
        return read_answer(body, uid) if read is None else read.read(body, uid)[0]
    except AnswerError as error:
        return f"{error.cause} {error.ambiguous}"


def filled(template: str, uid: str, other: str) -> bytes:
    escaped = f"\\u{ord(uid[0]):04x}{uid[1:]}"
    other_escaped = f"\\u{ord(other[0]):04x}{other[1:]}"
    for mark, text in (("%U", uid), ("%E", escaped), ("%O", other), ("%F", other_escaped)):
        template = template.replace(mark, text)
    return template.encode()


@st.composite
def pages(draw: st.DrawFn) -> str:
    """Draw a response whose values are still open, as `%s`: its names, how they are spelt, and their order."""
    fields = draw(st.permutations(['"reason":"%s"', '"uid":"%s"', '"decision":"hold"']))
    uid_key, more = draw(st.sampled_from(['"uid"', '"UID"', '"\\u0075id"'])), draw(st.sampled_from(["", ',"Uid":"%s"']))
    response = ",".join(fields).replace('"uid"', uid_key) + more
    return f'{{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview","response":{{{response}}}}}'


@settings(max_examples=400)
@given(pages(), st.data())
def test_whatever_was_answered_before_each_answer_is_read_as_if_it_were_the_first(
    page: str, data: st.DataObject
) -> None:
    """Also one that echoes another question's uid, spells its own in two ways, or has it in other places."""
    answers = Answers()
    for _ in range(data.draw(st.integers(3, 12))):
        uid, other = data.draw(st.permutations(UIDS))
        values = [data.draw(st.sampled_from(_UIDS_THERE)) for _ in range(page.count("%s"))]
        body = filled(page % tuple(values), uid, other)
        assert said(answers, body, uid) == said(None, body, uid)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('"reason":"%U","uid":"%U"', '"reason":"%U","uid":"%O"'),
        ('"reason":"%U","uid":"%E"', '"reason":"%U","uid":"%F"'),
        ('"uid":"%U","reason":"%U"', '"uid":"%O","reason":"%U"'),
    ],
)
def test_an_answer_with_an_earlier_questions_uid_is_not_taken_for_the_earlier_answer(first: str, second: str) -> None:
    """R4.3, where the question's own uid stands in the reason as well."""
    answers = Answers()
    page = '{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview","response":{"decision":"hold",%s}}'
    for _ in range(3):
        assert said(answers, filled(page % first, *UIDS), UIDS[0]) == said(None, filled(page % first, *UIDS), UIDS[0])

    assert said(answers, filled(page % second, *reversed(UIDS)), UIDS[1]) == "uid False"


def test_the_same_answer_to_another_question_is_the_same_value() -> None:
    """Once it has come twice: what is said a single time is not kept."""
    answers = Answers()
    read = [answers.read(answer(uid, admit(labels={"a": "b"})), uid) for uid in UIDS * 2]
    assert [again for _, again in read] == [False, False, True, True]
    assert len({id(decision) for decision, _ in read[1:]}) == 1


def test_what_is_remembered_is_bounded() -> None:
    """A hook that says something new each time costs no memory (R8.3's spirit for what it says)."""
    answers = Answers()
    for n in range(10_000):
        for _ in range(1 + n % 2):
            answers.read(answer(UIDS[0], admit(labels={"run": str(n)})), UIDS[0])
    assert len(answers._known) <= 256
    assert len(answers._marks) <= 4_096
