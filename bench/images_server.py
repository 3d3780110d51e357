"""One receiver of uploads in its own process: `python -m bench.images_server NAME FOLDER PORT URL`.

bare      an ASGI app on uvicorn that streams the body to a file, and waits for the disk
gateway   the upload route of images: token, claim, spool; nothing is processed
"""

import asyncio
import os
import secrets
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from jobwire.gateway.app import Gateway
from jobwire.gateway.feature import Feature
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse_connections import SseConnections
from jobwire.local.listen import listen
from jobwire.systems.images.contract import ImageKeys
from jobwire.systems.images.http.uploads import upload_route
from jobwire.systems.images.scripts import SCRIPTS
from jobwire.systems.images.spool import Spool
from jobwire.systems.images.status import ImageStatus
from jobwire.systems.images.tokens import TokenVerifier, read_public_key
from jobwire.systems.images.uploads import UploadIntake, UploadLimits
from jobwire.valkey import Connection

_MAX_BYTES = 10 << 20


def _bare(folder: Path) -> Any:
    async def app(_: dict[str, Any], receive: Any, send: Any) -> None:
        path = folder / secrets.token_hex(8)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        while (message := await receive()).get("more_body"):
            os.write(file, message["body"])
        os.write(file, message["body"])
        await asyncio.to_thread(os.fsync, file)
        os.close(file)
        path.unlink()
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


async def _decodable() -> Collection[str]:
    return ("image/jpeg",)


async def _gateway(folder: Path, port: int, url: str) -> None:
    settings = GatewaySettings()
    streams = SseConnections(settings)
    async with Connection.open(url, name="bench-images") as connection:
        await connection.load_scripts(SCRIPTS.values())
        spool = Spool(folder / "spool")
        intake = UploadIntake(
            ImageStatus(connection, ImageKeys()),
            spool,
            TokenVerifier(read_public_key(str(folder / "public.pem"))),
            sniff=lambda _: "image/jpeg",
            limits=UploadLimits(),
            decodable=_decodable,
            unavailable=lambda: None,
            accepted=spool.remove,
        )
        feature = Feature(name="bench", routes=[upload_route(intake, _MAX_BYTES)])
        gateway = Gateway(settings, [feature], streams, version="0")
        await HttpServer(gateway, settings).run_until_stopped(listen("127.0.0.1", port))


def main(name: str, folder: Path, port: int, url: str) -> None:
    if name == "bare":
        uvicorn.run(_bare(folder), port=port, lifespan="off", log_level="error", access_log=False)
    else:
        uvloop.run(_gateway(folder, port, url))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
