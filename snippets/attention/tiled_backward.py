"""FlashAttention-2's backward pass in plain PyTorch: the weights are computed again, a tile at a time. Needs only torch.

q: (..., n_q, d), k and v: (..., n_k, d). Saved for the backward pass: q, k, v, the output, and one number a row, lse.
Causal: query i sees the keys 0 to i, as in SDPA. Recurrences: arXiv 2307.08691, algorithm 2.
"""
import torch


# --8<-- [start:tile]
def tiles(length, size):
    return [slice(first, min(first + size, length)) for first in range(0, length, size)]


def seen(rows, columns, causal):
    """Whether any query of the tile sees any of its keys."""
    return not causal or columns.start < rows.stop


def tile_scores(q, k, rows, columns, causal):
    """Scores of one tile, (..., rows, columns): in a kernel they never leave the chip."""
    scores = q[..., rows, :] @ k[..., columns, :].mT * q.shape[-1] ** -0.5
    if causal:
        query = torch.arange(rows.start, rows.stop, device=q.device)[:, None]
        key = torch.arange(columns.start, columns.stop, device=q.device)
        scores = scores.masked_fill(key > query, -torch.inf)
    return scores
# --8<-- [end:tile]


# --8<-- [start:forward]
def forward(q, k, v, causal=False, size=64):
    """The output, and lse (..., n_q, 1), the logarithm of each row's sum of exp(score)."""
    out, lse = torch.empty_like(q), q.new_empty((*q.shape[:-1], 1))
    for rows in tiles(q.shape[-2], size):
        m = q.new_full((*q[..., rows, :].shape[:-1], 1), -torch.inf)
        total, o = torch.zeros_like(m), torch.zeros_like(q[..., rows, :])
        for columns in tiles(k.shape[-2], size):
            if seen(rows, columns, causal):
                scores = tile_scores(q, k, rows, columns, causal)
                m_old, m = m, torch.maximum(m, scores.amax(-1, keepdim=True))  # key 0 is seen by all: m is finite
                p = torch.exp(scores - m)
                total = torch.exp(m_old - m) * total + p.sum(-1, keepdim=True)
                o = torch.exp(m_old - m) * o + p @ v[..., columns, :]
        out[..., rows, :], lse[..., rows, :] = o / total, m + torch.log(total)
    return out, lse
# --8<-- [end:forward]


# --8<-- [start:backward]
def backward(saved, dout, causal=False, size=64):
    """Gradients of q, k and v from what the forward pass saved: no matrix of n_q * n_k is read, and none is written."""
    q, k, v, out, lse = saved
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    scale = q.shape[-1] ** -0.5
    delta = (dout * out).sum(-1, keepdim=True)  # D: one number a row, and all that the softmax's gradient needs of the row
    for columns in tiles(k.shape[-2], size):  # on a GPU each tile of keys is a thread block
        for rows in tiles(q.shape[-2], size):
            if not seen(rows, columns, causal):
                continue
            do = dout[..., rows, :]
            p = torch.exp(tile_scores(q, k, rows, columns, causal) - lse[..., rows, :])  # 1: the weights, again
            dv[..., columns, :] += p.mT @ do                                             # 2
            dp = do @ v[..., columns, :].mT                                              # 3
            ds = p * (dp - delta[..., rows, :])
            dq[..., rows, :] += ds @ k[..., columns, :] * scale                          # 4: every thread block adds to it
            dk[..., columns, :] += ds.mT @ q[..., rows, :] * scale                       # 5
    return dq, dk, dv
# --8<-- [end:backward]


# --8<-- [start:function]
class Attention(torch.autograd.Function):
    """Attention as autograd sees it: five tensors saved, none of them n_q * n_k."""

    @staticmethod
    def forward(ctx, q, k, v, *how):
        out, lse = forward(q, k, v, *how)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.how = how  # causal, size
        return out

    @staticmethod
    def backward(ctx, dout):
        return *backward(ctx.saved_tensors, dout, *ctx.how), *(None for _ in ctx.how)
# --8<-- [end:function]
