"""What a kernel's mangled or template-laden name says, in a word and in a line."""
import re

# First match wins. A copy made by multi_tensor_apply names its functor, and a softmax contains no "elementwise".
# Inductor says by the first words what a kernel does; what follows names every operation that went into it.
CATEGORIES = [
    ("copy", r"^triton_poi_fused_(?:(?:clone|copy)_)+\d+$"),
    ("pointwise", r"^triton_poi_"),
    ("reduction", r"^triton_(?:red|per|split_scan)_"),
    ("attention", r"flash|fmha|sdpa|attention|attn"),
    ("matmul", r"gemm|cutlass|xmma|wgmma|nvjet|cublas|magma|s16816|triton_tem|matmul|splitK"),
    ("copy", r"^Memcpy|Copy<|copy_kernel|CopyFunctor|CatArray"),
    ("reduction", r"reduce|[Ss]oft[Mm]ax|[Nn]orm(?!al)|RowwiseMoments|[Ss]can"),
    ("pointwise", r"elementwise|vectorized|unrolled|multi_tensor_apply|fill"),
]
_FUNCTOR = re.compile(r"(\w*(?:Functor|KernelImpl|OnSelf)\w*)")
_OPERATION = re.compile(r"binary_internal::(\w+)|at::(?:native::)?(Copy)<|at::native::(?:\(anonymous namespace\)::)?(launch_\w+)")


def category(name: str) -> str:
    """pointwise, reduction, matmul, attention, copy or other."""
    return next((label for label, pattern in CATEGORIES if re.search(pattern, name)), "other")


def short(name: str) -> str:
    """`vectorized_elementwise_kernel<8> · GeluCUDAKernelImpl` for eleven lines of C++; other names as they are."""
    head = re.sub(r"\((?:anonymous namespace|anonymous)\)::|<unnamed>::", "", name).removeprefix("void ")
    match = re.match(r"(?:\w+::)*(\w+)(?:<((?:\(?\w+\)?\d*(?:, )?)*))?", head)
    if "::" not in name or not match:
        return name
    numbers = ", ".join(re.findall(r"(?<![\w:])\d+(?![\w:])", (match[2] or "")))
    inner = head[match.end(1):]
    word = _OPERATION.search(inner) or _FUNCTOR.search(inner)
    return match[1] + (f"<{numbers}>" if numbers else "") + (f" · {word[word.lastindex]}" if word else "")
