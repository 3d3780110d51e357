"""Serves the page and forwards a job's events to it: `uvicorn examples.page.serve:app`.

The gateway serves only its own origin, so the page calls this app, and the app calls the gateway
(with `JOBWIRE_API_KEY`, if keys are configured). A browser that loses its connection reconnects
with the id of the last event, so the page misses no event.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import FastAPI, Header
from fastapi.responses import FileResponse, StreamingResponse

from jobwire import AsyncClient

app = FastAPI()
jobs = AsyncClient()


@app.get("/")
async def page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("page.html"))


@app.post("/count")
async def count() -> dict[str, str]:
    return {"job_id": (await jobs.submit("count", {"to": 5})).job_id}


@app.get("/count/{job_id}/events")
async def events(
    job_id: str, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    async def lines() -> AsyncIterator[bytes]:
        async for event in jobs.events(job_id, after=last_event_id):
            if event.id:  # a gap has no id
                yield f"id: {event.id}\n".encode()
            yield f"event: {event.type}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")
