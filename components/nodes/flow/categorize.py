"""Categorize: a model names the category of the user's message, and the run continues at that category's nodes.

DSL: `category_description` (name -> description, examples, to), `query` (a reference), `default_category`, `llm_id`,
the generation parameters and `message_history_window_size`. Like upstream, only the categories and the window are
validated when the canvas is loaded. `max_retries` is not used, because the provider layer retries by its own rules.

The model's answer need not be exact: the name that it mentions most often wins, and in a tie the first one. If it
mentions none, the default category counts, or else the last one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from canvas.outcome import Outcome, Routed
from components.base import component
from components.context import NodeContext
from components.nodes.llm.model_call import (
    GenerationParams,
    Message,
    NoAnswer,
    Prompt,
    build_request,
    history_window,
    is_error,
)
from components.nodes.llm.prompts import categorize_guide, conversation_line
from components.text.templates.templates import value_text
from providers.models.text.sanitizer import without_reasoning


class Category(BaseModel):
    """One category: its description and examples, and the nodes to which it routes."""

    model_config = ConfigDict(frozen=True, extra="allow")

    description: str = ""
    examples: tuple[str, ...] = ()
    to: tuple[str, ...] = ()

    @field_validator("description", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> str:
        return value_text(value)

    @field_validator("examples", mode="before")
    @classmethod
    def _one_by_one(cls, value: Any) -> list[str]:
        if isinstance(value, str):
            return value.splitlines()
        items: list[Any] = value if isinstance(value, list) else []
        return [value_text(item.get("value") if isinstance(item, Mapping) else item) for item in items]

    @field_validator("to", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value or []


class CategorizeParams(GenerationParams):
    """The categories stay in the author's order, which decides ties and the category of last resort."""

    default_outputs = ("category_name",)
    later_outputs = ("category",)

    category_description: dict[str, Category] = Field(default={}, validate_default=True)
    query: Any = "sys.query"
    default_category: Any = None
    message_history_window_size: Any = 1

    @field_validator("category_description")
    @classmethod
    def _leads_somewhere(cls, categories: dict[str, Category]) -> dict[str, Category]:
        if not categories:
            raise ValueError("[Categorize] Category examples are empty; describe at least one category")
        for name, category in categories.items():
            if not name:
                raise ValueError("[Categorize] Category name is empty; give every category a name")
            if not any(category.to):
                raise ValueError(f"[Categorize] 'To' of the category {name} is empty; connect it to a node")
        return categories

    @field_validator("message_history_window_size")
    @classmethod
    def _is_a_count(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"[Categorize] Message window size {value} is not 0 or a positive integer")
        return value


@component("Categorize", CategorizeParams, effect="idempotent")
async def categorize(params: CategorizeParams, ctx: NodeContext) -> Outcome:
    conversation = await _conversation(params, ctx)
    model = await ctx.model(params.llm_id)
    question: Message = {"role": "user", "content": conversation_line(conversation)}
    prompt = Prompt(categorize_guide(params.category_description), [question])

    answer = await model.complete(await build_request(prompt, params, model.spec, retries=None))
    ctx.add_usage(answer.usage)
    if is_error(answer.text):
        raise NoAnswer(answer.text, kind=answer.error.code if answer.error else None)

    name = choose_category(list(params.category_description), without_reasoning(answer.text), params.default_category)
    targets = params.category_description[name].to
    return Routed(to=targets, outputs={"category_name": name, "category": name, "_next": list(targets)})


def choose_category(names: Sequence[str], answer: str, default: Any = None) -> str:
    """Return the name that the answer mentions most often, in any case; if none, the default or the last name."""
    lowered = answer.lower()
    mentions = {name: lowered.count(name.lower()) for name in names}
    best = max(names, key=lambda name: mentions[name])  # the first of several
    if mentions[best]:
        return best
    return default if default in names else names[-1]


async def _conversation(params: CategorizeParams, ctx: NodeContext) -> list[Message]:
    """Return the latest messages of the conversation; the last one holds the query to categorize."""
    reference = str(params.query or "sys.query")
    query = value_text(ctx.lookup(reference))
    ctx.note_input(reference.strip("{} "), query)
    entries = await ctx.history(history_window(params))
    messages = [{"role": str(entry["role"]), "content": value_text(entry["content"])} for entry in entries]
    role = messages[-1]["role"] if messages else "user"
    return [*messages[:-1], {"role": role, "content": query}]
