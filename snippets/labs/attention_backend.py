# %% [markdown] lang="en"
# # Which kernel runs your attention, and why that one? { #attention-backend }
#
# `scaled_dot_product_attention` is one function with several backends. You will see which one it chose on your card, run each of them by force, and find out what a small change of the inputs does to the choice.
#
# It needs an NVIDIA GPU with 8 GiB of memory and takes less than a minute.

# %% [markdown] lang="zh"
# # 你的注意力由哪个 kernel 执行，为什么是它？ { #attention-backend }
#
# `scaled_dot_product_attention`（下文简称 SDPA）是一个函数，背后有好几个后端。先看它在你的卡上选了哪一个，再逐个强制运行，最后看输入的一点小改动会怎样影响选择。
#
# 需要一块显存至少 8 GiB 的 NVIDIA GPU，全程不到一分钟。

# %% tags=["parameters"]
device = "cuda"  # "cpu" runs every cell at a small size; its times say nothing about a GPU

# %%
import statistics
import time
import warnings

import torch
import torch.nn.functional as F
from torch.autograd import DeviceType
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

if device == "cuda" and not torch.cuda.is_available():
    raise SystemExit("This lab needs an NVIDIA GPU with 8 GiB of memory and a PyTorch that was built for CUDA.")
torch.manual_seed(0)
torch.set_warn_always(True)  # some reasons for a refusal are told once a process otherwise
memory_bytes = torch.cuda.get_device_properties(0).total_memory if device == "cuda" else 2**24

# %% [markdown] lang="en"
# ## The size { #size }
#
# Two sequences, 16 heads, N = 2048, head dim 64. The largest thing that any backend allocates is a few N × N matrices for every head, in fp32. As in every lab: at most a quarter of the card's memory, and the size is halved until that holds. A GPU with 8 GiB gets the full size.

# %% [markdown] lang="zh"
# ## 规模 { #size }
#
# 两条序列，16 个头，N = 2048，head dim 为 64。各后端所分配的最大的东西，是每个头几个 fp32 的 N × N 矩阵。规则与其他实验相同：最多用掉显存的四分之一，不够就把规模减半，直到够为止。8 GiB 的卡用的就是完整规模。

# %%
batch, heads, n, d = 2, 16, 2048, 64
while 3 * batch * heads * n * n * 4 > memory_bytes / 4:  # the math backend: at most three fp32 matrices at a time
    n //= 2
q, k, v = (torch.randn(batch, heads, n, d, device=device, dtype=torch.float16) for _ in range(3))
print(f"q, k, v: {batch} x {heads} x {n} x {d}, fp16, {q.nbytes / 2**20:g} MiB each")
print(f"scores of all heads, never asked for: {batch * heads * n * n * 2 / 2**20:g} MiB in fp16")

# %% [markdown] lang="en"
# ## Predict first { #predict }
#
# Up to four backends can take these inputs, depending on the card: cuDNN, flash, efficient and math. All compute the same thing. How many times as long as the fastest does the slowest take? And how much memory does the one you get by default allocate, beside its output?

# %% [markdown] lang="zh"
# ## 先预测 { #predict }
#
# 这样的输入最多有四个后端可用，视卡而定：cuDNN、flash、efficient 和 math。它们算的是同一件事。最慢的用时是最快的几倍？默认选中的那一个，除了输出之外还要分配多少显存？

# %% [markdown] tags=["page"]
# ```python exec="true" html="true"
# from harness.lab import guess
# print(guess("attention_backend.spread", {"en": "The slowest takes how many times as long as the fastest?", "zh": "最慢的用时是最快的几倍？"}))
# ```

# %% [markdown] lang="en"
# ## Three ways to look { #look }
#
# Time says how fast, memory says whether an N × N matrix was there, and the profiler says the name of what ran.

# %% [markdown] lang="zh"
# ## 三种观察方法 { #look }
#
# 用时说明有多快，显存说明有没有出现过 N × N 的矩阵，profiler 说明执行的是什么。


# %%
def time_us(call, calls=20, samples=9):
    """Median time of a call, in microseconds: batches between two events."""
    for _ in range(5):
        call()
    found = []
    for _ in range(samples):
        if device == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            begin.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) * 1e3 / calls)
        else:
            begin = time.perf_counter()
            call()
            found.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(found)


def extra_mib(call):
    """The most that a call allocates above what was there before it, its output included, in MiB."""
    if device != "cuda":
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def longest_kernel(call):
    """The name of the kernel that took the longest in one call."""
    if device != "cuda":
        return "(no GPU, no kernel)"
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as recorded:  # the GPU's events alone
        call()
        torch.cuda.synchronize()
    found = [event for event in recorded.events() if event.device_type == DeviceType.CUDA]
    name = max(found, key=lambda event: event.time_range.elapsed_us()).name
    return name.removeprefix("void ").partition("(")[0].partition("<")[0]  # without what C++ hangs behind it


# %% [markdown] lang="en"
# ## The default { #default }

# %% [markdown] lang="zh"
# ## 默认的选择 { #default }

# %%
def attention():
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


