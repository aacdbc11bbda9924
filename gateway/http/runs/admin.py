"""Routes of the handshake: health, the version that a client asks for, and what is switched off."""

from __future__ import annotations

from typing import Any, Final

from ..problems import Refusal
from .bodies import Body
from .calls import Call, Reply, Routes

ROUTES = Routes("")


@ROUTES.get("/health", role=None)
def health(call: Call) -> bool:
    """Whether the server answers."""
    return True


@ROUTES.get("/hello", role=None)
def hello(call: Call) -> str:
    """A greeting, for who tries the address."""
    return "hello"


@ROUTES.get("/ready", role=None)
def ready(call: Call) -> dict[str, str]:
    """Whether the ledger can be read; 503 if not."""
    call.services.ledger.bound()
    return {"message": "OK"}


@ROUTES.get("/version", role=None)
@ROUTES.get("/admin/version", role=None)
def version(call: Call) -> str:
    """A version of Prefect that the client can work with: its own, unless the server is told one.

    A client warns of a server that is older than itself, and refuses one of another major version.
    """
    return call.services.settings.version or call.client_version or LATEST


LATEST: Final = "3.9.1"
"""The newest version of Prefect that the server was made for; answered to who does not say its own."""


@ROUTES.get("/csrf-token", role=None)
def csrf_token(call: Call) -> Reply:
    """404: the server sets no cookies, so a foreign page cannot act for a user; clients then ask no more."""
    raise Refusal(404, "NotThere", "CSRF protection is disabled.")


@ROUTES.get("/admin/settings")
def settings(call: Call) -> dict[str, Any]:
    """The settings that a client can see; the server has none of Prefect's."""
    return {"api": {"default_limit": 200}}


class NewStorage(Body):
    """The block whose storage results go to."""

    default_result_storage_block_id: str


@ROUTES.get("/admin/storage")
def storage(call: Call) -> Any:
    """Where results go by default: the id of a block, or null."""
    return {"default_result_storage_block_id": call.services.default_storage.get()}


@ROUTES.put("/admin/storage")
def set_storage(call: Call, body: NewStorage) -> Any:
    """Let results go to a block by default."""
    call.services.default_storage.set(body.default_result_storage_block_id)
    return storage(call)


@ROUTES.delete("/admin/storage")
def clear_storage(call: Call) -> None:
    """Let results go where each client keeps them."""
    call.services.default_storage.clear()
