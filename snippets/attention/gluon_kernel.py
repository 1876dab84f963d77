"""FlashAttention forward for Hopper (sm_90) in Gluon, Triton's explicit dialect: softmax(q k^T / sqrt(D)) v.

One program an SM runs through many tiles of query rows. Its producer warp streams Q, K and V into shared memory by TMA;
each of its consumer warpgroups owns 64 rows of the tile. A consumer starts Q.K^T of the next block, then P.V of the last
one, and runs the softmax while the tensor cores work. Blocks go from the diagonal back to key 0, so that only the first
need a mask. q: (batch, heads, N, D); k, v: (batch, heads, M, D), contiguous, bf16 or fp16, D 64 or 128. Forward only.

With causal=True query i sees keys 0 to i, aligned top left, as `is_causal` of scaled_dot_product_attention has it.
Each switch of `attention` is one rung of the ladder on the page. Needs an H100 or H200, and triton 3.6 or 3.7.
"""
# ruff: noqa: E741, PLR0917  (m, l and O are the papers' names; a kernel takes its arguments by position)
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.core import _aggregate as aggregate

ROWS = gl.constexpr(64)  # query rows of a consumer: what one wgmma takes
LOG2E = 1.4426950408889634
L2_SHARE = 32 * 2**20  # bytes of K and V at work at a time: they stay in an L2 of 60 MiB
CUBIC = ("0f3F7FFB49", "0f3F31798D", "0f3E786F0F", "0f3D61FBB1")  # 2^f for |f| <= 0.5, lowest power first, error 7.5e-5


# --8<-- [start:ring]
@aggregate
class Ring:
    """Tiles in shared memory, filled and emptied round and round. Each place has two barriers: it is full; it is empty."""
    buffer: gl.shared_memory_descriptor  # (places, 1, rows, D)
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor

    @gluon.constexpr_function
    def __init__(self, buffer, full, empty):
        self.buffer, self.full, self.empty = buffer, full, empty

    @gluon.jit
    def fill(self, i, desc, head, row):
        """Producer: start the copy of item i, once every reader has released the item that was in its place."""
        place, turn = i % self.buffer.shape[0], i // self.buffer.shape[0]
        mbarrier.wait(self.empty.index(place), (turn & 1) ^ 1)
        mbarrier.expect(self.full.index(place), self.buffer.shape[2] * self.buffer.shape[3] * 2)  # bytes
        tma.async_copy_global_to_shared(desc, [head, row, 0], self.full.index(place), self.buffer.index(place))

    @gluon.jit
    def take(self, i):
        """Consumer: item i, once it has arrived. Rows outside the tensor arrive as zeros."""
        place, turn = i % self.buffer.shape[0], i // self.buffer.shape[0]
        mbarrier.wait(self.full.index(place), turn & 1)
        return self.buffer.index(place).reshape([self.buffer.shape[2], self.buffer.shape[3]])

    @gluon.jit
    def release(self, i):
        """Consumer: item i may be overwritten."""
        mbarrier.arrive(self.empty.index(i % self.buffer.shape[0]))


