"""Writes the events of a `chat` job to one stream as OpenAI's chunks.

A chunk cannot be taken back: an answer that starts anew after text was sent, in the same run or in
a later one, ends with an error, and text that may be replaced is held until the job has ended.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from jobwire.api import openai as api
from jobwire.gateway.sse import EventStream, SseEvent
from jobwire.systems.jobs.events import StreamEvent
from jobwire.systems.jobs.http import openai_answers
from jobwire.systems.jobs.http.openai_answers import ChunkWriter, server_error

_DONE: Final = SseEvent(None, b"[DONE]")
_encode = msgspec.json.Encoder().encode


class ChunkReader:
    """Reads the events of a job, as a subscription of the follower."""

    def __init__(
        self, stream: EventStream, writer: ChunkWriter, *, has_usage: bool, holds_text: bool
    ) -> None:
        self._stream = stream
        self._writer = writer
        self._has_usage = has_usage
        self._holds_text = holds_text
        self._has_text = False
        self._is_finishing = False
        self.on_done: Callable[[], object] = self._stream.end
        self.is_over = False
        """Whether the job has ended, or needs no cancellation."""
        self._stream.push(_event(writer.first()))

    @property
    def closed(self) -> bool:
        return self._stream.closed or self._stream.ending

    def push(self, event: StreamEvent) -> bool:
        answer = self._answer(event)
        if answer is not None and not self._stream.push(_event(answer)):
            return False
        self._has_text |= event.kind == "token" and not self._holds_text
        self.is_over |= event.is_terminal
        if event.kind == "done":
            self._is_finishing = True
            self.on_done()
        elif event.is_terminal or (event.kind == "reset" and self._has_text):
            self._stream.end()
        return True

    async def finish(self, result: Mapping[str, Any]) -> None:
        """Write the last chunks."""
        if self._holds_text and (text := str(result.get("text", ""))):
            await self._write(_event(self._writer.chunk(api.ChunkDelta(content=text))))
        for each in self._writer.last(result, has_usage=self._has_usage):
            await self._write(_event(each))
        await self._write(_DONE)
        self._stream.end()

    async def _write(self, event: SseEvent) -> None:
        await self._stream.wait_writable()
        self._stream.push(event)

    def fail(self, code: str, message: str) -> None:
        """End the stream with an error."""
        self._stream.push(_event(server_error(code, message)))
        self._stream.end()

    def send_gap(self) -> bool:
        return self._stream.push(_event(server_error("server_error", "events are missing")))

    def send_rollback(self, to: str) -> bool:  # noqa: ARG002 - the answer has one text
        """The job was released, retried or taken over, and its next run begins anew."""
        if not self._has_text:
            return True
        text = "the answer was interrupted and starts anew; repeat the request"
        if not self._stream.push(_event(server_error("server_error", text))):
            return False
        self._stream.end()
        return True

    def end(self) -> None:
        self.is_over = True
        if not self._is_finishing:
            self._stream.end()

    async def wait_writable(self) -> None:
        await self._stream.wait_writable()

    def _answer(self, event: StreamEvent) -> object:
        match event.kind:
            case "token" if not self._holds_text:
                text = str(_data(event).get("text", ""))
                return self._writer.chunk(api.ChunkDelta(content=text))
            case "reasoning":
                text = str(_data(event).get("text", ""))
                return self._writer.chunk(api.ChunkDelta(reasoning_content=text))
            case "reset" if self._has_text:
                return server_error(
                    "server_error", "the model's server failed in mid-answer; retry"
                )
            case "error":
                error = _data(event)
                return openai_answers.error_of(error.get("error") or error)[1]
            case "canceled":
                return server_error("canceled", "the job was canceled")
            case _:
                return None


def _event(answer: object) -> SseEvent:
    return SseEvent(None, _encode(answer))


def _data(event: StreamEvent) -> dict[str, Any]:
    read: object = msgspec.json.decode(event.data)
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}
