"""Runs a warp-specialized Gluon kernel on the CPU: each partition is a thread, each mbarrier a counter with phases.

Gluon has no interpreter. `installed()` puts modules of the names that a kernel imports into sys.modules; the kernel's source
then runs as plain Python on tensors. It shows wrong indices, masks, phases and deadlocks, not data races or layouts.
"""
import contextlib
import importlib.util
import sys
import threading
import time
import types
from pathlib import Path

import torch

from harness import snippet

WAIT_S = 20.0  # a wait this long is a deadlock
POLL_S = 1e-4  # between two volatile loads
RESIDENT = None  # how many programs of a launch run at a time, and in reverse order; None: all
running = threading.local()
failed = threading.Event()  # some partition of this launch has failed


class Stuck(Exception):
    """A partition waited for a barrier that nobody completes."""


class Barrier:
    """An mbarrier: `count` arrivals and all expected bytes complete a phase."""

    def __init__(self):
        self.changed = threading.Condition()

    def start(self, count):
        self.count = self.pending = count
        self.bytes = self.phase = 0

    def settle(self):
        if self.pending == 0 and self.bytes == 0:
            self.pending, self.phase = self.count, self.phase + 1
            self.changed.notify_all()

    def arrive(self, size=0):
        with self.changed:
            self.bytes += size
            self.pending -= 1
            assert self.pending >= 0, "more arrivals than the barrier counts"
            self.settle()

    def received(self, size):
        with self.changed:
            self.bytes -= size
            self.settle()

    def wait(self, parity):
        """Until the phase of that parity is over: a fresh barrier counts the phase before it, of parity 1, as over."""
        running.polls = 0
        with self.changed:
            if not self.changed.wait_for(lambda: self.phase & 1 != int(parity) & 1, WAIT_S):
                raise Stuck(f"phase {self.phase}, {self.pending} arrivals and {self.bytes} bytes missing")


class Memory:
    """A shared memory descriptor over a tensor, or over a list of barriers."""

    def __init__(self, data, dtype):
        self.data, self.dtype = data, dtype
        self.shape = list(data.shape) if isinstance(data, torch.Tensor) else [len(data), 1]

    def index(self, i):
        assert 0 <= i < self.shape[0], f"place {i} of {self.shape[0]}"
        return self.data[i] if isinstance(self.data, list) else Memory(self.data[i], self.dtype)

    def reshape(self, shape):
        return Memory(self.data.view([int(size) for size in shape]), self.dtype)

    def permute(self, order):
        return Memory(self.data.permute(*order), self.dtype)

    def load(self, layout):
        return self.data.clone()

    def store(self, value):
        self.data.copy_(value)


class Descriptor:
    def __init__(self, tensor, block, layout):
        self.tensor, self.block, self.layout, self.dtype = tensor, block, layout, tensor.dtype
        self.block_type = types.SimpleNamespace(shape=block)

    @classmethod
    def from_tensor(cls, tensor, block, layout):
        return cls(tensor, block, layout)


class Pointer:
    """A tensor's memory with an offset in elements."""

    def __init__(self, tensor, offset=0):
        self.tensor, self.offset = tensor, offset

    def __add__(self, offset):
        return Pointer(self.tensor, self.offset + offset)


class Scalar(int):
    """An integer that also has the `to` of a scalar tensor; arithmetic gives Scalars."""

    def to(self, dtype):
        return self


for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__mod__", "__floordiv__", "__and__", "__xor__"):
    setattr(Scalar, _name, lambda self, other, _name=_name: getattr(int(self), _name)(other)
            if not isinstance(other, int) else Scalar(getattr(int(self), _name)(int(other))))


class _Int(int):
    value = property(int)


def _constant(value):
    """gl.constexpr: code sees its value."""
    return _Int(value) if type(value) is int else value


def _where(condition, a, b):
    dtype = (a if isinstance(a, torch.Tensor) else b).dtype
    return torch.where(condition, torch.as_tensor(a, dtype=dtype), torch.as_tensor(b, dtype=dtype))


def _maximum(a, b):
    return torch.maximum(*torch.broadcast_tensors(torch.as_tensor(a), torch.as_tensor(b))) if _tensors(a, b) else Scalar(max(a, b))


