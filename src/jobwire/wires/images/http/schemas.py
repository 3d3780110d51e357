"""Request and response bodies of the images API, as types."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

PATH: Final = "/v1/images"
_ID: Final = "0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"
_MOMENT: Final = "2026-02-24T10:00:00Z"


def _example(example: dict[str, Any], **more: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [example]}, **more)


FileName = Annotated[str, StringConstraints(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]


class NewImage(BaseModel):
    """An upload that is announced."""

    model_config = _example(
        {"content_type": "image/jpeg", "size": 2483112, "filename": "holiday.jpg"}, extra="forbid"
    )
    content_type: Literal["image/jpeg", "image/png", "image/webp"]
    size: int | None = Field(default=None, ge=1, description="in bytes")
    filename: FileName = ""


class ImageUpload(BaseModel):
    """Where and how to send the photo: `PUT upload_url` with `Authorization: Bearer token`."""

    model_config = _example(
        {
            "image_id": _ID,
            "upload_url": f"http://localhost:8080/v1/uploads/{_ID}",
            "token": "eyJhbGciOiJFZERTQSJ9.e30.c2ln",
            "expires_at": _MOMENT,
            "max_size": 10485760,
        }
    )
    image_id: str
    upload_url: str
    token: str
    expires_at: datetime
    max_size: int = Field(description="the largest photo, in bytes")


class ImageFailure(BaseModel):
    """Why an image failed."""

    code: str
    message: str


class ImageInfo(BaseModel):
    """An image. `url` is there once it is ready, and valid until `url_expires_at`."""

    model_config = _example(
        {
            "image_id": _ID,
            "status": "ready",
            "filename": "holiday.jpg",
            "created_at": _MOMENT,
            "updated_at": _MOMENT,
            "url": f"https://bucket.example.com/images/{_ID}.webp?X-Amz-Signature=…",
            "url_expires_at": _MOMENT,
            "content_type": "image/webp",
            "file_size": 245760,
            "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "width": 1920,
            "height": 1440,
            "original_width": 4032,
            "original_height": 3024,
        }
    )
    image_id: str
    status: Literal["processing", "ready", "failed"]
    filename: str
    created_at: datetime
    updated_at: datetime
    url: str | None = None
    url_expires_at: datetime | None = None
    content_type: str | None = None
    file_size: int | None = None
    sha256: str | None = None
    width: int | None = None
    height: int | None = None
    original_width: int | None = None
    original_height: int | None = None
    error: ImageFailure | None = None
    stage: str | None = Field(default=None, description="while it is processed, if it is known")
    progress: int | None = Field(default=None, description="of that stage, in percent")


class ImageList(BaseModel):
    """A page of images, newest first; `cursor` leads to the next one."""

    images: list[ImageInfo]
    cursor: str | None = None
    max_size: int = Field(description="the largest photo that may be uploaded, in bytes")
