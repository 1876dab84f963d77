"""gelu(x + bias) * 0.5 + 0.1 on its way through torch.compile: graphs, IR, Triton and machine code, linked line to line.

With device="cpu" Inductor writes C++ instead of Triton, which is kept as text alone.
"""
import contextlib
import inspect
import io

import torch
import torch.nn.functional as F
from torch._dynamo import explain

from fusion import machine_code, provenance
from fusion.pointwise.clocks import event_us, wall_us
from fusion.stages import Watch, decisions, target

time_limit_s = 300


# --8<-- [start:example]
def chain(x, bias):
    y = x + bias
    y = F.gelu(y)
    y = y * 0.5
    return y + 0.1
# --8<-- [end:example]


# --8<-- [start:inputs]
def inputs(rows=8192, columns=8192, device="cuda", requires_grad=False):
    x = torch.randn(rows, columns, device=device, dtype=torch.float16, requires_grad=requires_grad)
    bias = torch.randn(columns, device=device, dtype=torch.float16, requires_grad=requires_grad)
    return x, bias
# --8<-- [end:inputs]


# --8<-- [start:neighbours]
def row_sum(x, bias):
    y = chain(x, bias)
    return y, y.sum(1)  # a sum over each row: along y as it lies in memory


def column_sum(x, bias):
    y = chain(x, bias)
    return y, y.sum(0)  # a sum over each column: across it


def half(x, bias):
    return chain(x, bias), chain(x[:len(x) // 2], bias)  # the same inputs, half as many rows


def three_times(x, bias):
    for _ in range(3):
        x = chain(x, bias)
    return x


def product(x, bias):
    return chain(x, bias) @ x.T  # the matrix product is a library's
# --8<-- [end:neighbours]


# --8<-- [start:breaks]
def with_print(x, bias):
    y = x + bias
    y = F.gelu(y)
    print("half way")
    y = y * 0.5
    return y + 0.1


def with_item(x, bias):
    y = x + bias
    y = F.gelu(y)
    if y.amax().item() > 1e4:  # Python needs the number to go on
        y = y.clamp(max=1e4)
    y = y * 0.5
    return y + 0.1


def print_first(x, bias):
    print("at the start")
    return chain(x, bias)
# --8<-- [end:breaks]


NEIGHBOURS = (three_times, row_sum, column_sum, half, product)
BREAKS = (chain, with_print, with_item, print_first)


def capture(device="cuda", rows=8192, columns=8192):
    args = inputs(rows, columns, device)
    return {"inference": linked(chain, args),
            "training": linked(chain, inputs(rows, columns, device, requires_grad=True), backward=True),
            "neighbours": {function.__name__: scheduled(function, args) for function in NEIGHBOURS},
            "breaks": {function.__name__: broken(function, args) for function in BREAKS}}


# --8<-- [start:linked]
def linked(function, args, backward=False):
    """Every stage of one compilation, each line with the numbers of the source lines it comes from."""
    watch = Watch(function, args, backward)
    first = inspect.getsourcelines(function)[1]
    stages = {"source": [{"text": line, "from": [str(number)] if number else []} for number, line in enumerate(source(function))]}
    for name, lines in watch.graphs.items():  # Dynamo's and AOTAutograd's nodes say where they come from
        origins = [[str(place[1] - first)] if place and place[0] == function.__name__ else [] for _, place in lines]
        texts = [text for text, _ in lines]
        stages[name] = provenance.spread(texts, provenance.facts(texts), origins)
    last = "backward" if backward else "forward"  # the graph whose code is looked at
    owners = provenance.owners_of(stages[last])
    ir = [line for node in watch.before[-1]["nodes"] for line in node["text"]]
    return {"stages": stages | {"ir": provenance.link(ir, owners)} | generated(watch, owners),
            "fused_nothing": watch.before[-1]["nodes"] == watch.after[-1]["nodes"],
            "nodes_count": len(watch.before[-1]["nodes"]), "decisions": decisions(watch), "kernels": registers(watch)}


def generated(watch, owners):
    """The first kernel of the last graph, and its machine code; in C++ where there is no GPU."""
    kernels, compiled = machine_code.triton_kernels(watch.code[-1]), machine_code.compiled_kernels(watch.modules)
    if not kernels:
        return {"cpp": [{"text": line, "from": []} for line in machine_code.cpp_lines(watch.code[-1])]}
    name, kernel = next(iter(kernels.items()))
    triton = provenance.link(kernel["lines"], owners, kernel["pointers"])
    origin = {line["text"].strip(): line["from"] for line in triton}
    sass = [{"text": text, "from": origin.get(line, []), "of": line} for line, text in compiled[name]["sass"]]
    return {"triton": triton, "sass": sass}
# --8<-- [end:linked]


def source(function):
    return inspect.getsource(function).rstrip().splitlines()


def registers(watch):
    """What the compiler says of every kernel, forward and backward."""
    compiled = machine_code.compiled_kernels(watch.modules)
    return [{"name": name, **{key: value for key, value in kernel.items() if key != "sass"}, "instructions_count": len(kernel["sass"])}
            for name, kernel in compiled.items()]


def scheduled(function, args):
    """What Inductor's scheduler makes of a function: its nodes before and after fusion, and why."""
    watch = Watch(function, args)
    before, after = watch.before[-1], watch.after[-1]
    return {"before": [line for node in before["nodes"] for line in node["text"]], "nodes": [node["name"] for node in before["nodes"]],
            "after": [line for node in after["nodes"] for line in node["text"]], "fused": [node["parts"] for node in after["nodes"]],
            "shared_bytes": before["shared"], "decisions": decisions(watch),
            "kernels": list(machine_code.triton_kernels("\n".join(watch.code)))}


def broken(function, args):
    """The graphs that Dynamo makes of a function, why it stops, and on a GPU the kernels and the time of a compiled call."""
    with contextlib.redirect_stdout(io.StringIO()):
        torch._dynamo.reset()
        found = explain(function)(*args)
        data = {"graphs": [[target(node) for node in graph.graph.nodes if node.op.startswith("call")] for graph in found.graphs],
                "breaks": [" ".join(str(reason.reason).split("Hint:")[0].split()) for reason in found.break_reasons]}
        return data | (timed(function, args) if args[0].is_cuda else {})


def timed(function, args):
    torch._dynamo.reset()
    call = torch.compile(function)
    for _ in range(5):
        call(*args)
    return {"kernels": machine_code.launched(lambda: call(*args)),
            "call": {"samples_us": [event_us(lambda: call(*args), busy_cycles=2_000_000) for _ in range(30)]},
            "enqueue": {"samples_us": [wall_us(lambda: call(*args), 1, synchronize=False) for _ in range(30)]}}
