"""An allocator of `streamsan.allocator` as torch's allocator of CUDA memory.

torch calls two functions of ours for every block that it wants or gives up, in whichever thread,
and a third for every ``record_stream``, also those of its C++ code. The functions take the lock of
the recording; a free, which may come from a finalizer at any moment, waits for nobody to hold it.
Nothing that fails in them reaches torch but as ``std::bad_alloc``, whose reason `take_failure`
gives: the recorder raises that in its place.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from streamsan.allocator import Allocator, Block, OutOfMemory, make_allocator
from streamsan.errors import UsageError
from streamsan.model import records as r
from streamsan.record._arena_figures import install_figures
from streamsan.record._arena_streams import ArenaMemory, ArenaStreams, ReportedStreams
from streamsan.record._native_calls import NativeCalls
from streamsan.record._observer import Observer
from streamsan.record.cuda._driver import Context, library
from streamsan.virtual.face.execute import out_of_memory

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_Method = TypeVar("_Method", bound=Callable[..., None])

_ADDRESS = _SIZE = _STREAM = ctypes.c_size_t
_DEVICE = ctypes.c_int


class Local(threading.local):
    """Per thread: why its last allocation failed, and what came up while a block was freed."""

    failure: BaseException | None = None
    interrupt: BaseException | None = None


def _quietly(method: _Method) -> _Method:
    """A method of `Arena` that raises nothing: errors of ours go into the report."""

    @wraps(method)
    def call(self: Arena, *args: Any) -> None:
        try:
            method(self, *args)
        except Exception as error:
            self.observer.internal_error(error)
        except BaseException as error:
            self._local.interrupt = error

    return call  # type: ignore[return-value]


class Device:
    """The arena of one device: its allocator over the driver's memory and streams."""

    def __init__(self, arena: Arena, index: int, context: Context) -> None:
        self.total = context.total
        """Bytes of the device."""
        self.memory = ArenaMemory(arena, index, context)
        kind = ReportedStreams if arena.name == "bfc:event" else ArenaStreams
        streams = kind(arena, index, context)
        self.allocator: Allocator = make_allocator(arena.name, self.memory, streams, self.total)
        self.handles = {0}
        """Native streams that came up in calls."""


