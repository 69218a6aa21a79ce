"""The server as an ASGI application: paths, the bodies of requests, errors, and what is counted."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from time import perf_counter
from typing import Any

import weft
from weft.errors import WeftError
from weft.serve.board import Board
from weft.serve.metrics import CONTENT_TYPE, ModelMetrics, join_processes, metrics_text, process_state
from weft.serve.model import VERSION, Model
from weft.serve.protocol import JSON_LENGTH
from weft.serve.settings import RefusedError, Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = b"application/json"
_BINARY = b"application/octet-stream"
_JSON_LENGTH = JSON_LENGTH.encode()

log = logging.getLogger("weft.serve")


class Answer:
    """A status, a body, and its headers."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, kind: bytes = _JSON, **more: str) -> None:
        self.status = status
        self.body = body
        self.headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        self.headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]


def as_json(found: Any, status: int = 200) -> Answer:
    """An answer in JSON."""
    return Answer(status, json.dumps(found).encode())


def as_error(error: BaseException) -> Answer:
    """The answer that tells of an error; of a mistake of the server nothing more than that."""
    if isinstance(error, RefusedError):
        answer = as_json({"error": error.message}, error.status)
        answer.headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
        return answer
    if isinstance(error, WeftError):
        return as_json({"error": f"{error.op}: {error.message}"}, 400)
    log.error("a request failed", exc_info=error)
    return as_json({"error": "the server failed; its log says why"}, 500)


