"""Which paths are there, and how do their failures end?

The framework routes and documents; what must hold for every byte that comes in (authentication,
size, host) is done before it, in ``auth``. Nothing of the framework's own answers is left: its
404, 405 and 422 would come in another form, or repeat what was sent.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.routing import Route

from executor.api import events, hooks, runs, schemas, status, stream
from executor.api.problems import MEDIA_TYPE, Problem, problem_of
from executor.api.service import Service
from executor.errors import ExecutorError, Fault

TITLE = "hook-executor"
_DESCRIPTION = (
    "Hooks are managed, events come in, runs are told. Every request needs a bearer token with the "
    "scope `read`, `write` or `emit`; on the Unix socket the peer's uid is enough. Failures are "
    "`application/problem+json` and never repeat a rejected value."
)


def build_app(service: Service | None = None) -> FastAPI:
    """The application; without a service only its document can be had."""
    app = FastAPI(
        title=TITLE,
        version="1",
        description=_DESCRIPTION,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    # The stream first: its path has one segment more than none of the others' patterns.
    for part in (status, hooks, stream, events, runs):
        app.include_router(part.router)
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(ExecutorError, _error)
    app.add_exception_handler(Exception, _error)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = made.setdefault("components", {})
        components["schemas"] = {"Problem": schemas.PROBLEM}
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in made["paths"].items():
            for operation in operations.values():
                for unused in ("422",):
                    _mend(operation["responses"], unused)
                operation["security"] = [] if path == "/healthz" else [{"token": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _mend(responses: dict[str, Any], code: str) -> None:
    """The framework documents a 422 of its own form, which it never sends here."""
    told = responses.get(code, {}).get("content", {}).get("application/json")
    if told is not None:
        reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
        responses[code] = {"description": "Not valid.", "content": {MEDIA_TYPE: reference}}


def _answered(problem: Problem) -> Response:
    return Response(
        problem.body(), problem.status, media_type=MEDIA_TYPE, headers=dict(problem.headers)
    )


async def _problem(request: Request, problem: Exception) -> Response:
    del request
    assert isinstance(problem, Problem)  # noqa: S101  (registered for it)
    return _answered(problem)


async def _error(request: Request, failure: Exception) -> Response:
    del request
    return _answered(problem_of(failure) or Problem(500))


async def _http(request: Request, failure: Exception) -> Response:
    """The router's own: no such path, no such method."""
    assert isinstance(failure, HTTPException)  # noqa: S101  (registered for it)
    headers = dict(failure.headers or {})
    if failure.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The router names the methods of the first route alone.
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return _answered(Problem(failure.status_code, headers=headers))


def _methods(request: Request) -> set[str]:
    return {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.path_regex.match(request.scope["path"])
        for method in route.methods or ()
    }


async def _invalid(request: Request, failure: Exception) -> Response:
    """A parameter of the query that is not legal. Its name is ours, its value is not repeated."""
    del request
    assert isinstance(failure, RequestValidationError)  # noqa: S101  (registered for it)
    faults = [
        Fault("", f"{error['loc'][-1]} {_WHY.get(error['type'], 'is not valid')}")
        for error in failure.errors()
    ]
    return _answered(Problem(422, faults=faults))


_WHY = {
    "int_parsing": "must be a whole number",
    "bool_parsing": "must be true or false",
    "string_too_long": "is too long",
    "greater_than_equal": "is too small",
    "less_than_equal": "is too large",
}
