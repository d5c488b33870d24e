"""`easel validate`: what is wrong with a canvas, without any server."""

from dataclasses import asdict

import typer

from cli import canvas_file, output
from cli.exits import Exit
from cli.options import AsJson, CanvasFile
from settings import load


def validate(file: CanvasFile, as_json: AsJson = False) -> None:
    """Say everything that is wrong with a canvas; exit code 2 if it cannot run. Nothing is stored."""
    judged = canvas_file.judge(file, load().max_canvas_bytes)
    if as_json:
        for finding in (*judged.errors, *judged.warnings):
            output.say_json(asdict(finding))
    else:
        canvas_file.show(file, judged)
    if judged.errors:
        raise typer.Exit(Exit.BAD_INPUT)
