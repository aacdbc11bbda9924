"""
Why a cluster cannot be reached: asked step by step over a socket of our own, as a client would.

A client tells every failure in the same words ("Unable to bootstrap"). Here each step has its sentence: the
name, the connection, TLS, the protocol, the login, and the addresses that the brokers advertise.
"""

from __future__ import annotations

import queue
import socket
import ssl
import struct
import threading
import time
from contextlib import closing
from typing import Any

from kafka.net.sasl import get_sasl_mechanism

from .cluster import Cluster
from .wire import Answer, Wire, encoded

PATIENCE = 5.0
"""Seconds for each step."""
OTHERS = 0.1
"""Seconds that further brokers have for an answer, once one has answered."""
_API_VERSIONS, _METADATA, _HANDSHAKE, _AUTHENTICATE = (18, 0), (3, 4), (17, 1), (36, 0)
"""Requests: key and version, of those that every Kafka since 1.0 knows."""
_UNKNOWN_MECHANISM, _NO_LOGIN_HERE = 33, 34
"""Error codes of Kafka."""


class _Found(Exception):
    """The step that fails, as a sentence."""


def diagnose(cluster: Cluster) -> str | None:
    """Why none of the named brokers can be used; None if one can be. The sentence never has the password."""
    why = []
    for host, port in cluster.at(",".join(answering(cluster))).addresses():
        try:
            _try(cluster, host, port)
        except _Found as found:
            why.append(str(found))
        else:
            return None
    return "; ".join(dict.fromkeys(why))


def answering(cluster: Cluster) -> list[str]:
    """The addresses of brokers that answer, the fastest first; all where none does, or only one is named.

    kafka-python 3.0.12 gives all its time to the first broker that it tries. Where that one is frozen, a
    client cannot be made, though others answer.
    """
    places = cluster.bootstrap.split(",")
    if len(places) == 1:
        return places
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def ask(place: str, host: str, port: int) -> None:
        answers.put(place if _answers(cluster, host, port) else None)

    for place, (host, port) in zip(places, cluster.addresses(), strict=True):
        threading.Thread(target=ask, args=(place, host, port), daemon=True).start()
    found, deadline = list[str](), time.monotonic() + PATIENCE
    for _ in places:
        try:
            answered = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if answered is not None:
            found.append(answered)
            deadline = min(deadline, time.monotonic() + OTHERS)
    return found or places


def _answers(cluster: Cluster, host: str, port: int) -> bool:
    """Whether a broker answers the first question of a client, which comes before the login."""
    try:
        with closing(_connected(host, port)) as plain:
            with closing(_encrypted(cluster, plain, host, f"{host}:{port}")) as connection:
                _ask(Wire(connection, f"{host}:{port}"), _API_VERSIONS, b"", "")
    except _Found:
        return False
    return True


def _try(cluster: Cluster, host: str, port: int) -> None:
    """Go all steps with one broker. Raises _Found."""
    place = f"{host}:{port}"
    with closing(_connected(host, port)) as plain:
        with closing(_encrypted(cluster, plain, host, place)) as connection:
            wire = Wire(connection, place)
            _ask(wire, _API_VERSIONS, b"", _of_the_protocol(cluster, place))
            if cluster.has_user:
                _log_in(cluster, wire, host)
            refused = f"{place} wants a login: set LEDGER_KAFKA_USER and LEDGER_KAFKA_PASSWORD"
            if cluster.has_user:
                refused = f"{place} closes the connection after the login of {cluster.user}"
            answer = _ask(wire, _METADATA, struct.pack(">ib", 0, 0), refused)
    _check_advertised(answer, place)


