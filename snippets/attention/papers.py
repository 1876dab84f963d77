"""The papers' configurations run here: forward and backward times of SDPA's backends and of standard attention.

A capture: 7 samples a point, each with a cold L2, enqueued while the device is still busy with something else.
"""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

needs = {"memory_bytes": 40 * 2**30}
SAMPLES = 7
LENGTHS = {"standard": (512, 1024, 2048, 4096, 8192, 16384, 4224, 8448),  # at 16896 the paper has no figure for it
           "flash": (512, 1024, 2048, 4096, 8192, 16384, 4224, 8448, 16896),
           "efficient": (512, 1024, 2048, 4096, 8192, 16384),  # beside FlashAttention-2's xformers
           "cudnn": (512, 1024, 2048, 4224, 8448, 16896)}  # beside FlashAttention-3's cuDNN


# --8<-- [start:standard]
def standard(q, k, v, *, causal=False, mask=None, dropout=0.0):
    """What the papers call standard: every step an operator of its own. q, k, v are [batch, heads, length, head_dim]."""
    flat_q, flat_k, flat_v = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.baddbmm(q.new_empty(()), flat_q, flat_k.mT, beta=0, alpha=q.shape[-1]**-0.5)  # writes N x N
    if causal:
        above = torch.full(scores.shape[1:], -torch.inf, device=q.device, dtype=q.dtype).triu(1)
        scores = scores + above  # reads N x N, writes N x N
    if mask is not None:
        scores = scores.view(*q.shape[:2], *scores.shape[1:]).masked_fill(~mask, -torch.inf).flatten(0, 1)
    weights = torch.softmax(scores, -1)  # reads N x N, writes N x N
    if dropout:
        weights = F.dropout(weights, dropout)  # reads N x N, writes N x N and its mask
    return torch.bmm(weights, flat_v).unflatten(0, q.shape[:2])  # reads N x N
# --8<-- [end:standard]


# --8<-- [start:fused]
def fused(backend):
    """SDPA with one backend allowed: it raises where that one cannot run, and never falls back."""
    def attend(q, k, v, *, causal=False, mask=None, dropout=0.0):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal,
                                                  enable_gqa=q.shape[1] != k.shape[1])
    return attend


WAYS = {"standard": standard, "flash": fused(SDPBackend.FLASH_ATTENTION),
        "efficient": fused(SDPBackend.EFFICIENT_ATTENTION), "cudnn": fused(SDPBackend.CUDNN_ATTENTION)}
# --8<-- [end:fused]


# --8<-- [start:sample]
def sample(attend, inputs, grad, flush, cycles):
    """(forward us, backward us) of one call, or None where the host was slower than `cycles` of the device's sleep."""
    begin, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    flush.zero_()  # 256 MiB through a smaller L2: nothing of the inputs is left in it
    torch.cuda._sleep(cycles)
    begin.record()
    out = attend(*inputs)
    middle.record()
    torch.autograd.grad(out, inputs, grad)  # .backward() would add to .grad: a kernel more
    end.record()
    hidden = not begin.query()  # the device still sleeps, so no launch was waited for
    torch.cuda.synchronize()
    return (us(begin, middle), us(middle, end)) if hidden else None


def us(begin, end):
    """Microseconds between two events that have passed."""
    return round(begin.elapsed_time(end) * 1e3, 3)


def samples(attend, inputs, flush):
    """SAMPLES pairs of times after a warm-up; where the host is slow the device sleeps longer."""
    grad = torch.randn_like(attend(*inputs))
    sample(attend, inputs, grad, flush, 1)  # builds plans, fills the allocator
    found, cycles = [], 1_000_000
    while len(found) < SAMPLES:
        times = sample(attend, inputs, grad, flush, cycles)
        if times:
            found.append(times)
        elif cycles > 1e9:
            raise TimeoutError("the host needs over half a second to enqueue a call")
        else:
            cycles *= 2
    return found
# --8<-- [end:sample]


def tensors(batch, heads, length, head_dim, *, kv_heads=None, dtype=torch.float16, device="cuda"):
    """q, k, v as a model has them: [batch, length, heads, head_dim] in memory, heads second as a view."""
    def one(count):
        return torch.randn(batch, length, count, head_dim, device=device, dtype=dtype).transpose(1, 2).requires_grad_()
    return one(heads), one(kv_heads or heads), one(kv_heads or heads)


def padding(batch, length, device="cuda"):
    """A key mask [batch, 1, 1, length]: each sequence is between half as long and as long as the longest."""
    lengths = torch.linspace(length / 2, length, batch, device=device).long()
    return (torch.arange(length, device=device) < lengths[:, None])[:, None, None]


def outcome(error):
    """Why a point has no times: the device's memory is too small, or the backend refuses the call."""
    full = isinstance(error, torch.OutOfMemoryError)
    return {"outcome": "out of memory" if full else "refused", "reason": "" if full else str(error).splitlines()[0]}


