# %% [markdown] lang="en"
# # What does fusing four pointwise steps save on your card? { #pointwise-fusion }
#
# You will predict the time of four operations and of their fusion from two things only: how many bytes they move, and how fast your card copies. Then you measure, and find out where the prediction fails.
#
# It needs an NVIDIA GPU with 8 GiB of memory and takes about a minute. `torch.compile` also needs Triton, which PyTorch brings along on Linux.

# %% [markdown] lang="zh"
# # 在你的卡上，融合四步逐元素运算能省下什么？ { #pointwise-fusion }
#
# 只凭两样东西来预测：这四步运算要搬多少字节，你的卡复制得有多快。先预测融合前后的用时，再实测，看预测在哪里不成立。
#
# 需要一块显存至少 8 GiB 的 NVIDIA GPU，全程约一分钟。`torch.compile` 还需要 Triton，Linux 版的 PyTorch 自带。

# %% tags=["parameters"]
device = "cuda"  # "cpu" runs every cell at a small size; its times say nothing about a GPU

# %%
import statistics
import time

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

if device == "cuda" and not torch.cuda.is_available():
    raise SystemExit("This lab needs an NVIDIA GPU with 8 GiB of memory and a PyTorch that was built for CUDA.")
torch.manual_seed(0)
memory_bytes = torch.cuda.get_device_properties(0).total_memory if device == "cuda" else 2**24

# %% [markdown] lang="en"
# ## The size { #size }
#
# The rule of these labs: take at most a quarter of the card's memory, and halve the size until that holds. A GPU with 8 GiB gets the full size.

# %% [markdown] lang="zh"
# ## 规模 { #size }
#
# 这几个实验的规则是：最多用掉显存的四分之一，不够就把规模减半，直到够为止。8 GiB 的卡用的就是完整规模。

# %%
n = 8192
while 8 * n * n * 2 > memory_bytes / 4:  # the input, every intermediate tensor, and what CUDA graphs keep: 8 tensors at most
    n //= 2
x = torch.randn(n, n, device=device, dtype=torch.float16)
bias = torch.randn(n, device=device, dtype=torch.float16)
tensor_bytes = x.nbytes
print(f"x: {n} x {n}, fp16, {tensor_bytes / 2**20:g} MiB")


# %%
def chain(x, bias):
    y = x + bias                        # reads x, writes y: 2 passes over a tensor of this size (bias is small)
    y = torch.nn.functional.gelu(y)     # 2 passes
    return y * 0.5 + 0.1                # 4 passes: two operations, each reads a tensor and writes one


# %% [markdown] lang="en"
# ## The clock { #clock }
#
# Each sample is a batch of calls between two CUDA events, divided by their number. As long as the host enqueues faster than the GPU works, that is the GPU's time; [how clocks differ](../memory/measuring.md) is a page of its own.
#
# Its first use is a copy, which reads a tensor once and writes it once. Half of that is what one **pass** takes on this card.

# %% [markdown] lang="zh"
# ## 计时 { #clock }
#
# 每个样本是两个 CUDA event 之间的一批调用，再除以次数。只要主机端入队比 GPU 执行快，量到的就是 GPU 的用时。[各种计时方法有什么不同](../memory/measuring.md)，另有一页专讲。
#
# 先用它量一次复制：把一个张量读一遍、写一遍。用时的一半，就是这块卡走**一遍**所需的时间。

# %%
def time_us(call, calls=20, samples=9):
    """Median time of a call, in microseconds."""
    for _ in range(5):  # warm up; CUDA graphs record in the second call
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


copy_us = time_us(lambda target=torch.empty_like(x): target.copy_(x))
pass_us = copy_us / 2
print(f"a copy takes {copy_us:.1f} us, so a pass takes {pass_us:.1f} us: {tensor_bytes / pass_us / 1e3:,.0f} GB/s")

# %% [markdown] lang="en"
# ## Predict first { #predict }
#
# Eager mode runs four kernels; a compiler can make one of them. Count the passes in `chain` above, with and without intermediate tensors. Before you go on, write down: how many times as fast is the fused call?

# %% [markdown] lang="zh"
# ## 先预测 { #predict }
#
# eager 模式（动态图）启动四个 kernel（核函数），编译器可以把它们并成一个。数一数上面的 `chain` 在有中间张量和没有中间张量时各走几遍。往下看之前先写下来：融合之后的速度是原来的几倍？

