"""Standard attention beside a fused kernel, forward and as a training step. Needs only torch; each case is one length.

A pass is one write, or one read, of the N x N matrices of all heads; passes are counted beside the lines that make them.
What the calls move is counted as a whole: caches are cold at the start of a call, and keep what fits from kernel to kernel.
"""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

count_traffic = False
count_calls = True
needs = {"capability": (8, 0), "memory_bytes": 24 * 2**30}
time_limit_s = 240


# --8<-- [start:inputs]
def inputs(n, training=False, *, batch=2, heads=16, d=64, dtype=torch.float16, device="cuda"):
    """q, k, v and the gradient of the output, (batch, heads, n, d) each; that gradient is None where none is asked for."""
    q, k, v, dout = (torch.randn(batch, heads, n, d, device=device, dtype=dtype) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_(training)
    return q, k, v, dout if training else None
# --8<-- [end:inputs]


# --8<-- [start:standard]
def standard(q, k, v):
    """softmax(q @ k.T / sqrt(d)) @ v. The factor goes to q, which has n x d elements, not to the scores, which have n x n."""
    scores = (q * q.shape[-1] ** -0.5) @ k.mT  # 1 pass: writes the scores
    weights = torch.softmax(scores, dim=-1)    # 2 passes: reads them, writes the weights
    del scores                                 # else they would live until the return
    return weights @ v                         # 1 pass: reads the weights


def flash(q, k, v):
    """FlashAttention-2 as PyTorch ships it: no pass, no matrix."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v)
# --8<-- [end:standard]


# --8<-- [start:step]
def step(attention, q, k, v, dout=None):
    """The output; in training also the gradients. Backward of `standard` by the formulas, with P the weights:

    dP = dout @ v.T       1 pass: writes dP
    dv = P.T @ dout       1 pass: reads P
    dS = softmax'(P, dP)  3 passes: reads both, writes dS
    dq = dS @ k           1 pass: reads dS
    dk = dS.T @ q         1 pass: reads dS
    """
    out = attention(q, k, v)
    return out if dout is None else (out, *torch.autograd.grad(out, (q, k, v), dout))
# --8<-- [end:step]


# --8<-- [start:estimate]
MATRICES = {"forward": 2, "training": 3}  # alive at the peak by the formulas: scores and weights; weights, dP and dS
TENSORS = {"forward": 0, "training": 3}  # and with them: the scaled q, the output and dv


def tensor_bytes(n, heads=2 * 16, d=64):
    """One fp16 tensor of q's shape: grows with n."""
    return heads * n * d * 2


def matrix_bytes(n, heads=2 * 16):
    """The fp16 scores of all heads, or their weights: grows with n * n."""
    return heads * n * n * 2


def peak_bytes(n, mode, heads=2 * 16, d=64):
    """The most that `standard` has to hold at one moment above its inputs, as (bytes of matrices, bytes of tensors).

    Forward: the softmax reads one matrix and writes another. Training: its gradient reads two and writes a third.
    """
    return MATRICES[mode] * matrix_bytes(n, heads), TENSORS[mode] * tensor_bytes(n, heads, d)


def crossing(mode, d=64):
    """The length from which the matrices at the peak are more than the tensors, inputs included."""
    inputs_count = {"forward": 3, "training": 4}[mode]  # q, k, v; and the gradient of the output
    return (inputs_count + TENSORS[mode]) * d / MATRICES[mode]
# --8<-- [end:estimate]


def sample(output):
    """The first head of the first sequence: the reference of more would not fit."""
    return [x[0, 0] for x in (output if isinstance(output, tuple) else (output,))]


def reference(q, k, v, dout):
    """That head in float64."""
    q, k, v = (x[0, 0].detach().double().requires_grad_(dout is not None) for x in (q, k, v))
    found = step(standard, q, k, v, None if dout is None else dout[0, 0].double())
    return [x.detach() for x in (found if isinstance(found, tuple) else (found,))]


variants = {"standard": lambda *args: step(standard, *args), "flash": lambda *args: step(flash, *args)}
LENGTHS = (512, 2048, 4096, 8192)
cases = {f"{mode}_{n}": {"n": n, "training": mode == "training"} for mode in ("forward", "training") for n in LENGTHS}
small = {"n": 70, "training": True, "heads": 2, "d": 16}
tolerance = {torch.float16: 4e-3}


def minimum_bytes(q, k, v, dout):
    """Forward: q, k, v read, the output written. Backward: those five and dout read, dq, dk, dv written, fused or not."""
    return (4 if dout is None else 4 + 8) * q.nbytes


def flops(q, k, v, dout):
    """Two products of n x n x d a head in the forward pass; counted as 2.5 times that in the backward pass."""
    return int((1 if dout is None else 3.5) * 4 * q.numel() * k.shape[-2])
