"""FlashAttention's forward pass in plain PyTorch: a tile of queries meets the keys block by block. Needs only torch.

q: (..., n_q, d), k and v: (..., n_k, d), the result: (..., n_q, d). No array here grows with n_q * n_k.
Causal: query i sees the keys 0 to i, counted from the first key, also where the lengths differ, as in SDPA.
Algorithm 1 of FlashAttention-2, arXiv 2307.08691.
"""
# ruff: noqa: E741, PLR0917  (l is what the papers call the sum)
import torch


# --8<-- [start:standard]
def standard(q, k, v, causal=False):
    """The whole matrix: n_q * n_k scores are written, read for the softmax, written again, and read again."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v
# --8<-- [end:standard]


# --8<-- [start:tiled]
def attention(q, k, v, causal=False, rows=128, keys=64):
    """One tile of `rows` queries after the other. On a GPU each tile is a program, and all run at once."""
    out = torch.empty_like(q)
    for row in range(0, q.shape[-2], rows):
        tile = slice(row, row + rows)
        out[..., tile, :] = one_tile(q[..., tile, :], k, v, row, causal, keys)  # written once
    return out


def one_tile(q, k, v, row, causal, keys):
    """The output of the queries from `row` on: one walk along the keys, and one division at its end."""
    end = k.shape[-2]
    if causal:
        end = min(end, row + q.shape[-2])  # later keys are seen by no query of the tile
    m = q.new_full((*q.shape[:-1], 1), -torch.inf)  # largest score so far
    l, o = torch.zeros_like(m), torch.zeros_like(q)  # sum of exp(score - m), and of exp(score - m) * value
    for first in range(0, end, keys):
        block = slice(first, min(first + keys, end))
        s = q @ k[..., block, :].transpose(-2, -1) * q.shape[-1] ** -0.5  # (rows, keys): all there ever is of the matrix
        if causal and block.stop > row + 1:  # the block reaches past the tile's first query
            s = s.masked_fill(later(row, first, s), -torch.inf)
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        alpha, p = torch.exp(m - m_new), torch.exp(s - m_new)
        l = alpha * l + p.sum(-1, keepdim=True)
        o = alpha * o + p @ v[..., block, :]
        m = m_new
    return o / l


def later(row, first, s):
    """Where a score's key comes after its query. Key 0 never does, so no query is left without a key."""
    query = row + torch.arange(s.shape[-2], device=s.device)[:, None]
    return first + torch.arange(s.shape[-1], device=s.device) > query
# --8<-- [end:tiled]


# --8<-- [start:traffic]
def tile_loads(n_q, n_k, d, causal=False, rows=128, keys=64, element_bytes=2):
    """Bytes that the tiles of one head ask for: q once, and for each tile every key and value that it meets."""
    met = sum(min(n_k, row + rows) if causal else n_k for row in range(0, n_q, rows))
    return (n_q + 2 * met) * d * element_bytes
# --8<-- [end:traffic]
