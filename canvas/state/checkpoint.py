"""Conversion of a run's state to the JSON that is stored between two decisions (a checkpoint), and back.

Nodes are stored as node numbers. A run never changes its version, so numbers keep their meaning.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from canvas.ids import ActivationId
from canvas.state.order_key import OrderKey, from_json, to_json
from canvas.state.run_state import (
    Container,
    DeferredEvent,
    DeferredNodeFinished,
    MessageStreamState,
    OpenForm,
    RunFailure,
    RunState,
    Scope,
    ScopeKey,
    scope_key,
    scope_text,
)


def run_to_json(state: RunState) -> dict[str, Any]:
    """Return the part of a run's row that is one JSON column."""
    return {
        "live": state.in_flight,
        "queued": state.queued,
        "max_running": state.max_running,
        "max_activations": state.max_activations,
        "activated": state.activation_count,
        "speeches": [
            {
                "turn": str(s.stream_id),
                "number": s.number,
                "scope": scope_text(s.scope),
                "place": to_json(s.order_key) if s.order_key else None,
                "started": s.has_started,
                "opened": s.is_open,
                "said": s.is_complete,
                "error": s.error,
                "end": s.end,
                "held": [[str(h.activation), h.node_id, h.error, h.key] for h in s.deferred_finished],
            }
            for s in state.streams
        ],
        "forms": {
            str(activation): [f.node_id, f.order_key, scope_text(f.scope), f.inputs, f.tips, f.has_started]
            for activation, f in state.forms.items()
        },
        "failing": [f.level, f.order_key, f.node_id, f.error, f.code] if (f := state.failure) else None,
        "last": [state.last_node[0], str(state.last_node[1]), state.last_node[2]] if state.last_node else None,
    }


def fill_run(state: RunState, data: Mapping[str, Any]) -> RunState:
    """Fill in a state, which has the row's other columns, from the JSON column; return it."""
    state.in_flight = data["live"]
    state.queued = data["queued"]
    state.max_running = data["max_running"]
    state.max_activations = data.get("max_activations", 0)
    state.activation_count = data.get("activated", 0)
    state.streams = [
        MessageStreamState(
            stream_id=_activation_id(s["turn"]),
            number=s["number"],
            scope=scope_key(s["scope"]),
            order_key=from_json(s["place"]) if s["place"] else None,
            has_started=s["started"],
            is_open=s["opened"],
            is_complete=s["said"],
            error=s["error"],
            end=s["end"],
            deferred_finished=[DeferredNodeFinished(_activation_id(h[0]), h[1], h[2], h[3]) for h in s["held"]],
        )
        for s in data["speeches"]
    ]
    state.forms = {
        _activation_id(activation): OpenForm(f[0], f[1], scope_key(f[2]), *f[3:])
        for activation, f in data["forms"].items()
    }
    state.failure = RunFailure(*data["failing"]) if data["failing"] else None
    state.last_node = (data["last"][0], _activation_id(data["last"][1]), data["last"][2]) if data["last"] else None
    return state


def scope_to_json(scope: Scope) -> dict[str, Any]:
    """Return a scope as JSON; empty fields are left out."""
    data: dict[str, Any] = {
        "region": scope.region.hex(),
        "limits": scope.limits,
        "trail": to_json(scope.container_key),
        "last_wave": scope.last_level,
        "alive": f"{scope.active:x}",
        "still": f"{scope.idle:x}" if scope.idle else "",
        "reached": _order_keys_to_json(scope.reached),
        "returning": {str(number): f"{tails:x}" for number, tails in scope.loop_heads.items()},
        "places": _order_keys_to_json(scope.order_keys),
        "ordinals": scope.ordinals,
        "containers": {
            number: [
                str(c.activation),
                c.ordinal,
                to_json(c.order_key),
                c.count,
                c.concurrency,
                c.next_item,
                c.open_items,
                c.idle_items,
                c.levels_used,
                c.failed_item,
                c.error,
                c.failed_at,
                *_concurrent_items_to_json(c),
            ]
            for number, c in scope.containers.items()
        },
        "leaving": to_json(scope.exit_key) if scope.exit_key else None,
        "left_by": str(scope.exited_by) if scope.exited_by else None,
        "escaped": scope.has_escaped,
        "counted_still": scope.is_counted_idle,
    }
    return {name: value for name, value in data.items() if value or name in ("trail", "alive")}


def scope_from_json(key: ScopeKey, data: Mapping[str, Any]) -> Scope:
    """Return the scope of a JSON form; the inverse of `scope_to_json`."""
    return Scope(
        key=key,
        region=bytes.fromhex(data.get("region", "")),
        limits=tuple((region, revision) for region, revision in data.get("limits", ())),
        container_key=from_json(data["trail"]),
        last_level=data.get("last_wave", 0),
        active=int(data["alive"], 16),
        idle=int(data.get("still", "0"), 16),
        reached=_order_keys_from_json(data.get("reached", {})),
        loop_heads={int(number): int(tails, 16) for number, tails in data.get("returning", {}).items()},
        order_keys=_order_keys_from_json(data.get("places", {})),
        ordinals={int(number): ordinal for number, ordinal in data.get("ordinals", {}).items()},
        containers={int(number): _container_from_json(c) for number, c in data.get("containers", {}).items()},
        exit_key=from_json(data["leaving"]) if data.get("leaving") else None,
        exited_by=_activation_id(data["left_by"]) if data.get("left_by") else None,
        has_escaped=data.get("escaped", False),
        is_counted_idle=data.get("counted_still", False),
    )


def _activation_id(text: str) -> ActivationId:
    return ActivationId(UUID(text))


def _concurrent_items_to_json(container: Container) -> list[Any]:
    """Return the fields that only containers with concurrent items have; deferred events in a short form."""
    if not container.is_pipelined:
        return [container.revision] if container.revision else []
    deferred = {
        str(item): [_deferred_to_json(event) for event in events] for item, events in container.deferred_events.items()
    }
    return [
        0,
        container.levels_per_pass,
        container.warmup_items,
        container.first_open_item,
        container.ended_items,
        deferred,
    ]


def _deferred_to_json(event: DeferredEvent) -> list[Any]:
    if event.failure is not None:
        order_key, code = event.failure
        return [event.node, event.error, to_json(order_key), code]
    return [event.node, event.error] if event.has_ended else [event.node]


def _container_from_json(data: Sequence[Any]) -> Container:
    container = Container(
        _activation_id(data[0]), data[1], from_json(data[2]), *data[3:11], failed_at=(data[11][0], data[11][1])
    )
    if len(data) > 12:
        container.revision = data[12]
    if len(data) > 13:
        container.levels_per_pass, container.warmup_items, container.first_open_item = data[13:16]
        container.ended_items, deferred = data[16:]
        container.deferred_events = {
            int(item): [_deferred_from_json(event) for event in events] for item, events in deferred.items()
        }
    return container


def _deferred_from_json(data: Sequence[Any]) -> DeferredEvent:
    failure = (from_json(data[2]), data[3]) if len(data) > 2 else None
    return DeferredEvent(data[0], len(data) > 1, data[1] if len(data) > 1 else None, failure)


def _order_keys_to_json(order_keys: Mapping[int, OrderKey]) -> dict[str, Any]:
    return {str(number): to_json(order_key) for number, order_key in order_keys.items()}


def _order_keys_from_json(data: Mapping[str, Sequence[Any]]) -> dict[int, OrderKey]:
    return {int(number): from_json(list(order_key)) for number, order_key in data.items()}
