"""Compare requests to the model as a multiset, except for prompts that each executor words in its own way."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from cli.conformance.compare.agreement import differ, text_begins, texts_agree

_LONG_SYSTEM = "<LONG_SYSTEM>"
_OWN_WORDING = re.compile("<(?:STRUCTURED_OUTPUT|CITATION|CITATION_PLUS|FULL_QUESTION)_PROMPT>")
_DROPPED_BY_REFERENCE = frozenset({"max_tokens", "max_completion_tokens"})  # Easel sends it, since the author set it


def find_unmatched(
    recorded: Sequence[Mapping[str, Any]], observed: Sequence[Mapping[str, Any]], *, is_count_free: bool
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Return a recorded request that was not observed, and an observed one that was not recorded; or None for each.

    `is_count_free`: retries are counted differently, so requests may be missing or repeated, but none may be new.
    """
    ours = [plain_request(request) for request in observed]
    if is_count_free:
        new = next((got for got in ours if not any(_agree(expected, got) for expected in recorded)), None)
        return None, new
    partner = _pair(recorded, ours)
    paired = set(partner.values())
    missing = next((request for i, request in enumerate(recorded) if i not in partner), None)
    return missing, next((request for i, request in enumerate(ours) if i not in paired), None)


def plain_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a normalised request: texts, tool names, calls without ids, parameters that the reference sends too."""
    params = request.get("params") or {}
    return {
        "model": request.get("model"),
        "messages": [_plain_message(message) for message in request.get("messages") or ()],
        "tools": [_tool_name(tool) for tool in request.get("tools") or ()],
        "params": {key: value for key, value in params.items() if key not in _DROPPED_BY_REFERENCE},
    }


def _pair(recorded: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return a maximum matching of recorded to observed requests, by index."""
    fits = [[j for j, got in enumerate(ours) if _agree(expected, got)] for expected in recorded]
    recorded_of: dict[int, int] = {}

    def place(index: int, tried: set[int]) -> bool:
        for candidate in fits[index]:
            if candidate not in tried:
                tried.add(candidate)
                if candidate not in recorded_of or place(recorded_of[candidate], tried):
                    recorded_of[candidate] = index
                    return True
        return False

    for index in range(len(recorded)):
        place(index, set())
    return {index: candidate for candidate, index in recorded_of.items()}


def _agree(expected: Mapping[str, Any], got: Mapping[str, Any]) -> bool:
    if expected.get("model") != got["model"]:
        return False
    if "kind" in expected:  # only the kind was recorded, since each executor words it in its own way
        return not got["tools"]
    recorded = plain_request(expected)
    return (
        recorded["tools"] == got["tools"]
        and differ(recorded["params"], got["params"]) is None
        and len(recorded["messages"]) == len(got["messages"])
        and all(map(_messages_agree, recorded["messages"], got["messages"]))
    )


def _messages_agree(expected: Mapping[str, Any], got: Mapping[str, Any]) -> bool:
    if expected["role"] != got["role"] or expected["tool_calls"] != got["tool_calls"]:
        return False
    text, ours = expected["content"], got["content"]
    if text == _LONG_SYSTEM:
        return bool(ours)
    own = _OWN_WORDING.search(text)
    return texts_agree(text, ours) if own is None else text_begins(text[: own.start()], ours)


def _plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "role": message.get("role"),
        "content": _text_of(message.get("content")),
        "tool_calls": [_plain_call(call) for call in message.get("tool_calls") or ()],
    }


def _text_of(content: Any) -> str:
    """Return the text of a content: of parts, their texts, since images are not recorded; "" without content."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def _plain_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError):  # not JSON: compared as it was sent
            arguments = json.loads(arguments)
    return {"name": function.get("name"), "arguments": arguments}


def _tool_name(tool: Any) -> Any:
    return (tool.get("function") or tool).get("name") if isinstance(tool, Mapping) else tool
