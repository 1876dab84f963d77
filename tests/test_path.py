"""What chapter 1's captures rest on: the rules for layers and names, the trace's events, private parts of torch, privacy."""
import pytest

from harness import record, scrub, snippet

snippet.load("path/trace")  # puts snippets/ on the path
from path import dispatch, frames, private, timeline  # noqa: E402

# A real name of each kind, demangled as torch 2.11 gives it, with the layer it belongs to.
LAYERS = [
    ("PyNumber_Add", "Python"), ("_PyObject_MakeTpCall", "Python"), ("slot_nb_add", "Python"),
    ("_object* torch::autograd::TypeError_to_NotImplemented_<&torch::autograd::THPVariable_add>(_object*, _object*, _object*)", "binding"),
    ("torch::autograd::THPVariable_gelu(_object*, _object*, _object*)", "binding"), ("THPVariable_dealloc", "binding"),
    ("pybind11::cpp_function::dispatcher(_object*, _object* const*, unsigned long, _object*)", "binding"),
    ("at::_ops::add_Tensor::call(at::Tensor const&, at::Tensor const&, c10::Scalar const&)", "dispatcher"),
    ("at::_ops::add_Tensor::redispatch(c10::DispatchKeySet, at::Tensor const&)", "dispatcher"),
    ("c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<c10::CompileTimeFunctionPointer"
     "<at::Tensor (at::Tensor const&), &torch::autograd::VariableType::(anonymous namespace)::gelu> > >::call(c10::OperatorKernel*)",
     "dispatcher"),
    ("(anonymous namespace)::pythonFallback(c10::OperatorHandle const&, c10::DispatchKeySet)", "dispatcher"),
    ("torch::autograd::VariableType::(anonymous namespace)::add_Tensor(c10::DispatchKeySet, at::Tensor const&)", "autograd"),
    ("torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)", "autograd"),
    ("at::(anonymous namespace)::wrapper_CUDA_add_Tensor(at::Tensor const&, at::Tensor const&, c10::Scalar const&)", "ATen"),
    ("at::meta::structured_add_Tensor::meta(at::Tensor const&, at::Tensor const&, c10::Scalar const&)", "ATen"),
    ("at::TensorIteratorBase::build(at::TensorIteratorConfig&)", "ATen"), ("c10::TensorImpl::~TensorImpl()", "ATen"),
    ("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)", "allocator"),
    ("c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)", "allocator"),
    ("cudaMalloc", "driver"), ("cuMemCreate", "driver"), ("torch::unwind::unwind()", "capture"), ("std::terminate()", "other")]


@pytest.mark.parametrize(("name", "expected"), LAYERS, ids=[frames.short(name) for name, _ in LAYERS])
def test_layer_of_a_frame(name, expected):
    assert frames.layer(name, "torch/lib/libtorch_cpu.so") == expected


def test_every_layer_rule_is_tested():
    assert {label for label, _ in frames.RULES} <= {expected for _, expected in LAYERS}


def test_rule_that_is_taken_away_puts_its_frames_elsewhere(monkeypatch):
    for label in dict.fromkeys(label for label, _ in frames.RULES):
        monkeypatch.setattr(frames, "RULES", [rule for rule in frames.RULES if rule[0] != label])
        assert all(frames.layer(name, "x.so") != label for name, expected in LAYERS if expected == label)
        monkeypatch.undo()


def test_python_file_is_python_unless_it_only_looks_on():
    assert frames.layer("forward", "snippets/path/example.py") == "Python"
    assert frames.layer("__torch_dispatch__", "snippets/path/stacks.py") == "capture"


@pytest.mark.parametrize(("name", "expected"), [
    (LAYERS[3][0], "TypeError_to_NotImplemented_<THPVariable_add>"), (LAYERS[7][0], "_ops::add_Tensor::call"),
    (LAYERS[11][0], "VariableType::add_Tensor"), (LAYERS[13][0], "at::wrapper_CUDA_add_Tensor"), ("PyNumber_Add", "PyNumber_Add")])
def test_short_name_of_a_frame(name, expected):
    assert frames.short(name) == expected


def test_stack_is_told_from_the_users_line_inwards():
    raw = [{"name": "torch::unwind::unwind()", "filename": "libtorch_cpu.so", "line": 1},
           {"name": "at::empty(int)", "filename": "libtorch_cpu.so", "line": 2},
           {"name": "forward", "filename": "snippets/path/example.py", "line": 14},
           {"name": "main", "filename": "run.py", "line": 9}]
    assert [(frame["layer"], frame["short"]) for frame in frames.describe(raw)] == [("Python", "forward"), ("ATen", "at::empty")]


def event(category, name, start, **extra):
    return {"cat": category, "name": name, "ts": start, "dur": 2.0, "tid": 1, "args": extra}


def test_timeline_keeps_the_last_pass_on_one_clock():
    line = timeline.LINES[0]
    raw = [event("user_annotation", line, 1.0), event("kernel", "of the first pass", 2.0), event("user_annotation", line, 10.0),
           event("cpu_instant_event", "[memory]", 11.0, **{"Device Type": 1, "Bytes": 512, "Total Allocated": 512}),
           event("cpu_instant_event", "[memory]", 11.5, **{"Device Type": 0, "Bytes": 64}),
           event("cuda_runtime", "cudaLaunchKernel", 12.0, correlation=4), event("kernel", "k", 13.0, correlation=4, grid=[1, 1, 1])]
    found = timeline.events(raw)
    assert [(item["lane"], item["name"], item["start_us"]) for item in found] == [
        ("Python", line, 0), ("allocator", "alloc", 1), ("launch", "cudaLaunchKernel", 2), ("GPU", "k", 3)]
    assert found[2]["correlation"] == found[3]["correlation"] == 4 and found[1]["bytes"] == 512


def test_private_part_that_is_gone_is_named():
    with pytest.raises(RuntimeError, match=r"has no torch\._C\._no_such_thing, which this snippet looks through"):
        private.find("_C._no_such_thing")


def test_dispatch_capture_works_on_this_torch():
    """On a CPU, with the torch of the tests: what the record shows for CUDA holds for the CPU's keys."""
    found = dispatch.capture("cpu")
    sets = found["key_sets"]
    assert sets["plain"]["tensor"] == sets["requires_grad"]["tensor"] == sets["no_grad"]["tensor"]
    assert sets["no_grad"]["call"][0] == "AutogradCPU" and "AutogradCPU" not in sets["inference_mode, tensor from outside"]["call"]
    assert not any(call["result_has_grad_fn"] for call in found["overrides"]["torch_dispatch"])
    assert all(call["result_has_grad_fn"] for call in found["overrides"]["torch_function"])
    assert found["order"]["AutogradFunctionality"] > found["order"]["Python"]


def test_no_record_holds_a_path_of_the_machine():
    files = sorted(record.RESULTS.rglob("*.json"))
    assert len(files) >= 11
    assert {file.name: scrub.leak(record.read(file)) for file in files} == {file.name: None for file in files}
    assert not any("site-packages" in file.read_text(encoding="utf-8") for file in files)
