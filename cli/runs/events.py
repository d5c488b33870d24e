"""`easel events`: print or follow the events of a run."""

from contextlib import closing
from functools import partial
from typing import Annotated

import typer

from canvas.events import run_events as names
from canvas.events.stream_sequencer import Frame, Position, TextDelta, markers_to_tags
from canvas.graph.canvas import Canvas
from cli.runs.follow import RunFollower, RunSubscription
from cli.runs.printer import FramePrinter, JsonPrinter, read_mask
from cli.shell import output
from cli.shell.connection import find_run_id, find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant, Run
from store.runs.events import EventRow
from store.runs.run_queries import RunSummary


def events(
    run: Run,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run ends or waits.")] = False,
    after: Annotated[str, typer.Option(help="Begin after the event with this id.", metavar="ID")] = "0",
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Print the events of a run, and the text that its nodes streamed between them."""
    begin = Position.parse(after)
    with open_connection() as connection, closing(RunSubscription(connection.bus.url)) as subscription:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            run_id = find_run_id(tx, tenant_id, run)
        if follow:
            subscription.subscribe(run_id)
        following = RunFollower(connection.database, tenant_id, run_id, subscription, begin)
        printer: FramePrinter | None = None
        for frame in following.frames() if follow else following.stored_frames():
            if frame is None:
                continue
            if printer is None:
                with connection.database.transaction() as tx:
                    canvas = connection.versions.get_or_empty(tx, following.run.version_id).canvas
                mask = partial(read_mask, connection, canvas)
                printer = JsonPrinter(canvas, mask) if as_json else LogPrinter(canvas)
            printer.show(frame, following.run)


class LogPrinter:
    """Prints one line per event: number, seconds since the run's start, name, node."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas

    def show(self, frame: Frame[EventRow], run: RunSummary) -> None:
        if isinstance(frame, TextDelta):
            output.print_line(f"{'':>12}  {names.MESSAGE:<17}  {markers_to_tags(frame.text)!r}")
            return
        stored = frame.stored
        elapsed = (stored.created_at - run.created_at).total_seconds()
        line = f"{stored.number:>5} {elapsed:>6.2f}  {stored.name:<17}  {_where(stored, self._canvas)}"
        output.print_line(line.rstrip())

    def end(self) -> None:
        """Print nothing more."""


def _where(stored: EventRow, canvas: Canvas) -> str:
    node_id = stored.node_id or ""
    name = canvas.node(node_id).name if node_id in canvas.numbers else ""
    reason = stored.body.get("error") or ""
    return "  ".join(part for part in (node_id, name if name != node_id else "", reason and f"error: {reason}") if part)
