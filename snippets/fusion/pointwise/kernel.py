"""gelu(x + bias) * 0.5 + 0.1 in Triton: each element is read once and written once; what differs is how gelu is computed.

Needs Triton, and a GPU or TRITON_INTERPRET=1. The coefficients come from fit.py.
"""
import torch
import triton
import triton.language as tl

# log2(Phi(z) / Phi(-z)) / z: a polynomial in z * z
ODDS = (2.30204378, 0.105229976, -0.000362047769, -8.79097524e-05, 3.21037642e-06)
# log2(Phi(-a)) for 0 <= a <= 13: a polynomial in a
TAIL = (-1.00001058, -1.15098877, -0.45917173, -0.0533120639, 0.00826238472, -0.000895678645, 6.25273441e-05,
        -2.4908269e-06, 4.26777831e-08)
# the same for 1.4 <= a <= 13 with the digits of float32
TAIL_FP32 = (-0.999168082, -1.15420308, -0.454068827, -0.0575003285, 0.0102039143, -0.00143383019, 0.000155005926,
             -1.2508689e-05, 7.24179908e-07, -2.82805696e-08, 6.64797824e-10, -7.08667751e-12)
# (Phi(z) - 1/2) / z - 0.39894229 for |z| < 1.42: a polynomial in z * z
CORE_FP32 = (-1.1752999e-08, -0.0664903593, 0.00997338775, -0.00118680999, 0.000114673615, -8.86186192e-06, 4.35816504e-07)
POLYNOMIALS = {"erf": ((), ()), "sigmoid": (ODDS, ()), "tail": (TAIL, ()), "fp32": (TAIL_FP32, CORE_FP32)}


# --8<-- [start:erf]
@triton.jit
def gelu_erf(z):
    """As eager and Inductor have it. Far below 0, 1 + erf is the small difference of two numbers near 1."""
    return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
# --8<-- [end:erf]


# --8<-- [start:polynomial]
@triton.jit
def polynomial(v, C: tl.constexpr):
    """C[0] + C[1] v + C[2] v^2 and so on: one fused multiply-add for each power."""
    p = C[len(C) - 1]
    for k in tl.static_range(len(C) - 2, -1, -1):
        p = p * v + C[k]
    return p
# --8<-- [end:polynomial]


# --8<-- [start:sigmoid]
@triton.jit
def gelu_sigmoid(z, C: tl.constexpr):
    """z Phi(z) with Phi(z) = 1 / (1 + 2^-t), where t is odd in z: z times a polynomial in z^2."""
    t = z * polynomial(z * z, C)
    return z / (1.0 + tl.exp2(-t))
# --8<-- [end:sigmoid]


# --8<-- [start:tail]
@triton.jit
def gelu_tail(z, C: tl.constexpr):
    """max(z, 0) - |z| Phi(-|z|) with Phi(-|z|) = 2^polynomial(|z|): below 0 nothing cancels, and nothing is divided."""
    a = tl.minimum(tl.abs(z), 13.0)  # beyond, 2^p is 0 in float32 anyway; but infinity times 0 would be NaN
    return tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) - a * tl.exp2(polynomial(a, C))
# --8<-- [end:tail]


# --8<-- [start:fp32]
@triton.jit
def gelu_fp32(z, C: tl.constexpr, CORE: tl.constexpr):
    """Around 0 an error of 2^p would show in float32. There z Phi(z) = z / 2 + z * w with w = Phi(z) - 1/2, which is small."""
    u = z * z
    w = tl.fma(z, 0.3989422917366028, z * polynomial(u, CORE))
    return tl.where(u < 2.0, tl.fma(z, w, 0.5 * z), gelu_tail(z, C))
# --8<-- [end:fp32]


@triton.jit
def gelu(z, FORM: tl.constexpr, C: tl.constexpr, CORE: tl.constexpr):
    if FORM == "erf":
        return gelu_erf(z)
    elif FORM == "sigmoid":
        return gelu_sigmoid(z, C)
    elif FORM == "tail":
        return gelu_tail(z, C)
    else:
        return gelu_fp32(z, C, CORE)


# --8<-- [start:kernel]
@triton.jit
def bias_gelu_kernel(x_ptr, bias_ptr, y_ptr, columns, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,  # noqa: PLR0917
                     FORM: tl.constexpr, C: tl.constexpr, CORE: tl.constexpr, SCALE: tl.constexpr, SHIFT: tl.constexpr):
    """BLOCKS programs share a row; each computes BLOCK neighbouring elements of it."""
    row = (tl.program_id(0) // BLOCKS).to(tl.int64)  # a large tensor has more than 2^31 elements
    column = tl.program_id(0) % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside)  # 2 or 4 bytes an element from device memory
    bias = tl.load(bias_ptr + column, mask=inside)  # the same for every row: from cache
    y = gelu(x.to(tl.float32) + bias.to(tl.float32), FORM, C, CORE) * SCALE + SHIFT
    tl.store(y_ptr + row * columns + column, y, mask=inside)  # 2 or 4 bytes an element; rounded once, here
# --8<-- [end:kernel]


# --8<-- [start:launch]
def launch(x, bias, y, form=None, *, block=None, scale=0.5, shift=0.1):
    """Enqueue the kernel that fills y, which is of x's shape and type; returns what Triton compiled."""
    form = form or ("fp32" if x.dtype == torch.float32 else "tail")
    block = block or 4096 // x.element_size()  # two loads of 16 bytes for each of 128 threads
    rows, columns = x.shape
    blocks = triton.cdiv(columns, block)
    c, core = POLYNOMIALS[form]
    return bias_gelu_kernel[(rows * blocks,)](x, bias, y, columns, BLOCKS=blocks, BLOCK=block, FORM=form, C=c, CORE=core,
                                              SCALE=scale, SHIFT=shift, num_warps=4)


def bias_gelu(x, bias, form=None, **options):
    """gelu(x + bias) * scale + shift for x (rows, columns), contiguous, in fp16, bf16 or fp32, and bias (columns,)."""
    y = torch.empty_like(x)
    launch(x, bias, y, form, **options)
    return y
# --8<-- [end:launch]
