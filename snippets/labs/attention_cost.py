# %% [markdown] lang="en"
# # What does attention cost as the sequence grows? { #attention-cost }
#
# You will compute the memory of attention's N × N matrices by hand, measure it, and watch memory and time separate: what a fused kernel takes away grows with N², and something else that grows with N² stays.
#
# It needs an NVIDIA GPU with 8 GiB of memory and takes less than a minute.

# %% [markdown] lang="zh"
# # 序列变长，注意力的代价怎样增长？ { #attention-cost }
#
# 先手算注意力的 N × N 矩阵占多少显存，再实测，然后看显存与用时分道扬镳：融合的 kernel 去掉了一样随 N² 增长的东西，而另一样随 N² 增长的东西还在。
#
# 需要一块显存至少 8 GiB 的 NVIDIA GPU，全程不到一分钟。

# %% tags=["parameters"]
device = "cuda"  # "cpu" runs every cell at a small size; its times say nothing about a GPU

# %%
import statistics
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

if device == "cuda" and not torch.cuda.is_available():
    raise SystemExit("This lab needs an NVIDIA GPU with 8 GiB of memory and a PyTorch that was built for CUDA.")
torch.manual_seed(0)
memory_bytes = torch.cuda.get_device_properties(0).total_memory if device == "cuda" else 2**26
dtype = torch.float16
batch, heads, d = 1, 16, 64

# %% [markdown] lang="en"
# ## By hand { #by-hand }
#
# Attention as the formula says it writes the scores, scales them, and turns them into weights. Each is a matrix of N × N for every head. Two of them are alive at a time: the one that is read and the one that is written. The output comes on top.

# %% [markdown] lang="zh"
# ## 手算 { #by-hand }
#
# 照公式写的注意力要写出分数，缩放，再变成权重。每一样都是每个头一个 N × N 矩阵。任一时刻有两个同时存活：正在读的和正在写的。最后再加上输出。

# %%
def matrix_mib(n):
    return batch * heads * n * n * dtype.itemsize / 2**20


def output_mib(n):
    return batch * heads * n * d * dtype.itemsize / 2**20


for n in (1024, 2048, 4096, 8192, 16384, 32768):
    matrix, output = matrix_mib(n), output_mib(n)
    print(f"N = {n:6}: a matrix {matrix:7,.0f} MiB, two {2 * matrix:7,.0f} MiB, the output {output:3,.0f} MiB")

# %% [markdown] lang="en"
# ## The sizes { #size }
#
# As in every lab: at most a quarter of the card's memory. N is doubled as long as two matrices and four tensors of the output's size fit. A GPU with 8 GiB gets to N = 4096.

# %% [markdown] lang="zh"
# ## 规模 { #size }
#
# 规则与其他实验相同：最多用掉显存的四分之一。只要两个矩阵加上四个与输出同样大小的张量放得下，就把 N 翻倍。8 GiB 的卡到 N = 4096。

# %%
first = 1024 if device == "cuda" else 128
sizes = [first * 2**step for step in range(5)]
sizes = [n for n in sizes if (2 * matrix_mib(n) + 4 * output_mib(n)) * 2**20 <= memory_bytes / 4]
print("N =", ", ".join(map(str, sizes)))

# %% [markdown] lang="en"
# ## Predict first { #predict }
#
# Double N. By what factor does each of these grow: the extra memory of the formula, the extra memory of `scaled_dot_product_attention`, its time? Write down the third: it is the one that people get wrong.

# %% [markdown] lang="zh"
# ## 先预测 { #predict }
#
# N 翻倍，下面三样各变成几倍：照公式计算的额外显存、`scaled_dot_product_attention`（下文简称 SDPA）的额外显存、SDPA 的用时？把第三个写下来：它最容易答错。

# %% [markdown] tags=["page"]
# ```python exec="true" html="true"
# from harness.lab import guess
# print(guess("attention_cost.time", {"en": "SDPA's time grows by what factor when N doubles?", "zh": "N 翻倍，SDPA 的用时变成几倍？"}))
# ```