chosen = longest_kernel(attention)
default_us, default_mib = time_us(attention), extra_mib(attention)
print(f"{default_us:.1f} us, {default_mib:.1f} MiB extra, of which the output is {q.nbytes / 2**20:g} MiB")
print(chosen[:100])

# %% [markdown] lang="en"
# ## Each by force { #forced }
#
# `sdpa_kernel` allows only the backends it is given. One that cannot take the inputs raises, and says why in warnings: that is one of its gates. On this site's H200 all four take them. Each answer is checked against the formula in fp64, on the first 64 rows of one head.

# %% [markdown] lang="zh"
# ## 逐个强制 { #forced }
#
# `sdpa_kernel` 只允许给定的后端。不能处理这些输入的后端会报错，并在警告里说明原因，这就是它的一道门槛。在本站的 H200 上，四个都能处理。每个结果都与 fp64 的公式对照，取一个头的前 64 行。


# %%
def exact(rows=64):
    scores = q[0, 0, :rows].double() @ k[0, 0].double().T / d**0.5
    hidden = torch.ones(rows, n, device=device, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1) @ v[0, 0].double()


backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
begins = {"cudnn": "cuDNN attention kernel", "flash": "Flash attention kernel", "efficient": "Memory efficient kernel"}


def refusal(name, call):
    """None if the backend takes the call, else why not: SDPA warns "<backend> kernel not used because:", then the reason."""
    with sdpa_kernel(backends[name]), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            call()
            return None
        except RuntimeError as error:
            lines = [str(warning.message).split(" (Triggered")[0] for warning in said] + [str(error).splitlines()[0]]
    below = [lines[place + 1] for place, line in enumerate(lines[:-1]) if line.startswith(begins.get(name, "-"))]
    return below[0] if below and " kernel not used because" not in below[0] else lines[-1]


def forced(name, call):
    """{"us", "mib", "kernel", "out"} of the call through one backend, or {"refused": its reason}."""
    if reason := refusal(name, call):
        return {"refused": reason}
    with sdpa_kernel(backends[name]):
        return {"us": time_us(call), "mib": extra_mib(call), "kernel": longest_kernel(call), "out": call()}


right = exact()
rows = {}
for name in backends:
    row = rows[name] = forced(name, attention)
    if "refused" in row:
        print(f"{name:10}refused: {row['refused'][:100]}")
        continue
    error = float((row.pop("out")[0, 0, :64].double() - right).norm() / right.norm())
    assert error < 5e-3, f"{name}: relative error {error}"
    print(f"{name:10}{row['us']:8.1f} us {row['mib']:8.1f} MiB extra  error {error:.1e}  {row['kernel'][:48]}")

# %%
took_us = {name: row["us"] for name, row in rows.items() if "us" in row}
spread = max(took_us.values()) / min(took_us.values())
slowest, fastest = max(took_us, key=took_us.get), min(took_us, key=took_us.get)
print(f"the slowest, {slowest}, takes {spread:.1f} times as long as the fastest, {fastest}")
same = [name for name, row in rows.items() if row.get("kernel") == chosen]
print(f"the default ran the same kernel as {' and '.join(same) or 'none of them'}")

# %% [markdown] tags=["page"]
# ```python exec="true" html="true"
# from harness.lab import beside
# from harness.results import load
# print(beside("attention_backend.spread", f"{load('labs/attention_backend').found.spread:.1f}"))
# ```

# %% [markdown] lang="en"
# ## What closes a gate { #gates }
#
# Now four changes, each by itself: a mask, another dtype, two other head dims (the larger with a shorter sequence). For each the table says who would still take the inputs, what then runs by default, and why the others would not. By default a backend that steps aside does so without a word: the next in line runs, and the last one is math.

# %% [markdown] lang="zh"
# ## 什么会让后端退出 { #gates }
#
# 再做四处改动，每次只改一处：加一个掩码，换一种 dtype，换两种 head dim（大的那个序列短一些）。表中列出哪些后端还能处理，这时默认执行的是哪个 kernel，以及其余的为什么不能。默认情况下，后端退出时一声不响：由下一个接着执行，最后一个是 math。

# %%
mask = torch.zeros(n, n, device=device, dtype=torch.float16)
float32 = [tensor.float() for tensor in (q, k, v)]
odd = [tensor[..., :60].contiguous() for tensor in (q, k, v)]
wide = [torch.randn(1, 2, 256, 512, device=device, dtype=torch.float16) for _ in range(3)]
changes = {
    "as above": attention,
    "a mask tensor": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    "fp32": lambda: F.scaled_dot_product_attention(*float32, is_causal=True),
    "head dim 60": lambda: F.scaled_dot_product_attention(*odd, is_causal=True),
    "head dim 512": lambda: F.scaled_dot_product_attention(*wide, is_causal=True),
}
gates = {}
for change, call in changes.items():
    gates[change] = {name: refusal(name, call) for name in backends}
    taken = [name for name, reason in gates[change].items() if reason is None]
    print(f"{change:15}{', '.join(taken):32}default: {longest_kernel(call)[:48]}")
    for name, reason in gates[change].items():
        if reason:
            print(f"    not {name}: {reason[:100]}")

