"""Row softmax for few long rows in Gluon (sm_90): pieces wait for their row in shared memory while the next ones stream in.

`split_kernel` holds its piece in registers while it waits for the rest of the row, so registers bound what is in flight.
Here one program an SM has a ring of pieces in shared memory: a producer warp fills it by asynchronous copies (TMA), a group
of four warps sums each piece as it arrives, and two groups wait for whole rows, write them, and free their places.
x: (rows, columns), contiguous, fp16 or bf16, columns a multiple of 64. Needs an H100 or H200, and triton 3.6 or 3.7.
"""
# ruff: noqa: PLR0917  (a kernel takes its arguments by position)
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.core import _aggregate as aggregate

LINE = gl.constexpr(64)  # elements in 128 bytes, a line of swizzled shared memory
WRITERS = gl.constexpr(2)  # groups that write: while one waits for its row the other goes on
TILE = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))  # a piece in registers, (lines, 64): 16 bytes a thread
ALL = gl.constexpr(gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])))  # every warp has all words of a row


# --8<-- [start:ring]
@aggregate
class Ring:
    """The program's i-th piece is in place i % PLACES; `number` says which of the call it is. Barriers: full; empty."""
    buffer: gl.shared_memory_descriptor  # (PLACES, 1, lines, 64)
    number: gl.shared_memory_descriptor  # (PLACES, 1), as the barriers
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor

    @gluon.constexpr_function
    def __init__(self, buffer, number, full, empty):
        self.buffer, self.number, self.full, self.empty = buffer, number, full, empty

    @gluon.jit
    def take(self, i):
        """The number of the i-th piece, once that has arrived."""
        place, turn = i % self.buffer.shape[0], i // self.buffer.shape[0]
        mbarrier.wait(self.full.index(place), turn & 1)
        return gl.max(self.number.index(place).load(gl.BlockedLayout([1], [32], [4], [0])), axis=0)

    @gluon.jit
    def load(self, i):
        """The i-th piece in registers, (lines, 64); and the number of each line, (lines, 1)."""
        tile = self.buffer.index(i % self.buffer.shape[0]).reshape([self.buffer.shape[2], LINE])
        return tile.load(TILE), gl.arange(0, self.buffer.shape[2], layout=gl.SliceLayout(1, TILE))[:, None]
# --8<-- [end:ring]


