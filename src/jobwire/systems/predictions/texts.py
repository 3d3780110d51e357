"""What the user reads (P-18): English or Russian by the user's language. Pure.

A provider's own error text is never shown: it may hold inner addresses.
"""

from __future__ import annotations

from typing import Final

from jobwire.systems.predictions.contract import TaskErrorCode

_HELP: Final = (
    (
        "Send me a photo and I will send back what the model makes of it.\n"
        "The caption of the photo is the prompt. Photos in JPEG or PNG, at most {limit_mb} MB.\n"
        "/mode shows the model."
    ),
    (
        "Пришлите фото, и я верну то, что из него сделает модель.\n"
        "Подпись к фото станет запросом. Фото в JPEG или PNG, не больше {limit_mb} МБ.\n"
        "/mode покажет модель."
    ),
)
_MODE: Final = ("The model is {model}.", "Модель: {model}.")
_RECEIVED: Final = ("Photo received.", "Фото получено.")
_RESULT: Final = ("Your picture.", "Ваша картинка.")
_LINK: Final = (
    "Your result is a file. Download it soon, it is not kept for long:\n{url}",
    "Результат — файл. Скачайте его поскорее, он хранится недолго:\n{url}",
)

_ERRORS: Final[dict[TaskErrorCode, tuple[str, str]]] = {
    TaskErrorCode.TOO_LARGE: (
        "This photo is too large. Please send one of at most {limit_mb} MB.",
        "Фото слишком большое. Пришлите файл не больше {limit_mb} МБ.",
    ),
    TaskErrorCode.NOT_A_PHOTO: (
        "This is not a photo that I can read. Please send a JPEG or PNG.",
        "Это не похоже на фото. Пришлите JPEG или PNG.",
    ),
    TaskErrorCode.PHOTO_UNAVAILABLE: (
        "I could not download this photo. Please send it again.",
        "Не удалось скачать фото. Пришлите его ещё раз.",
    ),
    TaskErrorCode.TOO_MANY_AT_ONCE: (
        "Too many photos at once. Please wait for the results and send this one again.",
        "Слишком много фото сразу. Дождитесь результатов и пришлите это фото ещё раз.",
    ),
    TaskErrorCode.TOO_MANY_PER_HOUR: (
        "You have reached the limit of photos per hour. Please try again later.",
        "Достигнут лимит фото в час. Попробуйте позже.",
    ),
    TaskErrorCode.TOO_MANY_IN_ALBUM: (
        "I process the first photos of an album only. Please send the others later.",
        "Из альбома я обработаю только первые фото. Остальные пришлите позже.",
    ),
    TaskErrorCode.BUSY: (
        "The service is busy. Please try again later.",
        "Сервис занят. Попробуйте позже.",
    ),
    TaskErrorCode.PROVIDER_ACCOUNT: (
        "Photos are not processed now: the model's provider refuses this bot's account.",
        "Фото сейчас не обрабатываются: сервис модели не принимает аккаунт этого бота.",
    ),
    TaskErrorCode.CONTENT_REFUSED: (
        "The model refused this photo because of its content.",
        "Модель отклонила это фото из-за его содержания.",
    ),
    TaskErrorCode.CANCELED: (
        "The processing was canceled. Please send the photo again.",
        "Обработка отменена. Пришлите фото ещё раз.",
    ),
    TaskErrorCode.TIMEOUT: (
        "The processing took too long. Please send the photo again.",
        "Обработка заняла слишком много времени. Пришлите фото ещё раз.",
    ),
    TaskErrorCode.OUTPUT_EXPIRED: (
        "The result was no longer available. Please send the photo again.",
        "Результат больше недоступен. Пришлите фото ещё раз.",
    ),
    TaskErrorCode.OUTPUT_REFUSED: (
        "The result is not a picture that I can show.",
        "Результат нельзя показать как картинку.",
    ),
    TaskErrorCode.UNDELIVERED: (
        "Your picture is ready, but it could not be delivered. The bot's owner has been told.",
        "Картинка готова, но доставить её не удалось. Владелец бота об этом знает.",
    ),
}
_FAILED: Final = (
    "The photo could not be processed. Please try again later.",
    "Не удалось обработать фото. Попробуйте позже.",
)


def received(language: str) -> str:
    """The placeholder: true whatever happens later, because it may be left in the chat."""
    return _RECEIVED[_column(language)]


def result(language: str) -> str:
    """The text of a further message that becomes a picture."""
    return _RESULT[_column(language)]


def undelivered_alert(prediction_id: str, chat_id: int, key: str) -> str:
    """What the owner of the bot reads about a paid picture that its user did not get."""
    return f"A picture was not delivered: prediction {prediction_id}, chat {chat_id}, object {key}"


def account_alert(reason: str) -> str:
    """What the owner reads when the provider refuses the bot's account."""
    return (
        f"The provider refuses this bot's account: {reason}. Every photo fails until its token or "
        "its billing is repaired."
    )


def link(language: str, url: str) -> str:
    """A result that is no picture for this chat."""
    return _LINK[_column(language)].format(url=url)


def help_text(language: str, *, limit_mb: int) -> str:
    """The answer to /start, /help and to words."""
    return _HELP[_column(language)].format(limit_mb=limit_mb)


def mode(language: str, model: str) -> str:
    """The answer to /mode."""
    return _MODE[_column(language)].format(model=model)


def error(code: TaskErrorCode, language: str, *, limit_mb: int) -> str:
    """A failure in plain words."""
    return _ERRORS.get(code, _FAILED)[_column(language)].format(limit_mb=limit_mb)


def _column(language: str) -> int:
    return 1 if language.lower().split("-")[0] == "ru" else 0
