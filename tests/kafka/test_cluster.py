"""How a cluster is reached: TLS, logins, and a sentence for each reason why it cannot be reached."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from consumers.kafka.diagnosis import PATIENCE
from ledger.errors import BadInput, KafkaUnavailable
from tests.kafka.conftest import SharedBroker
from tests.kafka.test_broker import wait_for

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="right";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker with a port of each kind, and the files of the authority that signed its certificate."""

    broker: Broker
    folder: Path

    def cluster(self, listener: str) -> Cluster:
        """The right way to a listener."""
        user = {"user": "alice", "password": "right"} if listener.startswith("SASL") else {}
        files = {"ca": str(self.folder / "ca.pem")} if listener.endswith("SSL") else {}
        if listener == "SSL":
            files |= {"certificate": str(self.folder / "client.pem"), "key": str(self.folder / "client.key")}
        return Cluster(self.broker.bootstrap_of(listener), listener, **user, **files)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """TLS with certificates of clients on SSL; logins on the two others."""
    folder = tmp_path_factory.mktemp("authority")
    make_certificates(folder)
    settings: dict[str, object] = {
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "PLAIN")),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "server.store",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
        "listener.name.ssl.ssl.client.auth": "required",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = PLAIN
        for mechanism in MECHANISMS:
            settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = SCRAM
    listeners = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    with Broker(listeners=listeners, settings=settings) as broker:
        with Cluster(broker.bootstrap).admin() as admin:
            for name in MECHANISMS:
                known = ScramMechanism[name.replace("-", "_")]
                admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", known, "right")])
        found = Secured(broker, folder)
        for name in MECHANISMS:  # a broker learns of a new user a moment later
            login = replace(found.cluster("SASL_PLAINTEXT"), mechanism=name)
            wait_for(lambda login=login: login.diagnose() is None, "the user is known")
        yield found


def make_certificates(folder: Path) -> None:
    """An authority (ca.pem), another (other.pem), a server's store, and the certificate of a client."""
    for authority in ("ca", "other"):
        new = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={authority}"
        openssl(folder, f"{new} -keyout {authority}.key -out {authority}.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for holder in ("server", "client"):
        new = f"req -newkey rsa:2048 -nodes -subj /CN={holder}"
        openssl(folder, f"{new} -keyout {holder}.key -out {holder}.csr")
        signed = f"x509 -req -in {holder}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names"
        openssl(folder, f"{signed} -out {holder}.pem")
    parts = ((folder / name).read_text() for name in ("server.key", "server.pem", "ca.pem"))
    (folder / "server.store").write_text("".join(parts))


def openssl(folder: Path, words: str) -> None:
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)


def brokers_of(cluster: Cluster) -> int:
    with cluster.admin() as admin:
        return len(admin.describe_cluster()["brokers"])


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_every_kind_of_security_works(secured: Secured, listener: str) -> None:
    cluster = secured.cluster(listener)
    assert cluster.diagnose() is None
    assert brokers_of(cluster) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", *MECHANISMS])
def test_every_mechanism_works_and_tells_a_wrong_password(secured: Secured, mechanism: str) -> None:
    right = replace(secured.cluster("SASL_PLAINTEXT"), mechanism=mechanism)
    assert right.diagnose() is None
    assert brokers_of(right) == 1
    said = replace(right, password="wrong").diagnose()
    assert said
    assert re.fullmatch(r"127\.0\.0\.1:\d+ refuses the login of alice: .*", said)
    assert "wrong" not in said


def test_a_client_that_cannot_be_made_says_why(secured: Secured) -> None:
    wrong = replace(secured.cluster("SASL_SSL"), password="wrong")
    with pytest.raises(KafkaUnavailable, match="refuses the login of alice"), wrong.admin():
        pytest.fail("not reached")