# --8<-- [start:producer]
@gluon.jit
def producer(x, counter, total, ring, PIECES: gl.constexpr):
    """One warp. It draws a number when there is room for its piece, never before: a piece that has a number will be summed."""
    lines: gl.constexpr = ring.buffer.shape[2]
    i, past = 0, 0
    while past < WRITERS:  # a number past the end for each of them
        place, turn = i % ring.buffer.shape[0], i // ring.buffer.shape[0]
        mbarrier.wait(ring.empty.index(place), (turn & 1) ^ 1)
        t = gl.atomic_add(counter, 1, sem="relaxed").to(gl.int32)
        ring.number.index(place).store(gl.full([1], t, gl.int32, layout=gl.BlockedLayout([1], [32], [1], [0])))
        if t < total:
            mbarrier.expect(ring.full.index(place), lines * LINE * 2)  # bytes; past the end of a row TMA fills in zeros
            at = [t // PIECES, t % PIECES * lines, 0]
            tma.async_copy_global_to_shared(x, at, ring.full.index(place), ring.buffer.index(place))
        else:
            mbarrier.arrive(ring.full.index(place))
            past += 1
        i += 1
# --8<-- [end:producer]


# --8<-- [start:summer]
@gluon.jit
def power(x, m, SCALE: gl.constexpr):
    """e^x / e^m by one exp2. A SCALE other than 1 is log2(e), and m carries it already."""
    return gl.exp2((x - m) * 1.4426950408889634) if SCALE == 1.0 else gl.exp2(x * SCALE - m)


@gluon.jit
def summer(words, total, ring, COLUMNS: gl.constexpr, PIECES: gl.constexpr, SCALE: gl.constexpr):
    """One group: maximum and sum of each piece, in one word. The piece stays where it is."""
    i = 0
    t = ring.take(i)
    while t < total:
        x, line = ring.load(i)
        if COLUMNS % (ring.buffer.shape[2] * LINE) != 0:
            x = gl.where(line < COLUMNS // LINE - t % PIECES * ring.buffer.shape[2], x, -float("inf"))
        m = gl.max(x).to(gl.float32) * SCALE
        base = gl.where(m == -float("inf"), 0.0, m)  # nothing but -inf sums to 0
        s = gl.sum(power(x.to(gl.float32), base, SCALE))
        word = (m.to(gl.int32, bitcast=True).to(gl.int64) << 32) | (s.to(gl.int32, bitcast=True).to(gl.int64) & 0xFFFFFFFF)
        gl.atomic_xchg(words + t, word, sem="relaxed")  # never 0: see `pack`
        i += 1
        t = ring.take(i)
# --8<-- [end:summer]


# --8<-- [start:writer]
@gluon.jit
def whole_row(words, PIECES: gl.constexpr, WORDS: gl.constexpr, SCALE: gl.constexpr):
    """(maximum, 1 / sum) of a row once its PIECES words are said. WORDS: the next power of two."""
    at = gl.arange(0, WORDS, layout=ALL)
    said = gl.load(words + at, mask=at < PIECES, other=-(1 << 55), volatile=True)  # other: maximum -inf, sum 0
    while gl.min((said != 0).to(gl.int32), axis=0) == 0:
        said = gl.load(words + at, mask=said == 0, other=said, volatile=True)  # ask again for those alone that are missing
    m, s = (said >> 32).to(gl.int32).to(gl.float32, bitcast=True), said.to(gl.int32).to(gl.float32, bitcast=True)
    top = gl.max(m, axis=0)
    return top, 1.0 / gl.sum(s * gl.exp2((m - top) * (1.4426950408889634 if SCALE == 1.0 else 1.0)), axis=0)


@gluon.jit
def writer(me, y, words, total, ring, COLUMNS: gl.constexpr, PIECES: gl.constexpr, WORDS: gl.constexpr, SCALE: gl.constexpr):
    """One group: every second piece. It frees the place as soon as the piece is in registers."""
    i = me
    t = ring.take(i)
    while t < total:
        row, first = t // PIECES, t % PIECES * ring.buffer.shape[2]  # its first line
        top, scale = whole_row(words + row * PIECES, PIECES, WORDS, SCALE)
        x, line = ring.load(i)
        fence_async_shared()
        mbarrier.arrive(ring.empty.index(i % ring.buffer.shape[0]))
        out = (power(x.to(gl.float32), top, SCALE) * scale).to(x.dtype)
        at = line * LINE + gl.arange(0, LINE, layout=gl.SliceLayout(0, TILE))[None, :]
        start = row.to(gl.int64) * COLUMNS + first * LINE
        gl.store(y + start + at, out, mask=line < COLUMNS // LINE - first)  # writes 2 bytes an element
        i += WRITERS
        t = ring.take(i)
# --8<-- [end:writer]


# --8<-- [start:kernel]
@gluon.jit(do_not_specialize=["total"])
def pipeline_kernel(x, y, state, total, COLUMNS: gl.constexpr, PIECES: gl.constexpr, WORDS: gl.constexpr, PLACES: gl.constexpr,
                    SCALE: gl.constexpr):
    """state: the counter that numbers the pieces, then a word for each of these `total`, all 0."""
    buffer = gl.allocate_shared_memory(x.dtype, [PLACES, 1, x.block_type.shape[1], LINE], x.layout)
    number = gl.allocate_shared_memory(gl.int32, [PLACES, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(PLACES):
        mbarrier.init(full.index(place), count=1)
        mbarrier.init(empty.index(place), count=1)
    ring = Ring(buffer, number, full, empty)
    gl.warp_specialize([(summer, (state + 1, total, ring, COLUMNS, PIECES, SCALE)),
                        (writer, (0, y, state + 1, total, ring, COLUMNS, PIECES, WORDS, SCALE)),
                        (writer, (1, y, state + 1, total, ring, COLUMNS, PIECES, WORDS, SCALE)),
                        (producer, (x, state, total, ring, PIECES))], [4, 4, 1], [152, 152, 24])
# --8<-- [end:kernel]


# --8<-- [start:call]
def pipeline_softmax(x, block=16384, places=6, programs=None):
    """softmax(x, -1). A ring takes 2 * block * places bytes of an SM's 227 KiB."""
    (rows, columns), line = x.shape, LINE.value
    if x.dtype not in {torch.float16, torch.bfloat16} or columns % line or x.numel() == 0 or not x.is_contiguous():
        raise NotImplementedError("wants contiguous fp16 or bf16, and a multiple of 64 columns")
    assert places % WRITERS.value == 0, "one writer for each place: a barrier tells this turn from the last, not from older ones"
    pieces = triton.cdiv(columns, block)
    programs = programs or torch.cuda.get_device_properties(x.device).multi_processor_count
    if pieces > programs * places:
        raise NotImplementedError(f"a row of {pieces} pieces, and room for {programs * places}: it would wait for ever")
    y = torch.empty_like(x)
    state = torch.zeros(1 + rows * pieces, dtype=torch.int64, device=x.device)
    box = [1, block // line, line]
    layout = gl.NVMMASharedLayout.get_default_for(box, gl.float16 if x.dtype == torch.float16 else gl.bfloat16)
    tiles = TensorDescriptor.from_tensor(x.view(rows, -1, line), box, layout)
    pipeline_kernel[(min(programs, rows * pieces),)](
        tiles, y, state, rows * pieces, COLUMNS=columns, PIECES=pieces, WORDS=triton.next_power_of_2(pieces),
        PLACES=places, SCALE=1.4426950408889634 if x.dtype == torch.float16 else 1.0, num_warps=4)
    return y
# --8<-- [end:call]
