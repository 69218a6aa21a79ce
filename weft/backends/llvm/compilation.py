"""Texts on their way to object code: threads compile what is there while more is being written.

Short texts are put together, since some 1.2 ms of work are done once for each module. Which ones does not
depend on how far the threads have got, so that the cache on disk knows the modules again.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue

from weft.backends.llvm.compiler import Source
from weft.base.threads import get_num_threads

DEFINED = re.compile(r"^define (?!internal|private|available_externally).*?@([\w.$]+)\(", re.MULTILINE)
DECLARED = re.compile(r"^declare .*?@([\w.$]+)\(", re.MULTILINE)
_SHARED = ("declare ", "attributes ", "!", "target ")  # lines that several texts may have in common

# Characters of a module: few at first, so that no processor waits for the first one; a fifth of all later.
_LEAST_BATCH, _MOST_BATCH, _PART = 4_000, 16_000, 5

_TURN = 1e-4  # seconds after which a thread that runs Python lets one take over that has compiled something


class Compilation:
    r"""Object code of texts, compiled side by side, in the order of their modules.

    >>> from weft.backends.llvm.compilation import Compilation
    >>> from weft.backends.llvm.compiler import Source
    >>> with Compilation(lambda source: source.text.encode()) as compilation:
    ...     compilation.add(Source("define void @f() {\n  ret void\n}\n"))
    ...     [code] = compilation.finish()
    >>> code[:16]
    b'define void @f()'

    Attributes:
        sources: all texts, as they were given.
    """

    def __init__(self, compile: Callable[[Source], bytes]) -> None:
        self.sources: list[Source] = []
        self._compile = compile
        self._waiting: dict[tuple[bool, ...], list[str]] = {}
        self._modules: list[Source] = []
        self._characters = self._begun = 0
        self._objects: dict[int, bytes] = {}
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def __enter__(self) -> Compilation:
        self._turn = sys.getswitchinterval()
        sys.setswitchinterval(_TURN)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._errors.append(error)  # so that nothing more is begun
        self._end()
        self._join()
        sys.setswitchinterval(self._turn)

    def add(self, source: Source) -> None:
        """Take a text."""
        self.sources.append(source)
        batch = self._waiting.setdefault(source[1:], [])
        batch.append(source.text)
        if sum(map(len, batch)) >= min(max(self._characters // _PART, _LEAST_BATCH), _MOST_BATCH):
            self._begin(source[1:])

    def finish(self) -> list[bytes]:
        """The object code of all modules; the first error is raised."""
        for settings in list(self._waiting):
            self._begin(settings)
        self._end()
        self._work()
        self._join()
        if self._errors:
            raise self._errors[0]
        return [self._objects[i] for i in range(len(self._modules))]

    def run(self, work: Callable[[], None]) -> None:
        """Have other work done beside."""
        self._queue.put(work)
        self._begun += 1
        if len(self._threads) < min(get_num_threads() - 1, self._begun):
            self._threads.append(threading.Thread(target=self._work))
            self._threads[-1].start()

    def _begin(self, settings: tuple[bool, ...]) -> None:
        """Let the texts that wait be compiled."""
        module = Source(merged(self._waiting.pop(settings)), *settings)
        self._modules.append(module)
        self._characters += len(module.text)
        self.run(partial(self._compile_module, len(self._modules) - 1))

    def _compile_module(self, i: int) -> None:
        self._objects[i] = self._compile(self._modules[i])

    def _work(self) -> None:
        """Do what there is, and what comes, up to a sign to stop."""
        try:
            while (work := self._queue.get()) is not None and not self._errors:
                work()
        except BaseException as error:
            self._errors.append(error)

    def _end(self) -> None:
        """Give the sign to stop to all threads, and to the one that waits for them."""
        for _ in range(len(self._threads) + 1):
            self._queue.put(None)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._threads.clear()


def merged(texts: Sequence[str]) -> str:
    """Texts as one, where what they share is said once."""
    if len(texts) == 1:
        return texts[0]
    defined = {name for text in texts for name in DEFINED.findall(text)}
    shared: dict[str, None] = {}
    own: list[str] = []
    for text in texts:
        for line in text.splitlines():
            if not line.startswith(_SHARED):
                own.append(line)
            elif defined.isdisjoint(DECLARED.findall(line)):
                shared[line] = None
    return "\n".join([*shared, *own, ""])
