"""What /fusion/when-not-to-fuse/ says, as far as a CPU can show it; what torch 2.11 did on the H200 is in the records."""
import re
import subprocess
import sys

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from harness import snippet
from harness.results import load
from tests.conftest import need
from tests.test_measure import COMPILER

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
NO_COMPILER = "no C++ compiler, which torch.compile needs on a CPU"


@pytest.fixture
def surprises():
    torch._dynamo.reset()
    yield snippet.load("fusion/surprises")
    torch._dynamo.reset()


@pytest.fixture
def recompute():
    torch._dynamo.reset()
    yield snippet.load("fusion/recompute")
    torch._dynamo.reset()


@pytest.mark.parametrize("n", [8, 9, 70])
@pytest.mark.parametrize(("name", "shape"), [("stencil", lambda n: (n - 2, n - 2)), ("pairs", lambda n: (n,)),
                                             ("join", lambda n: (n, n // 8 * 8)), ("scale", lambda n: (n, n))])
def test_recompute_consumers_agree_with_float64_on_awkward_sizes(recompute, name, shape, n):
    args = recompute.inputs(name, n=n, device="cpu")
    found, right = recompute.together(*args), recompute.reference(*args)
    assert found.shape == right.shape == shape(n) and right.dtype == torch.float64
    assert float((found.double() - right).norm() / right.norm()) < recompute.tolerance[torch.float16]
    assert recompute.minimum_bytes(*args) == sum(x.nbytes for x in args[1:]) + found.nbytes


def test_recompute_stencil_and_pairs_are_what_their_names_say(recompute):
    y = torch.arange(25.0).view(5, 5)
    assert torch.equal(recompute.stencil(y), 9 * y[1:-1, 1:-1])  # a plane's neighbours average to its middle
    assert torch.allclose(recompute.pairs(torch.tensor([0.0, 1.0, 5.0])), torch.tensor([2.0, 5 / 3, 3.0]))


def test_recompute_inlines_the_producer_for_each_reader(recompute):
    """erf stands nine times in the stencil's code and once in gelu's own (32: no second loop for what a vector leaves)."""
    need(COMPILER, NO_COMPILER)
    _, (fused,) = run_and_get_code(torch.compile(recompute.together, dynamic=False), recompute.stencil, torch.randn(34, 34))
    _, (first,) = run_and_get_code(torch.compile(recompute.activate, dynamic=False), torch.randn(32, 32))
    assert (fused.count("erf("), first.count("erf(")) == (9, 1)


def test_recompute_moves_tanh_in_front_of_cat(recompute):
    """`join` apart still evaluates a tanh for each of its eight inputs."""
    need(COMPILER, NO_COMPILER)
    inputs = [torch.randn(32, 32) for _ in range(8)]
    _, (code,) = run_and_get_code(torch.compile(recompute.consumed, dynamic=False), recompute.join, *inputs)
    assert code.count("tanh(") == 8


@pytest.mark.parametrize("n", [1, 3, 17])
def test_layout_steps_make_up_the_whole(n):
    layout = snippet.load("fusion/layout")
    x, y, z = layout.inputs(n=n, dtype=torch.float64, device="cpu")
    right = layout.three(x, y, z)
    assert torch.equal(layout.add_z(layout.add_y(x, y), z), right)
    assert torch.equal(layout.add(x, layout.contiguous_y(y), layout.contiguous_z(z)), right)


@pytest.mark.parametrize(("dynamic", "graphs"), [(False, [1, 2, 3, 4, 5, 6, 7, 8, 8, 8]), (None, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2])])
def test_sizes_compile_until_the_limit(surprises, monkeypatch, dynamic, graphs):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: compile_eagerly(function, dynamic=dynamic))
    found = surprises.static_and_automatic("cpu", columns=2)
    rows = found["static"] if dynamic is False else found["automatic"]
    assert [row["graphs_count"] for row in rows] == graphs and found["warnings_count"] == 1
    assert [row["rows"] for row in rows] == [size + (0 if dynamic is False else 32) for size in surprises.SIZES]


_compile = torch.compile


def compile_eagerly(function, **options):
    """Dynamo's part alone: no kernels are made."""
    return _compile(function, backend="eager", **options)


def test_settings_changed_after_compilation(surprises):
    """A class attribute is guarded since torch 2.12 or 2.13; an environment variable that was not set is not guarded."""
    eager = surprises.changed("cpu", lambda function: function)
    assert eager == {"before": {"attribute": 4.0, "environment": 4.0}, "after": {"attribute": 40.0, "environment": 40.0},
                     "appended_count": 2}
    compiled = surprises.changed("cpu", compile_eagerly)
    assert compiled["before"] == eager["before"] and compiled["after"]["environment"] == 4.0
    if TORCH != (2, 12):  # which we have not run
        fixed = TORCH >= (2, 13)
        assert compiled["after"]["attribute"] == (40.0 if fixed else 4.0)
        assert compiled["appended_count"] == (2 if fixed else 0)


def test_split_loses_its_low_part_when_compiled(surprises):
    need(COMPILER, NO_COMPILER)
    found = surprises.rounding("cpu", 16)
    assert found["compiled"]["zeros_count"] == 256 and found["compiled"]["error"] > 1e-4
    for kept in ("eager", "compiled, casts kept"):
        assert found[kept]["zeros_count"] < 16 and found[kept]["error"] < 1e-7


def test_dropout_has_another_mask_for_the_same_seed(surprises):
    need(COMPILER, NO_COMPILER)
    found = surprises.masks("cpu", 4096)
    assert found["eager"]["differ_count"] == found["compiled, fallback_random"]["differ_count"] == 0
    assert 0.4 < found["compiled"]["differ_count"] / 4096 < 0.6


SOFTMAX = """
import torch
from fusion.spill import in_one_pass, in_two_passes, one_pass, launch
torch.manual_seed(0)
for rows, columns in ((3, 1), (1, 5000), (2, 4096), (4, 4097), (2, 33)):
    x = torch.randn(rows, columns, dtype=torch.float16)
    x[0, 0] = 60000.0                       # exp would overflow without the row's maximum
    if columns > 40:
        x[-1, 7:40] = -float("inf")         # masked scores
    right = torch.softmax(x.double(), -1)
    for form in (in_one_pass, in_two_passes):
        assert (form(x).double() - right).abs().max() < 1e-3, (form.__name__, rows, columns)
print("agree")
"""


def test_spill_kernels_agree_on_awkward_rows():
    told = subprocess.run([sys.executable, "-c", SOFTMAX], capture_output=True, text=True, check=False,
                          env={"TRITON_INTERPRET": "1", "PYTHONPATH": str(snippet.SNIPPETS), "PATH": "/usr/bin:/bin"})
    assert told.stdout.strip() == "agree", told.stderr[-2000:]


REGISTERS = """
import subprocess, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from fusion.spill import one_pass
source = ASTSource(one_pass, {"x": "*fp16", "out": "*fp16", "columns": "i32", "BLOCK": "constexpr"}, {(3,): 131072},
                   {(place,): [["tt.divisibility", 16]] for place in range(3)})
code = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 16})
open("kernel.ptx", "w").write(code.asm["ptx"])
ptxas = triton.__path__[0] + "/backends/nvidia/bin/ptxas"
print(subprocess.run([ptxas, "-v", "--gpu-name=sm_90a", "kernel.ptx", "-o", "kernel.cubin"], capture_output=True, text=True).stderr)
"""


def test_spill_is_the_compiler_s_and_explains_the_bytes(tmp_path):
    """ptxas alone gives the registers and the local memory of the record; its spills are nearly all that DRAM saw beside the tensors."""
    told = subprocess.run([sys.executable, "-c", REGISTERS], capture_output=True, text=True, check=False, cwd=tmp_path,
                          env={"PYTHONPATH": str(snippet.SNIPPETS), "PATH": "/usr/bin:/bin", "TRITON_CACHE_DIR": str(tmp_path)})
    frame, stored, loaded = map(int, re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", told.stdout))
    record, found = load("fusion/spill"), load("fusion/surprises").registers.columns_131072.one_pass
    assert (frame / 4, int(re.search(r"Used (\d+) registers", told.stdout)[1])) == (found.spills_count, found.registers_count)
    one, tensor, threads = record.columns_131072.one_pass, 2**28, 1024 * 512
    assert 0.8 < (one.dram_write_bytes - tensor) / (stored * threads) < 1
    assert 0.8 < (one.dram_read_bytes - tensor) / (loaded * threads) < 1
