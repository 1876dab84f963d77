"""The correctness gate, on a CPU; every comparison passes it at its small size, compiled variants too."""
import json
import math
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from harness import measure, process, record, snippet, timing
from tests.conftest import need

BY_KIND = {kind: [name for name in snippet.names() if snippet.kind(snippet.path(name)) == kind]
           for kind in ("comparison", "capture", "lab")}
COMPILER = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)


def uses_triton(name: str) -> bool:
    """Whether the snippet, or what it imports from snippets/, has a Triton kernel of its own."""
    sources = {}
    snippet._collect(snippet.path(name), False, sources)
    return any("import triton" in file.read_text(encoding="utf-8") for file in sources)


IN_TRITON = [name for name in BY_KIND["comparison"] if uses_triton(name)]
INTERPRET = """
import json, sys
from harness import measure, snippet
print(json.dumps({name: measure.errors(snippet.load(name), "cpu") for name in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def interpreted() -> dict:
    """Errors of the snippets with Triton kernels, from Triton's interpreter: it must be chosen before Triton is imported."""
    need(find_spec("triton"), "no triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(snippet.ROOT)}
    told = subprocess.run([sys.executable, "-c", INTERPRET, *IN_TRITON], cwd=snippet.ROOT, env=environment, capture_output=True,
                          text=True, check=False)
    assert told.returncode == 0, told.stderr[-2000:]
    return json.loads(told.stdout.splitlines()[-1])


def test_measure_collects_every_snippet():
    assert len(BY_KIND["comparison"]) >= 12 and len(IN_TRITON) >= 2
    assert sum(map(len, BY_KIND.values())) == len(snippet.names())


@pytest.mark.parametrize("name", BY_KIND["comparison"])
def test_measure_comparison_is_right_at_its_small_size(name, request):
    module = snippet.load(name)
    compiled = getattr(module, "compiled", {})
    need(COMPILER or not compiled, "no C++ compiler, which torch.compile needs on a CPU")
    errors = request.getfixturevalue("interpreted")[name] if name in IN_TRITON else measure.errors(module, "cpu")
    assert list(errors) == [*module.variants, *compiled]
    right = [error for error in errors.values() if "unsupported" not in error]
    assert len(right) >= len(errors) / 2  # a CPU has not every backend
    assert all(0 <= error["relative"] < 1 and math.isfinite(error["max_abs"]) for error in right)


@pytest.mark.parametrize("name", BY_KIND["capture"])
def test_measure_capture_has_a_record_that_keeps_the_schema(name):
    content = record.read(record.path(record.REFERENCE, name))
    assert content["kind"] == "capture" and ("data" in content or "unsupported" in content)


def module_of(function, reference=None, **more) -> SimpleNamespace:
    return SimpleNamespace(variants={"only": function}, reference=reference or (lambda x: x.double() * 2),
                           inputs=lambda size=4, device="cpu": (torch.arange(1.0, size + 1, device=device),),
                           small={}, tolerance={torch.float32: 1e-6, torch.int64: 0.0, torch.complex64: 1e-6}, **more)


def only(module) -> dict:
    return measure.errors(module, "cpu")["only"]


def test_gate_passes_what_is_right():
    assert only(module_of(lambda x: x * 2)) == {"relative": 0.0, "max_abs": 0.0}


def test_gate_tells_the_errors_it_found():
    module = module_of(lambda x: x * 2 + torch.tensor([0.0, 0.0, 0.0, 0.5]))
    module.tolerance = {torch.float32: 0.1}
    assert only(module) == {"relative": float(f"{0.5 / math.sqrt(4 + 16 + 36 + 64):.4g}"), "max_abs": 0.5}


def half(x):
    out = torch.empty_like(x)
    out[: len(x) // 2] = x[: len(x) // 2] * 2
    return out


def half_of_the_same_memory(x, kept=[]):  # noqa: B006  as a CUDA graph writes to the same place
    kept or kept.append(x * 2)
    kept[0][: len(x) // 2] = x[: len(x) // 2] * 2
    return kept[0]


@pytest.mark.parametrize(("function", "told"), [
    (lambda x: x * 2 * math.nan, "relative error nan"),
    (lambda x: x * math.inf, "relative error inf"),
    (lambda x: x * 2.001, "above the tolerance of 1e-06"),
    (lambda x: (x * 2)[:3], r"outputs \[\(3,\)\], reference \[\(4,\)\]"),
    (lambda x: (x * 2)[None], r"outputs \[\(1, 4\)\]"),
    (lambda x: (x * 2, x), r"outputs \[\(4,\), \(4,\)\]"),
    (lambda x: None, r"outputs \[\]"),
    (half_of_the_same_memory, "relative error nan"),
])
def test_gate_refuses_a_wrong_output(function, told):
    with pytest.raises(measure.Wrong, match=told):
        only(module_of(function))


def test_gate_refuses_memory_that_is_left_unwritten(monkeypatch):
    memory = torch.arange(1.0, 5) * 2  # what an allocator hands out again still holds the right values

    def allocate(x):
        return memory
    monkeypatch.setattr(torch, "empty_like", allocate)
    with pytest.raises(measure.Wrong, match="relative error nan"):
        only(module_of(half))


def test_gate_refuses_a_reference_that_is_not_in_float64():
    with pytest.raises(measure.Wrong, match="not in float64"):
        only(module_of(lambda x: x * 2, reference=lambda x: x * 2))


def test_gate_checks_what_the_sample_picks():
    def wrong_after_two(x):
        return torch.cat([x[:2] * 2, x[2:] * 5])
    module = module_of(wrong_after_two, reference=lambda x: x[:2].double() * 2, sample=lambda out: out[:2])
    assert only(module)["relative"] == 0.0
    module.sample, module.reference = lambda out: out[1:], lambda x: x[1:].double() * 2
    with pytest.raises(measure.Wrong):
        only(module)


def test_gate_takes_backward_passes_whose_reset_clears_gradients():
    weight, resets = torch.ones(4, requires_grad=True), []

    def step(x):
        (weight * x * 2).sum().backward()
        return {"grad": weight.grad}

    def reset(x):
        resets.append(1)
        weight.grad = None
    assert only(module_of(step, reset=reset)) == {"relative": 0.0, "max_abs": 0.0}
    assert len(resets) == 2  # before each call
    with pytest.raises(measure.Wrong):
        only(module_of(step))  # gradients add up, here on top of what was poisoned


def test_gate_takes_outputs_made_in_inference_mode():
    assert only(module_of(torch.inference_mode()(lambda x: x * 2)))["relative"] == 0.0


def test_gate_compares_nested_outputs_in_order():
    def nested(x):
        return {"a": [x * 2, (x * 3,)], "b": "text", "c": None}
    module = module_of(nested, reference=lambda x: (x.double() * 2, x.double() * 3))
    assert only(module)["max_abs"] == 0.0
    module.reference = lambda x: (x.double() * 3, x.double() * 2)
    with pytest.raises(measure.Wrong):
        only(module)


def test_measure_tensors_are_found_in_nested_outputs():
    a, b, c = torch.zeros(1), torch.ones(2), torch.ones(3)
    assert [id(tensor) for tensor in measure.tensors({"x": [a, {"y": (b, None, 3)}], "z": c})] == [id(a), id(b), id(c)]
    assert measure.tensors("text") == []


def test_poison_fills_outputs_and_leaves_inputs_alone():
    x = torch.ones(4)
    fresh, whole, flags, phase = torch.ones(4), torch.ones(4, dtype=torch.int64), torch.ones(2, dtype=torch.bool), torch.ones(2) * 1j
    measure.poison([fresh, x[:2], x.view(2, 2), whole, flags, phase], [x])
    assert fresh.isnan().all() and phase.isnan().all()
    assert x.tolist() == [1, 1, 1, 1] and flags.tolist() == [True, True]
    assert whole.tolist() == [torch.iinfo(torch.int64).min] * 4


def test_measure_inputs_are_the_same_each_time():
    module = snippet.load("fusion/pointwise/chain")
    first, again = (measure.prepare(module, module.small, "cpu")[0] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_measure_work_counts_what_the_snippet_counts():
    module = snippet.load("machine/matmul")
    args = module.inputs(**module.small, device="cpu")
    assert measure.work(module, args) == {"minimum_bytes": 3 * 96 * 96 * 4, "flops": 2 * 96**3}


@pytest.mark.parametrize(("raised", "outcome"), [
    (torch.cuda.OutOfMemoryError("full"), {"outcome": "out of memory"}),
    (NotImplementedError("x" * 3000), {"outcome": "unsupported", "reason": "x" * 500}),
    (NotImplementedError(), {"outcome": "unsupported", "reason": "not implemented"}),
])
def test_measure_outcome_keeps_what_a_card_cannot_do(raised, outcome):
    def function(x):
        raise raised
    module = module_of(function)
    args, right = measure.prepare(module, {}, "cpu")
    assert measure._outcome(module, lambda: function, args, right, clock=None) == outcome


TRITON_ADD = """
import torch, triton, triton.language as tl

@triton.jit
def add(x, y, out, count, block: tl.constexpr):
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    inside = offsets < count
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)

x, y, out = torch.randn(1000), torch.randn(1000), torch.full((1024,), 7.0)
add[(triton.cdiv(1000, 256),)](x, y, out, 1000, block=256)
assert torch.equal(out[:1000], x + y)
assert (out[1000:] == 7).all()  # the mask held
print("interpreted", add.__class__.__name__)
"""


def test_triton_interpreter_runs_a_masked_add_beside_torch(tmp_path):
    need(find_spec("triton"), "triton is not installed")
    file = tmp_path / "add.py"  # triton reads a kernel's source from its file
    file.write_text(TRITON_ADD, encoding="utf-8")
    told = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False,
                          env={**os.environ, "TRITON_INTERPRET": "1"})
    assert (told.returncode, told.stdout) == (0, "interpreted InterpretedFunction\n"), told.stderr


def test_clock_spins_longer_for_a_slow_host_and_for_that_call_alone():
    clock, seen = object.__new__(timing.Clock), []
    clock.sample = lambda needed: (10.0, (seen.append(clock.cycles), clock.cycles >= needed)[1])
    for needed, last in ((10 * timing.FIRST_HIDING_CYCLES, 16), (0, 1)):
        seen.clear()
        assert clock.call_us(needed)["median"] == 10
        assert {seen[0], seen[-1]} == {timing.FIRST_HIDING_CYCLES, last * timing.FIRST_HIDING_CYCLES}
        assert len(seen) == 20 + timing.SAMPLE_COUNT + (4 if needed else 0)


def test_compiler_is_set_up_where_there_is_none_for_cpp(tmp_path, monkeypatch):
    """As on a GPU machine, which may have no C++ compiler: then the library's product is all that is compiled."""
    need(find_spec("triton"), "triton is not installed")
    monkeypatch.setattr(process, "COMPILED", tmp_path)
    code = ("import sys; from harness import worker; worker.set_up_compiler()\n"
            "assert 'torch._inductor.fx_passes.fuse_attention' in sys.modules and 'triton.compiler.compiler' in sys.modules")
    done = subprocess.run([sys.executable, "-c", code], cwd=snippet.ROOT, env=process.environment() | {"PATH": str(tmp_path)},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
