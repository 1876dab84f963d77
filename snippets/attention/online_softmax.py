"""Softmax of a row times values, read block by block: what FlashAttention keeps in place of the row. Needs only torch.

scores: (..., n), values: (n, d) or (..., n, d), the result: (..., d). A score of -inf is masked.
A state is (m, l, o): the largest score so far (..., 1), the sum of exp(score - m) (..., 1), and the sum of
exp(score - m) * value (..., d), an output that is not normalised yet.
Online softmax: arXiv 1805.02867. Normalised at every step: arXiv 2205.14135. Normalised once: arXiv 2307.08691.
"""
import torch


# --8<-- [start:one]
def softmax_in_one(scores, values):
    """The whole row at once: maximum and sum need every score."""
    p = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (p / p.sum(-1, keepdim=True)) @ values
# --8<-- [end:one]


# --8<-- [start:step]
def start(scores, values):
    """The state before the first block: nothing was read."""
    m = scores.new_full((*scores.shape[:-1], 1), -torch.inf)
    o = scores.new_zeros((*scores.shape[:-1], values.shape[-1]))
    return m, torch.zeros_like(m), o


def step(state, scores, values):
    """The state after one more block."""
    m_old, l, o = state
    m = torch.maximum(m_old, scores.amax(-1, keepdim=True))
    # 1 while the maximum stays, less where it rises, 0 for the first block
    alpha = torch.exp(m_old - guard(m))
    p = torch.exp(scores - guard(m))
    return m, alpha * l + p.sum(-1, keepdim=True), alpha * o + p @ values


def finish(state):
    """The output, by the one division; 0 for a row in which every score is masked."""
    m, l, o = state
    return o / l.masked_fill(l == 0, 1)


def guard(m):
    """m to subtract: 0 where all is masked, as -inf - -inf would be NaN."""
    return m.masked_fill(m == -torch.inf, 0)
# --8<-- [end:step]


# --8<-- [start:online]
def fold(scores, values, block):
    """The state of a row that is read block by block."""
    state = start(scores, values)
    for first in range(0, scores.shape[-1], block):
        part = slice(first, first + block)
        state = step(state, scores[..., part], values[..., part, :])
    return state


def online(scores, values, block):
    """FlashAttention-2's form: o stays a sum until the row is complete."""
    return finish(fold(scores, values, block))
# --8<-- [end:online]


# --8<-- [start:normalised]
def online_normalised(scores, values, block):
    """FlashAttention-1's form: after each block o is right for what was read."""
    m, l, o = start(scores, values)
    for first in range(0, scores.shape[-1], block):
        part = slice(first, first + block)
        s, v = scores[..., part], values[..., part, :]
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        alpha = torch.exp(m - guard(m_new))
        p = torch.exp(s - guard(m_new))
        l_new = alpha * l + p.sum(-1, keepdim=True)
        o = (alpha * l * o + p @ v) / l_new.masked_fill(l_new == 0, 1)
        m, l = m_new, l_new
    return o
# --8<-- [end:normalised]


# --8<-- [start:merge]
def merge(a, b):
    """The state of two parts of a row from the state of each."""
    m = torch.maximum(a[0], b[0])
    alpha, beta = torch.exp(a[0] - guard(m)), torch.exp(b[0] - guard(m))
    return m, alpha * a[1] + beta * b[1], alpha * a[2] + beta * b[2]
# --8<-- [end:merge]
