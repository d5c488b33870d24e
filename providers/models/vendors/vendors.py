"""The vendor table: how to reach the models of each vendor (vendors.toml, read once per process)."""

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from providers.models.vendors.families import ParameterRules, ThinkingSwitch

DEFAULT_ANSWER_TOKENS = 8192  # tokens of an answer if the table has no value


class EmbeddingSettings(BaseModel):
    """Requests for embeddings of a vendor: texts per request, and fields besides model and input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch: int = Field(default=32, gt=0)
    fields: Mapping[str, Any] = {}


class RankingSettings(BaseModel):
    """Reranking requests of a vendor.

    `path` is relative to the base URL; `../rerank` replaces its last segment. `texts` and `limit` are the names of the
    fields with the texts and with the number of results ("": there is no such field).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = "rerank"
    texts: str = "documents"
    limit: str = "top_n"
    batch: int = Field(default=100, gt=0)


class SpeechSettings(BaseModel):
    """Text-to-speech requests of a vendor. `{model}` in `voice` is the model's name; `fields` are added to requests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    voice: str = "alloy"
    format: str = ""  # `response_format`; "": the vendor's default
    fields: Mapping[str, Any] = {}


class Vendor(BaseModel):
    """A block of vendors.toml; the comment at the top of the file explains the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str | None = None
    openai_url: str | None = None
    suffix: str = ""
    dialect: str = "openai"
    limit_field: str = "max_completion_tokens"
    switches: frozenset[ThinkingSwitch] = frozenset()
    is_tools: bool = True
    contexts: Mapping[str, int] = {}
    answers: Mapping[str, int] = {}
    kinds: Mapping[str, frozenset[str]] = {}
    embedding: EmbeddingSettings = EmbeddingSettings()
    ranking: RankingSettings = RankingSettings()
    speech: SpeechSettings = SpeechSettings()

    def without_suffix(self, model: str) -> str:
        """Return the name to send to the server: RAGFlow stores some names with a suffix that is never sent."""
        return model.removesuffix(self.suffix) or model

    @property
    def parameter_rules(self) -> ParameterRules:
        """Return the parameter rules of the vendor's endpoint."""
        return ParameterRules(self.limit_field, self.switches)

    def context_of(self, model: str) -> int | None:
        """Return the context of a model in tokens; None if it is not known."""
        return next((tokens for pattern, tokens in self.contexts.items() if fnmatchcase(model, pattern)), None)

    def answer_of(self, model: str) -> int:
        """Return the tokens that an answer may have, for wires that require a limit."""
        return next(
            (tokens for pattern, tokens in self.answers.items() if fnmatchcase(model, pattern)), DEFAULT_ANSWER_TOKENS
        )

    def kinds_of(self, model: str) -> frozenset[str] | None:
        """Return the kinds of a model; None if they are not known."""
        return next((kinds for pattern, kinds in self.kinds.items() if fnmatchcase(model, pattern)), None)


UNLISTED = Vendor(limit_field="max_tokens")
"""The vendor for factories that the table does not list; their accounts set a base URL."""


@cache
def vendors() -> Mapping[str, Vendor]:
    """Return all vendors by factory."""
    table = tomllib.loads(Path(__file__).with_name("vendors.toml").read_text(encoding="utf-8"))
    return {factory: Vendor.model_validate(block) for factory, block in table.items()}
