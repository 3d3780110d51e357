"""The key pair of the upload tokens, by the settings.

A key that cannot be used is a SettingsError with the setting and the file.
"""

import contextlib
from collections.abc import Generator
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from jobwire.private_files import read_private, write_private
from jobwire.settings import Settings, SettingsError
from jobwire.systems.images.tokens import (
    BadKey,
    load_private_key,
    new_key_pair,
    public_pem,
    read_private_key,
    read_public_key,
)

__all__ = [
    "PRIVATE_FILE",
    "PUBLIC_FILE",
    "new_key_pair",
    "private_key",
    "public_key",
]

PRIVATE_FILE: Final = "token-private.pem"
PUBLIC_FILE: Final = "token-public.pem"


def private_key(settings: Settings) -> Ed25519PrivateKey:
    """The API's key: of the settings, else of the data dir, where it is made once."""
    if given := settings.images.token_private_key:
        with _naming("images.token_private_key"):
            return read_private_key(given)
    folder = settings.data_dir / "images"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / PRIVATE_FILE
    if not file.exists():
        write_private(file, new_key_pair()[0])
    with _naming(str(file)):
        key = load_private_key(read_private(file))
    write_private(folder / PUBLIC_FILE, public_pem(key))
    return key


def public_key(settings: Settings) -> Ed25519PublicKey:
    """The upload gateway's key: of the settings, else the one that belongs to the API's."""
    if given := settings.images.token_public_key:
        with _naming("images.token_public_key"):
            return read_public_key(given)
    return private_key(settings).public_key()


@contextlib.contextmanager
def _naming(place: str) -> Generator[None]:
    try:
        yield
    except BadKey as error:
        raise SettingsError([f"{place}: {error}"]) from error
