"""What Easel itself says to a model: how to cite, how to answer in JSON, how to choose a category (components 7).

The texts are ours. Values are put in by position and never read as templates. Two lines are agreed with the `echo`
stand-in, which sees nothing but messages: `Categories:` is followed by one line `- <name>` each, and `JSON schema:`
by the schema, which ends the message.
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

_CITING = """\
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


class Described(Protocol):
    """A category as the prompt needs it."""

    @property
    def description(self) -> str: ...

    @property
    def examples(self) -> Sequence[str]: ...


def cut_guides(system: str) -> tuple[str, dict[str, str]]:
    """Take the sections `<TAG>..</TAG>` out of a system prompt; what they said comes back by lower-case tag."""
    guides: dict[str, str] = {}
    for tag in _TAGS:
        system, sections = _cut(system, tag)
        if sections:
            guides[tag.lower()] = "\n".join(sections)
    return system, guides


def citation_guide(own: str = "") -> str:
    """How to cite sources; `own` is the author's guide and takes the place of ours."""
    return f"{own.strip() or _CITING}\n\n{_IDS_ARE_EXAMPLES}"


def structured_output_guide(schema: Mapping[str, Any]) -> str:
    """Ask for JSON that fits a schema. The guide ends with the schema."""
    return _ANSWER_IN_JSON + json.dumps(schema, ensure_ascii=False, indent=2)


def categorize_guide(categories: Mapping[str, Described]) -> str:
    """Ask for the name of one category. The order is the author's, for it decides ties."""
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
    """The conversation a category is asked for: `USER: "u1" | ASSISTANT: "a1" →`."""
    said = (f'{m["role"].upper()}: "{"".join(m["content"].splitlines())}"' for m in messages)
    return " | ".join(said) + " →"


def _on_one_line(example: str) -> str:
    return example.replace("\n", " " * 4)


def _line(text: str) -> str:
    return " ".join(text.splitlines())


def _cut(text: str, tag: str) -> tuple[str, list[str]]:
    """All sections of one tag, in one pass over the text: no backtracking, whatever the text holds."""
    kept: list[str] = []
    sections: list[str] = []
    start = 0
    while (opened := _OPENING[tag].search(text, start)) and (closed := _CLOSING[tag].search(text, opened.end())):
        kept.append(text[start : opened.start()])
        sections.append(text[opened.end() : closed.start()])
        start = closed.end()
    return "".join([*kept, text[start:]]), sections
