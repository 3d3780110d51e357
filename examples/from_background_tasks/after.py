"""After: the function is a handler, and the request submits a job.

    uvicorn examples.from_background_tasks.after:web --port 8000     the web process
    jobwire worker examples.from_background_tasks.after:app          runs the jobs

The change is one decorator and one call. The job survives restarts of both processes, is retried,
can be followed and canceled, and has a result.
"""

from fastapi import FastAPI

from jobwire import App, AsyncClient

web = FastAPI()
app = App()


@app.handler("send_report", retries=3, timeout_s=60)
def send_report(payload: dict[str, str]) -> dict[str, str]:
    return {"sent_to": payload["address"]}


@web.post("/reports", status_code=202)
async def report(address: str) -> dict[str, str]:
    async with AsyncClient() as jobs:
        job = await jobs.submit("send_report", {"address": address})
    return {"status": "will be sent", "job_id": job.job_id}
