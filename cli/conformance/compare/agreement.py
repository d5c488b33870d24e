"""Compare recorded values with observed ones.

Each function returns the first Mismatch, or None. Values are plain JSON; recorded ones may contain placeholders.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from cli.conformance.compare.normalise import NormalisedEvent
from cli.shell.value_pairs import NOTHING

_DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
_PLACEHOLDERS = {
    "<DATE>": _DATE,
    "<TRANSPORT_ERROR>": ".+",
    "<TASK>": ".+?",
    # The reference names no cause after its last attempt; Easel names the real one.
    "**ERROR**: MAX_RETRIES_EXCEEDED - ": r"\*\*ERROR\*\*: [A-Z][A-Z0-9_]* - ",
}
_PLACEHOLDER = re.compile("|".join(map(re.escape, _PLACEHOLDERS)))
_CODED_ERROR = re.compile(r"\*\*ERROR\*\*: [A-Z][A-Z0-9_]* - ")
_UNREAD_STREAM = "<STREAM>"
_COMPARED_INPUTS = frozenset({"Message", "LLM", "Agent", "StringTransform", "Begin", "UserFillUp"})


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The place where two values differ: a path in them, and the recorded and the observed value there."""

    path: str
    expected: Any
    got: Any


def texts_agree(expected: str, got: str) -> bool:
    """Return whether two texts are equal, where a placeholder stands for any text of its kind."""
    return expected == got or (
        _PLACEHOLDER.search(expected) is not None and _pattern_of(expected).fullmatch(got) is not None
    )


def text_begins(expected: str, got: str) -> bool:
    """Return whether `got` begins with `expected` and is longer."""
    found = _pattern_of(expected).match(got)
    return found is not None and len(got) > found.end()


def differ(expected: Any, got: Any, path: str = "") -> Mismatch | None:
    """Compare values member by member. The order of a mapping's members is free, that of a list's items is not."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        for key, value in expected.items():
            found = differ(value, got.get(key, NOTHING), _below(path, key))
            if found:
                return found
        extra = next((key for key in got if key not in expected), None)
        return None if extra is None else Mismatch(_below(path, extra), NOTHING, got[extra])
    if isinstance(expected, list) and isinstance(got, list):
        return _lists_differ(expected, got, path, differ)
    if isinstance(expected, str) and isinstance(got, str):
        return None if texts_agree(expected, got) else Mismatch(path, expected, got)
    if _scalars_agree(expected, got):
        return None
    return Mismatch(path, expected, got)


def outputs_differ(expected: Any, got: Any, path: str = "") -> Mismatch | None:
    """Compare a node's outputs: recorded names must agree, others may be added; of `_` names only `_ERROR` counts."""
    if not isinstance(expected, Mapping) or not isinstance(got, Mapping):
        return differ(expected, got, path)
    has_unread_stream = False
    for name, value in expected.items():
        if name.startswith("_"):
            continue
        if value == _UNREAD_STREAM:
            has_unread_stream = True
            continue
        found = differ(value, got.get(name, NOTHING), _below(path, name))
        if found:
            return found
    if has_unread_stream or bool(expected.get("_ERROR")) == bool(got.get("_ERROR")):
        return None
    return Mismatch(_below(path, "_ERROR"), expected.get("_ERROR", NOTHING), got.get("_ERROR", NOTHING))


def errors_differ(expected: str | None, got: str | None, path: str = "error") -> Mismatch | None:
    """Compare whether there is an error, and its wording if it has a code."""
    if bool(expected) != bool(got):
        return Mismatch(path, expected or NOTHING, got or NOTHING)
    if not expected or not got or not _CODED_ERROR.match(expected) or texts_agree(expected, got):
        return None
    return Mismatch(path, expected, got)


def events_differ(expected: NormalisedEvent, got: NormalisedEvent) -> Mismatch | None:
    """Compare the data of two events of the same name and node."""
    match expected.name:
        case "node_finished":
            return _finishes_differ(expected.data, got.data)
        case "workflow_finished":
            return differ(expected.data["inputs"], got.data["inputs"], "inputs") or outputs_differ(
                expected.data["outputs"], got.data["outputs"], "outputs"
            )
        case _:
            return differ(dict(expected.data), dict(got.data))


def globals_differ(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Mismatch | None:
    """Compare `sys.*`, `env.*` and other variables. In `sys.history`, the assistant's text is a printed mapping."""
    history = "sys.history"
    recorded, observed = expected.get(history), got.get(history)
    if not isinstance(recorded, list) or not isinstance(observed, list):
        return differ(dict(expected), dict(got))
    rest = differ({**expected, history: None}, {**got, history: None})
    return rest or _lists_differ(recorded, observed, history, _history_lines_differ)


def histories_differ(expected: list[Any], got: list[Any]) -> Mismatch | None:
    """Compare [role, content] pairs in order; the content of the assistant is a mapping of outputs."""
    return _lists_differ(expected, got, "", _history_entries_differ)


Differ = Callable[[Any, Any, str], Mismatch | None]


def _lists_differ(expected: list[Any], got: list[Any], path: str, item_differs: Differ) -> Mismatch | None:
    for index, value in enumerate(expected):
        found = item_differs(value, got[index] if index < len(got) else NOTHING, f"{path}[{index}]")
        if found:
            return found
    if len(got) > len(expected):
        return Mismatch(f"{path}[{len(expected)}]", NOTHING, got[len(expected)])
    return None


def _finishes_differ(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Mismatch | None:
    for key in ("component_id", "component_name", "component_type"):
        if expected[key] != got[key]:
            return Mismatch(key, expected[key], got[key])
    outputs = expected["outputs"]
    if not (isinstance(outputs, Mapping) and _UNREAD_STREAM in outputs.values()):
        found = errors_differ(expected["error"], got["error"])
        if found:
            return found
    if expected["component_type"] in _COMPARED_INPUTS:
        found = differ(expected["inputs"], got["inputs"], "inputs")
        if found:
            return found
    return outputs_differ(outputs, got["outputs"], "outputs")


def _history_lines_differ(expected: Any, got: Any, path: str) -> Mismatch | None:
    role = "assistant: "
    if isinstance(expected, str) and isinstance(got, str) and expected.startswith(role):
        return None if got.startswith(role) else Mismatch(path, expected, got)
    return differ(expected, got, path)


def _history_entries_differ(expected: Any, got: Any, path: str) -> Mismatch | None:
    match expected, got:
        case ["assistant", recorded], ["assistant", observed]:
            return outputs_differ(recorded, observed, f"{path}[1]")
        case _:
            return differ(expected, got, path)


def _scalars_agree(expected: Any, got: Any) -> bool:
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, int | float) and isinstance(got, int | float):
        return expected == got  # 5 and 5.0 are the same JSON number
    return type(expected) is type(got) and expected == got


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


@cache
def _pattern_of(expected: str) -> re.Pattern[str]:
    parts: list[str] = []
    end = 0
    for placeholder in _PLACEHOLDER.finditer(expected):
        parts += [re.escape(expected[end : placeholder.start()]), _PLACEHOLDERS[placeholder.group()]]
        end = placeholder.end()
    return re.compile("".join([*parts, re.escape(expected[end:])]), re.DOTALL)
