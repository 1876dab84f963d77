"""Softmax of shared rows where launches could meet: on two streams at once, in a CUDA graph, beside other kernels. Needs triton."""
import torch

from fusion.reduction.softmax_kernel import softmax, split_softmax

needs = {"packages": ["triton"]}
WAYS = {"split": split_softmax, "own": softmax}


def wrong(y, right):
    """How many elements differ, as a tensor: nothing here waits for the device."""
    return (y != right).sum()


# --8<-- [start:streams]
def on_two_streams(way, x, right, launches, beside=None):
    """Wrong elements of `launches` launches on each of two streams, which nothing orders; `beside` runs on a third."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    counts = []
    for _ in range(launches):
        for stream in streams[:2]:
            with torch.cuda.stream(stream):
                counts.append(wrong(way(x), right))
        if beside:
            with torch.cuda.stream(streams[2]):
                beside()
    torch.cuda.synchronize()
    return int(sum(counts))
# --8<-- [end:streams]


# --8<-- [start:graph]
def in_a_graph(way, x, right, replays):
    """Wrong elements of replays from two streams in turn, each beside a launch outside the graph."""
    graph, streams = torch.cuda.CUDAGraph(), [torch.cuda.Stream() for _ in range(3)]
    with torch.cuda.graph(graph):
        y = way(x)
    counts = []
    for replay in range(replays):
        y.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[replay % 2]):
            graph.replay()
            counts.append(wrong(y, right))
        with torch.cuda.stream(streams[2]):
            counts.append(wrong(way(x), right))
        torch.cuda.synchronize()
    return int(sum(counts))
# --8<-- [end:graph]


def held(way, x, product):
    """Wrong elements in each situation. Raises ValueError where a launch alone is wrong."""
    right = way(x)
    if not torch.allclose(right.float(), torch.softmax(x.float(), -1), rtol=1e-3, atol=1e-7):
        raise ValueError("a launch alone is wrong")
    return {"two_streams": {"launches_count": 200, "wrong_count": on_two_streams(way, x, right, 200)},
            "beside_matmul": {"launches_count": 50, "wrong_count": on_two_streams(way, x, right, 50, lambda: product @ product)},
            "graph": {"replays_count": 20, "wrong_count": in_a_graph(way, x, right, 20)}}


def capture(device="cuda"):
    torch.manual_seed(0)
    rows = {"few_rows": 12, "many_rows": 512}
    xs = {name: torch.randn(count, 262144, device=device, dtype=torch.float16) for name, count in rows.items()}
    product = torch.randn(4096, 4096, device=device, dtype=torch.float16)
    return {name: {size: held(way, x, product) for size, x in xs.items()} for name, way in WAYS.items()}
