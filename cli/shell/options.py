"""Options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

LOCAL_TENANT = "local"
"""The tenant that commands use when no other is named."""

CanvasFile = Annotated[Path, typer.Argument(help="A canvas as RAGFlow exports it (JSON).", metavar="FILE")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="The tenant that owns the canvases and runs.", metavar="NAME")]
Query = Annotated[str | None, typer.Option("--query", "-q", help="The user's message.", metavar="TEXT")]
Pairs = Annotated[
    list[str] | None, typer.Option("--input", help="One field of the form; may be repeated.", metavar="K=V")
]
Inputs = Annotated[str | None, typer.Option("--inputs", help="All fields as a JSON object.", metavar="JSON")]
Session = Annotated[str | None, typer.Option("--session", help="Continue this conversation.", metavar="ID")]
Released = Annotated[bool, typer.Option("--release", help="Run the published version instead of the draft.")]
Happened = Annotated[
    list[str] | None,
    typer.Option(
        "--happened", help="This node's action took place; `all`: that of every node that asks.", metavar="NODE"
    ),
]
Again = Annotated[
    list[str] | None, typer.Option("--again", help="Run this node's action again, or `all`.", metavar="NODE")
]
Run = Annotated[str, typer.Argument(help="The run's id, or its external id.", metavar="RUN")]
Target = Annotated[str, typer.Argument(help="A canvas file, or an agent by id or title.", metavar="FILE|AGENT")]
Tokens = Annotated[int | None, typer.Option(help="Limit of the tokens that models may use.", metavar="N")]
Calls = Annotated[int | None, typer.Option(help="Limit of the number of model calls.", metavar="N")]
Seconds = Annotated[float | None, typer.Option(help="Limit of the run's duration in seconds.", metavar="S")]
Money = Annotated[float | None, typer.Option(help="Limit of what models may cost.", metavar="AMOUNT")]
Currency = Annotated[str | None, typer.Option(help="Currency of --money; USD by default.", metavar="CODE")]
Question = Annotated[str, typer.Argument(help="What to search for.", metavar="QUESTION")]
Threshold = Annotated[float, typer.Option(help="Minimum similarity of a result.", min=0, max=1)]
ByWords = Annotated[float, typer.Option(help="Weight of word matches; vectors have the rest.", min=0, max=1)]
Embedding = Annotated[
    str | None,
    typer.Option("--model", help="Embedding model (model@Vendor). Default: the tenant's first one.", metavar="MODEL"),
]
WordsOnly = Annotated[bool, typer.Option("--words-only", help="Store no vectors; searches match words only.")]
