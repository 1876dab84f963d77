"""Measures a comparison: correctness first, then time, kernels and memory of each variant. Needs torch."""
import gc
import math
from collections.abc import Callable, Iterator

import torch

from harness.kernels import kernels
from harness.timing import Clock, enqueue_us


class Wrong(Exception):
    """A variant's output is not what the reference says."""


def variants(module) -> Iterator[tuple[str, Callable[[], Callable]]]:
    """(name, factory) of each variant; what is in `compiled` is compiled afresh for each case."""
    for name, function in module.variants.items():
        yield name, lambda function=function: function
    yield from getattr(module, "compiled", {}).items()


def tensors(value) -> list[torch.Tensor]:
    """The tensors in a nested output, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in tensors(item)]


def poison(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    """Fill outputs with NaN (integers with their least value), so that memory which a next call leaves unwritten shows.

    The caching allocator hands the same blocks out again, and a CUDA graph writes to the same place.
    """
    kept = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    for tensor in outputs:
        if tensor.untyped_storage().data_ptr() not in kept and tensor.dtype != torch.bool:
            with torch.inference_mode():  # which may also write to what a variant made in inference mode
                tensor.fill_(math.nan if tensor.is_floating_point() or tensor.is_complex() else torch.iinfo(tensor.dtype).min)


def gate(call, right: list[torch.Tensor], args, module) -> dict:
    """Errors of the call's output against the float64 reference. Raises Wrong beyond the tolerance, for NaN too.

    `relative` is ||out - reference|| / ||reference||, the largest over the outputs; `max_abs` the largest difference.
    A snippet whose full output is too large to check gives a `sample`, which picks what the reference covers.
    """
    sample = getattr(module, "sample", lambda output: output)
    poison(tensors(call()), tensors(args))
    outputs = [tensor.detach().clone() for tensor in tensors(sample(call()))]  # a CUDA graph overwrites its output
    if not outputs or [out.shape for out in outputs] != [ref.shape for ref in right]:
        raise Wrong(f"outputs {[tuple(out.shape) for out in outputs]}, reference {[tuple(ref.shape) for ref in right]}")
    relative = max_abs = 0.0
    for output, reference in zip(outputs, right, strict=True):
        difference = output.double() - reference
        error = float(difference.norm() / reference.norm().clamp_min(torch.finfo(torch.float64).tiny))
        limit = module.tolerance[output.dtype]
        if not error <= limit:  # NaN compares false
            raise Wrong(f"relative error {error:.3g} against float64, above the tolerance of {limit:g}")
        relative, max_abs = max(relative, error), max(max_abs, float(difference.abs().max()))
    return {"relative": float(f"{relative:.4g}"), "max_abs": float(f"{max_abs:.4g}")}


def reference_of(module, args) -> list[torch.Tensor]:
    right = tensors(module.reference(*args))
    if any(tensor.dtype != torch.float64 for tensor in right):
        raise Wrong("the reference is not in float64")
    return right


def prepare(module, case: dict, device: str) -> tuple[tuple, list[torch.Tensor]]:
    """A case's inputs, from a fixed seed, and what is right for them."""
    torch.manual_seed(0)
    args = module.inputs(**case, device=device)
    return args, reference_of(module, args)


def bind(module, factory: Callable, args) -> Callable:
    """A call without arguments; gradients of a backward pass are cleared by the snippet's `reset` before each."""
    if torch._dynamo.utils.counters["frames"]:  # something was compiled; the reset itself imports Inductor
        torch._dynamo.reset()  # else a second size is silently a dynamic-shape kernel
    function, reset = factory(), getattr(module, "reset", None)

    def call():
        if reset:
            reset(*args)
        return function(*args)
    return call


def compare(module, say=print) -> list[dict]:
    """Every variant of every case, measured on the GPU. Out of memory and unsupported are results; Wrong is raised."""
    clock = Clock()
    results = []
    for case, values in module.cases.items():
        try:
            args, right = prepare(module, values, "cuda")
        except torch.cuda.OutOfMemoryError:
            results += [{"case": case, "variant": name, "outcome": "out of memory"} for name, _ in variants(module)]
            continue
        for variant, factory in variants(module):
            say(f"{case} / {variant}")
            results.append({"case": case, "variant": variant} | _outcome(module, factory, args, right, clock))
        del args, right
        _settle()
    return results


def _outcome(module, factory, args, right, clock: Clock) -> dict:
    try:
        call = bind(module, factory, args)
        error = gate(call, right, args, module)
        return {"outcome": "measured", "error": error} | measure(call, clock) | work(module, args)
    except torch.cuda.OutOfMemoryError:
        return {"outcome": "out of memory"}
    except NotImplementedError as reason:
        return {"outcome": "unsupported", "reason": str(reason)[:500] or "not implemented"}


def work(module, args) -> dict:
    """The least bytes and the FLOPs that the snippet itself counts for these inputs."""
    return {key: int(getattr(module, key)(*args)) for key in ("minimum_bytes", "flops") if hasattr(module, key)}


def measure(call, clock: Clock) -> dict:
    """Time, kernels, host time and memory of a call that is known to be right."""
    for _ in range(4):  # CUDA graphs record in the second call
        call()
    return {"memory": _memory(call), "call_us": clock.call_us(call), "enqueue_us": enqueue_us(call),
            "kernels": kernels(call, clock)}


def _settle() -> int:
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def _memory(call) -> dict:
    """The most that a call allocates and reserves above what was there before it, and what a CUDA graph's pool keeps."""
    reserved = _settle()
    torch.cuda.reset_peak_memory_stats()
    baseline = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    peak = {"baseline_bytes": baseline, "peak_extra_bytes": torch.cuda.max_memory_allocated() - baseline,
            "peak_extra_reserved_bytes": torch.cuda.max_memory_reserved() - reserved}
    _settle()
    pools = [part["total_size"] for part in torch.cuda.memory_snapshot() if part["segment_pool_id"] != (0, 0)]
    return {**peak, "graph_pool_bytes": sum(pools)}


def errors(module, device: str) -> dict[str, dict]:
    """Errors of every variant at the snippet's small size: what the tests hold on a CPU. Raises Wrong."""
    args, right = prepare(module, module.small, device)
    found = {}
    for name, factory in variants(module):
        try:
            found[name] = gate(bind(module, factory, args), right, args, module)
        except NotImplementedError as reason:
            found[name] = {"unsupported": str(reason)}
    return found