class App:
    """An ASGI application that serves models by the Open Inference Protocol, version 2.

    Attributes:
        models: by name.
        settings: its limits.
        is_ready: what readiness is answered with.
        is_ending: whether each answer tells that its connection ends.
    """

    def __init__(self, models: list[Model], settings: Settings) -> None:
        self.models = {model.name: model for model in models}
        self.settings = settings
        self.is_ready = True
        self._board: Board | None = None
        self.is_ending = False
        self._inferences = {
            f"v2/models/{m.name}{v}/infer": m for m in models for v in ("", f"/versions/{VERSION}")
        }
        self._held = 0  # bytes of requests that are in memory
        self._other: Counter[int] = Counter()  # answers that belong to no model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the application answers http, not {scope['type']}")
        path: str = scope["path"].removeprefix(scope.get("root_path", "")).strip("/")
        model = self._inferences.get(path)
        if model is not None and scope["method"] == "POST":
            answer = await self._answer_inference(model, scope, receive)
        else:
            answer = self._answer_other(path.split("/"), scope["method"])
            self._other[answer.status] += 1
        if self.is_ending:
            answer.headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                self.close()
                return

    def close(self) -> None:
        """End the threads of the models, when what they run has ended."""
        for model in self.models.values():
            model.batcher.close()

    def stop(self, reason: str) -> None:
        """Answer all requests with an error, and stop what runs."""
        for model in self.models.values():
            model.batcher.stop(reason)

    # Paths

    def _answer_other(self, parts: list[str], method: str) -> Answer:
        try:
            allowed, make = self._found(parts)
            if method not in allowed.split(", "):
                raise RefusedError(
                    405, f"the method must be one of {allowed}, got {method}", {"allow": allowed}
                )
            return make()
        except RefusedError as error:
            return as_error(error)

    def _found(self, parts: list[str]) -> tuple[str, Callable[[], Answer]]:
        """The methods that a path has, and what gives the answer."""
        reads = "GET, HEAD"
        match parts:
            case ["v2"]:
                told = {"name": "weft", "version": weft.__version__, "extensions": ["binary_tensor_data"]}
                return reads, lambda: as_json(told)
            case ["v2", "health", "live"]:
                return reads, lambda: as_json({"live": True})
            case ["v2", "health", "ready"]:
                return reads, lambda: self._ready(*self.models.values())
            case ["v2", "repository", "index"]:
                return "POST", self._index
            case ["metrics"]:
                return reads, self._metrics
            case ["v2", "models", name, *rest]:
                return self._found_model(name, rest)
        raise RefusedError(404, f"there is no path /{'/'.join(parts)[:200]}")

    def _found_model(self, name: str, rest: list[str]) -> tuple[str, Callable[[], Answer]]:
        model = self.models.get(name)
        if model is None:
            raise RefusedError(404, f"there is no model {name[:100]!r}; there are {', '.join(self.models)}")
        if rest[:1] == ["versions"] and len(rest) > 1:
            if rest[1] != VERSION:
                raise RefusedError(
                    404, f"there is no version {rest[1][:100]!r} of {name}; there is {VERSION}"
                )
            rest = rest[2:]
        match rest:
            case []:
                return "GET, HEAD", lambda: as_json(model.metadata())
            case ["ready"]:
                return "GET, HEAD", lambda: self._ready(model)
            case ["infer"]:
                return "POST", self._ready  # never asked: it is an inference then
        raise RefusedError(404, f"there is no path {'/'.join(rest)[:200]} of a model")

    def _ready(self, *models: Model) -> Answer:
        ready = self.is_ready and not any(model.batcher.is_stuck for model in models)
        return as_json({"ready": ready}, 200 if ready else 503)

    def _index(self) -> Answer:
        found = []
        for name, model in self.models.items():
            stuck = model.batcher.is_stuck
            state = "READY" if self.is_ready and not stuck else "UNAVAILABLE"
            reason = "a run does not end" if stuck else ""
            found.append({"name": name, "version": VERSION, "state": state, "reason": reason})
        return as_json(found)

    def _metrics(self) -> Answer:
        own = self._state()
        models = {name: ModelMetrics(name) for name in self.models}
        other, process = Counter[int](), own["process"]
        for state, lives in ((own, True), *(self._board.others() if self._board is not None else ())):
            for name, metrics in models.items():
                metrics.include(state["models"][name], lives=lives)
            other.update({int(code): n for code, n in state["other"].items()})
            if state is not own:
                process = join_processes(process, state["process"], lives=lives)
        text = metrics_text([*models.values()], other, process)
        return Answer(200, text.encode(), CONTENT_TYPE.encode())

    def _state(self) -> dict[str, Any]:
        """What this process counted."""
        for model in self.models.values():
            model.metrics.waiting = model.batcher.waiting
        models = {name: model.metrics.state() for name, model in self.models.items()}
        other = {str(code): n for code, n in list(self._other.items())}
        return {"models": models, "other": other, "process": process_state()}

    def share(self, board: Board, orphaned: Callable[[], None]) -> None:
        """Count together with other processes that serve the same.

        Args:
            board: where they tell what they count.
            orphaned: is called if the process that started this one ends.
        """
        self._board = board
        self.tell()
        board.keep(self._state, orphaned)

    def tell(self) -> None:
        """Tell the other processes what this one counted."""
        if self._board is not None:
            self._board.write(self._state())

    # Inference

    async def _answer_inference(self, model: Model, scope: Scope, receive: Receive) -> Answer:
        start = perf_counter()
        held = _Held(self)
        model.metrics.in_flight += 1
        try:
            answer = await self._infer(model, scope, receive, held)
        except Exception as error:
            answer = as_error(error)
        finally:
            held.release()
            model.metrics.in_flight -= 1
        model.metrics.answer(answer.status, perf_counter() - start)
        return answer

    async def _infer(self, model: Model, scope: Scope, receive: Receive, held: _Held) -> Answer:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise RefusedError(415, "the body must not be encoded, got a content-encoding")
        if model.batcher.waiting >= self.settings.max_queue:
            raise RefusedError(503, "too many requests wait; try again later", {"retry-after": "1"})
        body = await self._body(headers, receive, held)
        length = headers.get(_JSON_LENGTH)
        request = model.codec.read(body, None if length is None else length.decode("latin-1"))
        model.interface.check(request.arrays)
        if model.max_rows and request.arrays[0].shape[0] > model.max_rows:
            got = request.arrays[0].shape[0]
            raise RefusedError(400, f"a request must have at most {model.max_rows} rows, got {got}")
        results = await model.batcher.submit(request.arrays)
        text, json_length = model.codec.write(request, results)
        if json_length is None:
            return Answer(200, text)
        return Answer(200, text, _BINARY, inference_header_content_length=str(json_length))

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive, held: _Held) -> bytes:
        """The body of a request, if it is not too long."""
        told = headers.get(b"content-length", b"0")
        if told.isdigit() and int(told[:20]) > self.settings.max_body:
            raise self._too_long()
        chunks: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedError(400, "the connection ended before the request did")
            chunk = message.get("body", b"")
            held.add(len(chunk))
            chunks.append(chunk)
            more = message.get("more_body", False)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _too_long(self) -> RefusedError:
        return RefusedError(413, f"a request must take at most {self.settings.max_body} bytes, got more")

    def hold(self, count: int, more: int) -> None:
        """Make room for bytes of a request that has some already; an error if there is none."""
        if count + more > self.settings.max_body:
            raise self._too_long()
        if self._held + more > self.settings.max_held:
            raise RefusedError(503, "too much waits; try again later", {"retry-after": "1"})
        self._held += more

    def let_go(self, count: int) -> None:
        """Give room back."""
        self._held -= count


class _Held:
    """The room that a request takes."""

    __slots__ = ("app", "count")

    def __init__(self, app: App) -> None:
        self.app = app
        self.count = 0

    def add(self, more: int) -> None:
        self.app.hold(self.count, more)
        self.count += more

    def release(self) -> None:
        self.app.let_go(self.count)
