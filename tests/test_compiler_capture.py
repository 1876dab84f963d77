"""The compiler's capture on a CPU: what each stage says, that lines find their source lines, and that a repetition says the same."""
import json
import shutil
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import SimpleNamespace

import pytest
import torch

from harness import scrub, snippet
from tests.conftest import need

compiler = snippet.load("fusion/compiler")  # puts snippets/ on the path
from fusion import machine_code, provenance, stages  # noqa: E402

GRAPH = [("a: \"f16[8, 8]\"", []), ("b: \"f16[8]\"", []), ("add = aten.add.Tensor(a, b)", ["1"]),
         ("wide = prims.convert_element_type.default(add, torch.float32)", ["2"]), ("mul = aten.mul.Tensor(wide, 0.5)", ["2"]),
         ("erf = aten.erf.default(mul)", ["2"]), ("out = aten.mul.Tensor(erf, 0.5)", ["3"]), ("return (out, a)", [])]
TRITON = """def kernel(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    x1 = (xindex % 8)
    tmp0 = tl.load(in_ptr0 + (xindex), None).to(tl.float32)
    tmp1 = tl.load(in_ptr1 + (x1), None).to(tl.float32)
    tmp2 = tmp1 + tmp0
    tmp3 = tmp2.to(tl.float32)
    tmp4 = tl.full([1], 0.5, tl.float32)
    tmp5 = tmp4 * tmp3
    tmp6 = libdevice.erf(tmp5)
    tmp7 = tmp6 * tmp4
    tmp8 = tmp6 - tmp4
    tl.store(out_ptr0 + (xindex), tmp7, None)""".splitlines()
SASS = """
	//## File "/somewhere/k.py", line 11
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "/somewhere/k.py", line 13
        /*0010*/              @!P0 LDG.E.128 R8, desc[UR6][R8.64] ;
	//## File "/elsewhere.py", line 999
        /*0020*/                   EXIT ;
.L_x_0:
        /*0030*/                   BRA `(.L_x_0);
        /*0040*/                   NOP;
"""


def graph() -> list[dict]:
    texts = [text for text, _ in GRAPH]
    return provenance.spread(texts, provenance.facts(texts), [origin for _, origin in GRAPH])


def origins(lines: list[dict]) -> list[str]:
    return ["".join(line["from"]) for line in lines]


def test_graph_inputs_and_outputs_belong_to_what_uses_or_makes_them():
    assert origins(graph()) == ["1", "1", "1", "2", "2", "2", "3", "3"]


def test_line_belongs_to_the_node_that_computes_the_same():
    lines = provenance.link(TRITON, provenance.owners_of(graph()), {"in_ptr0": "a", "in_ptr1": "b"})
    # the index is both the load's and the store's, the number 0.5 both line 2's and line 3's, and tmp8 nobody's
    assert origins(lines) == ["", "13", "1", "1", "1", "1", "2", "23", "2", "2", "3", "", "3"]


@pytest.mark.parametrize(("one", "other", "same"), [
    ("aten.add.Tensor(a, 1)", "1.0 + a", True), ("a * b", "ops.mul(b, a)", True), ("a - b", "b - a", False),
    ("tl.load(a + (x2), None).to(tl.float32)", "ops.load('a', get_index)", True), ("ops.constant(-0.5, torch.float32)", "-0.5", True),
    ("ops.to_dtype(a, torch.float32, src_dtype = torch.float16)", "a", True), ("libdevice.erf(a)", "libdevice.exp(a)", False)])
def test_expressions_are_compared_whatever_they_are_called(one, other, same):
    first, second = ([fact["key"][0] for fact in provenance.facts([f"x = {text}"])] for text in (one, other))
    assert (first == second) is same


def test_machine_code_is_read_with_its_lines():
    source = ["@triton.jit", "def kernel():", "    tmp0 = 1", "    tmp1 = tl.load(p)"]
    assert machine_code.instructions(SASS, 10, source) == [
        ("def kernel():", "LDC R1, c[0x0][0x28]"), ("tmp1 = tl.load(p)", "@!P0 LDG.E.128 R8, desc[UR6][R8.64]"),
        ("", "EXIT"), ("", "BRA `(.L_x_0)")]


def test_kernels_are_found_in_generated_code():
    code = ("k = async_compile.triton('k', '''\nimport triton\n@triton.jit\n" + "\n".join(TRITON)
            + "\n''', device_str='cuda')\n\ndef call(args):\n    kernel.run(a, b, buf0, 64, stream=stream0)\n")
    (kernel,) = machine_code.triton_kernels(code).values()
    assert kernel["lines"] == TRITON
    assert [kernel["pointers"][name] for name in ("in_ptr0", "in_ptr1", "out_ptr0")] == ["a", "b", "buf0"]


