"""Fields of forms whose answers are passwords: those of the type `password`."""

from collections.abc import Mapping
from typing import Any

PASSWORD = "password"  # noqa: S105 (a type)

GIVEN_PASSWORDS = "given_passwords"
"""Parameter of the Begin of a node that runs alone: password fields of forms whose values are given, by node."""


def password_names(params: Mapping[str, Any]) -> list[str]:
    """Return the names of the password fields in the form of a node's parameters, in order."""
    form = params.get("inputs")
    fields = form.items() if isinstance(form, Mapping) else ()
    return [str(name) for name, field in fields if isinstance(field, Mapping) and _is_password(field)]


def given_passwords(params: Mapping[str, Any]) -> Mapping[str, frozenset[str]]:
    """Return the password fields whose values a node that runs alone is given, by node."""
    given = params.get(GIVEN_PASSWORDS)
    if not isinstance(given, Mapping):
        return {}
    return {str(node): frozenset(map(str, names)) for node, names in given.items() if isinstance(names, list)}


def _is_password(field: Mapping[str, Any]) -> bool:
    return str(field.get("type") or "").strip().lower() == PASSWORD