# %% [markdown] lang="en"
# ## Measured { #result }

# %% [markdown] lang="zh"
# ## 实测 { #result }


# %%
def formula(q, k, v):
    scores = q @ k.transpose(-2, -1)          # one matrix
    scores = scores * d**-0.5                 # two alive: the one read, the one written
    weights = torch.softmax(scores, dim=-1)   # two alive
    return weights @ v


def time_us(call, calls=5, samples=7):
    """Median time of a call, in microseconds: batches between two events."""
    for _ in range(3):
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


ways = {"formula": formula, "sdpa": F.scaled_dot_product_attention}
measured = {way: {} for way in ways}
for n in sizes:
    q, k, v = (torch.randn(batch, heads, n, d, device=device, dtype=dtype) for _ in range(3))
    right = torch.softmax(q[0, 0, :64].double() @ k[0, 0].double().T / d**0.5, dim=-1) @ v[0, 0].double()
    for way, function in ways.items():
        error = float((function(q, k, v)[0, 0, :64].double() - right).norm() / right.norm())
        assert error < 5e-3, f"{way}, N = {n}: relative error {error}"

        def call(function=function):
            return function(q, k, v)
        row = measured[way][n] = {"us": time_us(call), "mib": extra_mib(call)}
        print(f"N = {n:6} {way:8}{row['us']:11,.1f} us {row['mib']:10,.1f} MiB extra")

# %% [markdown] lang="en"
# ## Hand against measurement { #compare }

# %% [markdown] lang="zh"
# ## 手算与实测 { #compare }

# %%
for n in sizes:
    by_hand = {"formula": 2 * matrix_mib(n) + output_mib(n), "sdpa": output_mib(n)}
    for way in ways:
        print(f"N = {n:6}  {way:8} by hand {by_hand[way]:8,.0f} MiB, measured {measured[way][n]['mib']:8,.0f} MiB")


def growth(way, what):
    """The factors for each doubling of N."""
    column = [measured[way][n][what] for n in sizes]
    return [after / before if before else 0.0 for before, after in pairwise(column)]


growths = {way: {what: growth(way, what) for what in ("us", "mib")} for way in ways}
flops = 4 * batch * heads * sizes[-1] ** 2 * d
sdpa_tflops = flops / measured["sdpa"][sizes[-1]]["us"] / 1e6
for way in ways:
    for n, us, mib in zip(sizes[1:], growths[way]["us"], growths[way]["mib"], strict=True):
        print(f"{way:8} N doubled to {n:6}: time x {us:.2f}, memory x {mib:.2f}")
print(f"sdpa at N = {sizes[-1]}: {flops / 1e9:,.0f} GFLOP at {sdpa_tflops:,.0f} TFLOP/s")

# %% [markdown] tags=["page"]
# ```python exec="true" html="true"
# from harness.lab import beside
# from harness.results import load
# print(beside("attention_cost.time", f"{load('labs/attention_cost').found.growths.sdpa.us[-1]:.2f}"))
# ```

# %% [markdown] lang="en"
# ## Why { #why }
#
# The fused kernel writes no N × N matrix, so its memory grows with N. Its arithmetic does not shrink: every query still meets every key. At long N that is all that is left, so time grows with N², by four for each doubling. FlashAttention made attention cheaper; it did not make it linear.
#
# The formula makes [six passes over its matrices](../fusion/attention-fusion.md), so its time should grow by four, as its memory does. On this site's H200 it does not: look at the list. From N = 4096 to 8192 it grows by more than four, from there to 16384 by less than three. Which of its kernels is to blame?

