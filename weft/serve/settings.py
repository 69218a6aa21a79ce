"""How a server is set, and the answer to requests that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from weft.errors import DomainError

MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits of a server.

    Attributes:
        max_batch: rows that are run at once, and the most that one request may have; 1 puts none together.
        max_delay: seconds that a request waits for others to be put together with. With 0 it waits only while
            others are computed.
        max_queue: requests of a model that wait; further ones are refused.
        max_body: bytes of a request.
        max_held: bytes of all requests that are being read or wait.
        timeout: seconds from a request to its answer.
        read_timeout: seconds in which a request must have arrived once it, or its connection, has begun.
        drain: seconds after a signal to end, in which the server goes on listening, for requests that are on
            their way.
        grace: seconds after that, in which requests are answered; then their runs are stopped.
        batch_size: the name of the size that rows are counted by; by default one that begins with "batch".

    >>> from weft.serve.settings import Settings
    >>> Settings(max_batch=8).max_queue
    256
    """

    max_batch: int = 64
    max_delay: float = 0.0
    max_queue: int = 256
    max_body: int = 64 * MEGABYTE
    max_held: int = 1024 * MEGABYTE
    timeout: float = 30.0
    read_timeout: float = 60.0
    drain: float = 0.5
    grace: float = 25.0
    batch_size: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.type == "int" else 0
            if field.type != "str" and (isinstance(value, bool) or not value >= least):
                raise DomainError("serve", f"{field.name} must be at least {least}, got {value!r}")


class RefusedError(Exception):
    """A request that is answered with an error: the status, what is wrong, and more headers."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})
