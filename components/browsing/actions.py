"""The actions that a model may take in a browser, and the parser of its replies.

A reply is one JSON object `{"thought": text, "actions": [{"action": "click", "index": 3}, ...]}`. Damaged JSON is
repaired; a bare action, a bare list of actions, and `{"click": {"index": 3}}` for an action are accepted as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from components.text.json_in_text import read_json

MAX_ACTIONS = 8  # per reply; actions planned further ahead seldom fit the page that the earlier ones lead to
MAX_ARGUMENT_CHARS = 100  # characters of an argument in the list of earlier steps
MAX_WAIT_SECONDS = 10.0
_RESULT_NAMES = ("text", "answer", "content", "summary", "message", "output", "response", "value")


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    def __str__(self) -> str:
        """Return the action as one line: `click(index=3)`."""
        arguments = self.model_dump(exclude={"action"}, exclude_defaults=True)
        listed = ", ".join(f"{name}={repr(value)[:MAX_ARGUMENT_CHARS]}" for name, value in arguments.items())
        return f"{getattr(self, 'action', '')}({listed})"


class GotoAction(_Action):
    action: Literal["goto"]
    url: str


class ClickAction(_Action):
    action: Literal["click"]
    index: int


class TypeAction(_Action):
    action: Literal["type"]
    index: int
    text: str
    submit: bool = False


class SelectAction(_Action):
    action: Literal["select"]
    index: int
    option: str


class ScrollAction(_Action):
    action: Literal["scroll"]
    direction: Literal["down", "up", "top", "bottom"] = "down"


class BackAction(_Action):
    action: Literal["back"]


class WaitAction(_Action):
    action: Literal["wait"]
    seconds: float = Field(default=1.0, ge=0, le=MAX_WAIT_SECONDS)


class ExtractAction(_Action):
    action: Literal["extract"]
    text: str


class UploadAction(_Action):
    action: Literal["upload"]
    index: int
    file: str


class DownloadAction(_Action):
    """Download a file: click an element that starts the download (`index`), or fetch a URL."""

    action: Literal["download"]
    index: int | None = None
    url: str = ""

    @model_validator(mode="after")
    def _has_one_target(self) -> "DownloadAction":
        if (self.index is None) == (not self.url):
            raise ValueError("give either index or url")
        return self


class DoneAction(_Action):
    """End the task. `result` is the answer; models also name it `text`, `answer` and so on."""

    action: Literal["done"]
    result: Any = None

    @model_validator(mode="before")
    @classmethod
    def _accept_other_names(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping) or fields.get("result") is not None:
            return fields
        other = next((fields[name] for name in _RESULT_NAMES if fields.get(name) is not None), None)
        return {**fields, "result": other}


PageAction: TypeAlias = (
    GotoAction
    | ClickAction
    | TypeAction
    | SelectAction
    | ScrollAction
    | BackAction
    | WaitAction
    | UploadAction
    | DownloadAction
)
Action: TypeAlias = PageAction | ExtractAction | DoneAction

_ACTION: TypeAdapter[Action] = TypeAdapter(Annotated[Action, Field(discriminator="action")])
_NAMES = frozenset(
    {"goto", "click", "type", "select", "scroll", "back", "wait", "extract", "upload", "download", "done"}
)


@dataclass(frozen=True, slots=True)
class ActionReply:
    """A model's reply: the actions to take, in order, and the thought behind them."""

    actions: tuple[Action, ...]
    thought: str = ""


class InvalidReply(Exception):
    """Raised when a reply contains no actions, or an unknown one. The text is for the model."""


def read_reply(text: str) -> ActionReply:
    """Parse a model's reply. Raises InvalidReply if it contains no valid actions."""
    found = read_json(text)
    if found is None:
        raise InvalidReply("The reply is not valid JSON. Reply with one JSON object and nothing else.")
    thought = str(found.get("thought") or "") if isinstance(found, Mapping) else ""
    listed = _items_of(found)
    if not listed:
        raise InvalidReply('The reply names no actions. Reply with {"thought": ..., "actions": [...]}.')
    return ActionReply(tuple(_action(item) for item in listed[:MAX_ACTIONS]), thought)


def _items_of(found: Mapping[str, Any] | Sequence[Any]) -> Sequence[Any]:
    if not isinstance(found, Mapping):
        return found
    if "actions" in found:
        actions = found["actions"]
        return actions if isinstance(actions, list) else [actions]
    return [found] if "action" in found or _NAMES & found.keys() else []


def _action(item: Any) -> Action:
    if not isinstance(item, Mapping):
        raise InvalidReply(f"An action is a JSON object, and {str(item)[:100]!r} is none.")
    if "action" not in item and len(names := [name for name in item if name in _NAMES]) == 1:
        arguments = item[names[0]]
        bare = {"result": arguments} if names[0] == "done" else {}
        item = {**(arguments if isinstance(arguments, Mapping) else bare), "action": names[0]}
    try:
        return _ACTION.validate_python(item)
    except ValidationError as error:
        defects = "; ".join(f"{_field_path(defect['loc'])}: {defect['msg']}" for defect in error.errors()[:3])
        raise InvalidReply(f"Not understood: {defects}. Known actions: {', '.join(sorted(_NAMES))}.") from error


def _field_path(steps: Sequence[int | str]) -> str:
    return ".".join(str(step) for step in steps) or "action"
