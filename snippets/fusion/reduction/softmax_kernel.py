"""Row softmax in Triton: a row in one program, a row read twice, and a row shared by programs that wait for one another.

x: (rows, columns), contiguous, fp16, bf16 or fp32. As in torch.softmax a row with NaN, with +inf, or with nothing but
-inf becomes NaN. Arithmetic is in fp32. Needs triton, and a GPU or TRITON_INTERPRET=1.
"""
# ruff: noqa: PLR0917  (a kernel takes its arguments by position)
import torch
import triton
import triton.language as tl


# --8<-- [start:power]
@triton.jit
def power(x, SCALE: tl.constexpr):
    """e^x by one instruction, 2^(x log2 e). A SCALE other than 1 says that x carries the factor log2(e) already.

    `tl.exp` spends four more instructions on results below 2^-126; these become 0 here.
    """
    return tl.exp2(x * 1.4426950408889634) if SCALE == 1.0 else tl.exp2(x)
# --8<-- [end:power]


# --8<-- [start:online]
@triton.jit
def online_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    """One program, one row, two passes: it needs BLOCK elements of room, however long the row."""
    start = tl.program_id(0).to(tl.int64) * columns
    lanes = tl.arange(0, BLOCK)
    m = tl.full([BLOCK], -float("inf"), tl.float32)  # a maximum and a sum for each lane, joined at the end
    s = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):  # first pass: reads 2 bytes an element
        at = first + lanes
        x = tl.load(x_ptr + start + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, x)
        base = tl.where(m_new == -float("inf"), 0.0, m_new)  # -inf - -inf would be NaN
        s = s * power(m - base, 1.0) + power(x - base, 1.0)
        m = m_new
    top = tl.max(m, 0)
    scale = 1.0 / tl.sum(s * power(m - top, 1.0), 0)
    for first in range(0, columns, BLOCK):  # second pass: reads 2 bytes again, writes 2
        at = first + lanes
        x = tl.load(x_ptr + start + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + start + at, power(x - top, 1.0) * scale, mask=at < columns)


def online_softmax(x, block=4096):
    y = torch.empty_like(x)
    online_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)
    return y
# --8<-- [end:online]