# %% [markdown] tags=["page"]
# ```python exec="true" html="true"
# from harness.lab import guess
# print(guess("pointwise_fusion.speedup", {"en": "The fused call is how many times as fast?", "zh": "融合之后的速度是原来的几倍？"}))
# ```

# %%
passes = {"eager": 8, "compiled": 2}
predicted_us = {name: count * pass_us for name, count in passes.items()}
for name, us in predicted_us.items():
    print(f"{name:9}{passes[name]} passes, predicted {us:7.1f} us")
print(f"predicted speed-up {predicted_us['eager'] / predicted_us['compiled']:.2f}")

# %% [markdown] lang="en"
# ## The result { #result }
#
# Right first: the compiled function must give what eager mode gives, but for rounding.

# %% [markdown] lang="zh"
# ## 结果 { #result }
#
# 先看对不对：除了舍入误差，编译后的函数必须和 eager 给出同样的结果。

# %%
torch._dynamo.reset()
calls = {"eager": chain, "compiled": torch.compile(chain), "max-autotune": torch.compile(chain, mode="max-autotune")}
exact = chain(x[:64].double(), bias.double())
for name, call in calls.items():
    error = float((call(x, bias)[:64].double() - exact).norm() / exact.norm())
    assert error < 2e-3, f"{name}: relative error {error}"
    print(f"{name:13}relative error {error:.1e}")


# %% [markdown] lang="en"
# Now the time of a call, the memory that it takes on top, and the kernels that it starts. `max-autotune` is the mode whose name promises the most.

# %% [markdown] lang="zh"
# 再看单次调用的用时、额外占用的显存，以及启动了哪些 kernel。`max-autotune` 是名字听上去最快的模式。

# %%
def extra_mib(call):
    """The most that a call allocates above what was there before it, in MiB."""
    if device != "cuda":
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def kernels(call):
    """(name, time in microseconds) of each piece of GPU work of one call, in order."""
    if device != "cuda":
        return []
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as recorded:  # the GPU's events alone
        call()
        torch.cuda.synchronize()
    found = [event for event in recorded.events() if event.device_type == DeviceType.CUDA]
    return [(event.name, event.time_range.elapsed_us()) for event in sorted(found, key=lambda event: event.time_range.start)]


def short(name):
    """A kernel's name without namespaces, so that its line says what it is."""
    for noise in ("void ", "(anonymous namespace)::", "at::native::", "binary_internal::", "c10::"):
        name = name.replace(noise, "")
    return name[:80]


rows = {}
for name, function in calls.items():
    def call(function=function):
        return function(x, bias)
    rows[name] = {"call_us": time_us(call), "extra_mib": extra_mib(call), "kernels": kernels(call)}
    row = rows[name]
    print(f"{name}: {row['call_us']:.1f} us a call, {row['extra_mib']:.0f} MiB extra, kernels: {len(row['kernels'])}")
    for kernel, us in row["kernels"]:
        print(f"{us:8.1f} us  {short(kernel)}")

# %%
speedup = rows["eager"]["call_us"] / rows["compiled"]["call_us"]
for name in passes:
    print(f"{name:9}predicted {predicted_us[name]:7.1f} us, measured {rows[name]['call_us']:7.1f} us, "
          f"ratio {rows[name]['call_us'] / predicted_us[name]:.2f}")
print(f"speed-up of the fused call: predicted {predicted_us['eager'] / predicted_us['compiled']:.2f}, measured {speedup:.2f}")

# %% [markdown] tags=["page"]
# ```python exec="true" html="true"
# from harness.lab import beside
# from harness.results import load
# print(beside("pointwise_fusion.speedup", f"{load('labs/pointwise_fusion').found.speedup:.2f}"))
# ```

# %% [markdown] lang="en"
# ## Why { #why }
#
# Passes explain most of the gain and not all of it. Look at the kernels above, which are those of this site's H200. The last two of eager mode take about what two passes take. `gelu` takes somewhat more, and the first kernel more than twice as much: PyTorch's [broadcast add](../fusion/pointwise.md#broadcast) is slower than its bytes.
#
# The fused kernel does not have that trouble, and yet it misses its two passes by the larger factor: [what it computes](../fusion/pointwise.md#arithmetic) is no longer hidden behind what it moves. So fusion saves more microseconds than predicted, and the speed-up is still below the predicted one. Which of the two misses do you find on your card?

