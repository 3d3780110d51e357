"""Serves the operations of `api`: the one kind of route.

    serve(api.CANCEL, self.cancel)
    serve(api.CHAT, self.chat, refuse=openai_error)
    serve(api.REPLICATE_HOOK, take, verify=is_replicate)

An endpoint is an async function of the request and of what its operation declares, in this order
and under these names: each path parameter, `query`, `body`. Underscores around a name do not count.

    async def list(self, request: HttpRequest, query: JobFilter) -> JobPage: ...
    async def cancel(self, request: HttpRequest, id_: str) -> Reply: ...
    async def submit(self, request: HttpRequest, body: SubmitRequest) -> Reply: ...

It returns the answer of the operation; a `Reply`, for another status or headers (`reply`); or None
if it has responded itself (an event stream), or if the operation's status is 204. It may raise a
`Problem`. The type checker compares what it returns with the operation, `serve` its arguments.
"""

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from jobwire.api.operation import Either, Method, Operation, Proof
from jobwire.api.problems import INVALID_JSON, ProblemKind
from jobwire.gateway.access import Access, SelfAuthenticated, Verify
from jobwire.gateway.problems import Headers, Problem, invalid_body
from jobwire.gateway.query_reader import QueryReader
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.json_depth import is_too_deep

A = TypeVar("A")
B = TypeVar("B")
Endpoint = Callable[[HttpRequest], Awaitable[Reply | None]]
Refuse = Callable[[Problem], Reply]
"""Makes the response of a problem in the form of another API."""

