"""The built-in stand-ins that a canvas names where it could name a model, to be labelled wherever they speak."""

from collections.abc import Iterator, Mapping
from typing import Any

from canvas.document.document import Document
from canvas.errors import ModelError
from providers.models.chat.catalogue import resolve

LABELS = {"echo": "echo stand-in (no real model)", "scripted": "scripted stand-in"}


def stand_ins(document: Document) -> list[str]:
    """The stand-ins that a canvas names where it could name a model, as they are labelled."""
    found: dict[str, None] = {}
    for llm_id in _model_ids([entry.params for entry in document.entries.values()]):
        try:
            spec = resolve(llm_id, ())
        except ModelError:
            continue  # a model of an account; whether it is there is for the run to find out
        found[LABELS["echo" if spec.name == "echo" else "scripted"]] = None
    return list(found)


def _model_ids(value: Any) -> Iterator[str]:
    """Every `llm_id` inside of params, those of an Agent's tools among them; `parse` has bounded the depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "llm_id" and isinstance(item, str):
                yield item
            else:
                yield from _model_ids(item)
    elif isinstance(value, list):
        for item in value:
            yield from _model_ids(item)