@gluon.jit
def make_ring(desc, PLACES: gl.constexpr, SIZE: gl.constexpr, D: gl.constexpr, READERS: gl.constexpr):
    buffer = gl.allocate_shared_memory(desc.dtype, [PLACES, 1, SIZE, D], desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(PLACES):
        mbarrier.init(full.index(place), count=1)
        mbarrier.init(empty.index(place), count=READERS)
    return Ring(buffer, full, empty)
# --8<-- [end:ring]


@aggregate
class Task:
    """What producer and consumers share: the rings, the lengths and the switches."""
    q: Ring  # place (2 tiles) x (consumers)
    k: Ring
    v: Ring
    turns: gl.shared_memory_descriptor  # (consumers, 1): whose turn it is to start matrix products
    order: gl.shared_memory_descriptor  # (2, 1): the number of the tile whose rows are in q
    q_len: gl.tensor
    k_len: gl.tensor
    heads: gl.tensor  # batch times heads
    together: gl.tensor  # how many heads are at work at a time
    CAUSAL: gl.constexpr
    CONSUMERS: gl.constexpr
    BLOCK: gl.constexpr  # keys in a block
    D: gl.constexpr
    TURNS: gl.constexpr
    DYNAMIC: gl.constexpr
    CARRY: gl.constexpr
    SKIP: gl.constexpr
    POLY: gl.constexpr
    FORTH: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, q, k, v, turns, order, q_len, k_len, heads, together, CAUSAL, CONSUMERS, BLOCK, D,
                 TURNS, DYNAMIC, CARRY, SKIP, POLY, FORTH):
        self.q, self.k, self.v, self.turns, self.order = q, k, v, turns, order
        self.q_len, self.k_len, self.heads, self.together = q_len, k_len, heads, together
        self.CAUSAL, self.CONSUMERS = gl.constexpr(CAUSAL), gl.constexpr(CONSUMERS)
        self.BLOCK, self.D = gl.constexpr(BLOCK), gl.constexpr(D)
        self.TURNS, self.DYNAMIC, self.CARRY = gl.constexpr(TURNS), gl.constexpr(DYNAMIC), gl.constexpr(CARRY)
        self.SKIP, self.POLY, self.FORTH = gl.constexpr(SKIP), gl.constexpr(POLY), gl.constexpr(FORTH)

