"""Prints the fields and the checksums of blocks, as Prefect's client makes them."""

import json

from prefect.blocks.core import Block
from prefect.blocks.system import Secret
from prefect.blocks.webhook import Webhook
from prefect.filesystems import LocalFileSystem
from prefect.types import SecretDict
from pydantic import BaseModel, Field, SecretStr


class Point(BaseModel):
    x: float = 1.5
    label: str | None = "näme"


class Login(Block):
    user: str
    password: SecretStr


class Plain(Block):
    size: int = Field(3, ge=0, description="größe")


class Database(Block):
    login: Login
    other: Login | Plain
    points: list[Point] = []
    settings: SecretDict = SecretDict({})
    more: dict[str, Point] = {}


if __name__ == "__main__":
    for block in (Secret, Webhook, LocalFileSystem, Login, Plain, Database):
        fields, checksum = block.model_json_schema(), block._calculate_schema_checksum()
        print(json.dumps({"name": block.__name__, "fields": fields, "checksum": checksum}))