_encode = msgspec.json.Encoder().encode
_AT_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_NOT_JSON: Final = (b"NaN", b"Infinity")
# The first half of a surrogate pair without the second; each `\\` before it is one character.
_LONE_SURROGATE: Final = re.compile(
    rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


class Route:
    """One operation and its endpoint; made by `serve`."""

    __slots__ = (
        "access",
        "cors",
        "endpoint",
        "label",
        "max_body",
        "method",
        "operation",
        "path",
        "refuse",
        "stream",
    )

    def __init__(
        self,
        operation: Operation[Any],
        access: Access,
        endpoint: Endpoint,
        refuse: Refuse | None = None,
    ) -> None:
        self.operation = operation
        self.access: Access = access
        self.endpoint = endpoint
        self.refuse = refuse
        # Copied: they are read for every request.
        self.method: Method = operation.method
        self.path = operation.path
        self.label = operation.label
        self.stream = operation.stream
        self.max_body = operation.max_body
        self.cors = operation.cors


def serve(
    operation: Operation[A],
    endpoint: Callable[..., Awaitable[A | Reply | None]],
    *,
    verify: Verify | None = None,
    refuse: Refuse | None = None,
) -> Route:
    """The route of an operation; TypeError if the endpoint does not fit it.

    `verify` admits the requests of an operation whose access is a `Proof`, which cannot be served
    without. `refuse` makes the responses of all problems of a request to its path. A decorator
    around an endpoint keeps its signature by `functools.wraps`.
    """
    _check_signature(operation, endpoint)
    call = _in_shape(operation, endpoint)
    if operation.status == 204:
        call = _empty_by_default(call)
    return Route(operation, _access(operation, verify), call, refuse)


def reply(answer: object, status: int = 200, headers: Headers = ()) -> Reply:
    """An answer with another status than its operation's, or with headers."""
    return Reply(_encode(answer), status, headers)


def read_body(
    decode: Callable[[bytes], B],
    body: bytes,
    too_deep: ProblemKind = INVALID_JSON,
    place: str = "",
) -> B:
    """The decoded body, or its part at the JSON pointer `place`; raises Problem for the first
    fault."""
    if is_too_deep(body):
        raise Problem(too_deep, "the body is nested too deeply")
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        decoder = getattr(decode, "__self__", None)
        raise invalid_body(error, place, getattr(decoder, "type", None)) from None
    except UnicodeDecodeError:
        raise Problem(INVALID_JSON, "the body is not valid UTF-8") from None
    except msgspec.DecodeError as error:
        raise Problem(INVALID_JSON, _malformed(str(error), body)) from None


def _access(operation: Operation[Any], verify: Verify | None) -> Access:
    proof = operation.access
    if isinstance(proof, Proof):
        if verify is None:
            raise TypeError(f"{operation.label}: an operation with a Proof needs a verifier")
        return SelfAuthenticated(verify, proof.scheme, proof.security, proof.problems)
    if verify is not None:
        raise TypeError(f"{operation.label} has the scope {proof!r}, and so no verifier")
    return proof


def _check_signature(operation: Operation[Any], endpoint: Callable[..., object]) -> None:
    """Compare the names of the arguments without the underscores of `_request` and `id_`."""
    expected = ["request", *operation.parameters]
    expected += ["query"] if operation.query is not None else []
    expected += ["body"] if operation.body is not None else []
    given = [name.strip("_") for name in inspect.signature(endpoint).parameters]
    if given != expected:
        raise TypeError(
            f"{operation.label}: its endpoint must have the arguments ({', '.join(expected)}), "
            f"and has ({', '.join(given)})"
        )


def _in_shape(operation: Operation[Any], endpoint: Callable[..., Awaitable[Any]]) -> Endpoint:
    """The endpoint as a function of the request: one for each shape of arguments, so that a route
    pays for nothing that it does not have. The two most frequent shapes have functions of their
    own: `*request.params` costs as much as a coroutine's start."""
    status, too_deep = operation.status, operation.too_deep
    count = len(operation.parameters)
    read = QueryReader(operation.query).read if operation.query is not None else None
    decode = _decoder(operation.body) if operation.body is not None else None
    if decode is not None and not operation.body_required:
        decode = _none_if_empty(decode)

    if read is None and decode is None and count == 1:

        async def with_parameter(request: HttpRequest) -> Reply | None:
            answer = await endpoint(request, request.params[0])
            if answer is None or type(answer) is Reply:
                return answer
            return Reply(_encode(answer), status)

        return with_parameter

    if read is None and decode is None:

        async def without_both(request: HttpRequest) -> Reply | None:
            answer = await endpoint(request, *request.params)
            if answer is None or type(answer) is Reply:
                return answer
            return Reply(_encode(answer), status)

        return without_both

    if decode is None:
        assert read is not None

        async def with_query(request: HttpRequest) -> Reply | None:
            answer = await endpoint(request, *request.params, read(request))
            if answer is None or type(answer) is Reply:
                return answer
            return Reply(_encode(answer), status)

        return with_query

    if read is None and count == 0:

        async def with_body_only(request: HttpRequest) -> Reply | None:
            body = read_body(decode, await request.body(), too_deep)
            answer = await endpoint(request, body)
            if answer is None or type(answer) is Reply:
                return answer
            return Reply(_encode(answer), status)

        return with_body_only

    if read is None:

        async def with_body(request: HttpRequest) -> Reply | None:
            body = read_body(decode, await request.body(), too_deep)
            answer = await endpoint(request, *request.params, body)
            if answer is None or type(answer) is Reply:
                return answer
            return Reply(_encode(answer), status)

        return with_body

    async def with_both(request: HttpRequest) -> Reply | None:
        query = read(request)
        body = read_body(decode, await request.body(), too_deep)
        answer = await endpoint(request, *request.params, query, body)
        if answer is None or type(answer) is Reply:
            return answer
        return Reply(_encode(answer), status)

    return with_both


def _empty_by_default(call: Endpoint) -> Endpoint:
    """Of an operation with the status 204, None is the answer."""

    async def answering(request: HttpRequest) -> Reply | None:
        answer = await call(request)
        if answer is None and not request.status:
            await request.reply_nothing()
        return answer

    return answering


def _decoder(body: Any) -> Callable[[bytes], Any]:
    """Of whatever type the operation declares."""
    if not isinstance(body, Either):
        return msgspec.json.Decoder(body).decode
    return _EitherDecoder(body).decode


class _EitherDecoder:
    """Decodes a body of two types by the one that is meant."""

    def __init__(self, body: Either) -> None:
        self._by = body.by
        # Reads this member only: a body may have a million others.
        member = (body.by, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)
        self._peek = msgspec.json.Decoder(msgspec.defstruct("Peek", [member])).decode
        self._given = msgspec.json.Decoder[object](body.given)
        self._other = msgspec.json.Decoder[object](body.other)
        self.type: object = body.other
        """That of the last body, for the text of its fault."""

    def decode(self, content: bytes) -> object:
        has_member = getattr(self._peek(content), self._by) is not msgspec.UNSET
        decoder = self._given if has_member else self._other
        self.type = decoder.type
        return decoder.decode(content)


def _none_if_empty(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """The decoder of a body that may be absent."""
    return lambda content: decode(content) if content else None


def _malformed(fault: str, body: bytes) -> str:
    """What is wrong with text that is not JSON; msgspec's words mislead in two cases."""
    if "surrogate" in fault or ("truncated" in fault and _LONE_SURROGATE.search(body)):
        return "a string has one half of a surrogate pair, which is not a character"
    found = _AT_BYTE.search(fault)
    if found is not None and body.startswith(_NOT_JSON, int(found[1])):
        return f"NaN and Infinity are not JSON {found[0]}"
    return fault
