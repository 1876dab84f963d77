"""What a call of `gelu(x + bias)` costs the host and in all, from 64 elements to 256 million: eager, compiled, CUDA graph."""
import time

import torch

from path.example import forward, inputs

POWERS = range(6, 29, 2)  # 2**6 to 2**28 elements
SAMPLES = 30


# --8<-- [start:clocks]
def enqueue_us(call):
    """The host's time until the call returns, on an idle device."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e6


def total_us(call):
    """The host's time until the result is there."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6


def row_us(call, count=50):
    """A call's share of a row of calls with one wait at the end: what a program with enough to do pays."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count * 1e6
# --8<-- [end:clocks]


# --8<-- [start:graph]
def graphed(x, bias):
    """The eager call, recorded once: replaying it launches both kernels at once, on the memory that it was recorded with."""
    for _ in range(3):
        forward(x, bias)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward(x, bias)
    return graph.replay
# --8<-- [end:graph]


def calls(x, bias):
    torch._dynamo.reset()
    compiled = torch.compile(forward)
    return {"eager": lambda: forward(x, bias), "compiled": lambda: compiled(x, bias), "graph": graphed(x, bias)}


def capture(device="cuda"):
    data = {name: {} for name in ("eager", "compiled", "graph")}
    for power in POWERS:
        columns = 2 ** min(power, 13)
        x, bias = inputs(rows=2**power // columns, columns=columns, device=device)
        for name, call in calls(x, bias).items():
            for _ in range(10):
                call()
            data[name][f"2^{power}"] = {clock.__name__: {"samples_us": [clock(call) for _ in range(SAMPLES)]}
                                        for clock in (enqueue_us, total_us, row_us)}
    return data
