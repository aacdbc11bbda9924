"""A ledger over the connection that a block of `prefect-sqlalchemy` describes (spec S0-07, S0-11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

from ledger import Ledger, connect
from ledger.errors import BadInput
from ledger.log.dsn import FROM_LIBPQ

from .extra import needs_extra
from .runs import actor_of_run

BLOCK: Final = "opticstream-db"
"""The block's name where none is given (spec S0-11)."""

# Options that drivers name differently from libpq, and options that only drivers have.
_RENAMED: Final = {"database": "dbname", "username": "user", "timeout": "connect_timeout"}
_OF_DRIVERS: Final = frozenset(
    {
        "async_fallback", "autocommit", "client_encoding", "command_timeout", "executemany_mode",
        "native_inet_types", "prepare_threshold", "prepared_statement_cache_size",
        "prepared_statement_name_func", "statement_cache_size", "tcp_keepalive",
    }
)  # fmt: skip
_SSL: Final = ("ssl", "ssl_context")
_SSL_MODES: Final = {"true": "require", "1": "require", "false": "disable", "0": "disable"}


def ledger_from_block(name: str = BLOCK, *, schema: str | None = None, actor: str | None = None) -> Ledger:
    """
    The ledger in the database that the block of this name describes; close it, or use it in a `with`.

    The block is a SqlAlchemyConnector or an AsyncSqlAlchemyConnector. schema: as in `ledger.connect`. actor:
    who appends; by default the run that calls this. In an async flow call it in a thread
    (`asyncio.to_thread`), as all of the ledger. Raises BadInput for a block that is missing or leads to no
    PostgreSQL, and what `ledger.connect` raises.
    """
    return connect(dsn_from_block(name), schema=schema, actor=actor or actor_of_run())


def dsn_from_block(name: str = BLOCK) -> str:
    """The DSN of the database that the block describes. It holds the password: never print it."""
    return dsn_of(_load(name), f"block {name!r}")


def dsn_of(connector: Any, shown: str = "the connector") -> str:
    """The DSN of the database that a connector describes; `shown` is what errors call it."""
    with needs_extra():
        from sqlalchemy.engine import make_url
    info = connector.connection_info
    url = info.create_url() if hasattr(info, "create_url") else make_url(str(info))
    if url.get_backend_name() != "postgresql":
        raise BadInput(f"{shown} leads to {url.get_backend_name()}; the ledger needs one for postgresql")
    # The parts of the URL by psycopg's names, which are libpq's, also where it names several hosts.
    _, words = url.set(drivername="postgresql+psycopg").get_dialect()().create_connect_args(url)
    given = [*words.items(), *(connector.connect_args or {}).items()]
    try:
        return make_conninfo("", **dict(_options(given, shown))) or FROM_LIBPQ
    except psycopg.ProgrammingError as error:  # it names the option, not its value
        raise BadInput(f"{shown}: {str(error).strip()}; use the words of libpq, such as sslmode") from None


def _load(name: str) -> Any:
    with needs_extra():
        from prefect_sqlalchemy import AsyncSqlAlchemyConnector, SqlAlchemyConnector
    for kind in (SqlAlchemyConnector, AsyncSqlAlchemyConnector):
        try:
            # Asked for by name, because in a thread of an async flow Prefect would return a coroutine.
            return kind.load(name, _sync=True)
        except ValueError as error:
            if "Unable to find block document" not in str(error):
                raise BadInput(f"block {name!r} cannot be read; save it anew with Prefect") from None
    raise BadInput(
        f"Prefect has no block {name!r} of type SQLAlchemy Connector: "
        f"SqlAlchemyConnector(connection_info=…).save({name!r}) makes it"
    )


def _options(given: Iterable[tuple[str, Any]], shown: str) -> Iterator[tuple[str, Any]]:
    """The options of a driver, by libpq's names."""
    for key, value in given:
        if key in _SSL:
            yield "sslmode", _ssl_mode(value, shown)
        elif key not in _OF_DRIVERS and value is not None:
            yield _RENAMED.get(key, key), value


def _ssl_mode(value: object, shown: str) -> str:
    if isinstance(value, bool | str):
        return _SSL_MODES.get(str(value).lower(), str(value))
    raise BadInput(f"{shown}: ssl must be true, false or one of libpq's sslmodes, such as verify-full")
