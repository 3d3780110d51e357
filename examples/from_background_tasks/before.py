"""Before: the work runs in the web process. It is lost at a restart, has no progress and no
retries, and slows the requests down."""

from fastapi import BackgroundTasks, FastAPI

web = FastAPI()
sent: list[str] = []


def send_report(address: str) -> None:
    sent.append(address)


@web.post("/reports", status_code=202)
async def report(address: str, background: BackgroundTasks) -> dict[str, str]:
    background.add_task(send_report, address)
    return {"status": "will be sent"}
