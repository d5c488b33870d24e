"""Changes of a draft: JSON Patches (RFC 6902), and the entries that follow from a change of the drawing.

An editor changes the drawing (`graph`). RAGFlow's `components` follow from it, so `follow_drawing` derives the entries
of those nodes again whose form or edges have changed. Likewise `globals` has an `env.*` for each of the `variables`:
a run completes them itself, but RAGFlow reads them there. A draft may be half-drawn, so what cannot be derived is
reported and not refused.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jsonpatch

from canvas.document import defaults, drawing, json_checks
from canvas.errors import InvalidRequest

Fields: TypeAlias = dict[str, Any]

MAX_OPERATIONS = 10_000
_MISSING = object()


class BadPatch(InvalidRequest):
    """Raised for a JSON Patch that cannot be applied. `operation` is the position of the one that failed, from 0."""

    code = "bad_patch"


def unwrap(written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document of a file, which may have it under `dsl`."""
    inner = written.get("dsl")
    return inner if isinstance(inner, Mapping) and "components" not in written and "graph" not in written else written


def apply_patch(document: Mapping[str, Any], operations: Sequence[Any], max_bytes: int) -> Fields:
    """Return the document after a JSON Patch; all operations are applied, or none.

    `max_bytes` bounds what the operations copy. Raises BadPatch, and InvalidCanvas for a result that cannot be stored.
    """
    if len(operations) > MAX_OPERATIONS:
        raise BadPatch(f"The patch has {len(operations)} operations, and {MAX_OPERATIONS} are allowed.")
    changed: Any = copy.deepcopy(dict(document))
    copied = 0
    for position, operation in enumerate(operations):
        try:
            copied += _size_of_copy(changed, operation)
            if copied > max_bytes:
                raise BadPatch(f"The patch copies more than {max_bytes} bytes.", operation=position)
            changed = jsonpatch.JsonPatch([operation]).apply(changed, in_place=True)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise BadPatch(f"Operation {position} of the patch: {str(error)[:500]}.", operation=position) from None
        except (RecursionError, TypeError, KeyError, IndexError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else "it has a wrong shape"
            raise BadPatch(f"Operation {position} of the patch: {reason}.", operation=position) from None
        if not isinstance(changed, dict):
            raise BadPatch(f"Operation {position} of the patch: the document must be an object.", operation=position)
    return json_checks.copy_storable(changed)


def follow_drawing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Fields:
    """Return the changed document with the entries of nodes derived again whose form or edges have changed.

    Parameters that the derivation does not know stay, and so does an entry that the change itself has set. A document
    without `components` stays without: they are derived when it is parsed. One without a drawing keeps its entries.
    """
    entries, old_entries = after.get("components"), before.get("components")
    if not isinstance(entries, Mapping) or after.get("graph") is None:
        return dict(after)
    old_entries = old_entries if isinstance(old_entries, Mapping) else {}
    old, new = drawing.derive(before.get("graph")), drawing.derive(after.get("graph"))
    followed: Fields = dict(entries)
    for node in dict.fromkeys([*old.drawn, *new.drawn]):
        was, derived = old.entries.get(node), new.entries.get(node)
        is_new = node in new.drawn and node not in old.drawn
        if node in new.errors or not (is_new or not _is_equal(was, derived)):
            continue
        if not _is_equal(entries.get(node, _MISSING), old_entries.get(node, _MISSING)):
            continue  # the change itself has set the entry
        if derived is None:
            followed.pop(node, None)
        elif node not in entries:
            followed[node] = derived
        elif is_new:  # a document without a drawing gets one, and may be changed with it
            followed[node] = _merge_entry(entries[node], _as_derived(entries[node], derived), derived)
        else:
            followed[node] = _merge_entry(entries[node], was or {}, derived)
    return {**after, "components": followed}


def follow_variables(before: Mapping[str, Any], after: Mapping[str, Any]) -> Fields:
    """Return the changed document with the `env.*` of variables that were added, changed or removed.

    One that the change itself has set stays. A document without `globals` stays without.
    """
    values, old_values = after.get("globals"), before.get("globals")
    if not isinstance(values, Mapping):
        return dict(after)
    old_values = old_values if isinstance(old_values, Mapping) else {}
    old, new = _env_values(before), _env_values(after)
    followed: Fields = dict(values)
    for key in dict.fromkeys([*new, *old]):
        is_set = not _is_equal(values.get(key, _MISSING), old_values.get(key, _MISSING))
        if is_set or _is_equal(old.get(key, _MISSING), new.get(key, _MISSING)):
            continue
        if key in new:
            followed[key] = new[key]
        else:
            followed.pop(key, None)
    return dict(after) if followed == values else {**after, "globals": followed}


def complete_variables(document: Mapping[str, Any]) -> Fields:
    """Return a document with an `env.*` for each variable that its `globals` lack; one without `globals` as it is."""
    values = document.get("globals")
    if not isinstance(values, Mapping):
        return dict(document)
    missing = {key: value for key, value in _env_values(document).items() if key not in values}
    return {**document, "globals": {**values, **missing}} if missing else dict(document)


def _env_values(document: Mapping[str, Any]) -> Fields:
    """Return the values of `env.*` that the variables of a document declare."""
    variables = document.get("variables")
    declared = variables.items() if isinstance(variables, Mapping) else ()
    return {f"env.{name}": defaults.declared_value(variable) for name, variable in declared}


def _size_of_copy(document: Fields, operation: Any) -> int:
    """Return how many bytes an operation adds to the document that are not in the patch."""
    if not isinstance(operation, Mapping) or operation.get("op") != "copy":
        return 0
    source = operation.get("from")
    return len(json.dumps(jsonpatch.JsonPointer(source).resolve(document, None))) if isinstance(source, str) else 0


def _as_derived(entry: Any, derived: Mapping[str, Any]) -> Fields:
    """Return what an entry has of what is derived, as the derivation writes it where both say the same."""
    if not isinstance(entry, Mapping):
        return {}
    obj = entry.get("obj")
    written = (obj if isinstance(obj, Mapping) else entry).get("params")
    params: Mapping[str, Any] = derived["obj"]["params"]
    own: Mapping[str, Any] = written if isinstance(written, Mapping) else {}
    edges = {
        key: derived[key] if _has_same(entry[key], derived[key]) else entry[key] for key in derived if key in entry
    }
    values = {key: params[key] if own[key] == params[key] else own[key] for key in params if key in own}
    return {**edges, "obj": {"component_name": derived["obj"]["component_name"], "params": values}}


def _has_same(one: Any, other: Any) -> bool:
    """Return whether two lists have the same ids, in any order, or two values are equal."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(each in other for each in one)
    return one == other


def _merge_entry(entry: Any, was: Mapping[str, Any], derived: Mapping[str, Any]) -> Any:
    """Return an entry, nested or flat, with what differs between two derivations of it."""
    if not isinstance(entry, Mapping):
        return derived
    obj = entry.get("obj")
    name, params = derived["obj"]["component_name"], derived["obj"]["params"]
    was_obj: Mapping[str, Any] = was.get("obj") or {}
    outer = _merge(entry, {**was, "obj": None}, {**derived, "obj": None}) | ({"obj": obj} if "obj" in entry else {})
    if "obj" not in entry:
        outer.pop("obj", None)
    holder = dict(obj) if isinstance(obj, Mapping) else outer
    written = holder.get("params")
    holder["params"] = _merge(written if isinstance(written, Mapping) else {}, was_obj.get("params") or {}, params)
    if was_obj.get("component_name") != name:
        holder["component_name" if isinstance(obj, Mapping) or "component_name" in holder else "name"] = name
    return {**outer, "obj": holder} if isinstance(obj, Mapping) else holder


def _merge(written: Mapping[str, Any], was: Mapping[str, Any], derived: Mapping[str, Any]) -> Fields:
    """Return an object with the keys that differ between two derivations; others stay as they are written."""
    merged = {key: value for key, value in written.items() if key in derived or key not in was}
    for key, value in derived.items():
        if key not in was or not _is_equal(was[key], value):
            merged[key] = value
    return merged


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are written alike: 1, 1.0 and true differ, and the order of keys counts."""
    if one is _MISSING or other is _MISSING:
        return one is other
    return json.dumps(one) == json.dumps(other)
