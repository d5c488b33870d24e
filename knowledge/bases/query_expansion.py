"""Query expansion by a chat model: translations, key words, metadata filters, and sections of a table of contents.

All steps are optional: a search continues without a step that raises an error.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from canvas.errors import ModelError
from components.text.json_in_text import read_json
from knowledge.bases.metadata_filters import OPERATORS, MetadataCondition, parse_conditions
from knowledge.bases.table_of_contents import SectionHeading
from providers.models.text.sanitizer import without_reasoning
from providers.models.types.chat import ChatModel, ChatRequest

MAX_SHOWN_VALUES = 20  # values of a metadata key in the prompt
MAX_SHOWN_LENGTH = 80  # characters of such a value

MAX_KEY_WORDS = 8
MAX_SECTIONS = 5  # of a table of contents

_DIVIDER = re.compile(r"[,;，、；\n]+")
_SEPARATOR = re.compile(r"={3,}|#{3,}|\n+")
_TRANSLATE = (
    "Translate the user's question into each of these languages: {languages}. Answer with the translations alone, in "
    "that order, with a line of ### between two of them. Names, codes and numbers stay as they are."
)
_KEY_WORDS = (
    "Name up to {most} key words or short phrases that a passage must be about to answer the user's question, the most "
    "important first, in the question's language. Answer with them alone, divided by commas."
)
_SECTIONS = (
    "Below is a document's table of contents, each heading with a number. Which parts would one read to answer the "
    "user's question? Answer with a JSON list of their numbers alone, the best first, at most {most}; with [] where "
    "none of them fits.\n\n{contents}"
)
_FILTER = (
    "Documents carry metadata. From the user's question you work out which metadata the wanted documents must have. "
    'Answer with JSON alone: {{"logic": "and" or "or", "conditions": [{{"key": ..., "op": ..., "value": ...}}]}}. '
    "Operators are: {operators}. Dates are YYYY-MM-DD. Use only what the question says; where it says nothing about "
    "metadata, answer with no conditions.\n\nKeys, and values that documents have:\n{keys}"
)  # fmt: skip


async def translate(question: str, languages: Sequence[str], model: ChatModel) -> list[str]:
    """Return the question and its translations, in this order. Raises ModelError."""
    prompt = _TRANSLATE.format(languages=", ".join(languages))
    answer = await _ask_model(model, prompt, question, {"temperature": 0.2})
    parts = [part.strip() for part in _SEPARATOR.split(without_reasoning(answer))]
    return list(dict.fromkeys([question, *filter(None, parts)]))


async def extract_key_words(question: str, model: ChatModel) -> str:
    """Return the key words of a question, "" for none. Raises ModelError."""
    answer = await _ask_model(model, _KEY_WORDS.format(most=MAX_KEY_WORDS), question, {"temperature": 0.2})
    words = [word.strip() for word in _DIVIDER.split(without_reasoning(answer))]
    return " ".join(list(dict.fromkeys(filter(None, words)))[:MAX_KEY_WORDS])


async def pick_sections(question: str, headings: Sequence[SectionHeading], model: ChatModel) -> list[SectionHeading]:
    """Return the headings whose sections may answer the question, the best first. Raises ModelError."""
    contents = "\n".join(f"{'  ' * (each.level - 1)}{at} {each.title}" for at, each in enumerate(headings))
    prompt = _SECTIONS.format(most=MAX_SECTIONS, contents=contents)
    parsed = read_json(await _ask_model(model, prompt, question, {"temperature": 0}))
    numbers = [each for each in parsed if type(each) is int] if isinstance(parsed, list) else []
    return [headings[at] for at in dict.fromkeys(numbers) if 0 <= at < len(headings)][:MAX_SECTIONS]


async def write_conditions(
    question: str,
    metadata: Sequence[Mapping[str, Any]],
    model: ChatModel,
    allowed_keys: Mapping[str, str | None] | None = None,
) -> tuple[list[MetadataCondition], str]:
    """Return the conditions on metadata that a question implies, and "and" or "or".

    `only` holds the allowed keys, each with its operator if that is fixed. Raises ModelError, and ToolError for an
    unknown operator.
    """
    known = _values_by_key(metadata, allowed_keys)
    if not known:
        return [], "and"
    keys = "\n".join(_describe_key(key, values, (allowed_keys or {}).get(key)) for key, values in known.items())
    prompt = _FILTER.format(operators=", ".join(OPERATORS), keys=keys)
    parsed = read_json(await _ask_model(model, prompt, question, {"temperature": 0}))
    written = parsed.get("conditions") if isinstance(parsed, dict) else parsed
    found = parse_conditions(written if isinstance(written, list) else [])
    fixed = [
        MetadataCondition(each.key, (allowed_keys or {}).get(each.key) or each.operator, each.value)
        for each in found
        if each.key in known
    ]
    logic = str(parsed.get("logic") or "and") if isinstance(parsed, dict) else "and"
    return fixed, logic


def semi_automatic_keys(stored: Sequence[Any]) -> dict[str, str | None]:
    """Return the keys of a semi-automatic filter, each a text or {key, op}, with their operators or None."""
    found = dict[str, str | None]()
    for each in stored:
        if isinstance(each, str):
            found[each] = None
        elif isinstance(each, Mapping) and each.get("key"):
            written = each.get("op")
            operator = parse_conditions([{"key": each["key"], "op": written}])[0].operator if written else None
            found[str(each["key"])] = operator
    return found


async def _ask_model(model: ChatModel, prompt: str, question: str, params: Mapping[str, Any]) -> str:
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": question}]
    answer = await model.complete(ChatRequest(messages, params))
    if answer.error is not None:
        raise ModelError(str(answer.error))
    if "**ERROR**" in answer.text:
        raise ModelError(answer.text)
    return answer.text


def _values_by_key(
    metadata: Sequence[Mapping[str, Any]], only: Mapping[str, str | None] | None
) -> dict[str, dict[str, None]]:
    """Return some values of each metadata key."""
    known = dict[str, dict[str, None]]()
    for each in metadata:
        for key, value in each.items():
            if only is not None and key not in only:
                continue
            values = known.setdefault(key, {})
            for one in value if isinstance(value, list) else [value]:
                if len(values) < MAX_SHOWN_VALUES:
                    values[str(one)[:MAX_SHOWN_LENGTH]] = None
    return known


def _describe_key(key: str, values: Mapping[str, None], operator: str | None) -> str:
    fixed = f" (operator: {operator})" if operator else ""
    return f"- {json.dumps(key, ensure_ascii=False)}{fixed}: {json.dumps(list(values), ensure_ascii=False)}"
