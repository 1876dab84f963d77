"""FlashAttention's forward pass as one Triton kernel, for Hopper: the program of a tile is `one_tile` of tiled.py.

q: (batch, heads, n_q, d), k and v: (batch, heads, n_k, d), contiguous, fp16 or bf16, d 64 or 128. Causal: query i sees
the keys 0 to i, as in SDPA. Tiles come and go by TMA, the copy engine of an SM: a descriptor made on the host says
where the tensor ends, and what lies outside reads as 0. Needs triton, and a GPU or TRITON_INTERPRET=1.
"""
# ruff: noqa: E741, PLR0917  (l is what the papers call the sum; a kernel takes its arguments by position)
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = 1.4426950408889634


# --8<-- [start:walk]
@triton.jit
def walk(m, l, o, q, k_tiles, v_tiles, head, begin, end, row, n_k, scale,
         CAUSAL: tl.constexpr, MASKED: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, STAGES: tl.constexpr):
    """The state (m, l, o) after the keys from `begin` to `end`. Scores count in powers of two: scale has the log2(e)."""
    for first in tl.range(begin, end, KEYS, num_stages=STAGES):  # the next STAGES - 1 blocks are on their way
        k = k_tiles.load([head, first, 0]).reshape(KEYS, D)
        s = tl.dot(q, k.T)  # tensor cores: (ROWS, KEYS) in fp32 registers
        if MASKED:
            key = first + tl.arange(0, KEYS)[None, :]
            seen = key < n_k
            if CAUSAL:
                seen = seen & (key <= row[:, None])
            s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1) * scale)
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(s * scale - m_new[:, None])  # a multiply-add and one special-function instruction an element
        l = l * alpha + tl.sum(p, 1)
        v = v_tiles.load([head, first, 0]).reshape(KEYS, D)
        o = tl.dot(p.to(v.dtype), v, o * alpha[:, None])  # tensor cores: adds to o
        m = m_new
    return m, l, o
# --8<-- [end:walk]


# --8<-- [start:kernel]
@triton.jit
def kernel(q_tiles, k_tiles, v_tiles, out_ptr, lse_ptr, heads, together, n_q, n_k, scale, CAUSAL: tl.constexpr,
           LSE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, STAGES: tl.constexpr):
    tiles = tl.cdiv(n_q, ROWS)
    first = tl.program_id(0) // (tiles * together) * together  # `together` heads at a time: their K and V stay in L2
    place = tl.program_id(0) % (tiles * together)
    width = tl.minimum(together, heads - first)
    head = first + place % width
    tile = tiles - 1 - place // width  # the longest tiles first, so that the last programs to start are short ones
    row = tile * ROWS + tl.arange(0, ROWS)
    q = q_tiles.load([head, tile * ROWS, 0]).reshape(ROWS, D)  # read once, kept for the whole walk
    m = tl.full([ROWS], -float("inf"), tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    o = tl.zeros([ROWS, D], tl.float32)
    end = n_k
    full = n_k // KEYS * KEYS  # up to here every key exists, and every query of the tile sees it
    if CAUSAL:
        end = tl.minimum(n_k, (tile + 1) * ROWS)
        full = tl.minimum(full, tile * ROWS // KEYS * KEYS)
    m, l, o = walk(m, l, o, q, k_tiles, v_tiles, head, 0, full, row, n_k, scale, CAUSAL, False, KEYS, D, STAGES)
    m, l, o = walk(m, l, o, q, k_tiles, v_tiles, head, full, end, row, n_k, scale, CAUSAL, True, KEYS, D, STAGES)
    at = (head.to(tl.int64) * n_q + row[:, None]) * D + tl.arange(0, D)[None, :]
    tl.store(out_ptr + at, (o / l[:, None]).to(out_ptr.dtype.element_ty), mask=row[:, None] < n_q)  # written once
    if LSE:  # what a backward pass needs besides its inputs and the output: 4 bytes a row
        tl.store(lse_ptr + head.to(tl.int64) * n_q + row, (m + tl.log2(l)) * 0.6931471805599453, mask=row < n_q)
# --8<-- [end:kernel]


# --8<-- [start:launch]
# (rows, keys) of a tile and warps: two programs of four warps fit an SM, and one computes softmax while one multiplies
TILES = {128: (128, 64, 4), 64: (64, 128, 4)}
L2_SHARE = 32 * 2**20  # bytes of K and V at work at a time: they stay in an L2 of 60 MiB


def launch(q, k, v, out, lse=None, causal=False, together=None, tile=None, stages=2):
    """Start the kernel; returns what Triton compiled. `together`, heads at a time, and `tile` are there to be tried."""
    heads, (n_q, d), n_k = q.shape[0] * q.shape[1], q.shape[-2:], k.shape[-2]
    rows, keys, warps = tile or TILES[d]
    together = together or (max(1, L2_SHARE // (4 * n_k * d)) if causal else 1)

    def tiles(x, size):
        return TensorDescriptor.from_tensor(x.view(heads, -1, d), [1, size, d])
    return kernel[(triton.cdiv(n_q, rows) * heads,)](
        tiles(q, rows), tiles(k, keys), tiles(v, keys), out, out if lse is None else lse, heads, min(together, heads), n_q, n_k,
        d**-0.5 * LOG2_E, CAUSAL=causal, LSE=lse is not None, ROWS=rows, KEYS=keys, D=d, STAGES=stages, num_warps=warps, num_stages=stages)


def attention(q, k, v, causal=False, return_lse=False):
    """softmax(q k^T / sqrt(d)) v; with return_lse also the log of each row's sum of exponentials, (batch, heads, n_q)."""
    out = torch.empty_like(q)
    lse = q.new_empty(q.shape[:-1], dtype=torch.float32) if return_lse else None
    launch(q, k, v, out, lse, causal)
    return (out, lse) if return_lse else out
# --8<-- [end:launch]
