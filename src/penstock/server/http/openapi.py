"""The OpenAPI document, made of the operations and of the structs that validate their requests."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from penstock import __version__
from penstock.server.http.docs_page import DOCS_PAGE
from penstock.server.http.operations import JSON, NoQuery, Operation, OperationTable
from penstock.server.http.problem import PROBLEM_JSON, ProblemBody
from penstock.server.http.security_headers import DOCS_POLICY

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)(:\w+)?}")
INTEGERS = ("partition", "offset")


def openapi_document(families: Iterable[OperationTable]) -> dict[str, Any]:
    """The document of these operations."""
    tables = list(families)
    operations = [operation for table in tables for operation in table]
    kinds = [kind for one in operations for kind in (one.query, one.body, one.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components([*kinds, ProblemBody], ref_template=_REF)
    by_kind = dict(zip([*kinds, ProblemBody], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    # A handler may have several paths.
    names: Counter[str] = Counter()
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        name = operation.handler.__name__
        names[name] += 1
        if names[name] > 1:
            name = f"{name}_{names[name]}"
        described = _operation(operation, name, by_kind, components)
        paths.setdefault(path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "description": "Topics as logs and as work queues, over HTTP. `/api/v1` is the same as `/v1`.",
        },
        "tags": [{"name": table.tag, "description": table.about} for table in tables],
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(
    operation: Operation, name: str, kinds: dict[Any, Any], components: dict[str, Any]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": name,
        "responses": {
            str(operation.status): _success(operation, kinds),
            "default": {
                "description": "An error",
                "content": {PROBLEM_JSON: {"schema": kinds[ProblemBody]}},
            },
        },
    }
    parameters = [_path_parameter(match[1]) for match in _PARAMETER.finditer(operation.path)]
    if operation.query is not NoQuery:
        parameters += _query_parameters(components[operation.query.__name__])
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        types = (JSON, *operation.takes)
        described["requestBody"] = {
            "required": not operation.may_lack_body,
            "content": {
                kind: {"schema": kinds[operation.body] if kind == JSON else {"type": "string"}}
                for kind in types
            },
        }
    return described


def _success(operation: Operation, kinds: dict[Any, Any]) -> dict[str, Any]:
    if operation.status == 204:
        return {"description": "Done"}
    schema = {} if operation.answer is None else kinds[operation.answer]
    return {"description": "Done", "content": {operation.returns: {"schema": schema}}}


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 0} if name in INTEGERS else {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": about}
        for name, about in schema["properties"].items()
    ]


def openapi_routes(families: Iterable[OperationTable]) -> list[BaseRoute]:
    """The document at /openapi.json, and a page to try it at /docs."""
    tables = tuple(families)
    document: list[bytes] = []

    async def openapi(_: Request) -> Response:
        if not document:
            document.append(msgspec.json.encode(openapi_document(tables)))
        return Response(document[0], media_type=JSON)

    async def docs(_: Request) -> Response:
        return Response(DOCS_PAGE, 200, {"content-security-policy": DOCS_POLICY}, "text/html")

    return [Route("/openapi.json", openapi), Route("/docs", docs)]