# --8<-- [start:row]
@triton.jit
def row_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, PACKED: tl.constexpr, SCALE: tl.constexpr):
    """One program, ROWS whole rows: they stay in registers between the read and the write."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    start = tl.program_id(0).to(tl.int64) * ROWS * columns  # 64 bits once, not in each lane
    at = tl.arange(0, ROWS)[:, None] * columns + column
    inside = (row < rows) & (column < columns)
    x = tl.load(x_ptr + start + at, mask=inside, other=-float("inf"))  # reads 2 bytes an element
    m = tl.max(x, 1).to(tl.float32)[:, None] * SCALE
    e = power(packed(x, PACKED).to(tl.float32) * SCALE - m, SCALE)
    scale = 1.0 / tl.sum(e, 1)[:, None]
    if PACKED:  # computed again from 16 bits, so that e need not live through the sum in 32
        e = power(packed(x, PACKED).to(tl.float32) * SCALE - m, SCALE)
    tl.store(y_ptr + start + at, e * scale, mask=inside)  # writes 2


def scale_of(x):
    """log2(e) for fp16, so that x * SCALE - m is one multiply-add; times a large bf16 or fp32 it would overflow."""
    return 1.4426950408889634 if x.dtype == torch.float16 else 1.0
# --8<-- [end:row]


# --8<-- [start:packed]
@triton.jit
def packed(x, PACKED: tl.constexpr):
    """x after a move that hides where it came from: the compiler must keep two 16-bit x in one register.

    Left to itself it converts once and keeps 32 bits for each element, in registers that cost programs on the SM.
    """
    if PACKED:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    else:
        return x
# --8<-- [end:packed]


# --8<-- [start:split]
@triton.jit
def split_kernel(x_ptr, y_ptr, ticket_ptr, word_ptr, columns, PIECES: tl.constexpr, BLOCK: tl.constexpr, PACKED: tl.constexpr,
                 SCALE: tl.constexpr):
    """PIECES programs share a row: each reads its piece once, says its maximum and sum, and waits for those of the others."""
    ticket = tl.atomic_add(ticket_ptr, 1, sem="relaxed").to(tl.int32)  # not the program's number: see below
    row, piece = ticket // PIECES, ticket % PIECES
    start = row.to(tl.int64) * columns  # 64 bits once, not in each lane
    column = piece * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + column, mask=column < columns, other=-float("inf"))  # reads 2 bytes an element
    m = tl.max(x, 0).to(tl.float32) * SCALE
    base = tl.where(m == -float("inf"), 0.0, m)  # a piece of nothing but -inf sums to 0
    e = power(packed(x, PACKED).to(tl.float32) * SCALE - base, SCALE)

    words = word_ptr + row * PIECES + tl.arange(0, PIECES)
    tl.atomic_xchg(word_ptr + ticket, pack(m, tl.sum(e, 0)), sem="relaxed")
    said = tl.load(words, volatile=True)
    while tl.min((said != 0).to(tl.int32), 0) == 0:  # 0: not said yet; ask again for those alone
        said = tl.load(words, mask=said == 0, other=said, volatile=True)

    m_all, s_all = unpack(said)
    top = tl.max(m_all, 0)
    scale = 1.0 / tl.sum(s_all * power(m_all - top, SCALE), 0)
    y = power(packed(x, PACKED).to(tl.float32) * SCALE - top, SCALE) if PACKED else e * power(base - top, SCALE)
    tl.store(y_ptr + start + column, y * scale, mask=column < columns)  # writes 2


@triton.jit
def pack(m, s):
    """Maximum and sum in one word, which arrives whole. It is never 0: where m is finite s is not, and -inf is not 0 in bits."""
    return (m.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (s.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def unpack(word):
    return (word >> 32).to(tl.int32).to(tl.float32, bitcast=True), word.to(tl.int32).to(tl.float32, bitcast=True)
# --8<-- [end:split]


# --8<-- [start:launch]
LONGEST_ROW = 32768  # elements that a program keeps in 16 bits; of 32 bits half as many
PIECE = {"BLOCK": 4096, "num_warps": 2}


def softmax(x):
    """softmax(x, -1): a row stays whole as long as it fits on chip, and is shared where it does not."""
    if x.shape[1] * x.element_size() <= 2 * LONGEST_ROW:
        return row_softmax(x)
    if x.is_cuda and x.element_size() == 2 and x.shape[1] % 64 == 0 and torch.cuda.get_device_capability(x.device) == (9, 0):
        from fusion.reduction.pipeline_kernel import pipeline_softmax
        return pipeline_softmax(x)
    return split_softmax(x)


def row_softmax(x):
    """Whole rows, on chip. Raises NotImplementedError for rows that do not fit in a program's registers."""
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    if block > 65536:
        raise NotImplementedError(f"a row of {columns} elements does not fit in the registers of one program")
    keep_packed = x.is_cuda and x.element_size() == 2 and block > 8192  # a shorter row has room for 32 bits
    together = max(1, 2048 // block)  # short rows share a program
    options = {"num_warps": block // 2048, "maxnreg": 64} if keep_packed else {"num_warps": min(16, max(4, block // 512))}
    y = torch.empty_like(x)
    row_kernel[(triton.cdiv(rows, together),)](x, y, rows, columns, ROWS=together, BLOCK=block, PACKED=keep_packed,
                                               SCALE=scale_of(x), **options)
    return y


def split_softmax(x, **piece):
    """Rows cut in pieces of BLOCK elements, each read by a program of its own."""
    rows, columns = x.shape
    piece = PIECE | piece
    pieces = triton.next_power_of_2(triton.cdiv(columns, piece["BLOCK"]))
    check_room(x, pieces)
    y = torch.empty_like(x)
    state = torch.zeros(2 + rows * pieces, dtype=torch.int64, device=x.device)  # the ticket counter, then the words
    split_kernel[(rows * pieces,)](x, y, state, state[2:], columns, PIECES=pieces, SCALE=scale_of(x),
                                   PACKED=x.is_cuda and x.element_size() == 2, **piece)
    return y


def check_room(x, pieces):
    """A program waits for pieces that others may have yet to start: a whole row must fit on the card at once."""
    if x.is_cuda and pieces > torch.cuda.get_device_properties(x.device).multi_processor_count:
        raise NotImplementedError(f"{pieces} pieces are more than this GPU has multiprocessors: take larger pieces")
# --8<-- [end:launch]
