"""Another program's `fn-bot` and `fn-callback`, written from the published description alone.

It knows nothing of jobwire: task objects in a bucket, a webhook, plain overwriting writes. Started
as a process; `POST /bot` takes a photo, every other path is the callback.
"""

import base64
import json
import sys
import urllib.request
import uuid
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from botocore.exceptions import ClientError

CONFIG: dict[str, Any] = json.loads(sys.argv[1])
S3: Any = boto3.client(
    "s3",
    endpoint_url=CONFIG["endpoint"],
    aws_access_key_id=CONFIG["access_key"],
    aws_secret_access_key=CONFIG["secret_key"],
    region_name="us-east-1",
)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def post(url: str, body: Any, **headers: str) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def put_json(key: str, value: Any) -> None:
    S3.put_object(
        Bucket=CONFIG["bucket"],
        Key=key,
        Body=json.dumps(value).encode(),
        ContentType="application/json; charset=utf-8",
    )


def fn_bot(update: dict[str, Any]) -> None:
    key = f"images/input/{datetime.now(UTC):%Y/%m/%d}/{uuid.uuid4()}.png"
    photo = base64.b64decode(update["photo"])
    S3.put_object(Bucket=CONFIG["bucket"], Key=key, Body=photo, ContentType="image/png")
    url = S3.generate_presigned_url(
        "get_object", Params={"Bucket": CONFIG["bucket"], "Key": key}, ExpiresIn=3600
    )
    prediction = post(
        f"{CONFIG['replicate']}/v1/predictions",
        {
            "version": "owner/model",
            "input": {"image": url},
            "webhook": CONFIG["webhook"],
            "webhook_events_filter": ["completed"],
        },
        authorization=f"Bearer {CONFIG['token']}",
    )
    task: dict[str, Any] = {
        "prediction_id": prediction["id"],
        "chat_id": update["chat_id"],
        "user_id": update["user_id"],
        "mode": "process_photo",
        "created_at": now(),
    }
    if update["form"] == "minimal":
        task["input_s3_key"] = key
    else:
        task |= {
            "telegram": {"file_id": "AgACAgIA", "message_id": update["message_id"]},
            "input": {"s3_key": key, "mime": "image/png", "size_bytes": len(photo)},
            "replicate": {
                "model": "owner/model",
                "version": "model_version_hash",
                "webhook_events_filter": ["completed"],
            },
            "status": "queued",
            "updated_at": now(),
            "result": {"output_url": None, "output_s3_key": None},
            "error": {"code": None, "message": None},
        }
    put_json(f"tasks/{prediction['id']}.json", task)


def fn_callback(prediction: dict[str, Any]) -> None:
    key = f"tasks/{prediction['id']}.json"
    try:
        task = json.loads(S3.get_object(Bucket=CONFIG["bucket"], Key=key)["Body"].read())
    except ClientError:
        return
    if task.get("status") in ("succeeded", "failed"):
        return
    with urllib.request.urlopen(prediction["output"][0], timeout=30) as answer:
        picture = answer.read()
    output = f"images/output/{datetime.now(UTC):%Y/%m/%d}/{prediction['id']}.png"
    S3.put_object(Bucket=CONFIG["bucket"], Key=output, Body=picture, ContentType="image/png")
    task["status"] = "succeeded"
    task["updated_at"] = now()
    task["result"] = {"output_url": prediction["output"][0], "output_s3_key": output}
    put_json(key, task)
    shown = base64.b64encode(picture).decode()
    post(f"{CONFIG['chat']}/send_picture", {"chat_id": task["chat_id"], "picture": shown})


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        (fn_bot if self.path == "/bot" else fn_callback)(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()
