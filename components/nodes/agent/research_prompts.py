"""The prompts of a deep research, and the parsers of the answers.

An unreadable answer ends its question: the evidence counts as sufficient, and no questions follow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.text.json_in_text import read_json
from components.text.templates.templates import value_text

MAX_FOLLOW_UPS = 3  # follow-up questions of one question
MAX_QUESTION_CHARS = 1000  # characters of a question

_CHECK = (
    "You judge whether gathered information is enough to answer a question completely and correctly. Answer with JSON "
    'alone: {"is_sufficient": true or false, "reasoning": "one or two sentences", "missing_information": ["what is '
    'lacking", ...]}. Judge by what is there, not by what you know. Where nothing lacks, missing_information is empty.'
)
_FOLLOW = (
    "Information was gathered for a question and is not enough. Name one to three further questions whose answers "
    "would fill the gaps, each different from the question and from the others, and for each the words to search for. "
    'Answer with JSON alone: {"questions": [{"question": "...", "query": "words to search for"}, ...]}. Write in the '
    "language of the question."
)
_ANSWER = (
    "Information was gathered for the user's question by searching several times. Answer from it; say plainly what it "
    "leaves open, and do not fill gaps by guessing."
)
_NOTHING = "(nothing was found)"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A model's judgement of the evidence for a question."""

    is_sufficient: bool = True
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A follow-up question, and the words to search for."""

    question: str
    query: str


def check_prompt(question: str, evidence: str) -> list[dict[str, str]]:
    """Return the messages that ask whether the evidence is sufficient."""
    return _messages(_CHECK, _sections(Question=question, Information=evidence or _NOTHING))


def follow_up_prompt(question: str, query: str, missing: tuple[str, ...], evidence: str) -> list[dict[str, str]]:
    """Return the messages that ask what to search for next."""
    gaps = "\n".join(f"- {each}" for each in missing) or "(not told)"
    parts = {"Question": question, "Searched for": query, "Missing": gaps, "Information": evidence or _NOTHING}
    return _messages(_FOLLOW, _sections(**parts))


def answer_prompt(evidence: str) -> str:
    """Return the text that tells a model to answer from the evidence, for its system message."""
    return f"{_ANSWER}\n\nGathered information:\n{evidence or _NOTHING}"


def parse_verdict(answer: str) -> Verdict:
    """Parse the answer to `check_prompt`."""
    found = read_json(answer)
    if not isinstance(found, Mapping) or _truth(found.get("is_sufficient")) is not False:
        return Verdict()
    missing = found.get("missing_information")
    listed = missing if isinstance(missing, list) else [missing]
    return Verdict(False, tuple(text for each in listed if (text := _text(each))))


def parse_follow_ups(answer: str) -> list[FollowUp]:
    """Parse the answer to `follow_up_prompt`: at most MAX_FOLLOW_UPS questions."""
    found = read_json(answer)
    listed = found.get("questions") if isinstance(found, Mapping) else found
    questions = [_follow_up(each) for each in listed] if isinstance(listed, list) else []
    return [each for each in questions if each is not None][:MAX_FOLLOW_UPS]


def _follow_up(item: Any) -> FollowUp | None:
    if not isinstance(item, Mapping):
        item = {"question": item}
    question, query = _text(item.get("question")), _text(item.get("query"))
    return FollowUp(question or query, query or question) if question or query else None


def _text(value: Any) -> str:
    return " ".join(value_text(value).split())[:MAX_QUESTION_CHARS] if isinstance(value, str | int | float) else ""


def _truth(value: Any) -> bool | None:
    """Return a boolean as models write it; None for any other value."""
    if isinstance(value, str):
        return {"true": True, "yes": True, "false": False, "no": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _messages(system: str, question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def _sections(**parts: str) -> str:
    return "\n\n".join(f"{title}:\n{text}" for title, text in parts.items())
