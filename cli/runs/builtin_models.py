"""Find the built-in models, `echo` and `scripted`, that a canvas uses, so that commands can label their answers."""

from collections.abc import Iterator, Mapping
from typing import Any

from canvas.document.document import Document
from canvas.errors import ModelError
from providers.models.chat.catalogue import resolve

LABELS = {"echo": "echo (built in, no real model)", "scripted": "scripted (built in, no real model)"}


def find_builtin_models(document: Document) -> list[str]:
    """Return the labels of the built-in models that a canvas uses, each once."""
    found: dict[str, None] = {}
    for llm_id in _model_ids([entry.params for entry in document.entries.values()]):
        try:
            spec = resolve(llm_id, ())
        except ModelError:
            continue  # a model of an account; the run reports it if it does not exist
        found[LABELS["echo" if spec.name == "echo" else "scripted"]] = None
    return list(found)


def _model_ids(value: Any) -> Iterator[str]:
    """Yield every `llm_id` in params, including those of an Agent's tools. `parse` has limited the depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "llm_id" and isinstance(item, str):
                yield item
            else:
                yield from _model_ids(item)
    elif isinstance(value, list):
        for item in value:
            yield from _model_ids(item)
