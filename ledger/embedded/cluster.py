"""The cluster of one home: creates it, starts it, waits until it is ready, and makes its everyday role."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping

from ledger.embedded.account import Account
from ledger.embedded.binaries import Binaries, find_binaries
from ledger.embedded.home import ADMIN, EVERYDAY, PORT, SERVER, Home, try_lock, wait_until
from ledger.embedded.reaper import postmaster
from ledger.errors import ServerUnavailable
from ledger.log.connection import opened

SUPERUSER, DATABASE = "postgres", "ledger"
ROLE = "pledger"  # not the name of the schema, because "$user" would resolve unqualified names there
ROOM_TO_MAKE, ROOM_TO_START = 64 << 20, 16 << 20
"""Bytes of free disk: a new cluster with an empty ledger takes 44 MB, and a segment of the WAL is 16 MB."""
SETTINGS = {
    "cluster_name": "ledger",
    "jit": "off",  # its compile time is longer than our statements
    "listen_addresses": "",
    "log_directory": "log",
    "log_filename": "postgresql-%a.log",
    "log_rotation_age": "1d",
    "log_timezone": "UTC",
    "log_truncate_on_rotation": "on",
    "logging_collector": "on",
    "password_encryption": "scram-sha-256",
    "port": str(PORT),
    "timezone": "UTC",
    "unix_socket_permissions": "0700",
}


class Cluster:
    """The server of one home. Its callers hold the start lock."""

    def __init__(self, home: Home, account: Account, durable: bool) -> None:
        self.home, self.account, self.durable = home, account, durable

    def bring_up(self, deadline: float) -> None:
        """Start the server unless it runs, wait until it accepts connections, create missing roles."""
        self._launched = False
        wait_until(lambda: self._answers() or self._launch_if_dead(), deadline, self._silence())
        if not self._serves_everyday_role():
            self._make_role_and_database()
            if not self._serves_everyday_role():
                raise ServerUnavailable(f"the server in {self.home.path} is set up, but {ROLE} cannot log in")

    def dsn(self, user: str, secret: str, database: str) -> str:
        """The DSN for one user; contains the password."""
        folder = self.home.socket_folder()
        if folder is None:
            raise ServerUnavailable(f"the server in {self.home.path} is not started: call acquire() first")
        # The empty hostaddr overrides PGHOSTADDR of the environment.
        password = self.home.secret(secret)
        return make_conninfo(
            host=str(folder), hostaddr="", port=PORT, user=user, dbname=database, password=password
        )

    # -- starting --------------------------------------------------------

    def _answers(self) -> bool:
        folder = self.home.socket_folder()
        if folder is None or not (self.home.data / "PG_VERSION").exists():
            return False
        where = make_conninfo(host=str(folder), hostaddr="", port=PORT, connect_timeout=5)
        answer = PGconn.ping(os.fsencode(where))
        if answer == Ping.NO_ATTEMPT:
            raise ServerUnavailable("libpq makes no attempt to connect: one of the PG* variables is wrong")
        return answer == Ping.OK

    def _launch_if_dead(self) -> bool:
        """Launch once the server's lock is free, which proves that no process of it is left."""
        lock = self.home.open_lock(SERVER)
        try:
            if try_lock(lock, fcntl.LOCK_EX):
                if self._launched:
                    raise ServerUnavailable(self._last_words())
                self._prepare_and_launch(lock)
                self._launched = True
        finally:
            os.close(lock)
        return False

    def _prepare_and_launch(self, lock: int) -> None:
        self._refuse_server_of_others()
        self.home.demand_reach(self.account, self.home.path)
        version = self.home.data / "PG_VERSION"
        binaries = find_binaries(self.account, int(version.read_text()) if version.exists() else None)
        if not version.exists():
            self._init(binaries, lock)
        self._clear_away()
        self.home.write("server.conf", self._settings(), mode=0o644)
        self._launch(binaries, lock)

    def _clear_away(self) -> None:
        """Drop what a dead server left. PostgreSQL would ask whether the process numbers in it are in use,
        and they are: by another program, or by a zombie that nobody buries."""
        socket = self.home.make_socket_folder(self.account) / f".s.PGSQL.{PORT}"
        for left in (self.home.data / "postmaster.pid", socket, socket.with_name(f"{socket.name}.lock")):
            left.unlink(missing_ok=True)

    def _refuse_server_of_others(self) -> None:
        """Refuse a server that somebody started by hand, without our lock."""
        if pid := postmaster(str(self.home.data / "postmaster.pid")):
            raise ServerUnavailable(
                f"process {pid}, which the ledger did not start, uses {self.home.data}: stop it"
            )

    def _init(self, binaries: Binaries, lock: int) -> None:
        """Make the cluster aside and put it in place whole: what a killed initdb leaves looks done."""
        new, password_file = self.home.path / "data.new", self.home.path / "initdb.secret"
        shutil.rmtree(new, ignore_errors=True)
        self.home.demand_room(ROOM_TO_MAKE, "a new server needs")
        self.home.make_secret(ADMIN)
        self.home.make_secret(EVERYDAY)
        self.home.write(password_file.name, self.home.secret(ADMIN))
        new.mkdir(mode=0o700)
        self.account.give(password_file)
        self.account.give(new)
        command: list[str | Path] = [binaries.folder / "initdb", "-D", new, "-U", SUPERUSER]
        try:
            options = self._initdb_options(binaries.major)
            self.account.run(*command, f"--pwfile={password_file}", *options, keep_open=[lock])
        finally:
            password_file.unlink(missing_ok=True)
        new.rename(self.home.data)

    def _initdb_options(self, major: int) -> list[str]:
        options = ["--auth=scram-sha-256", "--data-checksums", "--encoding=UTF8", "--locale=C"]
        if major >= 17:
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if major >= 16:  # more rounds make guessing slow, and connecting: nobody guesses 192 random bits
            options += ["--set", "scram_iterations=1"]
        return options if self.durable else [*options, "--no-sync"]

    def _settings(self) -> str:
        """Our settings over those of initdb; `ALTER SYSTEM` still has the last word."""
        durability = "on" if self.durable else "off"
        folder = str(self.home.make_socket_folder(self.account)).replace('"', '""')
        settings = SETTINGS | dict.fromkeys(("fsync", "full_page_writes", "synchronous_commit"), durability)
        settings["unix_socket_directories"] = f'"{folder}"'
        if self.durable and sys.platform == "darwin":
            settings["wal_sync_method"] = "fsync_writethrough"  # its fsync leaves data in the drive's cache
        quoted = {name: value.replace("\\", "\\\\").replace("'", "''") for name, value in settings.items()}
        lines = [f"{name} = '{value}'\n" for name, value in quoted.items()]
        return "".join(["include = 'data/postgresql.conf'\n", *lines])

    def _launch(self, binaries: Binaries, lock: int) -> None:
        """Start the postmaster detached from this process, so that it does not become a zombie."""
        self.home.write("startup.log", "")
        settings = f"config_file={self.home.path}/server.conf"
        command = [binaries.folder / "postgres", "-D", self.home.data, "-c", settings]
        in_background = ["/bin/sh", "-c", '"$@" &', "sh", *map(str, command)]
        with self.home.startup_log.open("a") as log:
            subprocess.run(
                in_background, check=True, stdout=log, stderr=log, pass_fds=[lock], **self.account.process()
            )

    def _silence(self) -> str:
        return (
            f"the server in {self.home.path} did not accept a connection in time: it may be recovering, or a "
            f"process of a killed server still runs; its log is in {self.home.data / 'log'}"
        )

    def _last_words(self) -> str:
        """The reason why the server ended at once. Raises StorageFull if the disk is full."""
        self.home.demand_room(ROOM_TO_START, "to start PostgreSQL needs")
        said = self.home.startup_log.read_text(errors="replace").strip().splitlines()[-5:]
        where = f"PostgreSQL did not start in {self.home.path}; its log is in {self.home.data / 'log'}"
        return "\n".join([where, *said])

    # -- roles -----------------------------------------------------------

    def _serves_everyday_role(self) -> bool:
        """Whether the everyday role can connect; the database is made last, so all is complete then."""
        if not (self.home.path / EVERYDAY).exists():
            return False
        with contextlib.suppress(psycopg.OperationalError):
            with opened(self.dsn(ROLE, EVERYDAY, DATABASE)) as connection:
                row = connection.execute("SHOW fsync").fetchone()
            if self.durable and row == ("off",):
                raise ServerUnavailable(
                    f"the server in {self.home.path} was started without durability (throwaway) and may "
                    "lose commits: end its clients first, or use another LEDGER_HOME"
                )
            return True
        return False

    def _make_role_and_database(self) -> None:
        """Make the role and the database at a first start, or after a killed one; each may exist already."""
        self.home.make_secret(EVERYDAY)
        try:
            with opened(self.dsn(SUPERUSER, ADMIN, "postgres")) as connection:
                self._make_role(connection)
                known = connection.execute(
                    "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
                ).fetchone()
                if not known:
                    statement = sql.SQL("CREATE DATABASE {} OWNER {}")
                    connection.execute(statement.format(sql.Identifier(DATABASE), sql.Identifier(ROLE)))
        except psycopg.Error as error:
            raise ServerUnavailable(f"the server in {self.home.path} could not be set up: {error}") from None

    def _make_role(self, connection: psycopg.Connection) -> None:
        """The everyday role may make what `pledger init` makes, and is no superuser."""
        known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone()
        # The server gets a verifier: a password in a statement could end up in its log.
        password = self.home.secret(EVERYDAY).encode()
        verifier = connection.pgconn.encrypt_password(password, ROLE.encode(), b"scram-sha-256").decode()
        statement = sql.SQL("{} ROLE {} LOGIN CREATEROLE CREATEDB NOSUPERUSER PASSWORD {}").format(
            sql.SQL("ALTER" if known else "CREATE"), sql.Identifier(ROLE), sql.Literal(verifier)
        )
        connection.execute(statement)
