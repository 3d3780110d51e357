"""Serves the page, and passes a job's events on to it: `uvicorn examples.page.serve:app`.

The gateway answers to its own origin only, so a page of yours asks your app, and your app asks the
gateway (with a key, where it asks for one: `JOBWIRE_API_KEY`). A browser that loses its connection
comes back with the id of the last event it saw; so the page misses nothing either.
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
            if event.id:  # only the word of a gap has none
                yield f"id: {event.id}\n".encode()
            yield f"event: {event.type}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")