# %% [markdown] lang="zh"
# ## 为什么 { #why }
#
# 融合的 kernel 不写 N × N 矩阵，所以显存随 N 增长。计算量却没有减少：每个查询仍要与每个键相乘。N 足够长时，剩下的就只有计算，所以用时随 N² 增长，每翻一倍变成四倍。FlashAttention 让注意力更便宜，并没有让它变成线性。
#
# 照公式写的注意力要在[矩阵上走六遍](../fusion/attention-fusion.md)，用时本该和显存一样变成四倍。在本站的 H200 上却不是，看上面的列表：N 从 4096 到 8192，用时增长不止四倍；再到 16384，却不到三倍。原因在哪个 kernel？


# %%
def kernels(call):
    """(name, time in microseconds) of each kernel of one call, in order."""
    if device != "cuda":
        return []
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as recorded:  # the GPU's events alone
        call()
        torch.cuda.synchronize()
    found = [event for event in recorded.events() if event.device_type == DeviceType.CUDA]
    return [(event.name, event.time_range.elapsed_us()) for event in sorted(found, key=lambda event: event.time_range.start)]


split = {}
for n in sizes[-2:]:
    q, k, v = (torch.randn(batch, heads, n, d, device=device, dtype=dtype) for _ in range(3))
    split[f"n_{n}"] = [{"name": name, "us": us} for name, us in kernels(lambda: formula(q, k, v)) if "Mem" not in name]
    print(f"N = {n}: {len(split[f'n_{n}']) or 'no'} kernels on this device")
    for kernel in split[f"n_{n}"]:
        short = kernel["name"].removeprefix("void ").replace("(anonymous namespace)::", "").replace("at::native::", "")
        print(f"{kernel['us']:12,.1f} us  {short[:84]}")

# %% [markdown] lang="en"
# At N = 8192 softmax takes most of the time. On the H200 it runs in `cunn_SoftMaxForwardReg`, which keeps eight elements of a row in the registers of each of 1024 threads: [few bytes, and slow](../fusion/reduction.md#library). With ten or more elements a thread, PyTorch takes another kernel ([`SoftMax.cu`](https://github.com/pytorch/pytorch/blob/v2.11.0/aten/src/ATen/native/cuda/SoftMax.cu), `host_softmax`); a row of 16384 has sixteen. So the long rows are not fast; the shorter ones are slow. The fourth change below finds the border. (At 16384 the scaling takes four launches, because its tensor has more bytes than a signed 32-bit number can count: [`TensorIterator.cpp`](https://github.com/pytorch/pytorch/blob/v2.11.0/aten/src/ATen/TensorIterator.cpp), `can_use_32bit_indexing`.)
#
# Memory is what ends the formula: at which N, on your card?

# %% [markdown] lang="zh"
# N = 8192 时，大部分用时花在 softmax 上。在 H200 上，执行它的是 `cunn_SoftMaxForwardReg`：1024 个线程，每个线程把一行中的 8 个元素放在寄存器里，[字节不多，却很慢](../fusion/reduction.md#library)。每个线程要放 10 个以上时，PyTorch 换用另一个 kernel（[`SoftMax.cu`](https://github.com/pytorch/pytorch/blob/v2.11.0/aten/src/ATen/native/cuda/SoftMax.cu) 的 `host_softmax`），而 16384 个元素的行每个线程是 16 个。所以不是长的行快，而是短一些的行慢。下面的第 4 处改动可以找到分界。（N = 16384 时，缩放要启动四次：张量的字节数超出了有符号 32 位整数的范围，只能分几段来算，见 [`TensorIterator.cpp`](https://github.com/pytorch/pytorch/blob/v2.11.0/aten/src/ATen/TensorIterator.cpp) 的 `can_use_32bit_indexing`。）
#
# 照公式写的注意力，最后卡在显存上。在你的卡上，N 最大能到多少？

# %%
largest = int((memory_bytes / (2 * batch * heads * dtype.itemsize)) ** 0.5)
print(f"two matrices for {heads} heads fill this device's {memory_bytes / 2**30:.1f} GiB at N = {largest:,}")

