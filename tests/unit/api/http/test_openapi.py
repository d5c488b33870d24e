"""The OpenAPI document: what generators of clients rely on."""

import json
import re
from typing import Any

import pytest

from api.http.openapi import EXAMPLES, TAGS
from api.http.ragflow_models import DATA
from tests.openapi_document import document_text

DOCUMENT: dict[str, Any] = json.loads(document_text())
OPERATIONS: dict[str, dict[str, Any]] = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def test_every_reference_leads_to_a_schema() -> None:
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(DOCUMENT)))

    assert references
    kinds = ("schemas", "responses")
    assert references <= {f"#/components/{kind}/{name}" for kind in kinds for name in DOCUMENT["components"][kind]}


@pytest.mark.parametrize(("name", "operation"), OPERATIONS.items(), ids=OPERATIONS)
def test_operation_has_a_tag_and_errors_and_no_422(name: str, operation: dict[str, Any]) -> None:
    assert set(operation["tags"]) <= TAGS.keys()
    assert "422" not in operation["responses"]
    assert {"400", "404", "500", "503"} <= operation["responses"].keys()
    assert ("401" in operation["responses"]) == ("security" in operation)
    assert operation["summary"]
    error = operation["responses"]["404"]["$ref"].rpartition("/")[2]
    assert error in ("EaselError404", "RagflowError404", "OpenAIError404", "RagflowOrOpenAIError404")


@pytest.mark.parametrize(("name", "operation"), OPERATIONS.items(), ids=OPERATIONS)
def test_good_reply_has_a_schema(name: str, operation: dict[str, Any]) -> None:
    good = {status: reply for status, reply in operation["responses"].items() if status.startswith("2")}

    assert good
    for status, reply in good.items():
        assert status == "204" or all(content.get("schema") for content in reply["content"].values())


def test_models_are_those_of_operations() -> None:
    assert DATA.keys() <= {operation["operationId"] for operation in OPERATIONS.values()}


def test_operations_have_names_of_methods() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]{2,60}", name) for name in names)
    assert EXAMPLES.keys() <= set(names)


def test_every_tag_is_used() -> None:
    assert {tag for operation in OPERATIONS.values() for tag in operation["tags"]} == TAGS.keys()
