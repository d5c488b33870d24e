"""The command `easel`: the table of its commands, and its entry point.

A command's module is imported only when the command is called, so that `easel run` does not wait for the imports of
other commands.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from canvas.errors import ExecutorError
from cli.shell import output
from cli.shell.exit_codes import Exit, exit_code_of
from settings import InvalidSettings

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "cli.runs.run:run",
        "start": "cli.runs.start:start",
        "resume": "cli.runs.run:resume",
        "rerun": "cli.runs.copies:rerun",
        "fork": "cli.runs.copies:fork",
        "debug": "cli.runs.debug:debug",
        "diff": "cli.runs.diff:diff",
        "cancel": "cli.runs.cancel:cancel",
        "runs": "cli.runs.runs:runs",
        "show": "cli.runs.runs:show",
        "explain": "cli.runs.explain:explain_run",
        "events": "cli.runs.events:events",
        "calls": "cli.runs.calls:calls",
        "export-run": "cli.runs.export:export_run",
        "record": "cli.cases.commands:record",
        "replay": "cli.cases.commands:replay",
        "schedule": "cli.runs.schedules:schedule",
        "validate": "cli.agents.validate:validate",
        "import": "cli.agents.canvases:import_file",
        "export": "cli.agents.canvases:export",
        "publish": "cli.agents.canvases:publish",
        "agents": "cli.agents.canvases:agents",
        "models": "cli.models.models:models",
        "kb": "cli.admin.knowledge:kb",
        "mcp": "cli.admin.mcp:mcp",
        "budget": "cli.admin.budget:budget",
        "callbacks": "cli.admin.callbacks:callbacks",
        "memory": "cli.admin.memories:memory",
        "tokens": "cli.admin.tenants:tokens",
        "audit": "cli.admin.audit_log:audit",
        "secrets": "cli.admin.secrets:secrets",
        "up": "cli.server.up:up",
        "view": "cli.server.view:view",
        "doctor": "cli.server.doctor:doctor",
        "migrate": "cli.admin.database:migrate",
        "api": "cli.server.processes:api",
        "worker": "cli.server.processes:worker",
        "scheduler": "cli.server.processes:scheduler",
        "sweeper": "cli.server.processes:sweeper",
        "flower": "cli.server.processes:flower",
        "conformance": "cli.conformance.command:conformance",
        "bench": "cli.admin.bench:bench",
    }
)
"""Name on the command line -> module and function. A `Typer` in the place of the function is a group of commands."""

PASSTHROUGH_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
PASSTHROUGH_COMMANDS = frozenset({"worker", "scheduler", "flower"})
"""Commands whose further arguments go to the program they start."""


class LazyCommands(TyperGroup):
    """The commands by name, each imported when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order in which help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name, or None."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _import_command(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments begin with. Import all commands for the suggestions on a wrong name."""
        if args[0] not in COMMANDS:
            for name in COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _import_command(name: str) -> Any:
    module, _, attribute = COMMANDS[name].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        group = typer.main.get_command(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, context_settings=PASSTHROUGH_SETTINGS if name in PASSTHROUGH_COMMANDS else {})(found)
    return typer.main.get_command(alone)


app = typer.Typer(cls=LazyCommands, add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from telemetry import VERSION  # imports the metrics library, which no other option needs

        output.print_line(f"easel {VERSION}")
        raise typer.Exit


@app.callback()
def easel(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Run agent canvases: RAGFlow graphs, executed durably on Celery, Redis and PostgreSQL."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    try:
        app(list(arguments) if arguments is not None else None)
    except ExecutorError as error:
        output.print_message(error.message, output.RED)
        sys.exit(exit_code_of(error))
    except InvalidSettings as error:
        output.print_message(f"The settings are not valid:\n{error}", output.RED)
        sys.exit(Exit.BAD_INPUT)
    except BrokenPipeError:  # the reader of the output has ended, so there is no place for an error message either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FAILED)


if __name__ == "__main__":
    main()
