"""R4.2, R4.3, R5.2: odd answers, and what is made of each.

`corpus.json` was collected by running some hundred thousand mutated answers through Go's `encoding/json` (1.26, both
its implementations) with unknown fields disallowed and Kubernetes' own validation (apimachinery 0.35), and keeping the
shortest of each kind. `given_twice` marks what Go takes and we do not.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dexaflow.admission.check_answer import AnswerVerdict, check_answer
from dexaflow.admission.decoding import decode_answer, decode_quickly, decode_strictly
from dexaflow.admission.golang_json import Cause, Fault
from tests.vectors_loader import body_of

CORPUS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "corpus.json").read_text())


def test_every_odd_answer_gets_its_verdict() -> None:
    for case in CORPUS:
        body = body_of(case)

        check = check_answer(
            body,
            uid=case.get("uid"),
            priority_classes=case.get("priority_classes"),
            service_accounts=case.get("service_accounts"),
        )

        assert (check.verdict, check.reason) == (case["verdict"], case.get("reason", "")), case
        assert bool(check.problem) == (check.verdict in (AnswerVerdict.BROKEN, AnswerVerdict.CHANGE_REFUSED))
        assert check.problem.isprintable(), case


def test_only_what_is_given_twice_is_refused_where_go_takes_it() -> None:
    for case in CORPUS:
        if case.get("given_twice"):
            with pytest.raises(Fault) as caught:
                decode_answer(body_of(case))
            assert caught.value.cause is Cause.DUPLICATE, case
            assert caught.value.duplicate


def test_both_decoders_give_the_same_for_every_odd_answer() -> None:
    for case in CORPUS:
        found = decode_quickly(body_of(case))
        if found is not None:
            assert decode_strictly(body_of(case)) == found, case
