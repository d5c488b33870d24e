"""Checks of requests that are refused in RAGFlow's words, which its clients compare."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from api.http.errors import ARGUMENT, DATA, RequestRefused, UnknownParameter
from api.http.similar_names import nearest_first


def require_arguments(body: Mapping[str, Any], *names: str) -> None:
    """Raise RequestRefused if a body lacks one of the fields; null counts as absent."""
    lacking = [name for name in names if body.get(name) is None]
    if lacking:
        raise RequestRefused(ARGUMENT, f"required argument are missing: {','.join(lacking)}; ")


def refuse_unknown_fields(body: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise UnknownParameter for a field that a request does not have, with the names of those that it has."""
    for name in body:
        if name not in known:
            listed = ", ".join(nearest_first(name[:64], known))
            message = f"`{name[:64]}` is not a field of this request. Its fields are: {listed}."
            raise UnknownParameter(message, field=name[:64])


def split_duplicates(ids: Any, name: str, what: str) -> tuple[list[str], list[str]]:
    """Return the ids of a body without repetitions, and a message about each that is repeated.

    Raises RequestRefused if they are no list of texts. `what`: `document` or `chunk`.
    """
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise RequestRefused(DATA, f"`{name}` should be a list of ids")
    counts = Counter(ids)
    return list(counts), [f"Duplicate {what} ids: {each[:128]}" for each, times in counts.items() if times > 1]
