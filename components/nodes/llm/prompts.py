"""Easel's own prompts: how to cite, how to answer in JSON, how to choose a category.

Values are inserted by position and never read as templates. The built-in model `echo`, which sees only the messages,
relies on two lines: `Categories:` is followed by one line `- <name>` for each category, and `JSON schema:` by the
schema, which ends the message.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

_TAGS = (
    "TASK_ANALYSIS",
    "PLAN_GENERATION",
    "REFLECTION",
    "CONTEXT_SUMMARY",
    "CONTEXT_RANKING",
    "CITATION_GUIDELINES",
)
_OPENING = {tag: re.compile(f"<{tag}>", re.IGNORECASE) for tag in _TAGS}
_CLOSING = {tag: re.compile(f"</{tag}>", re.IGNORECASE) for tag in _TAGS}

CITING = """\
How to cite

The context holds numbered sources, each starting with a line `ID: <number>`. Say where your facts come from:
- Put the mark [ID:n] right before the full stop or other end mark of a sentence whose facts stand in source n.
- Several sources get several marks side by side, like [ID:1][ID:2]. Never write [ID:1, ID:2].
- A sentence carries four marks at most; choose the sources that support it best.
- Cite numbers, dates, definitions, comparisons and quoted claims. Small talk, opinions and your own conclusions need
  no mark.
- Cite only sources that stand in the context. If none supports a sentence, leave it without a mark.
- Marks are added and nothing else: do not reword an answer for their sake, and do not list the sources at its end.

Example: The bridge was opened in 1932 [ID:12]. It is 1149 m long and carries eight lanes [ID:12][ID:31]."""

_IDS_ARE_EXAMPLES = "The numbers in the rules and examples above only show the form. Use the IDs of the given context."

_ANSWER_IN_JSON = """\
Answer with one JSON document that fits the schema below: no text before or after it, no Markdown fences, no comments.
Use the property names as they are written, give every required property, and leave out what the schema does not name.

JSON schema:
"""


class CategoryTexts(Protocol):
    """The fields of a category that the prompt uses."""

    @property
    def description(self) -> str: ...

    @property
    def examples(self) -> Sequence[str]: ...


def cut_guides(system: str) -> tuple[str, dict[str, str]]:
    """Remove the sections `<TAG>..</TAG>` from a system prompt; return it and their texts by lower-case tag."""
    guides: dict[str, str] = {}
    for tag in _TAGS:
        system, sections = _cut(system, tag)
        if sections:
            guides[tag.lower()] = "\n".join(sections)
    return system, guides


def citation_guide(own: str = "") -> str:
    """Return the guide for citing sources; `own` is the author's guide, which replaces ours."""
    return f"{own.strip() or CITING}\n\n{_IDS_ARE_EXAMPLES}"


def structured_output_guide(schema: Mapping[str, Any]) -> str:
    """Return the guide that asks for JSON that fits a schema. It ends with the schema."""
    return _ANSWER_IN_JSON + json.dumps(schema, ensure_ascii=False, indent=2)


def categorize_guide(categories: Mapping[str, CategoryTexts]) -> str:
    """Return the guide that asks for the name of one category, in the author's order, which decides ties."""
    described = [f"{_line(name)}: {_line(c.description)}" for name, c in categories.items() if c.description.strip()]
    examples = [
        f'USER: "{_on_one_line(example)}" → {_line(name)}'
        for name, category in categories.items()
        for example in category.examples
        if example.strip()
    ]
    parts = [
        "You sort conversations. Read the conversation and find the category that fits the last USER message best; "
        "earlier messages only help to understand it.",
        "\n".join(["Categories:", *(f"- {_line(name)}" for name in categories)]),
        "\n".join(["What belongs where:", *described]) if described else "",
        "\n".join(["Examples:", *examples]) if examples else "",
        "Answer with the name of the category alone, spelled as in the list: no explanation, no punctuation. "
        "Answer Other only if nothing else fits.",
    ]
    return "\n\n".join(part for part in parts if part)


def conversation_line(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the conversation to categorize as one line: `USER: "u1" | ASSISTANT: "a1" →`."""
    entries = (f'{m["role"].upper()}: "{"".join(m["content"].splitlines())}"' for m in messages)
    return " | ".join(entries) + " →"


def _on_one_line(example: str) -> str:
    return example.replace("\n", " " * 4)


def _line(text: str) -> str:
    return " ".join(text.splitlines())


def _cut(text: str, tag: str) -> tuple[str, list[str]]:
    """Remove all sections of one tag; return the rest and the sections. One pass over any text, no backtracking."""
    rest: list[str] = []
    sections: list[str] = []
    start = 0
    while (opened := _OPENING[tag].search(text, start)) and (closed := _CLOSING[tag].search(text, opened.end())):
        rest.append(text[start : opened.start()])
        sections.append(text[opened.end() : closed.start()])
        start = closed.end()
    return "".join([*rest, text[start:]]), sections
