"""The secrets of the local S3 server: created once, stored in its data directory, mode 600.

Used by `s3.py`. The server's internal ports do not use the S3 credentials: their HTTP side is off
or needs tokens, and their gRPC side needs a certificate of the server's own CA. The CA signs one
certificate; its key is not stored.
"""

from __future__ import annotations

import datetime
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from jobwire.local.errors import ProgramMissing
from jobwire.private_files import read_private, write_private

KEYS_FILE: Final = "keys.json"
AUTHORITY_FILE: Final = "inner-ca.pem"
CERTIFICATE_FILE: Final = "inner.pem"
CERTIFICATE_KEY_FILE: Final = "inner.key"
IDENTITIES_FILE: Final = "s3.json"
SECURITY_FILE: Final = "security.toml"  # the server reads this name from its working directory

_TOKENS: Final = ("signing", "signing.read", "filer_signing", "filer_signing.read")
_PARTS: Final = ("master", "volume", "filer", "s3", "admin", "worker", "client")
# The clock of this machine may be wrong now, and right later.
_VALID_FROM: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_VALID_UNTIL: Final = datetime.datetime(2170, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class S3Keys:
    """Credentials for clients, and tokens for the server's own parts."""

    access_key: str
    secret_key: str
    tokens: Mapping[str, str]

    @classmethod
    def kept(cls, folder: Path) -> Self:
        """The keys of this data directory, created at the first start."""
        try:
            return cls(**json.loads(read_private(folder / KEYS_FILE)))
        except (FileNotFoundError, ValueError, TypeError):
            pass
        keys = cls(
            access_key="JW" + secrets.token_hex(9).upper(),
            secret_key=secrets.token_urlsafe(30),
            tokens={name: secrets.token_urlsafe(32) for name in _TOKENS},
        )
        kept = {
            "access_key": keys.access_key,
            "secret_key": keys.secret_key,
            "tokens": keys.tokens,
        }
        write_private(folder / KEYS_FILE, json.dumps(kept, indent=1))
        return keys

    def write_server_files(self, folder: Path) -> None:
        """Write the server's files; at each start, because the directory may have moved."""
        if not (folder / CERTIFICATE_FILE).exists():
            _create_certificates(folder)
        credentials = {"accessKey": self.access_key, "secretKey": self.secret_key}
        identity = {"name": "jobwire", "credentials": [credentials], "actions": ["Admin"]}
        write_private(folder / IDENTITIES_FILE, json.dumps({"identities": [identity]}))
        tokens = [f'[jwt.{name}]\nkey = "{key}"' for name, key in self.tokens.items()]
        inner = [
            f"[grpc.{part}]\ncert = {_quoted(folder / CERTIFICATE_FILE)}\n"
            f"key = {_quoted(folder / CERTIFICATE_KEY_FILE)}"
            for part in _PARTS
        ]
        authority = f"[grpc]\nca = {_quoted(folder / AUTHORITY_FILE)}"
        write_private(folder / SECURITY_FILE, "\n".join([*tokens, authority, *inner, ""]))


def _quoted(path: Path) -> str:
    return json.dumps(str(path))  # TOML's basic strings are written like JSON's


def _create_certificates(folder: Path) -> None:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ProgramMissing(
            "the package cryptography is not installed, and without it the local S3 server's "
            "inner ports would be open; run: pip install 'jobwire[embedded]'"
        ) from error

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def builder(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("jobwire local S3"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_VALID_FROM)
            .not_valid_after(_VALID_UNTIL)
        )

    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = (
        builder("jobwire local S3", authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        builder("inner", key)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(folder / AUTHORITY_FILE, authority.public_bytes(pem))
    write_private(folder / CERTIFICATE_KEY_FILE, private)
    write_private(folder / CERTIFICATE_FILE, certificate.public_bytes(pem))  # last: all is there