# --8<-- [start:schedule]
    @gluon.jit
    def tiles(self):
        return gl.cdiv(self.q_len, ROWS * self.CONSUMERS) * self.heads

    @gluon.jit
    def dealt(self, n):
        """The program's n-th tile, dealt in rounds; with FORTH every second round begins at the other end."""
        program = gl.program_id(0)
        if self.FORTH and n % 2 == 1:
            program = gl.num_programs(0) - 1 - program
        return n * gl.num_programs(0) + program

    @gluon.jit
    def tile(self, t):
        """Tile t: (head, first row, key blocks, how many of them need a mask). Past the end: nobody uses it.

        `together` heads at a time, so that their K and V stay in L2; among these the longest tiles come first.
        """
        tile_rows: gl.constexpr = ROWS * self.CONSUMERS
        rounds = gl.cdiv(self.q_len, tile_rows)
        first = t // (rounds * self.together) * self.together
        heads = gl.maximum(gl.minimum(self.together, self.heads - first), 1)
        head = first + t % (rounds * self.together) % heads
        row = (rounds - 1 - t % (rounds * self.together) // heads) * tile_rows
        end = self.k_len
        clear = self.k_len // self.BLOCK
        if self.CAUSAL:
            end = gl.minimum(end, row + tile_rows)
            clear = gl.minimum(clear, row // self.BLOCK)
        blocks = gl.maximum(gl.cdiv(end, self.BLOCK), 1)
        return head, row, blocks, blocks - clear
# --8<-- [end:schedule]


# --8<-- [start:producer]
@gluon.jit
def number(counter, n, total, task):
    """The number of the program's n-th tile: dealt beforehand, or the next one that no program has drawn yet."""
    t = task.dealt(n)
    if task.DYNAMIC:
        t = gl.atomic_add(counter, 1)
        if t == total + gl.num_programs(0) - 1:  # the last draw of all: ready for the next call
            gl.store(counter, 0)
    return t


@gluon.jit
def begin_tile(Q, K, it, n, t, task):
    """Tile t is the n-th: say so to the consumers, and ask for its first block of K and its rows of Q."""
    if task.DYNAMIC:
        for me in gl.static_range(task.CONSUMERS):  # every consumer has read the number that was in this place
            mbarrier.wait(task.q.empty.index(n % 2 * task.CONSUMERS + me), (n // 2 & 1) ^ 1)
        task.order.index(n % 2).store(gl.full([1], t, gl.int32, layout=gl.BlockedLayout([1], [32], [1], [0])))
    head, row, blocks, masked = task.tile(t)
    task.k.fill(it, K, head, (blocks - 1) * task.BLOCK)  # K before Q: it is the larger
    for me in gl.static_range(task.CONSUMERS):
        task.q.fill(n * task.CONSUMERS + me, Q, head, row + me * ROWS)


@gluon.jit
def producer(Q, K, V, counter, task):
    """One warp. It runs ahead of the consumers as far as the rings have room, and asks in the order in which they read."""
    total = task.tiles()
    it = 0  # key blocks so far, over all tiles
    n = 0  # tiles so far
    t = number(counter, 0, total, task)
    begin_tile(Q, K, it, n, t, task)
    while t < total:
        following = number(counter, n + 1, total, task)  # ahead of its need: the answer takes as long as a read from memory
        head, row, blocks, masked = task.tile(t)
        for i in range(1, blocks):
            task.k.fill(it + 1, K, head, (blocks - 1 - i) * task.BLOCK)
            task.v.fill(it, V, head, (blocks - i) * task.BLOCK)
            it += 1
        task.v.fill(it, V, head, 0)
        it += 1
        n += 1
        t = following
        begin_tile(Q, K, it, n, t, task)  # past the end too: Q and one block of K are read, and their scores never used
# --8<-- [end:producer]


# --8<-- [start:products]
@gluon.constexpr_function
def product(columns):
    """The layout of a result of wgmma in registers: four warps, 16 rows each, all columns."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.jit
def start_scores(it, q, task):
    """q (64, D) times block `it` of K, transposed: (64, BLOCK). Returns at once."""
    S: gl.constexpr = product(task.BLOCK)
    zero = gl.zeros([ROWS, task.BLOCK], gl.float32, layout=S)
    return warpgroup_mma(q, task.k.take(it).permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def start_output(it, p, acc, task):
    """acc (64, D) plus p (64, BLOCK, in registers) times block `it` of V. Returns at once."""
    return warpgroup_mma(p, task.v.take(it), acc, is_async=True)


@gluon.jit
def start_both(me, it, q, p, acc, task):
    """Scores of block it + 1 and output of block it. With TURNS the consumers start theirs one after the other."""
    if task.TURNS:
        mbarrier.wait(task.turns.index(me), (it & 1) ^ (1 if me == 0 else 0))
    s = start_scores(it + 1, q, task)
    acc = start_output(it, p, acc, task)
    if task.TURNS:
        mbarrier.arrive(task.turns.index((me + 1) % task.CONSUMERS))
    return s, acc
# --8<-- [end:products]


# --8<-- [start:exp2]
@gluon.jit
def exp2(x, POLY: gl.constexpr):
    """2^x for x <= 0. With POLY one in POLY elements is computed by a polynomial on the FMA units, not by the MUFU.

    x = n + f with -0.5 <= f <= 0.5. Adding 1.5 * 2^23 leaves n in the lowest bits; 2^f by a cubic (relative error 7.5e-5, under
    the rounding of p to 16 bits); n goes into the exponent by an integer addition. After FlashAttention-4 (arXiv 2603.05451).
    """
    if POLY == 0:
        y = gl.exp2(x)
    else:
        asm: gl.constexpr = exp2_asm(POLY)
        y = gl.inline_asm_elementwise(asm[0], asm[1], [x], dtype=gl.float32, is_pure=True, pack=POLY)
    return y


@gluon.constexpr_function
def exp2_asm(count):
    """PTX for `count` elements, the first by polynomial, and its constraints: results $0 .., then arguments."""
    cubic = f"""{{ .reg .f32 x, n, f, y; .reg .b32 b, e;
        max.ftz.f32 x, ${count}, 0fC2FC0000;
        add.rn.ftz.f32 n, x, 0f4B400000; sub.rn.ftz.f32 f, n, 0f4B400000; sub.rn.ftz.f32 f, x, f;
        fma.rn.ftz.f32 y, f, {CUBIC[3]}, {CUBIC[2]}; fma.rn.ftz.f32 y, y, f, {CUBIC[1]}; fma.rn.ftz.f32 y, y, f, {CUBIC[0]};
        mov.b32 b, y; mov.b32 e, n; shl.b32 e, e, 23; add.s32 b, b, e; mov.b32 $0, b; }}"""
    rest = [f"ex2.approx.ftz.f32 ${i}, ${count + i};" for i in range(1, count)]
    return "\n".join([cubic, *rest]), ",".join(["=&f"] * count + ["f"] * count)
# --8<-- [end:exp2]


# --8<-- [start:softmax]
@gluon.jit
def softmax_step(s, m, l, scale, task):
    """One step of the online softmax in powers of two: p in the layout of P.V, the new m and l, and the factor for the old acc.

    `scale` carries log2(e), so that 2^(scale s - m) is one multiply-add and one instruction of the MUFU.
    """
    P: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=product(task.D), k_width=2)
    m_new = gl.maximum(m, gl.max(s, axis=1) * scale)
    if task.SKIP > 0:  # a maximum that is a little too low is as good: p stays below 2^SKIP, and nothing is rescaled
        m_new = gl.where(m_new - m > task.SKIP, m_new, m)
    alpha = gl.exp2(m - m_new)
    p = exp2(s * scale - m_new[:, None], task.POLY)
    return gl.convert_layout(p.to(task.k.buffer.dtype), P), m_new, l * alpha + gl.sum(p, axis=1), alpha


@gluon.jit
def rescale(acc, alpha, task):
    """acc times alpha by rows. With SKIP only where some row of the 64 has a new maximum."""
    O: gl.constexpr = product(task.D)
    if task.SKIP > 0:
        if gl.min(alpha, axis=0) < 1.0:
            acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, O))[:, None]
    else:
        acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, O))[:, None]
    return acc


@gluon.jit
def masked_scores(s, key, row, task):
    """-inf where the key lies past the end, or past the row's own position: one comparison an element."""
    S: gl.constexpr = product(task.BLOCK)
    keys = key + gl.arange(0, task.BLOCK, layout=gl.SliceLayout(0, S))
    if task.CAUSAL:
        end = gl.minimum(row + 1 + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S)), task.k_len)
        s = gl.where(keys[None, :] < end[:, None], s, -float("inf"))
    else:
        s = gl.where((keys < task.k_len)[None, :], s, -float("inf"))
    return s
# --8<-- [end:softmax]


# --8<-- [start:consumer]
@gluon.jit
def fresh(task):
    """m and l before the first block. m is finite, so that a block with nothing but -inf gives p = 0, not NaN."""
    rows: gl.constexpr = gl.SliceLayout(1, product(task.BLOCK))
    return gl.full([ROWS], -1e30, gl.float32, layout=rows), gl.zeros([ROWS], gl.float32, layout=rows)


@gluon.jit
def read_order(n, t, task):
    """The number of the tile whose rows lie in place n: read from shared memory if it was drawn."""
    if task.DYNAMIC:
        word = task.order.index(n % 2).load(gl.BlockedLayout([1], [32], [4], [0]))
        t = gl.max(word, axis=0)
    return t


@gluon.jit
def store_tile(Out, acc, l, head, row, task):
    """acc / l, through shared memory into a layout whose threads hold 16-byte pieces of a row: 2 bytes an element."""
    O: gl.constexpr = product(task.D)
    W: gl.constexpr = gl.BlockedLayout([1, 8], [256 // task.D, task.D // 8], [4, 1], [1, 0])
    out = acc * gl.convert_layout(1.0 / l, gl.SliceLayout(1, O))[:, None]
    out = gl.convert_layout(out.to(task.k.buffer.dtype), W)
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, W))[:, None]
    columns = gl.arange(0, task.D, layout=gl.SliceLayout(0, W))[None, :]
    gl.store(Out + (head.to(gl.int64) * task.q_len + rows) * task.D + columns, out, mask=rows < task.q_len)


@gluon.jit
def advance(me, it, q, p, acc, m, l, key, row, mask, scale, OVERLAP: gl.constexpr, task):
    """Scores and softmax of block it + 1, while the tensor cores still work on P.V of block it."""
    if OVERLAP:
        s, acc = start_both(me, it, q, p, acc, task)
        s = warpgroup_mma_wait(1, deps=[s])  # the scores are there; P.V still runs
    else:
        acc = warpgroup_mma_wait(0, deps=[start_output(it, p, acc, task)])
        s = warpgroup_mma_wait(0, deps=[start_scores(it + 1, q, task)])
    task.k.release(it + 1)
    if mask:
        s = masked_scores(s, key, row, task)
    p_next, m, l, alpha = softmax_step(s, m, l, scale, task)
    acc, p = warpgroup_mma_wait(0, deps=[acc, p])  # p was read by P.V until here
    task.v.release(it)
    return acc, p_next, m, l, alpha


@gluon.jit
def consumer(me: gl.constexpr, Out, scale, task):
    """One warpgroup: 64 rows of every tile of this program. The state of a row is m, l and acc, all in registers."""
    total = task.tiles()
    it = 0  # key blocks whose output is done, over all tiles
    n = 0  # tiles done
    q = task.q.take(me)
    t = read_order(0, task.dealt(0), task)
    head, row, blocks, masked = task.tile(t)
    m, l = fresh(task)
    s = warpgroup_mma_wait(0, deps=[start_scores(0, q, task)])  # the only scores that nothing hides
    task.k.release(0)
    s = masked_scores(s, (blocks - 1) * task.BLOCK, row + me * ROWS, task)
    p, m, l, alpha = softmax_step(s, m, l, scale, task)
    while t < total:
        acc = gl.zeros([ROWS, task.D], gl.float32, layout=product(task.D))
        for i in range(1, blocks):  # from the diagonal back to key 0
            key = (blocks - 1 - i) * task.BLOCK
            acc, p, m, l, alpha = advance(me, it, q, p, acc, m, l, key, row + me * ROWS, i < masked, scale, True, task)
            acc = rescale(acc, alpha, task)
            it += 1
        old_head, old_row, old_l = head, row + me * ROWS, l
        n += 1  # the last P.V of this tile goes under the first scores of the next
        q = task.q.take(n * task.CONSUMERS + me)
        t = read_order(n, task.dealt(n), task)
        head, row, blocks, masked = task.tile(t)
        m, l = fresh(task)
        key = (blocks - 1) * task.BLOCK
        acc, p, m, l, alpha = advance(me, it, q, p, acc, m, l, key, row + me * ROWS, masked > 0, scale, task.CARRY, task)
        it += 1
        task.q.release((n - 1) * task.CONSUMERS + me)
        store_tile(Out, acc, old_l, old_head, old_row, task)
# --8<-- [end:consumer]


# --8<-- [start:kernel]
@gluon.jit(do_not_specialize=["q_len", "k_len", "heads", "together"])  # one kernel for every length
def attention_kernel(Q, K, V, Out, counter, q_len, k_len, heads, together, scale, CAUSAL: gl.constexpr, D: gl.constexpr,
                     BLOCK: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, TURNS: gl.constexpr,
                     DYNAMIC: gl.constexpr, CARRY: gl.constexpr, SKIP: gl.constexpr, POLY: gl.constexpr, FORTH: gl.constexpr):
    """Sets up the rings and sends each warpgroup its way. Registers: 240 a thread with two consumers, 160 with three."""
    q = make_ring(Q, 2 * CONSUMERS, ROWS, D, 1)  # the next tile's rows arrive while this one's are at work
    k = make_ring(K, STAGES, BLOCK, D, CONSUMERS)
    v = make_ring(V, STAGES, BLOCK, D, CONSUMERS)
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    for me in gl.static_range(CONSUMERS):
        mbarrier.init(turns.index(me), count=1)
    order = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    task = Task(q, k, v, turns, order, q_len, k_len, heads, together, CAUSAL, CONSUMERS, BLOCK, D,
                TURNS, DYNAMIC, CARRY, SKIP, POLY, FORTH)
    if CONSUMERS == 2:
        gl.warp_specialize([(consumer, (0, Out, scale, task)), (consumer, (1, Out, scale, task)),
                            (producer, (Q, K, V, counter, task))], [4, 1], [240, 24])
    else:
        gl.warp_specialize([(consumer, (0, Out, scale, task)), (consumer, (1, Out, scale, task)),
                            (consumer, (2, Out, scale, task)), (producer, (Q, K, V, counter, task))], [4, 4, 1], [160, 160, 24])
# --8<-- [end:kernel]


# --8<-- [start:call]
counters = {}  # a word for each stream: the next tile to be drawn; every call leaves 0 there


def counter_of(device):
    if device.type != "cuda":
        return torch.zeros(1, dtype=torch.int32, device=device)
    key = device, torch.cuda.current_stream(device).cuda_stream
    if key not in counters:
        counters[key] = torch.zeros(1, dtype=torch.int32, device=device)
    return counters[key]


def settings(D, q_len, k_len, heads, causal, **changed):
    """The switches, by shape, with what is changed.

    TOGETHER: as many heads as keep their K and V in L2. CARRY hides a tile's first scores under the last P.V before it.
    """
    short = q_len < (8192 if causal else 2048)  # three consumers make a tile of 192 rows: too coarse for a short row
    best = {"BLOCK": 128, "STAGES": 2 if D == 128 else 3, "CONSUMERS": 2 if D == 128 or short else 3,
            "DYNAMIC": causal or D == 64, "CARRY": True, "SKIP": 0, "POLY": 0, "FORTH": False,
            "TOGETHER": max(1, min(heads, L2_SHARE // (4 * k_len * D))) if causal else 1}
    best["TURNS"] = D == 64 and changed.get("CARRY", True)  # turns are taken where both products start together
    return best | changed


def prepare(q, k, v, out, causal, **changed):
    """The kernel's arguments. Raises ValueError for what the kernel does not take."""
    batch, heads, q_len, D = q.shape
    if D not in {64, 128} or k.shape != v.shape or k.shape[:2] != q.shape[:2] or k.shape[3] != D or 0 in (*q.shape, *k.shape):
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: wants D 64 or 128 and as many heads each")
    if not all(t.is_contiguous() and t.dtype == q.dtype and t.dtype in {torch.float16, torch.bfloat16} for t in (q, k, v)):
        raise ValueError("q, k and v must be contiguous, and all fp16 or all bf16")
    heads *= batch
    options = settings(D, q_len, k.shape[2], heads, causal, **changed)

    def tiles(t, rows):  # what TMA reads: boxes of (1, rows, D) of (batch * heads, length, D), swizzled as wgmma wants them
        layout = gl.NVMMASharedLayout.get_default_for([1, rows, D], gl.float16 if q.dtype == torch.float16 else gl.bfloat16)
        return TensorDescriptor.from_tensor(t.view(heads, -1, D), [1, rows, D], layout)

    args = (tiles(q, ROWS.value), tiles(k, options["BLOCK"]), tiles(v, options["BLOCK"]), out, counter_of(q.device),
            q_len, k.shape[2], heads, options.pop("TOGETHER"), D**-0.5 * LOG2E)
    return args, {"CAUSAL": causal, "D": D, **options}


def attention(q, k, v, causal=False, programs=None, **changed):
    """softmax(q k^T / sqrt(D)) v: (batch, heads, N, D), in the dtype of q. `changed` are switches of `settings`."""
    out = torch.empty_like(q)
    args, options = prepare(q, k, v, out, causal, **changed)
    tiles = triton.cdiv(q.shape[2], ROWS.value * options["CONSUMERS"]) * q.shape[0] * q.shape[1]
    programs = programs or torch.cuda.get_device_properties(q.device).multi_processor_count
    attention_kernel[(min(programs, tiles),)](*args, **options, num_warps=4)
    return out
# --8<-- [end:call]
