"""The route that tests the database connection of an ExeSQL node."""

import asyncio
from typing import ClassVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from api.http.errors import ARGUMENT, DATA, RequestRefused
from api.http.replies import success
from api.http.schemas import Body, NoEffect
from api.requests.auth import ApiTokenCaller
from api.requests.dependencies import ApiContextDep
from api.requests.request_bodies import SmallBody, body_openapi, ignored_field_warnings, parse_body, validate_fields
from api.requests.scopes import NEEDS_EDIT
from canvas.errors import AddressRefused, ToolError
from components.tools.sql.exesql import ExeSQLParams
from providers.interfaces import Databases
from store.agents import canvas_secrets

router = APIRouter(tags=["tools"], dependencies=[NEEDS_EDIT])

SECONDS = 10.0
FORM_FIELDS = ("sql", "top_n", "loop", "max_records", "inputs", "outputs", "description")
"""The other fields of the ExeSQL form, which RAGFlow's front end sends as well."""

REQUIRED_FIELDS = ("db_type", "database", "username", "host", "port", "password")


class DatabaseCheckBody(Body):
    """A database with the parameters of ExeSQL."""

    without_effect: ClassVar[NoEffect] = {
        **dict.fromkeys(ExeSQLParams.model_fields, ()),
        **dict.fromkeys(FORM_FIELDS, ()),
    }

    db_type: str
    database: str
    username: str
    host: str
    port: int = Field(ge=1, le=65535)
    password: str = Field(repr=False)


@router.post("/agents/test_db_connection", openapi_extra=body_openapi(DatabaseCheckBody))
async def try_database(
    request: Request, context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody
) -> Response:
    """Connect to a database and run `SELECT 1`. The address is checked like those of nodes."""
    lacking = [name for name in REQUIRED_FIELDS if body.get(name) is None]
    if lacking:
        raise RequestRefused(ARGUMENT, f"required argument are missing: {','.join(lacking)}; ")
    fields = parse_body(DatabaseCheckBody, body)
    if canvas_secrets.is_mask(fields.password):
        raise RequestRefused(ARGUMENT, "The password is masked. Enter it to test the connection.")
    databases: Databases = request.app.state.databases
    params = validate_fields(ExeSQLParams, fields.model_dump())
    target = {**{name: getattr(params, name) for name in REQUIRED_FIELDS}, "timeout": SECONDS}
    try:
        async with asyncio.timeout(SECONDS), databases.connect(target) as connection:
            await connection.execute("SELECT 1", 1)
    except (AddressRefused, ToolError) as failure:
        raise RequestRefused(DATA, failure.message) from failure
    except TimeoutError as failure:
        raise RequestRefused(DATA, f"The database did not answer within {SECONDS:g} s.") from failure
    return success("Database Connection Successful!", **ignored_field_warnings(DatabaseCheckBody, body))
