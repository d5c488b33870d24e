"""The prompts of memory extraction, and parsing of the model's answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from components.text.json_in_text import read_json
from store.knowledge.memories import Memory

MAX_ITEMS = 5  # of a type
MAX_ITEM_LENGTH = 20_000  # characters

_TYPE_DESCRIPTIONS = {
    "semantic": "facts that stay true beyond this conversation: who a person is, what they like, have, know or believe",
    "episodic": "events: what happened, or was planned or decided, with when, where and who took part",
    "procedural": "ways of doing something: steps, rules and habits that could be followed again",
}
_GUIDE = (
    "You keep the long-term memory of an assistant. From a conversation you pick what will be worth knowing in later "
    "ones, and leave out greetings, small talk and whatever only mattered at that moment.\n\n"
    "What to look for:\n{meanings}\n\n"
    "Rules:\n"
    "- Answer with one JSON object and nothing else. Its keys are: {keys}. Each holds a list of at most {most} items; "
    "a list may be empty.\n"
    '- An item is {{"content": ..., "valid_at": ..., "invalid_at": ...}}. `content` is one sentence that can be '
    "understood by itself: names in place of pronouns, dates in place of words like yesterday.\n"
    "- `valid_at` is since when it holds, `invalid_at` until when; both as ISO 8601, in UTC. An empty `invalid_at` "
    "means that it still holds. Where nothing is said about the time, `valid_at` is the time of the conversation.\n"
    "- Take only what was said. Do not guess.\n"
    "- Write in the language of the conversation."
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExtractedItem:
    """One item that a model has found in a conversation."""

    type: str
    content: str
    valid_at: datetime
    invalid_at: datetime | None = None


def system_prompt(types: Sequence[str]) -> str:
    """Return the default system prompt, for memories without their own."""
    meanings = "\n".join(f"- {name}: {_TYPE_DESCRIPTIONS[name]}" for name in types)
    return _GUIDE.format(meanings=meanings, keys=", ".join(types), most=MAX_ITEMS)


def build_messages(memory: Memory, conversation: str, said_at: datetime) -> list[dict[str, str]]:
    """Return the messages of the request to the model."""
    request = f"Conversation:\n{conversation}\n\nTime of the conversation: {format_timestamp(said_at)}"
    own = [{"role": "user", "content": memory.user_prompt}] if memory.user_prompt else []
    system = memory.system_prompt or system_prompt(memory.extracted_types)
    return [{"role": "system", "content": system}, *own, {"role": "user", "content": request}]


def parse_items(answer: str, types: Sequence[str], said_at: datetime) -> list[ExtractedItem]:
    """Parse an answer into items, by type and in their order. Unreadable parts are left out."""
    parsed = read_json(answer)
    if not isinstance(parsed, Mapping):
        return []
    return [each for name in types for each in _items_of_type(name, parsed.get(name), said_at)]


def format_timestamp(moment: datetime) -> str:
    """Format a timestamp as memories show it, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _items_of_type(name: str, value: Any, said_at: datetime) -> list[ExtractedItem]:
    items = [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
    found = dict[str, ExtractedItem]()
    for item in items:
        content = item.get("content")
        if isinstance(content, str) and content.strip():
            text = content.strip()[:MAX_ITEM_LENGTH]
            valid_at = _parse_timestamp(item.get("valid_at")) or said_at
            found.setdefault(text, ExtractedItem(name, text, valid_at, _parse_timestamp(item.get("invalid_at"))))
    return list(found.values())[:MAX_ITEMS]


def _parse_timestamp(value: Any) -> datetime | None:
    """Parse a timestamp to the second, as UTC if it has no zone; None if it is invalid."""
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment.replace(microsecond=0)