# %% [markdown] lang="en"
# ## Why { #why }
#
# PyTorch keeps an order of the backends for your card and takes the first whose gates are open ([`sdp_utils.cpp`](https://github.com/pytorch/pytorch/blob/v2.11.0/aten/src/ATen/native/transformers/cuda/sdp_utils.cpp), torch 2.11). A gate looks at dtype, head dim, mask, layout and card, never at how fast the kernel would be. flash, efficient and cuDNN keep [no N × N matrix](../fusion/attention-fusion.md); math is the formula, step by step, in fp32, and allocates several.
#
# The reasons above are PyTorch's own. One needs a word: 60 is no multiple of 8, which flash wants too, but SDPA pads the head dim for flash alone. [Every gate, with its reason](../attention/backends.md#gates), has a table of its own.

# %% [markdown] lang="zh"
# ## 为什么 { #why }
#
# PyTorch 为你的卡维护一个后端的次序，选第一个过得了全部门槛的（[`sdp_utils.cpp`](https://github.com/pytorch/pytorch/blob/v2.11.0/aten/src/ATen/native/transformers/cuda/sdp_utils.cpp)，torch 2.11）。门槛看的是 dtype、head dim、掩码、布局和卡，从不看 kernel 会有多快。flash、efficient 和 cuDNN 都[不产生 N × N 矩阵](../fusion/attention-fusion.md)；math 就是一步一步照公式算，用的是 fp32，要分配好几个。
#
# 上面的原因是 PyTorch 自己的话。只有一处要解释：60 不是 8 的倍数，flash 也要求 8 的倍数，但 SDPA 只为 flash 补齐 head dim。[每一道门槛及其原因](../attention/backends.md#gates)，另有一张完整的表。

# %% [markdown] lang="en"
# ## Now change this { #change }
#
# 1. Drop the causal mask: `is_causal=True` wherever it stands, and the `masked_fill` in `exact`. Whose time doubles, and whose does not?
# 2. Take `d = 128`. Does the same backend stay the fastest?
# 3. Ask for gradients: `q.requires_grad_()`. Does the default choose another kernel?
#
# ## Three questions { #questions }
#
# <details markdown="1"><summary>1. How do you find out in a training run that attention fell back to math?</summary>
#
# Nothing warns. Look at the memory: several matrices of N × N for every head. Or allow only what you want, `sdpa_kernel([SDPBackend.FLASH_ATTENTION])`: then the first call that cannot have it [raises and says why](../attention/backends.md#loud).
#
# </details>
#
# <details markdown="1"><summary>2. Why can a mask that hides nothing change the kernel?</summary>
#
# A gate reads no element of the mask. That a tensor is there is enough for flash to step aside: where flash comes first, another kernel runs. cuDNN takes masks, so where it comes first, as on the H200, the same kernel runs. `is_causal=True` says the same as a triangle of minus infinity, without a tensor.
#
# </details>
#
# <details markdown="1"><summary>3. Is the default always the fastest?</summary>
#
# No. The kind of card and the version of cuDNN fix the order; no time is taken. Look at your own table, and at another shape: measure before you rely on it.
#
# </details>

# %% [markdown] lang="zh"
# ## 接着改 { #change }
#
# 1. 去掉因果掩码：所有的 `is_causal=True`，还有 `exact` 里的 `masked_fill`。谁的用时翻倍，谁的不变？
# 2. 取 `d = 128`。最快的还是同一个后端吗？
# 3. 要求梯度：`q.requires_grad_()`。默认会换一个 kernel 吗？
#
# ## 三个问题 { #questions }
#
# <details markdown="1"><summary>1. 训练时怎样发现注意力回退到了 math？</summary>
#
# 没有任何警告。看显存：每个头多出好几个 N × N 的矩阵。或者只允许你想要的后端，`sdpa_kernel([SDPBackend.FLASH_ATTENTION])`：这样，第一次无法满足的调用就会[报错并说明原因](../attention/backends.md#loud)。
#
# </details>
#
# <details markdown="1"><summary>2. 一个什么也不遮的掩码，为什么会换掉 kernel？</summary>
#
# 门槛不读掩码里的任何元素。只要有这个张量，flash 就退出；在 flash 排第一的卡上，执行的就换成了别的 kernel。cuDNN 接受掩码，所以在它排第一的卡上（例如 H200），执行的还是同一个 kernel。`is_causal=True` 与一个填了负无穷的三角矩阵意思相同，但没有张量。
#
# </details>
#
# <details markdown="1"><summary>3. 默认的总是最快的吗？</summary>
#
# 不是。次序由卡的种类和 cuDNN 的版本决定，并不计时。看看你自己的表，再换一个形状：要依赖它，先测。
#
# </details>

# %%
# What this lab found, for the checks at the end of its page.
found = {"n": n, "default_us": default_us, "default_mib": default_mib, "spread": spread, "call_us": took_us,
         "extra_mib": {name: row["mib"] for name, row in rows.items() if "mib" in row}, "gates": gates,
         "same_kernel_as_default": same}