class Arena:
    """The allocators of this process's devices; `name` is one of `streamsan.allocator.NAMES`."""

    def __init__(
        self, observer: Observer, name: str, context: Callable[[int], Context] = Context
    ) -> None:
        self.observer = observer
        self.name = name
        self.recorder: CudaRecorder | None = None
        """Who is told; nobody yet."""
        self.enabled = True
        self.devices: dict[int, Device] = {}
        self._context = context
        self._local = Local()
        self._live: dict[int, tuple[Device, Block | None]] = {}
        """Blocks that torch holds, by address; without a block, memory straight from the driver."""
        self._behalf: tuple[int, int] | None = None
        self._holds = False
        self._calls: NativeCalls | None = None

    def install(self) -> None:
        """Become torch's allocator, for the rest of the process.

        Raises UsageError where CUDA has started already, or where the system does not allow it.
        """
        if torch.cuda.is_initialized():
            raise UsageError(
                f"--allocator {self.name} comes too late: this process uses its GPU already, and"
                " torch takes an allocator only before that"
            )
        library()
        calls = self._calls = NativeCalls()
        made: Any = torch._C._cuda_customAllocator(
            calls.returning(self.malloc),
            calls.notifying(self.release, _ADDRESS, _SIZE, _DEVICE, _STREAM),
        )
        made.set_record_stream_fn(calls.notifying(self.record_stream, _ADDRESS, _STREAM))
        made.set_reset_fn(calls.notifying(self.empty_cache))
        try:
            torch._C._cuda_changeCurrentAllocator(made)
        except RuntimeError as error:
            raise UsageError(
                f"torch does not take --allocator {self.name} any more: {error}"
            ) from None

    def leave(self) -> None:
        """Do nothing any more: this is a forked child, which has no GPU."""
        self.enabled = False

    def device(self, index: int) -> Device:
        """The arena of a device, made when it is first asked for."""
        found = self.devices.get(index)
        if found is None:
            found = self.devices[index] = Device(self, index, self._context(index))
        return found

    def take_failure(self, error: BaseException) -> BaseException | None:
        """What made an operator of this thread fail with `error`, if that was an allocation."""
        failure, self._local.failure = self._local.failure, None
        return failure if "bad_alloc" in str(error) else None

    def raise_interrupt(self) -> None:
        """Raise what the program was sent while a function of ours ran: KeyboardInterrupt, say."""
        interrupt, self._local.interrupt = self._local.interrupt, None
        if interrupt is not None:
            raise interrupt

    # -- what torch calls; nothing in here raises -------------------------------------------------

    def malloc(self, size: int, index: int, stream: int) -> int:
        """Address of a block of at least `size` bytes for a native stream, or 0."""
        try:
            if self.enabled:
                with self.observer.monitor:
                    return self._allocate(max(size, 1), index, stream)
        except OutOfMemory as error:
            self._local.failure = out_of_memory(error, index)
        except BaseException as error:
            self._local.failure = error
        return 0

    def _allocate(self, size: int, index: int, stream: int) -> int:
        device = self.device(index)
        device.handles.add(stream)
        try:
            block = device.allocator.allocate(size, stream)
        except OutOfMemory:
            raise
        except Exception as error:
            self.observer.internal_error(error)
            return self._straight(device, size)
        self._live[block.address] = device, block
        self._tell_allocation(block.address, index, stream)
        return block.address

    def _straight(self, device: Device, size: int) -> int:
        """Memory of the driver's, where an error of ours keeps the allocator from it."""
        address = device.memory.reserve(size)
        if address is None:
            stats = device.allocator.stats()
            figures = stats.allocated_bytes.current, stats.reserved_bytes.current
            raise OutOfMemory(size, device.total, *figures)
        self._live[address] = device, None
        return address

    @_quietly
    def release(self, address: int, size: int, index: int, stream: int) -> None:
        """Take a block back, at once or when the lock is next free."""
        if self.enabled:
            where = self.caller()
            self.observer.monitor.later(lambda: self._release(address, size, where))

    @_quietly
    def _release(self, address: int, size: int, where: tuple[int, int]) -> None:
        """Give a block back; what the allocator has to do for that comes before the free."""
        device, block = self._live.pop(address)
        recorder = self.recorder
        born = recorder.blocks.take(address) if recorder is not None else None
        self._behalf = where
        self._holds = recorder is not None and address in recorder.local.operands
        try:
            if block is None:
                device.memory.release(address, size)
            else:
                device.allocator.free(block)
            if recorder is not None and born is not None:
                self.tell(lambda: recorder.blocks.give_up(born, *where))
        finally:
            self._behalf, self._holds = None, False

    @_quietly
    def record_stream(self, address: int, stream: int) -> None:
        """Rule M2: a native stream uses a block."""
        if self.enabled:
            with self.observer.monitor:
                self._use(address, stream)

    @_quietly
    def empty_cache(self) -> None:
        """Give what is not in use back to the driver."""
        if self.enabled:
            with self.observer.monitor:
                for device in self.devices.values():
                    device.allocator.empty_cache()

    # -- what the recorder tells, and is told -----------------------------------------------------

    @property
    def watched(self) -> bool:
        """Whether there is somebody to tell."""
        return self.recorder is not None and self.observer.recording

    def used(self, address: int, stream: int) -> None:
        """An operator on a native stream uses the block at an address."""
        _, block = self._live.get(address, (None, None))
        if block is not None and stream != block.stream and stream not in block.users:
            with self.observer.monitor:
                self._use(address, stream)

    def _use(self, address: int, stream: int) -> None:
        device, block = self._live.get(address, (None, None))
        if device is not None and block is not None:
            device.handles.add(stream)
            device.allocator.record_stream(block, stream)

    def _tell_allocation(self, address: int, index: int, stream: int) -> None:
        if self.recorder is not None and self.watched:
            try:
                owner = self.timeline(index, stream)
                self.recorder.blocks.allocated(address, owner, *self.caller())
            except Exception as error:
                self.observer.internal_error(error)

    def tell(self, work: Callable[[], None], after: bool = False) -> None:
        """Do what tells of something; or do it `after` the operator at work, which is for a free of
        one of its operands as well: the operator has used that, and is not reported yet.

        All else is told at once, since another thread may get the memory before the operator ends.
        """
        if self.recorder is None or not self.watched:
            return
        inside = self.recorder.local.inside
        if inside is not None and (after or self._holds):
            inside.append(work)
        else:
            work()

    def tell_join(self, index: int, cause: str) -> None:
        """The thread on whose behalf an allocator acts has waited for a device."""
        record = r.DeviceSync(index, *self.caller(), cause)
        self.tell(lambda: self.observer.emit(record))

    def caller(self) -> tuple[int, int]:
        """Timeline and stack on whose behalf an allocator acts: of a free, those it came from."""
        if self._behalf is not None and self.observer.monitor.mine:
            return self._behalf
        if self.recorder is None or not self.watched:
            return r.NONE, r.NONE
        return self.observer.thread(), self.recorder.stack()

    def timeline(self, index: int, stream: int) -> int:
        """Timeline of a native stream of a device."""
        return r.NONE if self.recorder is None else self.recorder.streams.define(index, stream)

    def handles(self, index: int) -> list[int]:
        """Native streams of a device that came up so far."""
        known = set(self.device(index).handles)
        if self.recorder is not None:
            known.update(self.recorder.streams.handles(index))
        return sorted(known)


_current: Arena | None = None


def use(name: str) -> Arena:
    """Make an allocator torch's, or give the one that is it already.

    Raises UsageError where that is another one, and as `Arena.install` does.
    """
    global _current
    if _current is None:
        arena = Arena(Observer(), name)
        arena.install()
        install_figures(arena)
        _current = arena
    elif _current.name != name:
        raise UsageError(
            f"the memory of this process is the {_current.name} allocator's: start a new one for"
            f" {name}"
        )
    return _current


def current() -> Arena | None:
    """The arena that is torch's allocator, if one of ours is."""
    return _current
