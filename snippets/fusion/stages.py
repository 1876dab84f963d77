"""What each stage of torch.compile makes of a function, as text. Looks through private parts of torch: there in 2.11 to 2.13."""
import itertools
import logging
import re
from contextlib import contextmanager

import torch
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.utils import fresh_cache, run_and_get_code

FUSION_LOG = "torch._inductor.scheduler.__fusion"  # what TORCH_LOGS=fusion shows
SHORT = {torch.float16: "f16", torch.float32: "f32"}


# --8<-- [start:watch]
class Watch:
    """Compiles a function once, with an empty cache, and keeps what each stage hands to the next."""

    def __init__(self, function, args, backward=False):
        self.graphs, self.before, self.after, self.log = {}, [], [], []
        torch._dynamo.reset()
        looks = {"_pre_fusion_custom_pass": self.look(self.before), "_post_fusion_custom_pass": self.look(self.after)}
        keeps = {"use_static_cuda_launcher": False, "compile_threads": 1}  # the compiled kernel stays in this process
        with fresh_cache(), fusion_log(self.log), config.patch(**looks, **keeps):
            compiled = torch.compile(function, backend=self.dynamo)
            _, self.code = run_and_get_code(self.run, compiled, args, backward)
            self.modules = list(PyCodeCache.modules)  # leaving the cache empties this list

    def run(self, compiled, args, backward):
        result = compiled(*args)
        if backward:
            result.backward(torch.ones_like(result))  # only now is the backward graph compiled

    def dynamo(self, graph, inputs):
        """A backend of torch.compile: gets Dynamo's graph and hands it to AOTAutograd and Inductor."""
        self.graphs["dynamo"] = graph_lines(graph)
        return compile_fx(graph, inputs, inner_compile=self.aot)

    def aot(self, graph, inputs, **options):
        """Gets a graph of AOTAutograd and hands it to Inductor, which will change it."""
        self.graphs["backward" if options.get("is_backward") else "forward"] = graph_lines(graph)
        return compile_fx_inner(graph, inputs, **options)

    def look(self, kept):
        def scheduler_pass(nodes):  # changes nothing
            kept.append({"nodes": [node_facts(node) for node in nodes], "shared": shared_bytes(nodes), "logged": len(self.log)})
            return nodes
        return scheduler_pass
# --8<-- [end:watch]


# --8<-- [start:nodes]
def node_facts(node):
    """A node of Inductor's scheduler, and the text that TORCH_LOGS=ir_pre_fusion prints of it."""
    return {"name": node.get_name(), "kind": type(node).__name__, "parts": [part.get_name() for part in node.get_nodes()],
            "text": node.debug_str().splitlines()}


def shared_bytes(nodes):
    """The scheduler's score of each pair: the bytes that both read or write at the same index, so that fusion saves them."""
    scores = {}
    for one, two in itertools.combinations(nodes, 2):
        score = one.scheduler.score_fusion_memory(one, two, allow_mix_order_reduction=False)
        scores[f"{one.get_name()} {two.get_name()}"] = int(score)
    return scores
# --8<-- [end:nodes]


@contextmanager
def fusion_log(kept):
    """Collects the first round of the fusion log in a list, and shows it to nobody else."""
    logger, handler = logging.getLogger(FUSION_LOG), logging.Handler()
    handler.emit = lambda entry: kept.append(entry.getMessage().strip())
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def decisions(watch):
    """The lines of the fusion log about the last graph that decide something: each once, in order."""
    log = watch.log[watch.before[-1]["logged"]:]
    return list(dict.fromkeys(line for line in log if re.match(r"cannot fuse|fusing|found|completed", line)))


# --8<-- [start:graph]
def graph_lines(graph):
    """Each node of an FX graph as (text, the source line it comes from): `add = aten.add.Tensor(a, b)  # f16[8, 8]`."""
    return [(node_line(node), source_line(node)) for node in graph.graph.nodes]


def node_line(node):
    if node.op == "output":
        return f"return {written(node.args[0])}"
    value = node.meta.get("val", node.meta.get("example_value"))
    kind = f"{SHORT.get(value.dtype, value.dtype)}{list(value.shape)}" if isinstance(value, torch.Tensor) else ""
    if node.op == "placeholder":
        return f'{node.name}: "{kind}"'
    return f"{node.name} = {target(node)}({written(node.args)[1:-1].rstrip(',')})  # {kind}"


def target(node):
    """aten.add.Tensor, operator.add, torch.nn.functional.gelu; a method's own name."""
    if isinstance(node.target, (str, torch._ops.OpOverload)):
        return str(node.target)
    module = {"_operator": "operator", "torch._C._nn": "torch.nn.functional"}.get(node.target.__module__, node.target.__module__)
    return f"{module}.{node.target.__name__}"


def written(args):
    return re.sub(r"'(\w+)'", r"\1", str(args))


def source_line(node):
    """(function, line) of the innermost frame that Dynamo kept for the node, or None: graph inputs have none."""
    frames = re.findall(r'line (\d+), in (\w+)', node.meta.get("stack_trace") or "")
    return (frames[-1][1], int(frames[-1][0])) if frames else None
# --8<-- [end:graph]
