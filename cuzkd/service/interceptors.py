"""What surrounds every handler: statuses for errors, tokens for callers, permits for large messages.

Problem: handlers should read like sentences, and no exception, of whatever kind, may reach a client raw.
Design: handlers raise. `Statuses` is the one place that turns errors into gRPC statuses: ours by their class,
with their code in the trailing metadata (`cuzkd-code`) and their text cut to what metadata holds; anything else
becomes INTERNAL with a reference that the log also has, and no text. `Tokens` finds whose call it is.
`LargeMessages` reads a unary request itself, as a stream of one message (the same on the wire), because only so
can it wait for a byte permit before the message is read.
Life of data: a call passes Statuses, Tokens, LargeMessages, the handler, and comes back the same way.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
import structlog

from cuzkd.errors import CuzkdError, Exhausted, InvalidInput
from cuzkd.service import chunks, owners
from cuzkd.service.conversion import milliseconds
from cuzkd.service.permits import Permits, hold

log = structlog.get_logger()

# Trailing metadata.
CODE_KEY = "cuzkd-code"
RETRY_KEY = "cuzkd-retry-after-ms"
# A message travels in the trailing metadata, where a byte may become three ("%25"). gRPC takes 8 KiB of metadata
# in all; the client of a longer message would get another status, without our code.
MAX_MESSAGE_BYTES = 2048
_OUT_OF_MEMORY = (
    grpc.StatusCode[Exhausted.status],
    "the daemon is out of memory for this call; try again later",
    Exhausted.code,
)

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]]


def cut(message: str) -> str:
    """At most MAX_MESSAGE_BYTES of a message, and a word where that is not all of it; always valid UTF-8."""
    data = message.encode("utf-8", "backslashreplace")
    if len(data) <= MAX_MESSAGE_BYTES:
        return data.decode()
    return data[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore") + " ... (cut)"


def rewrap(handler: grpc.RpcMethodHandler, unary: Callable[..., Any], stream: Callable[..., Any]) -> Any:
    """The same handler, wrapped: by `unary` where it answers once, else by `stream`."""
    for kind in ("unary_unary", "stream_unary", "unary_stream", "stream_stream"):
        behaviour = getattr(handler, kind)
        if behaviour is not None:
            wrap = stream if kind.endswith("_stream") else unary
            make = getattr(grpc, f"{kind}_rpc_method_handler")
            return make(wrap(behaviour), handler.request_deserializer, handler.response_serializer)
    return handler


def _plain(behaviour: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Health and reflection may register plain functions; grpc.aio would run them in a thread."""

    async def call(request: Any, context: Any) -> Any:
        answer = behaviour(request, context)
        return await answer if asyncio.iscoroutine(answer) else answer

    return call


class Statuses(grpc.aio.ServerInterceptor):
    """Errors to statuses, for all methods of all services."""

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        method = details.method

        def unary(behaviour: Callable[..., Any]) -> Callable[..., Any]:
            async def call(request: Any, context: Any) -> Any:
                try:
                    return await _plain(behaviour)(request, context)
                except grpc.aio.AbortError:
                    raise
                except Exception as error:
                    await self._abort(error, method, context)

            return call

        def stream(behaviour: Callable[..., Any]) -> Callable[..., Any]:
            async def call(request: Any, context: Any) -> AsyncIterator[Any]:
                try:
                    answers = behaviour(request, context)
                    if asyncio.iscoroutine(answers):  # a handler that writes to the context itself
                        await answers
                    else:
                        async for answer in answers:
                            yield answer
                except grpc.aio.AbortError:
                    raise
                except Exception as error:
                    await self._abort(error, method, context)

            return call

        return rewrap(handler, unary, stream)

    async def _abort(self, error: Exception, method: str, context: Any) -> None:
        trailing: tuple[tuple[str, str], ...] = ()
        if isinstance(error, CuzkdError):
            code, message, word = grpc.StatusCode[error.status], cut(str(error)), error.code
            if error.retry_after_s is not None:
                trailing = ((RETRY_KEY, str(milliseconds(error.retry_after_s))),)
            log.info("call_refused", method=method, code=word, message=message)
        elif isinstance(error, MemoryError):  # of this call's, and nobody else's
            code, message, word = _OUT_OF_MEMORY
            log.error("call_out_of_memory", method=method, exc_info=error)
        else:
            reference = uuid.uuid4().hex[:12]
            log.error("call_broken", method=method, reference=reference, exc_info=error)
            code, message, word = (
                grpc.StatusCode.INTERNAL,
                f"internal error, in the log as {reference}",
                "internal",
            )
        await context.abort(code, message, trailing_metadata=((CODE_KEY, word), *trailing))


class Tokens(grpc.aio.ServerInterceptor):
    """Every call must carry `authorization: Bearer TOKEN`, and is its owner's. Health checks too: they come from
    outside.
    """

    def __init__(self, tokens: Sequence[owners.Token]) -> None:
        self._tokens = tokens

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Any:
        given = dict(details.invocation_metadata or ()).get("authorization", "")
        owner = owners.find(self._tokens, str(given))
        if owner is not None:
            owners.enter(owner)  # each call has a context of its own, in which its handler runs, too
            return await continuation(details)

        async def refuse(requests: Any, context: Any) -> None:  # as a stream: nothing of the request is read
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "expected metadata authorization: Bearer TOKEN"
            )

        return grpc.stream_stream_rpc_method_handler(refuse)


class LargeMessages(grpc.aio.ServerInterceptor):
    """Permits for the given unary methods."""

    def __init__(self, methods: frozenset[str], permits: Permits) -> None:
        self._methods = methods
        self._permits = permits

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(details)
        if handler is None or details.method not in self._methods:
            return handler
        behaviour, read = handler.unary_unary, handler.request_deserializer

        async def call(requests: AsyncIterator[Any], context: Any) -> Any:
            async with self._permits.take(_peer(context)) as permit:
                hold(permit)
                request, nbytes = await permit.reading(_only(requests))
                permit.arrived(nbytes)
                return await behaviour(request, context)

        def with_size(data: bytes) -> tuple[Any, int]:
            return read(data), len(data)

        return grpc.stream_unary_rpc_method_handler(call, with_size, handler.response_serializer)


class Uploads(grpc.aio.ServerInterceptor):
    """What is uploaded comes to its handler as `chunks.unpack` gives it."""

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(details)
        if handler is None or details.method != chunks.UPLOAD:
            return handler
        return grpc.stream_unary_rpc_method_handler(
            handler.stream_unary, chunks.unpack, handler.response_serializer
        )


async def _only(requests: AsyncIterator[tuple[Any, int]]) -> tuple[Any, int]:
    request = await anext(aiter(requests), None)
    if request is None:
        raise InvalidInput("the call ended without a request")
    return request


def _peer(context: Any) -> str:
    """Who calls, as far as callers are told apart: by owner, else by host. Whoever may open our socket is us."""
    kind, _, rest = str(context.peer()).partition(":")
    host = rest.rpartition(":")[0] if kind in ("ipv4", "ipv6") else ""
    return owners.current() or host
