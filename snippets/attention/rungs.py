"""The steps on the way to triton_kernel.py, as one kernel with switches: what each rung of the ladder turns on.

q, k, v: (batch, heads, n, d), contiguous, fp16 or bf16. Here every thread computes the addresses that it loads; the last
rung, tiles by TMA, is triton_kernel.py itself. Needs triton, and a GPU or TRITON_INTERPRET=1.
"""
# ruff: noqa: E741, PLR0917  (l is what the papers call the sum; a kernel takes its arguments by position)
import torch
import triton
import triton.language as tl


# --8<-- [start:softmax]
@triton.jit
def softmax_step(s, m, l, scale, EXP2: tl.constexpr):
    """(p, m, l, alpha) after one more block of scores."""
    if EXP2:  # scale holds log2(e): one multiply-add, and one instruction for the power
        m_new = tl.maximum(m, tl.max(s, 1) * scale)
        p = tl.exp2(s * scale - m_new[:, None])
        alpha = tl.exp2(m - m_new)
    else:  # a multiplication more for each score, and those inside exp
        s = s * scale
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
    return p, m_new, l * alpha + tl.sum(p, 1), alpha
# --8<-- [end:softmax]


@triton.jit
def load(ptr, first, n, BOUND: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    row = first + tl.arange(0, SIZE)[:, None]
    at = ptr + row * D + tl.arange(0, D)[None, :]
    return tl.load(at, mask=row < n, other=0.0) if BOUND else tl.load(at)


@triton.jit
def walk(m, l, o, q, k_ptr, v_ptr, begin, end, row, n, scale, CAUSAL: tl.constexpr, MASKED: tl.constexpr, EXP2: tl.constexpr,
         KEYS: tl.constexpr, D: tl.constexpr, STAGES: tl.constexpr):
    for first in tl.range(begin, end, KEYS, num_stages=STAGES):
        s = tl.dot(q, load(k_ptr, first, n, MASKED, KEYS, D).T)
        if MASKED:
            key = first + tl.arange(0, KEYS)[None, :]
            seen = key < n
            if CAUSAL:
                seen = seen & (key <= row[:, None])
            s = tl.where(seen, s, -float("inf"))
        p, m, l, alpha = softmax_step(s, m, l, scale, EXP2)
        o = tl.dot(p.to(q.dtype), load(v_ptr, first, n, MASKED, KEYS, D), o * alpha[:, None])
    return m, l, o


# --8<-- [start:kernel]
@triton.jit
def kernel(q_ptr, k_ptr, v_ptr, out_ptr, heads, n, scale, CAUSAL: tl.constexpr, STOP: tl.constexpr, EXP2: tl.constexpr,
           SPLIT: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, STAGES: tl.constexpr):
    tiles = tl.cdiv(n, ROWS)
    tile = tiles - 1 - tl.program_id(0) // heads  # the longest first
    start = (tl.program_id(0) % heads).to(tl.int64) * n * D
    row = tile * ROWS + tl.arange(0, ROWS)
    q = load(q_ptr + start, tile * ROWS, n, True, ROWS, D)
    m = tl.full([ROWS], -float("inf"), tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    o = tl.zeros([ROWS, D], tl.float32)
    k_ptr += start
    v_ptr += start
    end = tl.minimum(n, (tile + 1) * ROWS) if CAUSAL and STOP else n
    full = 0  # blocks before it need no mask
    if SPLIT:
        full = tile * ROWS // KEYS * KEYS if CAUSAL else n // KEYS * KEYS
        m, l, o = walk(m, l, o, q, k_ptr, v_ptr, 0, full, row, n, scale, CAUSAL, False, EXP2, KEYS, D, STAGES)
    m, l, o = walk(m, l, o, q, k_ptr, v_ptr, full, end, row, n, scale, CAUSAL, True, EXP2, KEYS, D, STAGES)
    at = out_ptr + start + row[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(at, (o / l[:, None]).to(q.dtype), mask=row[:, None] < n)
# --8<-- [end:kernel]


def attention(q, k, v, causal=False, stop=True, exp2=True, split=True, tile=(64, 64, 4)):
    """softmax(q k^T / sqrt(d)) v with the switches of a rung; all three tensors have one shape."""
    heads, (n, d), (rows, keys, warps) = q.shape[0] * q.shape[1], q.shape[-2:], tile
    out = torch.empty_like(q)
    scale = d**-0.5 * (1.4426950408889634 if exp2 else 1.0)
    kernel[(triton.cdiv(n, rows) * heads,)](q, k, v, out, heads, n, scale, CAUSAL=causal, STOP=stop, EXP2=exp2, SPLIT=split,
                                            ROWS=rows, KEYS=keys, D=d, STAGES=2, num_warps=warps, num_stages=2)
    return out
