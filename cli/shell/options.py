"""Options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

LOCAL = "local"
"""The tenant of whoever uses the command line."""

CanvasFile = Annotated[Path, typer.Argument(help="A canvas as RAGFlow exports it (JSON).", metavar="FILE")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines, one object a line.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="Whose canvases and runs.", metavar="NAME")]
Query = Annotated[str | None, typer.Option("--query", "-q", help="What the user says.", metavar="TEXT")]
Pairs = Annotated[list[str] | None, typer.Option("--input", help="A field of the form; repeat it.", metavar="K=V")]
Inputs = Annotated[str | None, typer.Option("--inputs", help="All fields as a JSON object.", metavar="JSON")]
Session = Annotated[str | None, typer.Option("--session", help="Continue this conversation.", metavar="ID")]
Released = Annotated[bool, typer.Option("--release", help="Run the published version instead of the draft.")]
Happened = Annotated[
    list[str] | None,
    typer.Option("--happened", help="This node has done its work; `all`: every one that asks.", metavar="NODE"),
]
Again = Annotated[
    list[str] | None, typer.Option("--again", help="This node is to do its work once more, or `all`.", metavar="NODE")
]
Run = Annotated[str, typer.Argument(help="The run's id, or its external id.", metavar="RUN")]
Target = Annotated[str, typer.Argument(help="A canvas file, or an agent by id or title.", metavar="FILE|AGENT")]
Tokens = Annotated[int | None, typer.Option(help="The most tokens that models may use.", metavar="N")]
Calls = Annotated[int | None, typer.Option(help="The most calls of models.", metavar="N")]
Seconds = Annotated[float | None, typer.Option(help="The most seconds that a run may take.", metavar="S")]
Money = Annotated[float | None, typer.Option(help="The most money that models may cost.", metavar="AMOUNT")]
Currency = Annotated[str | None, typer.Option(help="Of the money; USD if not given.", metavar="CODE")]
Question = Annotated[str, typer.Argument(help="What to look for.", metavar="QUESTION")]
Threshold = Annotated[float, typer.Option(help="How near they must be.", min=0, max=1)]
ByWords = Annotated[float, typer.Option(help="What words count for; vectors for the rest.", min=0, max=1)]
Embedding = Annotated[
    str | None,
    typer.Option("--model", help="Embedding model, model@Vendor; else the tenant's first one.", metavar="MODEL"),
]
WordsOnly = Annotated[bool, typer.Option("--words-only", help="No vectors: it is searched by words.")]
