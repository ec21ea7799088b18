"""The API under schemathesis, by the OpenAPI document that it publishes: what it sends, and what it may answer.

No 500; every status documented, every header and body as the document says; what the document forbids is refused, what
it allows is not. Asked over HTTP of a real server, about names that exist and names that do not.
"""

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

__all__ = ["Asked", "ask", "ask_everything"]

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
)
PEOPLES = (*CHECKS, positive_data_acceptance)  # an agent's report may come too late, as it may well be described

# Which names a path may hold is our word, not the document's: another one may have been made by an earlier request.
_ONE_OF_OURS = "in path - violates `enum`"


@dataclass(slots=True)
class Asked:
    """What came of it: how often each operation answered with which status, and what was not as documented."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    findings: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """How many were sent."""
        return sum(self.statuses.values())


def ask_everything(
    url: str, token: str, document: Mapping[str, Any], names: Mapping[str, Sequence[object]], *, examples: int
) -> Asked:
    """Ask every operation `examples` times with names that exist, as often against the document, as often at random.

    Args:
        document: The server's OpenAPI document.
        names: By path parameter, values of which some are there.
    """
    asked = Asked()
    for tag, schema, mode in _schemas(document, names):
        for result in schema.get_all_operations():
            operation = result.ok()
            ask(asked, tag, operation, mode, url, token, examples, PEOPLES)
    return asked


def _schemas(
    document: Mapping[str, Any], names: Mapping[str, Sequence[object]]
) -> Iterator[tuple[str, Any, GenerationMode]]:
    plain = copy.deepcopy(dict(document))
    # The token is sent with every request; that nothing is told without it has a test of its own.
    plain.pop("security", None)
    plain["components"].pop("securitySchemes", None)
    for operations in plain["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    known = copy.deepcopy(plain)
    for path, operations in known["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", []):
                makes_it = method == "put" and parameter["name"] in path  # what is not there is made
                if parameter["in"] == "path" and not makes_it:
                    parameter["schema"] = {"enum": list(names[parameter["name"]])}
    yield "known names", schemathesis.openapi.from_dict(known), GenerationMode.POSITIVE
    yield "against the document", schemathesis.openapi.from_dict(known), GenerationMode.NEGATIVE
    yield "any names", schemathesis.openapi.from_dict(plain), GenerationMode.POSITIVE


def ask(
    asked: Asked,
    tag: str,
    operation: Any,  # Any: schemathesis' own
    mode: GenerationMode,
    url: str,
    token: str,
    examples: int,
    checks: Sequence[Any] = CHECKS,
) -> None:
    """Ask one operation `examples` times, and note what was not as documented."""
    label = f"{operation.method.upper()} {operation.path}"
    patience = 1 if operation.path.endswith("/events") else 30  # seconds; a watched run that goes on has no end

    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet,
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Any) -> None:
        answer = case.call(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=patience)
        asked.statuses[label, answer.status_code] += 1
        try:
            case.validate_response(answer, checks=list(checks))
        except BaseExceptionGroup as failures:
            for failure in failures.exceptions:
                if _ONE_OF_OURS in str(failure):
                    continue
                said = f"{tag}: {failure}\n{case.method} {answer.request.url} {case.body!r}\n{answer.text[:300]}"
                asked.findings.setdefault((label, type(failure).__name__), said[:3000])

    try:
        one()
    except Unsatisfiable:
        pass  # nothing about it can be wrong