def test_each_wrong_setting_has_its_sentence(secured: Secured) -> None:
    at = {name: secured.cluster(name) for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    login, tls, plain = at["SASL_PLAINTEXT"], at["SASL_SSL"], at["PLAINTEXT"]
    wrong = {
        "does not speak TLS: set LEDGER_KAFKA_SECURITY to SASL_PLAINTEXT": tls.at(login.bootstrap),
        "does not speak TLS: set LEDGER_KAFKA_SECURITY to PLAINTEXT": at["SSL"].at(plain.bootstrap),
        "set LEDGER_KAFKA_SECURITY to SSL": plain.at(tls.bootstrap),
        "set LEDGER_KAFKA_SECURITY to SASL_SSL": login.at(tls.bootstrap),
        "not from a known authority .* set LEDGER_KAFKA_CA": replace(
            tls, ca=str(secured.folder / "other.pem")
        ),
        "not from a known authority": replace(tls, ca=None),
        "is for another host": tls.at(tls.bootstrap.replace("127.0.0.1", "localhost")),
        r"files for TLS .* cannot be used": replace(tls, ca=str(secured.folder / "absent.pem")),
        "set LEDGER_KAFKA_CERTIFICATE": replace(at["SSL"], certificate=None, key=None),
        "wants a login: set LEDGER_KAFKA_USER": plain.at(login.bootstrap),
        "takes no login": login.at(plain.bootstrap),
        "host name nowhere.invalid is not known": plain.at("nowhere.invalid:9092"),
    }
    for sentence, cluster in wrong.items():
        said = cluster.diagnose()
        assert said, sentence
        assert re.search(sentence, said), f"{sentence!r} is not in {said!r}"


@pytest.mark.slow
def test_an_unknown_mechanism_wrong_addresses_and_a_frozen_broker(tmp_path: Path) -> None:
    listeners = ("PLAINTEXT", "SASL_PLAINTEXT")
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
    }
    with Broker(root=tmp_path, listeners=listeners, settings=settings) as broker:
        login = Cluster(broker.bootstrap_of("SASL_PLAINTEXT"), "SASL_PLAINTEXT", "alice", "right", "PLAIN")
        said = replace(login, mechanism="SCRAM-SHA-256").diagnose()
        assert said
        assert said.endswith(
            "not know the mechanism SCRAM-SHA-256: set LEDGER_KAFKA_MECHANISM to one of PLAIN"
        )
        assert login.diagnose() is None
        where = f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://nowhere.invalid:9092"
    with Broker(
        root=tmp_path, listeners=listeners, settings=settings | {"advertised.listeners": where}
    ) as broker:
        assert re.search("sends clients to broker 1 at nowhere.invalid:9092", str(login.diagnose()))
        broker.freeze(1)
        assert "takes connections, but does not answer" in str(Cluster(broker.bootstrap).diagnose())


def test_nobody_listens_and_another_protocol(broker: SharedBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    said = Cluster(address).diagnose()
    assert said
    assert said.startswith(f"nobody listens on {address}")
    assert Cluster(f"{address},{broker.bootstrap}").diagnose() is None  # one broker is enough
    with pytest.raises(KafkaUnavailable, match=f"nobody listens on {address}"), Cluster(address).admin():
        pytest.fail("not reached")


def test_clients_pass_over_a_broker_that_is_frozen(broker: SharedBroker) -> None:
    """Such a broker takes connections and answers nothing, as this socket does."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        cluster = Cluster(f"{address},{broker.bootstrap}")
        began = time.monotonic()
        for _ in range(4):
            assert cluster.options()["bootstrap_servers"] == [broker.bootstrap]
            assert brokers_of(cluster) == 1
        assert time.monotonic() - began < PATIENCE, "it was waited for"


def test_the_environment_names_the_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LEDGER_KAFKA", raising=False)
    with pytest.raises(KafkaUnavailable, match="--kafka HOST:PORT, or set LEDGER_KAFKA"):
        Cluster.of()
    monkeypatch.setenv("LEDGER_KAFKA", "a:1,b:2")
    assert Cluster.of() == Cluster("a:1,b:2", "PLAINTEXT")
    assert Cluster.of("c:3").bootstrap == "c:3"
    (tmp_path / "password").write_text("secret\n")
    monkeypatch.setenv("LEDGER_KAFKA_USER", "alice")
    monkeypatch.setenv("LEDGER_KAFKA_PASSWORD_FILE", str(tmp_path / "password"))
    found = Cluster.of()
    assert (found.security, found.user, found.password) == ("SASL_SSL", "alice", "secret")
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"bootstrap": "kafka"}, "must be HOST:PORT"),
        ({"bootstrap": "kafka:port"}, "must be HOST:PORT"),
        ({"bootstrap": "a:1", "security": "TLS"}, "LEDGER_KAFKA_SECURITY=TLS must be one of PLAINTEXT, SSL"),
        ({"bootstrap": "a:1", "mechanism": "GSSAPI"}, "LEDGER_KAFKA_MECHANISM=GSSAPI must be one of PLAIN"),
        ({"bootstrap": "a:1", "user": "alice"}, "needs a user and a password"),
        ({"bootstrap": "a:1", "security": "SSL", "user": "a", "password": "b"}, "needs no user"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Cluster(**settings)