def _minimum(a, b):
    return torch.minimum(*torch.broadcast_tensors(torch.as_tensor(a), torch.as_tensor(b))) if _tensors(a, b) else Scalar(min(a, b))


def _tensors(*values):
    return any(isinstance(value, torch.Tensor) for value in values)


def _allocate(dtype, shape, layout):
    if layout == "barriers":
        return Memory([Barrier() for _ in range(shape[0])], dtype)
    filled = torch.full(shape, float("nan")) if dtype.is_floating_point else torch.full(shape, -1)
    return Memory(filled.to(dtype), dtype)  # what nobody wrote is not a number


def _copy_in(descriptor, at, barrier, place):
    """The box at `at`, zeros outside the tensor, as TMA reads it."""
    box = torch.zeros(descriptor.block, dtype=descriptor.dtype)
    first = [max(0, start) for start in at]
    end = [min(start + size, bound) for start, size, bound in zip(at, descriptor.block, descriptor.tensor.shape, strict=True)]
    if all(a < b for a, b in zip(first, end, strict=True)):
        inner = tuple(slice(a - start, b - start) for a, b, start in zip(first, end, at, strict=True))
        box[inner] = descriptor.tensor[tuple(slice(a, b) for a, b in zip(first, end, strict=True))]
    place.data.copy_(box)
    barrier.received(box.numel() * 2)


def _multiply(a, b, acc, use_acc=True, is_async=False):
    left = a.data if isinstance(a, Memory) else a
    product = left.float() @ b.data.float()
    return acc + product if use_acc else product


def _store(pointer, value, mask=None, **hints):
    if mask is None:
        pointer.tensor.view(-1)[pointer.offset] = value
    else:
        rows = mask.expand(value.shape)
        pointer.tensor.view(-1)[pointer.offset[rows]] = value[rows]


def _max(x, axis=None):
    most = x.amax() if axis is None else x.amax(axis)
    return most if most.is_floating_point() else Scalar(int(most))


ATOMIC = threading.Lock()
TO = torch.Tensor.to


def _atomic_add(pointer, value, sem=None):
    with ATOMIC:
        old = Scalar(int(pointer.tensor[pointer.offset]))
        pointer.tensor[pointer.offset] += value
    return old


def _atomic_xchg(pointer, value, sem=None):
    with ATOMIC:
        pointer.tensor.view(-1)[pointer.offset] = value


def _load(pointer, mask=None, other=None, volatile=False):
    """Volatile: somebody waits for a value. Waiting for WAIT_S, or for a program that has failed, is a deadlock."""
    if volatile:
        running.polls = getattr(running, "polls", 0) + 1
        time.sleep(POLL_S)
        if running.polls * POLL_S > WAIT_S or failed.is_set():
            raise Stuck("a value that nobody writes")
    if isinstance(pointer.offset, int):
        return Scalar(int(pointer.tensor.view(-1)[pointer.offset]))
    with ATOMIC:
        words = pointer.tensor.view(-1)[pointer.offset.clamp(max=pointer.tensor.numel() - 1)]
    return words if mask is None else torch.where(mask, words, torch.as_tensor(other))


def _to(x, *args, bitcast=False, **kwargs):
    return x.view(*args) if bitcast else TO(x, *args, **kwargs)


