"""The built-in model `echo`, which answers with the question, for the offline demo.

It reads only the messages, and recognises two of our prompts by a line in a system message. `Categories:` is followed
by names as lines `- <name>`; the answer is the name that comes first in the last user message. `JSON schema:` is
followed by a JSON schema; the answer is a minimal instance of it. Any other request is answered with the text of its
last user message. The model never fails, calls no tools and answers at once.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from json import JSONDecodeError, JSONDecoder
from typing import Any

from providers.models.text.context_window import text_of
from providers.models.types.chat import ChatRequest, ContentDelta, Delta, ModelSpec

CATEGORIES_LINE = "Categories:"
SCHEMA_LINE = "JSON schema:"

_DELTA_LENGTH = 12  # characters
_MAX_DEPTH = 24  # levels of a schema; a schema that refers to itself is endless
_CATEGORIES = re.compile(rf"^{CATEGORIES_LINE}[ \t]*\n((?:[ \t]*-[^\n]*(?:\n|\Z))+)", re.MULTILINE)
_SCHEMA = re.compile(rf"^{SCHEMA_LINE}", re.MULTILINE)
_QUOTED_USER, _ARROW = 'USER: "', " →"


class EchoWire:
    """Answers requests with `echo_answer`."""

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        text = echo_answer(request.messages)
        for start in range(0, len(text), _DELTA_LENGTH):
            yield ContentDelta(text[start : start + _DELTA_LENGTH])


def echo_spec(llm_id: str = "echo") -> ModelSpec:
    """Return the spec of the echo model."""
    return ModelSpec(id=llm_id, name="echo", factory="Easel", base_url=None, context_tokens=131072, is_builtin=True)


def echo_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer to these messages."""
    system = "\n".join(text_of(m.get("content")) for m in messages if m.get("role") == "system")
    question = next((text_of(m.get("content")) for m in reversed(messages) if m.get("role") == "user"), "")
    if found := _CATEGORIES.search(system):
        names = [line.strip().removeprefix("-").strip() for line in found.group(1).splitlines()]
        return _first_named(names, question) or question
    schema = _schema_in(system)
    if schema is not None:
        return json.dumps(instance_of(schema), ensure_ascii=False)
    return question


def instance_of(schema: Any) -> Any:
    """Return a small instance of a JSON schema, with the required properties, or all if none are required."""
    return _instance(schema, schema, 0)


def _first_named(names: Sequence[str], question: str) -> str | None:
    """Return the category that the question names first; of a quoted conversation only the last turn counts."""
    text = _last_turn(question).lower()
    named = [(text.index(name.lower()), -len(name), name) for name in names if name and name.lower() in text]
    return min(named)[2] if named else None


def _last_turn(question: str) -> str:
    """Return the quoted text of the last `USER: "..."` if the question ends with it, or the whole question."""
    quoted = question.rstrip().removesuffix(_ARROW)
    start = quoted.rfind(_QUOTED_USER, 0, len(quoted) - 1)
    is_turn = start >= 0 and quoted.endswith('"')
    return quoted[start + len(_QUOTED_USER) : -1] if is_turn else question


def _schema_in(system: str) -> Any:
    found = _SCHEMA.search(system)
    start = system.find("{", found.end()) if found is not None else -1
    if start < 0:
        return None
    try:
        return JSONDecoder().raw_decode(system, start)[0]
    except (JSONDecodeError, RecursionError):
        return None


def _instance(schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    if "default" in schema:
        return schema["default"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if isinstance(schema.get("$ref"), str):
        return _instance(_resolve_pointer(schema["$ref"], root), root, depth + 1)
    for choice in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(choice), list) and schema[choice]:
            return _instance(schema[choice][0], root, depth + 1)
    return _plain_instance(schema, root, depth)


def _plain_instance(schema: dict[str, Any], root: Any, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else None)
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            properties = schema.get("properties")
            if not isinstance(properties, dict):
                return {}
            required = schema.get("required")
            names = [name for name in properties if name in required] if isinstance(required, list) else []
            return {name: _instance(properties[name], root, depth + 1) for name in names or properties}
        case "array":
            return [_instance(schema.get("items"), root, depth + 1)] * _size(schema.get("minItems"))
        case "string":
            return "-" * _size(schema.get("minLength"))
        case "integer" | "number":
            least = schema.get("minimum", 0)
            return least if isinstance(least, int | float) else 0
        case "boolean":
            return False
        case _:
            return None


def _resolve_pointer(pointer: str, root: Any) -> Any:
    """Return the schema that a local pointer `#/a/b` refers to, or None."""
    value = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        value = value.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
    return value


def _size(least: Any) -> int:
    """Return the number of characters or items to generate, at most 100."""
    return min(max(least, 0), 100) if isinstance(least, int) else 0
