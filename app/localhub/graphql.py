"""The part of GitHub's GraphQL API that the service and `gh` use, executed by graphql-core."""

from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from graphql import (
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLSyntaxError,
    build_schema,
    get_operation_ast,
    graphql_sync,
    is_abstract_type,
    parse,
)
from pydantic import BaseModel

from app.localhub.errors import ApiError
from app.localhub.resolvers import RESOLVERS, type_of
from app.localhub.rest.dependencies import caller_of, context_of
from app.localhub.transaction import transaction

router = APIRouter()
SCHEMA = Path(__file__).with_name("schema.graphql")


@cache
def schema() -> GraphQLSchema:
    """The schema with its resolvers."""
    built = build_schema(SCHEMA.read_text())
    for type_name, fields in RESOLVERS.items():
        kind = built.type_map[type_name]
        if not isinstance(kind, GraphQLObjectType):
            raise TypeError(f"{type_name} is no object type")
        for field_name, resolver in fields.items():
            kind.fields[field_name].resolve = resolver
    for kind in built.type_map.values():
        if is_abstract_type(kind):
            kind.resolve_type = type_of  # type: ignore[union-attr]
    return built


class Query(BaseModel):
    """A GraphQL request."""

    query: str
    variables: dict[str, Any] | None = None
    operationName: str | None = None  # noqa: N815 - GraphQL's name


@router.post("/graphql")
def post_graphql(request: Request, body: Query) -> JSONResponse:
    """Execute one operation; problems of the query are a 200 with `errors`, as everywhere in GraphQL."""
    mutation = _is_mutation(body)
    with transaction(context_of(request), write=mutation, actor=caller_of(request)) as tx:
        if tx.actor.kind in ("anonymous", "app"):
            raise ApiError(401, "This endpoint requires you to be authenticated.")
        done = graphql_sync(
            schema(),
            body.query,
            context_value=tx,
            variable_values=body.variables,
            operation_name=body.operationName,
        )
        if done.errors and mutation:
            tx.session.rollback()
    reply: dict[str, Any] = {"data": done.data}
    if done.errors:
        reply["errors"] = [_shown(error.formatted) for error in done.errors]
    return JSONResponse(reply)


def _is_mutation(body: Query) -> bool:
    try:
        operation = get_operation_ast(parse(body.query), body.operationName)
    except GraphQLSyntaxError:
        return False  # execution will report it
    return operation is not None and operation.operation.value == "mutation"


def _shown(formatted: Any) -> dict[str, Any]:
    """GitHub puts the error's type at its top level, not below `extensions`."""
    extensions = formatted.get("extensions") or {}
    shown = {key: value for key, value in formatted.items() if key != "extensions"}
    return {"type": extensions["type"], **shown} if "type" in extensions else shown