def _connected(host: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((host, port), PATIENCE)
    except socket.gaierror:
        raise _Found(f"the host name {host} is not known: check the spelling, or the DNS") from None
    except ConnectionRefusedError:
        raise _Found(
            f"nobody listens on {host}:{port}: start the broker (`pledger kafka broker`), or check the port"
        ) from None
    except OSError as error:
        why = "does not answer" if isinstance(error, TimeoutError) else f"cannot be reached ({error})"
        raise _Found(f"{host}:{port} {why}: check the network, or a firewall") from None


def _encrypted(cluster: Cluster, plain: socket.socket, host: str, place: str) -> socket.socket:
    """The connection after TLS, if that is set."""
    if not cluster.has_tls:
        return plain
    try:
        context = ssl.create_default_context(cafile=cluster.ca)
        if cluster.certificate:
            context.load_cert_chain(cluster.certificate, cluster.key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (cluster.ca, cluster.certificate, cluster.key)))
        raise _Found(f"the files for TLS ({files}) cannot be used: {error}") from None
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise _Found(_of_the_certificate(error, place)) from None
    except (ssl.SSLError, OSError):
        raise _Found(
            f"{place} does not speak TLS: set LEDGER_KAFKA_SECURITY to "
            f"{'SASL_PLAINTEXT' if cluster.has_user else 'PLAINTEXT'}, or use the port for TLS"
        ) from None


def _of_the_certificate(error: ssl.SSLCertVerificationError, place: str) -> str:
    if error.verify_code in (62, 64):  # the name, or the IP address, is another one
        return f"the certificate of {place} is for another host: {error.verify_message}"
    if error.verify_code == 10:
        return f"the certificate of {place} has expired: renew it"
    return (
        f"the certificate of {place} is not from a known authority ({error.verify_message}): set "
        "LEDGER_KAFKA_CA to the file of the authority that signed it"
    )


def _of_the_protocol(cluster: Cluster, place: str) -> str:
    if not cluster.has_tls:
        return (
            f"{place} does not answer as Kafka without TLS does: if it is a port for TLS, set "
            f"LEDGER_KAFKA_SECURITY to {'SASL_SSL' if cluster.has_user else 'SSL'}"
        )
    return (
        f"{place} refuses our side of TLS: if it wants certificates of clients, set LEDGER_KAFKA_CERTIFICATE "
        "and LEDGER_KAFKA_KEY"
    )


def _log_in(cluster: Cluster, wire: Wire, host: str) -> None:
    """Log in as a client does. Raises _Found with the reason of the broker."""
    refused = f"{wire.place} takes no login: set LEDGER_KAFKA_SECURITY to PLAINTEXT or SSL, without a user"
    answer = _ask(wire, _HANDSHAKE, encoded(cluster.mechanism), refused)
    code = answer.number(2)
    if code == _NO_LOGIN_HERE:
        raise _Found(refused)
    if code == _UNKNOWN_MECHANISM:
        raise _Found(
            f"{wire.place} does not know the mechanism {cluster.mechanism}: set LEDGER_KAFKA_MECHANISM to "
            f"one of {', '.join(answer.texts())}"
        )
    sasl: Any = get_sasl_mechanism(cluster.mechanism)(host=host, **cluster.settings())
    refused = f"{wire.place} refuses the login of {cluster.user}"
    while not sasl.is_done():
        token = sasl.auth_bytes()
        answer = _ask(wire, _AUTHENTICATE, struct.pack(">i", len(token)) + token, refused)
        if answer.number(2):
            raise _Found(f"{refused}: {answer.text() or 'wrong user or password'}")
        answer.text()
        try:
            sasl.receive(answer.data())
        except ValueError as error:
            raise _Found(f"{wire.place} cannot prove that it knows the password: {error}") from None


def _check_advertised(metadata: Answer, place: str) -> None:
    """Whether a broker can be reached at the address that it tells its clients. One may be down."""
    metadata.number(4)  # the time of throttling
    why = None
    for _ in range(metadata.number(4)):
        node, host, port = metadata.number(4), metadata.text(), metadata.number(4)
        metadata.text()  # the rack
        try:
            _connected(host or "", port).close()
        except _Found as found:
            why = f"{place} answers, but sends clients to broker {node} at {host}:{port}, and {found}"
        else:
            return
    if why:
        raise _Found(f"{why}; or correct `advertised.listeners` of the broker")


def _ask(wire: Wire, request: tuple[int, int], body: bytes, refused: str) -> Answer:
    """The answer. Raises _Found with `refused` if the connection ends instead."""
    try:
        return wire.ask(request, body)
    except TimeoutError:
        raise _Found(f"{wire.place} takes connections, but does not answer: is it frozen?") from None
    except OSError:
        raise _Found(refused) from None
