"""A Kafka cluster: how to reach it. The variables are in docs/reference/configuration.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from ledger.errors import BadInput, KafkaUnavailable

SECURITY: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
HOW_TO_GET_ONE: Final = (
    "no Kafka cluster is named: give --kafka HOST:PORT, or set LEDGER_KAFKA; `pledger kafka broker` runs one"
)
REQUEST_MS: Final = 5_000
"""Milliseconds to wait for one answer. The default of clients is 30 s, also if a broker is frozen."""
BOOTSTRAP_MS: Final = 12_000
"""Milliseconds for the first contact, with a broker that answered us a moment ago."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach a cluster. bootstrap: addresses of brokers, HOST:PORT, separated by commas.

    security: one of SECURITY. By default it follows from what is given: SASL with a user, TLS with a user or
    with a file for TLS. mechanism: one of MECHANISMS. ca, certificate, key: PEM files; without a CA those of
    the system count. Raises BadInput for settings that contradict each other.
    """

    bootstrap: str
    security: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: str = "SCRAM-SHA-512"
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if not self.security:
            object.__setattr__(self, "security", self._security_that_follows())
        if self.security not in SECURITY:
            raise BadInput(f"LEDGER_KAFKA_SECURITY={self.security} must be one of {', '.join(SECURITY)}")
        if self.mechanism not in MECHANISMS:
            raise BadInput(f"LEDGER_KAFKA_MECHANISM={self.mechanism} must be one of {', '.join(MECHANISMS)}")
        if self.has_user != (self.user is not None) or (self.user is None) != (self.password is None):
            raise BadInput(
                f"security {self.security} needs {'a user and a password' if self.has_user else 'no user'}: "
                "see LEDGER_KAFKA_USER, LEDGER_KAFKA_PASSWORD and LEDGER_KAFKA_SECURITY"
            )
        for address in self.addresses():
            if not (address[0] and 0 < address[1] < 65536):
                raise BadInput(f"LEDGER_KAFKA={self.bootstrap} must be HOST:PORT, or several with commas")

    def _security_that_follows(self) -> str:
        if self.user is not None:
            return "SASL_SSL"
        return "SSL" if self.ca or self.certificate else "PLAINTEXT"

    @classmethod
    def of(cls, text: str | None = None) -> Cluster:
        """The cluster that a text names, else LEDGER_KAFKA, with the security of LEDGER_KAFKA_….

        Raises KafkaUnavailable where neither names one, and BadInput for settings that cannot be.
        """
        named = text or os.environ.get("LEDGER_KAFKA")
        if not named:
            raise KafkaUnavailable(HOW_TO_GET_ONE)
        said = {name: os.environ.get(f"LEDGER_KAFKA_{name.upper()}") or None for name in _VARIABLES}
        given: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        if file := os.environ.get("LEDGER_KAFKA_PASSWORD_FILE"):
            given["password"] = _read_password(file)
        return cls(named, **given)

    def at(self, bootstrap: str) -> Cluster:
        """The same settings for other addresses."""
        return replace(self, bootstrap=bootstrap)

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security in ("SSL", "SASL_SSL")

    @property
    def has_user(self) -> bool:
        """Whether the client logs in."""
        return self.security.startswith("SASL_")

    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each broker that is named; the port is 0 where it is no number."""
        parts = [one.strip().rpartition(":") for one in self.bootstrap.split(",")]
        return [
            (host.strip("[]"), int(port) if port.isascii() and port.isdecimal() else 0)
            for host, _, port in parts
        ]

    def options(self) -> dict[str, Any]:
        """Keyword arguments for any client of kafka-python, with the addresses of brokers that answer now."""
        from .diagnosis import answering

        return {"bootstrap_servers": answering(self), **self.settings()}

    def settings(self) -> dict[str, Any]:
        """Those arguments that are the same for all brokers."""
        options: dict[str, Any] = {
            "security_protocol": self.security,
            "bootstrap_timeout_ms": BOOTSTRAP_MS,
            "request_timeout_ms": REQUEST_MS,
            "reconnect_backoff_ms": 50,
            "reconnect_backoff_max_ms": 500,
            "retry_backoff_ms": 5,
        }
        if self.has_user:
            options |= {"sasl_mechanism": self.mechanism, "sasl_plain_username": self.user}
            options |= {"sasl_plain_password": self.password}
        if self.has_tls:
            options |= {"ssl_cafile": self.ca, "ssl_certfile": self.certificate, "ssl_keyfile": self.key}
        return options

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """An admin client, while the block runs. Raises KafkaUnavailable at once if no broker can be used."""
        if why := self.diagnose():  # a client would try for BOOTSTRAP_MS, and leak a socket with each try
            raise KafkaUnavailable(why)
        try:
            admin = KafkaAdminClient(**self.options())
        except (KafkaError, OSError) as error:
            raise self.unavailable(error) from error
        try:
            yield admin
        except KafkaError as error:
            raise KafkaUnavailable(f"{type(error).__name__}: {error}") from error
        finally:
            admin.close()

    def unavailable(self, error: BaseException) -> KafkaUnavailable:
        """The error to raise after a client could not be made: it says why, where that can be found out."""
        return KafkaUnavailable(self.diagnose() or f"Kafka at {self.bootstrap} cannot be used: {error}")

    def diagnose(self) -> str | None:
        """Why the cluster cannot be reached, as a sentence with a remedy; None if nothing is wrong now.

        A client itself only says that it is unable to bootstrap. This takes some seconds at most.
        """
        from .diagnosis import diagnose

        return diagnose(self)


_VARIABLES: Final = ("security", "user", "password", "mechanism", "ca", "certificate", "key")


def _read_password(file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"LEDGER_KAFKA_PASSWORD_FILE={file} cannot be read: {error}") from error