def point(way, flush, shape, *, kv_heads=None, dtype=torch.float16, **options):
    """Times of one way at a shape (batch, heads, length, head_dim), and the peak of memory with inputs and gradients."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    inputs = tensors(*shape, kv_heads=kv_heads, dtype=dtype)
    try:
        forward, backward = zip(*samples(lambda q, k, v: WAYS[way](q, k, v, **options), inputs, flush), strict=True)
    except RuntimeError as error:  # an OutOfMemoryError is one too
        return outcome(error)
    peak = torch.cuda.max_memory_allocated() - before
    return {"forward": {"samples_us": list(forward)}, "backward": {"samples_us": list(backward)}, "peak_bytes": peak}


# --8<-- [start:configurations]
def transformer(flush):
    """FlashAttention-2 figures 4 to 7, FlashAttention-3 figures 5 and 6: about 16k tokens, 2048 channels, fp16."""
    found = {}
    for head_dim in (64, 128):
        for mask in ("full", "causal"):
            case = found.setdefault(f"d{head_dim} {mask}", {})
            for way, lengths in LENGTHS.items():
                for length in lengths:  # 4224, 8448 and 16896 are what FlashAttention-3 labels 4k, 8k and 16k
                    shape = (round(16384 / length), 2048 // head_dim, length, head_dim)
                    case.setdefault(str(length), {})[way] = point(way, flush, shape, causal=mask == "causal")
    return found


def appendix(flush, lengths=(512, 1024, 2048, 4096, 8192)):
    """FlashAttention, tables 18 to 21 (plain) and 9 to 11 (dropout and mask): batch 16, 8 heads of 64, fp16."""
    found = {"plain": {}, "dropout, mask": {}}
    for setting, case in found.items():
        for length in lengths:
            options = {} if setting == "plain" else {"mask": padding(16, length), "dropout": 1 / 8}
            ways = [way for way in WAYS if (way, length) != ("standard", 8192)]  # the paper's own has no figure there
            case[str(length)] = {way: point(way, flush, (16, 8, length, 64), **options) for way in ways}
    return found


def layer(flush):
    """FlashAttention, figure 2, left: attention of GPT-2 medium, batch 64, 16 heads of 64, 1024 tokens, fp16."""
    return {setting: {way: point(way, flush, (64, 16, 1024, 64), **options) for way in WAYS}
            for setting, options in (("plain", {}), ("mask", {"mask": padding(64, 1024)}))}


def grouped(flush, lengths=(2048, 4096, 8192, 16384, 32768)):
    """NVIDIA's own benchmark on an H200: batch 1, 64 query heads over 8 key heads of 128, bf16."""
    found = {"full": {}, "causal": {}}
    for mask, case in found.items():
        for length in lengths:
            ways = ("cudnn",) if length == 32768 else ("cudnn", "flash")  # flash would take seconds there
            case[str(length)] = {way: point(way, flush, (1, 64, length, 128), kv_heads=8, dtype=torch.bfloat16,
                                            causal=mask == "causal") for way in ways}
    return found
# --8<-- [end:configurations]


# --8<-- [start:procedures]
def mean_of(count, attend, inputs):
    """Microseconds a call over `count` calls in a row: nothing is flushed, and the card grows warm."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(10_000_000)  # about 5 ms: the host is ahead before the first call begins
    begin.record()
    for _ in range(count):
        attend(*inputs)
    end.record()
    torch.cuda.synchronize()
    return round(us(begin, end) / count, 3)


def procedures(flush):
    """The same forward by other rules of timing and on other data: {length: {way: {rule: samples}}}, d = 128, no mask."""
    found = {}
    for length in (512, 16384):
        inputs = tensors(16384 // length, 16, length, 128)
        zeros = [torch.zeros_like(x).requires_grad_() for x in inputs]
        for way in ("flash", "cudnn"):
            cold = [forward for forward, _ in samples(WAYS[way], inputs, flush)]
            warm = [forward for forward, _ in samples(WAYS[way], inputs, flush[:1])]
            found.setdefault(str(length), {})[way] = {
                "cold L2": {"samples_us": cold}, "warm L2": {"samples_us": warm},
                "30 in a row": {"samples_us": [mean_of(30, WAYS[way], inputs) for _ in range(SAMPLES // 2)]},
                "30 in a row, zeros": {"samples_us": [mean_of(30, WAYS[way], zeros) for _ in range(SAMPLES // 2)]}}
    return found
# --8<-- [end:procedures]


def errors(device, dtype=torch.float16):
    """Relative error of output and of the query's gradient against float64, for each way and kind of call."""
    torch.manual_seed(0)
    kinds = {"full": {}, "causal": {"causal": True}, "mask": {"mask": padding(2, 192, device)}}
    found = {}
    for kind, options in kinds.items():
        inputs = tensors(2, 4, 192, 64, dtype=dtype, device=device)
        exact = [x.detach().double().requires_grad_() for x in inputs]
        right = standard(*exact, **options)
        grad = torch.randn_like(right)
        wanted = [right.detach(), torch.autograd.grad(right, exact, grad)[0]]
        found[kind] = {way: _error(attend, inputs, grad.to(dtype), wanted, options) for way, attend in WAYS.items()}
    return found


def _error(attend, inputs, grad, wanted, options):
    try:
        out = attend(*inputs, **options)
        got = [out.detach(), torch.autograd.grad(out, inputs, grad)[0]]
    except RuntimeError as error:
        return outcome(error)
    pairs = zip(("output", "query_gradient"), got, wanted, strict=True)
    return {name: float((one.double() - other).norm() / other.norm()) for name, one, other in pairs}


def capture(device="cuda"):
    data = {"errors": errors(device, torch.float16 if device == "cuda" else torch.float32)}
    if device == "cuda":
        flush = torch.empty(2**28, dtype=torch.int8, device=device)
        data |= {"layer": layer(flush), "transformer": transformer(flush), "appendix": appendix(flush),
                 "grouped": grouped(flush), "procedures": procedures(flush)}
    return data
