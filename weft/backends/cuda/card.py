"""One device: its context, its streams, its memory; and which of them a thread uses.

The context is the device's primary one, which PyTorch, JAX and CuPy use too, so that memory can be shared
with them. weft has a stream of its own on each device, and orders work across streams itself: see
``weft.backends.cuda.memory``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

from weft.backends.cuda.driver import Driver, the_driver
from weft.backends.cuda.native import driver_address
from weft.base.concrete import CONCRETE
from weft.base.device import Device
from weft.base.lazy import cached_property
from weft.errors import DeviceError

if TYPE_CHECKING:
    from weft.backends.cuda.memory import Block, Pool
    from weft.backends.cuda.streams import Stream

Held = TypeVar("Held")

# of CUdevice_attribute
_MULTIPROCESSORS, _MAJOR, _MINOR, _POOLS, _SHARED = 16, 75, 76, 115, 97


class Card:
    """A device that is in use.

    Attributes:
        index: which one.
        device: the same, as users name it.
        driver: by which it is called.
        handle: of the device.
        context: its primary one, which this process keeps.
        capability: of its kernels: (9, 0) is sm_90.
        stream: the stream that work goes to where no other is chosen.
        pool: its memory.
        several_streams: whether there are more than that one, so that work must be ordered.
        keepers: what keeps memory that it could do without, with a method ``forget`` for when there is none.
        launch_address: where the driver's function for launches is, for machine code; 0 if nobody knows.
    """

    def __init__(self, driver: Driver, index: int) -> None:
        from weft.backends.cuda.array import DeviceArray
        from weft.backends.cuda.memory import Pool
        from weft.backends.cuda.streams import Stream

        CONCRETE.add(DeviceArray)  # from here on tensors may hold such
        self.driver = driver
        self.index = index
        self.device = Device("cuda", index)
        self.handle = int(driver.cuDeviceGet(index))
        self.context = int(driver.cuDevicePrimaryCtxRetain(self.handle))
        self.capability = (self.attribute(_MAJOR), self.attribute(_MINOR))
        self.enter()
        self.launch_address = driver_address(driver)
        self.stream: Stream = Stream(self)
        self.several_streams = False
        self.keepers: WeakSet[Any] = WeakSet()
        self.pool: Pool = Pool(self)

    def __repr__(self) -> str:
        return f"<card {self.index}: {self.name}>"

    def attribute(self, number: int) -> int:
        """A number that the driver knows of the device."""
        api = self.driver.api
        wrap = getattr(api, "CUdevice_attribute", int)
        return int(self.driver.cuDeviceGetAttribute(wrap(number), self.handle))

    @property
    def name(self) -> str:
        """What the maker calls it."""
        text: bytes = self.driver.cuDeviceGetName(96, self.handle)
        return text.split(b"\0")[0].decode()

    @property
    def uuid(self) -> bytes:
        """What tells it from all others, also from those of other machines."""
        return bytes(self.driver.cuDeviceGetUuid(self.handle).bytes)

    @property
    def architecture(self) -> str:
        """The machine code that it runs: ``sm_90``."""
        return "sm_{}{}".format(*self.capability)

    @property
    def multiprocessors(self) -> int:
        """How many blocks run at a time, at least."""
        return self.attribute(_MULTIPROCESSORS)

    @property
    def shared_bytes(self) -> int:
        """The most shared memory that a block may ask for."""
        return self.attribute(_SHARED)

    @property
    def has_pools(self) -> bool:
        """Whether memory can be had in the order of a stream."""
        return bool(self.attribute(_POOLS))

    @cached_property
    def capture_stream(self) -> Stream:
        """The stream that calls of libraries are captured from."""
        from weft.backends.cuda.streams import Stream

        before = self.several_streams
        stream = Stream(self)
        self.several_streams = before  # nothing is ever run on it
        return stream

    @cached_property
    def library_order(self) -> Block:
        """Stands for the memory that captured calls of libraries share: who runs some waits for others."""
        return self.pool.take(1, self.stream)

    def enter(self) -> None:
        """Make the context that of this thread; each thread does it before its first call on this device."""
        if here.card is not self:
            for stream in here.streams.values():
                if stream.capture is not None and stream.card is not self:
                    stream.capture.refuse(f"work on {self.device}", "capture the work of one GPU")
            self.driver.cuCtxSetCurrent(self.context)
            here.use(self)

    def current(self) -> Stream:
        """The stream that this thread works on."""
        return here.streams.get(self.index, self.stream)

    def synchronize(self) -> None:
        """Wait until all that was asked of the device is done."""
        if (noting := self.current().capture) is not None:
            noting.refuse("a wait for the device", "read values after g.replay()")
        self.enter()
        self.driver.cuCtxSynchronize()


class _Here(threading.local):
    """What one thread uses.

    Attributes:
        card: the device whose context is that of the thread.
        streams: by device, the stream that was chosen instead of the device's own.
        plain: the card, while no stream is chosen: the short way of ops asks this alone.
    """

    card: Card | None = None
    plain: Card | None = None

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}

    def use(self, card: Card | None) -> None:
        """Note the device whose context is that of this thread."""
        self.card = card
        self.plain = None if self.streams else card

    def choose(self, index: int, stream: Stream | None) -> None:
        """Note the stream of a device; None for the device's own."""
        self.plain = None  # first, so that an interrupt leaves it at the general way
        if stream is None:
            self.streams.pop(index, None)
        else:
            self.streams[index] = stream
        self.use(self.card)


here = _Here()
_cards: dict[int, Card] = {}
_lock = threading.Lock()


def device_count(op: str) -> int:
    """How many devices there are; an error says what is missing for any."""
    return int(the_driver(op).cuDeviceGetCount())


def card(index: int = 0, op: str = "cuda") -> Card:
    """The device with a number, made ready at its first use."""
    driver = the_driver(op)
    known = _cards.get(index)
    if known is None:
        with _lock:
            known = _cards.get(index)
            if known is None:
                count = device_count(op)
                if not 0 <= index < count:
                    there = "only cuda:0 is" if count == 1 else f"cuda:0 to cuda:{count - 1} are"
                    raise DeviceError(op, f"the device must be there, got cuda:{index}, but {there}")
                known = _cards[index] = Card(driver, index)
    if here.card is not known:
        known.enter()
    return known


def cards() -> list[Card]:
    """The devices in use."""
    return list(_cards.values())


def forget_cards() -> None:
    """Drop all devices, for tests that put another driver in place."""
    _cards.clear()
    here.streams.clear()
    here.use(None)


class PerCard(Generic[Held]):
    """What there is one of for each device, made at its first use: the handle of a library, for example."""

    def __init__(self, make: Callable[[Card], Held]) -> None:
        self._make = make
        self._made: dict[int, tuple[Card, Held]] = {}
        self._lock = threading.Lock()

    def of(self, card: Card) -> Held:
        """That of a device."""
        with self._lock:
            known = self._made.get(id(card))
            if known is None or known[0] is not card:
                known = self._made[id(card)] = card, self._make(card)
        return known[1]

    def forget(self) -> None:
        """Drop all, for tests that put another driver in place."""
        self._made.clear()
