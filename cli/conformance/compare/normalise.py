"""Normalise observations into the form in which recordings are stored.

Times, ids, usage and thoughts are removed, consecutive text deltas are joined, and everything is plain JSON. Recordings
are in this form already, and normalising them again changes nothing.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.conformance.cases import HTTP_BASE

_TIMES = frozenset({"_created_time", "_elapsed_time"})

# A printed member of a mapping, in Python's or JSON's spelling, quotes escaped or not.
_TIME_MEMBER = r"""\\*["']_(?:created|elapsed)_time\\*["']\s*:\s*(?:[-+]?[0-9][-+.0-9eE]*|null|None)"""
_TIME_BEFORE_OTHERS = re.compile(rf"{_TIME_MEMBER}\s*,\s*")
_TIME_AFTER_OTHERS = re.compile(rf",\s*{_TIME_MEMBER}")
_TIME_ALONE = re.compile(_TIME_MEMBER)

_NODE = ("component_id", "component_name", "component_type")
_ALWAYS = {
    "workflow_started": ("inputs",),
    "node_started": _NODE,
    "node_finished": (*_NODE, "inputs", "outputs", "error"),
    "user_inputs": ("inputs", "tips"),
    "workflow_finished": ("inputs", "outputs"),
}
_IF_SET = {
    "message": ("start_to_think", "end_to_think"),
    "message_end": ("status", "attachment", "downloads", "reference"),
}
_EASEL_EVENTS = frozenset({"run_failed"})  # Easel's last event of a failed run; the recorded events just stop


@dataclass(frozen=True, slots=True)
class NormalisedEvent:
    """One normalised event. `put_off`: the recording announced the node, and then did not run it in that batch."""

    name: str
    data: Mapping[str, Any]
    put_off: bool = False

    @property
    def node_id(self) -> str:
        """The node of the event; "" for events of the run and of message streams."""
        return str(self.data.get("component_id") or "")


def normalise(value: Any, http_base: str = "") -> Any:
    """Return a value as plain JSON without times, with the placeholder of the fixture server's address."""
    if isinstance(value, str):
        return _plain_text(value, http_base)
    if isinstance(value, float) and math.isnan(value):
        return "<NaN>"
    if isinstance(value, Mapping):
        return {
            _plain_text(str(key), http_base): normalise(item, http_base)
            for key, item in value.items()
            if key not in _TIMES
        }
    if isinstance(value, list | tuple):
        return [normalise(item, http_base) for item in value]
    return value


def normalise_events(events: Iterable[Mapping[str, Any]], http_base: str = "") -> list[NormalisedEvent]:
    """Return normalised events: known members only, consecutive text deltas joined."""
    normalised = [_plain_event(event, http_base) for event in events if event.get("event") not in _EASEL_EVENTS]
    return join_texts(normalised)


def join_texts(events: Sequence[NormalisedEvent]) -> list[NormalisedEvent]:
    """Join successive messages that have only content, and drop empty ones."""
    result: list[NormalisedEvent] = []
    for event in events:
        if not _is_text(event):
            result.append(event)
        elif not event.data["content"]:
            continue
        elif result and _is_text(result[-1]):
            result[-1] = NormalisedEvent("message", {"content": result[-1].data["content"] + event.data["content"]})
        else:
            result.append(event)
    return result


def _is_text(event: NormalisedEvent) -> bool:
    return event.name == "message" and set(event.data) == {"content"}


def _plain_event(event: Mapping[str, Any], http_base: str) -> NormalisedEvent:
    name = str(event.get("event"))
    data: Mapping[str, Any] = normalise(event.get("data") or {}, http_base)
    put_off = bool(event.get("put_off"))
    if name == "message":
        return NormalisedEvent(name, {"content": data.get("content") or ""} | _set_members(name, data))
    if name in _IF_SET:
        return NormalisedEvent(name, _set_members(name, data))
    if name in _ALWAYS:
        return NormalisedEvent(name, {key: data.get(key) for key in _ALWAYS[name]}, put_off)
    return NormalisedEvent(name, data)


def _set_members(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: data[key] for key in _IF_SET[name] if data.get(key)}


def _plain_text(text: str, http_base: str) -> str:
    if http_base:
        text = text.replace(http_base, HTTP_BASE)
    if "ed_time" in text:
        for member in (_TIME_BEFORE_OTHERS, _TIME_AFTER_OTHERS, _TIME_ALONE):
            text = member.sub("", text)
    return text
