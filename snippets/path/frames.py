"""Which layer of PyTorch a frame of a stack belongs to, and a name for it that one can read."""
import re

# The first rule whose pattern is found in the frame's qualified name decides. What no rule knows is "other".
RULES = [
    ("capture", r"^torch::unwind|CapturedTraceback|gather_traceback|gather_with_cpp"),
    ("driver", r"^cuda[A-Z]|^cu[A-Z]"),
    ("allocator", r"CachingAllocator|CachingDeviceAllocator|^c10::\w*Allocator::"),
    ("autograd", r"^torch::autograd::VariableType|^torch::ADInplaceOrView|^torch::autograd::(Engine|Node|generated|python::)"),
    ("dispatcher", r"^at::_ops::|^c10::(Dispatcher|impl::|BoxedKernel|KernelFunction)|^python\w*Fallback|PyInterpreterVTable::dispatch"),
    ("binding", r"^torch::autograd::(THP|TypeError_to)|^THP|^pybind11::|^torch::(PythonArgParser|handle_torch_function)"),
    ("ATen", r"^(at|c10)::|^structured_|^wrapper_"),
    ("Python", r"^_?Py[A-Z]|^slot_nb_|^(method|cfunction|vectorcall|builtin|object|type)_|^subtype_dealloc"),
]
# What started the process, and the loop that interprets byte code: of every stack, so of none.
STARTUP = re.compile(r"^(_start|__libc_start|main$|pymain|Py_BytesMain|Py_RunMain|_?PyRun_|run_mod|run_eval_code|_?PyEval_)|^\?*$")


# Python that is there only because somebody looks: the mode that takes the stack, and what torch wraps around it.
LOOKING = ("path/stacks.py", "path/private.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py")


def layer(name, file=""):
    """Python, binding, dispatcher, autograd, ATen, allocator or driver; capture for what looks on; other for the rest."""
    if file.endswith(".py"):
        return "capture" if file.endswith(LOOKING) else "Python"
    return next((label for label, pattern in RULES if re.search(pattern, qualified(name))), "other")


def qualified(name):
    """`at::_ops::add_Tensor::call` for a demangled C++ name: no return type, template arguments, parameters, anonymous namespaces."""
    name = re.sub(r"\((anonymous namespace|anonymous)\)::|<unnamed>::|\[clone[^]]*\]", "", name)
    depth, out = 0, ""
    for sign in name:
        depth += (sign == "<") - (sign == ">")
        if depth == 0 and sign == "(" and not out.endswith("operator"):
            break
        if depth == 0 and sign != ">":
            out += sign
    return out.strip().split(" ")[-1]


def short(name):
    """`VariableType::add_Tensor`: the last two parts of the qualified name, three where the last is `call`."""
    wrapped = re.search(r"TypeError_to_NotImplemented_<&?(?:\w+::)*(\w+)", name)
    if wrapped:
        return f"TypeError_to_NotImplemented_<{wrapped[1]}>"
    parts = qualified(name).split("::")
    return "::".join(parts[-3 if parts[-1] in ("call", "redispatch") else -2:]) or name


def describe(frames, outermost="forward"):
    """Frames from the user's function inwards, as {layer, short, name, file, line}. `frames` has the innermost first."""
    kept = []
    for frame in frames:
        name, file = frame["name"], frame["filename"]
        kept.append({"layer": layer(name, file), "short": short(name), "name": name, "file": file, "line": frame["line"]})
        if name == outermost and file.endswith(".py"):
            break
    return [frame for frame in reversed(kept) if frame["layer"] != "capture" and not STARTUP.search(frame["name"])]