# %% [markdown] lang="zh"
# ## 为什么 { #why }
#
# 遍数解释了大部分收益，但不是全部。看上面列出的 kernel，它们来自本站的 H200。eager 的最后两个，用时约等于走两遍的时间。`gelu` 略多一些，第一个则超过两倍：PyTorch 的[广播加法](../fusion/pointwise.md#broadcast)慢于它所搬运的字节。
#
# 融合后的 kernel 没有这个毛病，超出走两遍的倍数却更大：[它要做的计算](../fusion/pointwise.md#arithmetic)，已经不能全部藏在搬运的时间里。所以融合省下的微秒数比预测的多，加速比却仍低于预测。这两处偏差，你的卡上有哪一处？

# %% [markdown] lang="en"
# ## Now change this { #change }
#
# 1. Add ten more lines `y = y * 0.5 + 0.1` to `chain`. How do both times grow?
# 2. Take `n = 64`. Which of the two is faster, and what does the clock measure then?
# 3. Take `dtype=torch.float32`. Does the fused kernel come nearer to its two passes, or not?
#
# ## Three questions { #questions }
#
# <details markdown="1"><summary>1. Why does each call of max-autotune start more kernels than the plain compiled one?</summary>
#
# The mode uses CUDA graphs. A graph reads its inputs where they lay when it was recorded, so each call first copies `x` and `bias` there; one copy of `x` is split into several launches. Its result lies in memory that the graph keeps, which is why no extra memory is shown. [What that costs at which size](../fusion/modes.md).
#
# </details>
#
# <details markdown="1"><summary>2. Eager mode makes four tensors: three intermediate ones and the result. Why is the peak of its extra memory three tensors?</summary>
#
# Those alive together decide. When `gelu` is done, the sum before it is freed and may be used again. On the last line three are alive: `y`, which its name keeps until the line is done, `y * 0.5`, and the result. Write the last line as two lines, `y = y * 0.5` and `return y + 0.1`, and the peak falls to two tensors. [What the allocator does with what is freed](../path/allocator.md).
#
# </details>
#
# <details markdown="1"><summary>3. Would a chain twice as long be sped up twice as much?</summary>
#
# By passes alone: eager mode needs two more for each step and the fused kernel none, so yes. Until the arithmetic of the fused kernel, which grows with every step, takes longer than its two passes.
#
# </details>

# %% [markdown] lang="zh"
# ## 接着改 { #change }
#
# 1. 给 `chain` 再加十行 `y = y * 0.5 + 0.1`，两边的用时各怎样增长？
# 2. 取 `n = 64`。哪一个更快？这时量到的又是什么？
# 3. 取 `dtype=torch.float32`。融合后的 kernel 离走两遍的时间是更近了，还是没有？
#
# ## 三个问题 { #questions }
#
# <details markdown="1"><summary>1. 为什么 max-autotune 每次调用启动的 kernel，比普通编译的还多？</summary>
#
# 这个模式使用 CUDA Graph。图总是从录制时的地址读输入，所以每次调用都要先把 `x` 和 `bias` 复制过去，而 `x` 的一次复制会拆成好几次启动。结果放在图一直占着的显存里，所以额外显存显示为零。[在各种规模下代价是多少](../fusion/modes.md)。
#
# </details>
#
# <details markdown="1"><summary>2. eager 模式产生四个张量：三个中间张量和一个结果。为什么额外显存的峰值是三个张量？</summary>
#
# 关键在于哪些张量同时存活。`gelu` 算完，它前面的和就释放了，那块显存可以复用。执行最后一行时有三个同时存活：`y`（名字还绑着它，要等这一行执行完）、`y * 0.5`，以及结果。把最后一行拆成 `y = y * 0.5` 和 `return y + 0.1` 两行，峰值就降到两个张量。[释放之后分配器怎么处理](../path/allocator.md)。
#
# </details>
#
# <details markdown="1"><summary>3. 链条长一倍，加速比也会大一倍吗？</summary>
#
# 只看遍数：eager 每多一步多走两遍，融合后的 kernel 一遍也不多，所以是的。但融合 kernel 的计算量随每一步增长，一旦超过走两遍的时间，就不再成立。
#
# </details>

# %%
# What this lab found, for the checks at the end of its page.
found = {"n": n, "copy_us": copy_us, "predicted_us": predicted_us, "speedup": speedup,
         "call_us": {name: row["call_us"] for name, row in rows.items()},
         "extra_mib": {name: row["extra_mib"] for name, row in rows.items()},
         "kernels_us": {name: [us for _, us in row["kernels"]] for name, row in rows.items()}}
