"""The vendor table: what is known about vendors whose models can be reached (vendors.toml, read once per process)."""

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from providers.models.vendors.families import ParameterRules, Switch

ANSWER = 8192  # tokens of an answer where nothing is known


class Embedding(BaseModel):
    """How a vendor is asked for vectors: texts in one request, and fields beside model and input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch: int = Field(default=32, gt=0)
    fields: Mapping[str, Any] = {}


class Ranking(BaseModel):
    """How a vendor is asked which texts answer a question.

    `path` is where, as seen from the base URL: `../rerank` is beside its last segment. `texts` and `limit` name the
    fields with the texts and with how many are wanted back (empty: there is none).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = "rerank"
    texts: str = "documents"
    limit: str = "top_n"
    batch: int = Field(default=100, gt=0)


class Voicing(BaseModel):
    """How a vendor is asked to speak. `{model}` in `voice` stands for the model's name; `fields` join each request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    voice: str = "alloy"
    format: str = ""  # `response_format`; empty: what the vendor sends by itself
    fields: Mapping[str, Any] = {}


class Vendor(BaseModel):
    """A block of vendors.toml; its head says what the fields mean."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str | None = None
    openai_url: str | None = None
    suffix: str = ""
    dialect: str = "openai"
    limit_field: str = "max_completion_tokens"
    switches: frozenset[Switch] = frozenset()
    is_tools: bool = True
    contexts: Mapping[str, int] = {}
    answers: Mapping[str, int] = {}
    kinds: Mapping[str, frozenset[str]] = {}
    embedding: Embedding = Embedding()
    ranking: Ranking = Ranking()
    speech: Voicing = Voicing()

    def without_suffix(self, model: str) -> str:
        """Return a model's name as its server knows it: RAGFlow stores some names with a suffix and never sends it."""
        return model.removesuffix(self.suffix) or model

    @property
    def manners(self) -> ParameterRules:
        return ParameterRules(self.limit_field, self.switches)

    def context_of(self, model: str) -> int | None:
        """The tokens that a model reads; None if nobody has said."""
        return next((tokens for pattern, tokens in self.contexts.items() if fnmatchcase(model, pattern)), None)

    def answer_of(self, model: str) -> int:
        """The tokens that an answer may have, for wires that want to be told."""
        return next((tokens for pattern, tokens in self.answers.items() if fnmatchcase(model, pattern)), ANSWER)

    def kinds_of(self, model: str) -> frozenset[str] | None:
        """What a model is good for; None if nobody has said."""
        return next((kinds for pattern, kinds in self.kinds.items() if fnmatchcase(model, pattern)), None)


UNLISTED = Vendor(limit_field="max_tokens")
"""A factory that we do not know, with a base URL of its own."""


@cache
def vendors() -> Mapping[str, Vendor]:
    """Every vendor we know, by factory."""
    table = tomllib.loads(Path(__file__).with_name("vendors.toml").read_text(encoding="utf-8"))
    return {factory: Vendor.model_validate(block) for factory, block in table.items()}