def test_machine_code_of_a_kernel_is_linked_too(tmp_path):
    """ptxas and nvdisasm come with Triton and need no GPU: the kernel above, compiled for an H200."""
    need(find_spec("triton"), "no triton")
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    file = tmp_path / "linked_kernel.py"
    file.write_text("import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n@triton.jit\n"
                    + "\n".join(TRITON) + "\n", encoding="utf-8")
    spec = spec_from_file_location("linked_kernel", file)
    spec.loader.exec_module(module := module_from_spec(spec))
    tuner, config = object.__new__(CachingAutotuner), SimpleNamespace(kwargs={"XBLOCK": 128}, num_warps=4)
    binary = SimpleNamespace(asm=compiled_for_h200(module.kernel), metadata=SimpleNamespace(shared=0))
    tuner.fn, tuner.compile_results = module.kernel, [SimpleNamespace(config=config, kernel=binary)]
    tuner.launchers = [SimpleNamespace(config=config, n_regs=16, n_spills=0)]
    (kernel,) = machine_code.compiled_kernels([SimpleNamespace(kernel=tuner)]).values()
    lines = provenance.link(TRITON, provenance.owners_of(graph()), {"in_ptr0": "a", "in_ptr1": "b"})
    stated = {line["text"].strip(): line["from"] for line in lines}
    assert (kernel["registers"], kernel["block"], kernel["warps_count"]) == (16, {"XBLOCK": 128}, 4)
    assert all(line in stated for line, _ in kernel["sass"]) and kernel["sass"][-1][1].startswith("BRA")
    for part, origin in (("LDG", ["1"]), ("MUFU", ["2"]), ("STG", ["3"])):  # the load, the exponential within erf, the store
        found = [stated[line] for line, text in kernel["sass"] if f" {part}" in f" {text}"]
        assert found and all(one == origin for one in found)


def compiled_for_h200(kernel) -> dict:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_kernel
    signature = {"in_ptr0": "*fp16", "in_ptr1": "*fp16", "out_ptr0": "*fp16", "xnumel": "i32", "XBLOCK": "constexpr"}
    return compile_kernel(ASTSource(kernel, signature, constexprs={(4,): 128}), target=GPUTarget("cuda", 90, 32)).asm


@pytest.fixture(scope="module")
def cpp():
    need(shutil.which("g++") or shutil.which("clang++"), "no C++ compiler, which torch.compile needs on a CPU")


@pytest.fixture(scope="module")
def forward(cpp):
    return compiler.linked(compiler.chain, compiler.inputs(33, 70, "cpu"))


def test_four_lines_are_one_node_before_the_scheduler_fuses(forward):
    assert forward["nodes_count"] == 1 and forward["fused_nothing"]
    assert forward["decisions"][0] == "found 0 possible fusions"


def test_every_node_of_the_graphs_has_its_line(forward):
    assert origins(forward["stages"]["dynamo"]) == ["1", "1", "1", "2", "3", "4", "4"]
    assert origins(forward["stages"]["forward"]) == ["1", "1", "1", *"2222222", "3", "4", "4"]
    assert any("aten.erf.default" in line["text"] for line in forward["stages"]["forward"] if line["from"] == ["2"])


def test_every_operation_of_the_loop_body_has_its_line(forward):
    lines = [line for line in forward["stages"]["ir"] if "= ops." in line["text"]]
    assert len(lines) > 20 and all(line["from"] for line in lines)
    assert [line["from"] for line in lines if "constant(0.5" in line["text"]] == [["2"], ["3"]]


def test_capture_says_the_same_again_and_names_no_machine(forward):
    again = compiler.linked(compiler.chain, compiler.inputs(33, 70, "cpu"))
    assert json.dumps(again) == json.dumps(forward)
    assert scrub.leak(forward) is None


def test_backward_is_watched_too(cpp):
    found = compiler.linked(compiler.chain, compiler.inputs(33, 70, "cpu", requires_grad=True), backward=True)
    assert "primals_1, primals_2" in found["stages"]["forward"][-1]["text"]  # what is saved: the inputs
    assert {line for origin in origins(found["stages"]["backward"]) for line in origin} == {"1", "2", "3"}  # + 0.1 has no backward
    assert "cannot fuse op0 with op1: no shared data" in found["decisions"]


def test_scheduler_fuses_a_sum_along_the_rows(cpp):
    row = compiler.scheduled(compiler.row_sum, compiler.inputs(64, 128, "cpu"))
    assert row["nodes"] == ["op0", "op1"] and row["fused"] == [["op0", "op1"]] and "fusing op0 with op1" in row["decisions"]
    assert row["shared_bytes"] == {"op0 op1": 64 * 128 * 2}  # the sum reads what the chain writes, at the same index


@pytest.mark.parametrize(("function", "graphs"), [
    (compiler.chain, 1), (compiler.with_print, 2), (compiler.with_item, 2), (compiler.print_first, 1)])
def test_graphs_of_a_function(function, graphs):
    found = compiler.broken(function, compiler.inputs(8, 16, "cpu"))
    assert len(found["graphs"]) == graphs and len(found["breaks"]) == graphs - 1
    assert sum(map(len, found["graphs"])) == (5 if function is compiler.with_item else 4)


def test_watching_leaves_the_log_as_it_was():
    logger = stages.logging.getLogger(stages.FUSION_LOG)
    before = logger.level, logger.propagate, list(logger.handlers)
    with pytest.raises(ZeroDivisionError), stages.fusion_log([]):
        raise ZeroDivisionError
    assert (logger.level, logger.propagate, logger.handlers) == before
    assert torch._inductor.config._pre_fusion_custom_pass is None
