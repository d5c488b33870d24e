"""Turn the requested turn of a command into a `Start`: canvas, version and conversation."""

from dataclasses import replace
from pathlib import Path

from canvas.ids import RunId
from cli.agents import agents, canvas_file, drafts
from cli.runs.inputs import TurnRequest
from cli.shell.connection import find_tenant_id
from scheduler.lifecycle.accept import Start
from scheduler.lifecycle.start_options import parse_start
from store.agents import versions
from store.db.transaction import Transaction


def build_start(tx: Transaction, turn: TurnRequest, run_id: RunId) -> Start:
    """Return the Start of a run. A file becomes the draft of the agent named after it, and a new version.

    A file that continues a conversation runs as it is now, not as it was when the conversation began.
    """
    tenant_id = find_tenant_id(tx, turn.tenant)
    if turn.checked_canvas is None:
        agent = agents.find(tx, tenant_id, turn.target)
        start = parse_start(tx, tenant_id, run_id, agent.id, turn.options)
        canvas_file.require_runnable(f'Agent "{agent.title}"', versions.get(tx, start.version_id).dsl)
        return start
    canvas_id, _ = drafts.save_draft(tx, tenant_id, canvas_file.title_of(Path(turn.target)), turn.checked_canvas.dsl)
    start = parse_start(tx, tenant_id, run_id, canvas_id, turn.options)
    return replace(start, version_id=versions.lock_draft_version(tx, tenant_id, canvas_id).id)
