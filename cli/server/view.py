"""`easel view`: open the pages of a running `easel up` in the browser, signed in."""

import webbrowser
from typing import Annotated

import typer

from canvas.errors import InvalidRequest
from cli.shell import home, output
from cli.shell.connection import configure_logging
from cli.shell.output import YELLOW
from cli.shell.page_server import find_page_server
from settings import load


def view(
    run: Annotated[str | None, typer.Argument(help="A run to show, by id or external id.", metavar="RUN")] = None,
    is_printed: Annotated[bool, typer.Option("--print", help="Print the address, and open no browser.")] = False,
) -> None:
    """Open the pages in the browser. The address signs in once, within ten minutes."""
    settings = load()
    configure_logging(settings)
    up = home.find_running_up(settings.home)
    if up is None:
        raise InvalidRequest(f"No `easel up` runs for {settings.home}. Start one, or set EASEL_HOME to its folder.")
    server = find_page_server(up.url, up.token)
    if server is None:
        raise InvalidRequest("This `easel up` serves no pages: EASEL_VIEWER is off.")
    address = server.address(run)
    if not server.has_pages:
        output.print_message("This installation has no built pages, so the address shows none.", YELLOW)
    if is_printed or not webbrowser.open(address):
        output.print_line(address)