# %% [markdown] lang="en"
# ## Now change this { #change }
#
# 1. Take `batch = 4`. Which of your four growth factors change?
# 2. Add `is_causal=True` to SDPA. By what factor does its time fall at the largest N, and at the smallest?
# 3. Take `d = 128`. What happens to the matrices, to the output, and to SDPA's time?
# 4. Take `heads = 2` and, after the rule, `sizes = [8192, 9216, 10240, 16384]`. Divide the formula's times by N². Between which two does the quotient fall?
#
# ## Three questions { #questions }
#
# <details markdown="1"><summary>1. SDPA's growth is below four at small N. Why?</summary>
#
# A small call does not fill the card: with few blocks of queries some multiprocessors have nothing to do, and starting a kernel costs the same at any N. Doubling N then also fills what was empty. And where the host takes longer to enqueue a call than the GPU to run it, this clock reads the host; `kernels` shows the time of the kernel alone.
#
# </details>
#
# <details markdown="1"><summary>2. Would fp8 scores save the formula?</summary>
#
# They halve each matrix against fp16, and each doubling of N still makes four of one. The largest N grows by the square root of two. Only not writing the matrix changes the law.
#
# </details>
#
# <details markdown="1"><summary>3. Training must go backward. Does it need the matrix after all?</summary>
#
# The backward pass needs the weights again. It does not need them kept: with one number a row, the logarithm of the sum of exponentials, it computes a block of them again when it gets there. That number falls out of [the online softmax](../attention/online-softmax.md): the maximum plus the logarithm of the sum. [Why one number is enough](../attention/backward.md#lse).
#
# </details>

# %% [markdown] lang="zh"
# ## 接着改 { #change }
#
# 1. 取 `batch = 4`。四个增长倍数里，哪些会变？
# 2. 给 SDPA 加上 `is_causal=True`。在最大和最小的 N 下，用时各降到几分之几？
# 3. 取 `d = 128`。矩阵、输出和 SDPA 的用时各有什么变化？
# 4. 取 `heads = 2`，并在规则之后写 `sizes = [8192, 9216, 10240, 16384]`。把照公式计算的用时除以 N²，商在哪两个 N 之间下降？
#
# ## 三个问题 { #questions }
#
# <details markdown="1"><summary>1. N 较小时，SDPA 的增长不到四倍，为什么？</summary>
#
# 规模小的调用填不满整块卡：查询的块太少，一部分 SM 没有事做；而启动一个 kernel 的代价与 N 无关。这时 N 翻倍，也填上了原来空着的部分。此外，如果主机端入队一次调用比 GPU 执行还慢，这里量到的就是主机端的时间；kernel 本身的用时要用 `kernels` 来看。
#
# </details>
#
# <details markdown="1"><summary>2. 分数改用 fp8，能救照公式写的注意力吗？</summary>
#
# 每个矩阵比 fp16 小一半，但 N 每翻一倍，一个矩阵仍变成四个那么大。放得下的最大 N 只增大到根号二倍。只有不写这个矩阵，才能改变增长规律。
#
# </details>
#
# <details markdown="1"><summary>3. 训练要做反向，最终还是需要这个矩阵吗？</summary>
#
# 反向确实要再用到权重，但不必一直存着：每行存一个数，即指数和的对数，需要时再把这一块重新算出来。这个数是[在线 softmax](../attention/online-softmax.md) 顺带得到的：最大值加上和的对数。[为什么一个数就够了](../attention/backward.md#lse)。
#
# </details>

# %%
# What this lab found, for the checks at the end of its page.
kept = {way: {n: measured[way][n] for n in sizes[-2:]} for way in ways}
found = {"sizes": sizes, "measured": {way: {f"n_{n}": row for n, row in rows.items()} for way, rows in kept.items()},
         "growths": growths, "formula_kernels": split, "sdpa_tflops": sdpa_tflops, "largest_n": largest}
