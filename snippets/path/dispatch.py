"""Who decides which code runs: key sets of real tensors, the table of an operator, and the order of the keys."""
import re

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from path import private
from path.example import inputs

OPERATORS = ("aten::add.Tensor", "aten::gelu", "aten::softmax.int", "aten::_softmax", "aten::scaled_dot_product_attention")
KEYS = ("CPU", "CUDA", "Meta", "BackendSelect", "Python", "Functionalize", "ADInplaceOrView", "AutogradCPU", "AutogradCUDA",
        "AutocastCPU", "AutocastCUDA", "PythonTLSSnapshot", "CompositeImplicitAutograd")


def key_sets(device):
    """The keys of a tensor and of a call on it, in five situations."""
    def look(tensor):
        return {"tensor": private.key_set(tensor), "thread": private.thread_keys(), "call": private.call_key(tensor)}
    plain, wanted = torch.randn(4, device=device), torch.randn(4, device=device, requires_grad=True)
    found = {"plain": look(plain), "requires_grad": look(wanted)}
    with torch.no_grad():
        found["no_grad"] = look(wanted)
    with torch.inference_mode():
        found["inference_mode, tensor from outside"] = look(wanted)
        found["inference_mode, tensor made inside"] = look(torch.randn(4, device=device))
    with torch.autocast(device):
        found["autocast"] = look(plain)
    return found


def table(operator):
    """{key: {"kind", "file"}} of an operator for the keys that matter here."""
    rows = {}
    for line in private.dispatch_table(operator).splitlines():
        match = re.match(r"(\w+): (?:registered at (\S+?):(\d+) )?\[(.+)\]", line) or re.match(r"(\w+): (fallthrough)", line)
        if match and match[1] in KEYS:
            file = match[2] if match.lastindex and match.lastindex >= 3 else None
            rows[match[1]] = {"file": file and re.sub(r"^.*?/(?=(aten|torch|c10)/)", "", file), "line": match[3] if file else None,
                              "kind": match[match.lastindex]}
    return rows


# --8<-- [start:below]
class Below(TorchDispatchMode):
    """Notes what is known of the operands when a call reaches `__torch_dispatch__`."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        self.calls.append({"operator": str(operator), "result_has_grad_fn": result.grad_fn is not None})
        return result


class Above(TorchFunctionMode):
    """Notes what Python calls, before any of it reaches C++."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.calls.append({"function": function.__name__, "result_has_grad_fn": result.grad_fn is not None})
        return result
# --8<-- [end:below]


def overrides(device):
    """The same line seen above the binding and below autograd."""
    x, bias = inputs(rows=8, columns=8, device=device, requires_grad=True)
    with Above() as above, Below() as below:
        F.gelu(x + bias)
    return {"torch_function": above.calls, "torch_dispatch": below.calls}


def composite(device):
    """The operators that one call of a composite operator becomes before a kernel is chosen."""
    q = torch.randn(1, 2, 16, 8, device=device, dtype=torch.float16 if device == "cuda" else torch.float32)
    calls = {"softmax": lambda: torch.softmax(q, -1), "linear": lambda: F.linear(q[0, 0], q[0, 1]),
             "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q, q, q)}
    found = {}
    for name, call in calls.items():
        with _Names() as seen:
            call()
        found[name] = seen.names
    return found


class _Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.append(str(operator))
        return operator(*args, **(kwargs or {}))


def capture(device="cuda"):
    return {"key_sets": key_sets(device), "tables": {name: table(name) for name in OPERATORS}, "order": private.key_order(),
            "overrides": overrides(device), "composite": composite(device)}