def _specialize(partitions, warps, registers):
    """Every partition in a thread of its own; the first error is raised here."""
    program, errors = running.program, []

    def work(function, arguments):
        running.program = program
        try:
            function(*arguments)
        except BaseException as error:
            failed.set()
            errors.append(error)

    threads = [threading.Thread(target=work, args=partition) for partition in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Kernel:
    """A jitted function: called from Python as kernel[grid](...), from the kernel as a function."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner):
        return self if instance is None else types.MethodType(self.function, instance)

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __getitem__(self, grid):
        def launch(*args, num_warps=4, maxnreg=None, launch_cooperative_grid=False, **options):
            args = [Pointer(x) if isinstance(x, torch.Tensor) else Scalar(x) if isinstance(x, int) else x for x in args]
            errors = []

            failed.clear()
            room = threading.Semaphore(RESIDENT or grid[0])

            def program(number):
                running.program = Scalar(number), Scalar(grid[0])
                try:
                    with room:
                        self.function(*args, **options)
                except BaseException as error:
                    errors.append(error)

            programs = [threading.Thread(target=program, args=(number,)) for number in range(grid[0])]
            for thread in reversed(programs) if RESIDENT else programs:
                thread.start()
            for thread in programs:
                thread.join()
            if errors:
                raise errors[0]
        return launch


def _jit(function=None, **options):
    return Kernel(function) if function else _jit


def _module(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    return module


def _language():
    layouts = {name: lambda *args, **kwargs: None for name in
               ("NVMMADistributedLayout", "DotOperandLayout", "SliceLayout", "BlockedLayout", "SwizzledSharedLayout")}
    shared = types.SimpleNamespace(get_default_for=lambda *args: None)
    return _module(
        "language", **layouts, NVMMASharedLayout=shared, constexpr=_constant, shared_memory_descriptor=Memory, tensor=int,
        float16=torch.float16, bfloat16=torch.bfloat16, float32=torch.float32, int32=torch.int32, int64=torch.int64,
        static_range=range, cdiv=lambda a, b: Scalar(-(-a // b)), exp2=torch.exp2, where=_where, maximum=_maximum, minimum=_minimum,
        max=_max, min=lambda x, axis: x.amin(axis), sum=lambda x, axis=None: x.sum() if axis is None else x.sum(axis),
        full=lambda shape, value, dtype, layout=None: torch.full(shape, value).to(dtype),
        zeros=lambda shape, dtype, layout=None: torch.zeros(shape, dtype=dtype),
        arange=lambda a, b, layout=None: torch.arange(a, b), convert_layout=lambda x, layout: x,
        program_id=lambda axis: running.program[0], num_programs=lambda axis: running.program[1],
        allocate_shared_memory=_allocate, warp_specialize=_specialize, atomic_add=_atomic_add, store=_store,
        atomic_xchg=_atomic_xchg, load=_load,
        inline_asm_elementwise=lambda asm, constraints, args, **options: torch.exp2(args[0]))


@contextlib.contextmanager
def installed():
    """Gluon's modules replaced by these for as long as the kernel is imported and run."""
    mbarrier = _module("mbarrier", MBarrierLayout=lambda: "barriers", init=lambda barrier, count: barrier.start(count),
                       wait=lambda barrier, phase: barrier.wait(phase), arrive=lambda barrier: barrier.arrive(),
                       expect=lambda barrier, size: barrier.arrive(size))
    hopper = _module("hopper", mbarrier=mbarrier, tma=_module("tma", async_copy_global_to_shared=_copy_in), warpgroup_mma=_multiply,
                     fence_async_shared=lambda: None,
                     warpgroup_mma_wait=lambda outstanding, deps: deps[0] if len(deps) == 1 else tuple(deps))
    language, names = _language(), "triton.experimental.gluon"
    gluon = _module("gluon", jit=_jit, constexpr_function=lambda function: function, language=language)
    modules = {names: gluon, f"{names}.language": language, f"{names}.language.nvidia.hopper": hopper,
               f"{names}.nvidia.hopper": _module("hopper", TensorDescriptor=Descriptor),
               "triton.language.core": _module("core", _aggregate=lambda cls: cls),
               "triton": _module("triton", cdiv=lambda a, b: -(-a // b), next_power_of_2=lambda n: 1 << (n - 1).bit_length(),
                                  experimental=_module("experimental", gluon=gluon)),
               "triton.experimental": _module("experimental", gluon=gluon), "triton.language": _module("language")}
    kept = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    torch.Tensor.to = _to
    try:
        yield
    finally:
        torch.Tensor.to = TO
        for name, module in kept.items():
            sys.modules.pop(name) if module is None else sys.modules.update({name: module})


@contextlib.contextmanager
def imported(name: str):
    """The module of snippets/<name>.py, its kernel run by this emulator for as long as the context lasts."""
    spec = importlib.util.spec_from_file_location(f"{Path(name).name}_emulated", snippet.path(name))
    module = importlib.util.module_from_spec(spec)
    with installed():
        spec.loader.exec_module(module)
        yield module
