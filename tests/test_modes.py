"""The parts of the snippets on modes and on horizontal fusion that run without a GPU."""
import pytest

torch = pytest.importorskip("torch")

from harness import snippet  # noqa: E402

modes, horizontal = snippet.load("fusion/modes"), snippet.load("fusion/horizontal")


def test_fate_tells_kept_from_changed_outputs():
    old = torch.arange(4.0)
    assert modes.fate(old, old.clone()) == "intact"
    assert modes.fate(old + 1, old) == "overwritten"


def test_fate_keeps_the_message_without_its_stack():
    class Invalidated(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise RuntimeError("Error: overwritten by a subsequent run. Stack trace: File 'here', line 3")
    old = torch.ones(2).as_subclass(Invalidated)
    assert modes.fate(old, torch.ones(2)) == "Error: overwritten by a subsequent run."


def test_layers_are_many_and_small():
    model, x = modes.layers(count=3, width=8, device="cpu")
    assert [type(part).__name__ for part in model] == ["Linear", "GELU"] * 3
    assert x.shape == (1, 8) and x.dtype == torch.float16 and model(x).shape == (1, 8)


@pytest.mark.parametrize("shapes", [[(1,)], [(3,), (0,), (7, 5)], [(70,)] * 200])
def test_horizontal_variants_agree(shapes):
    averages, weights = ([torch.randn(shape) for shape in shapes] for _ in range(2))
    right = horizontal.reference(averages, weights)
    for variant in horizontal.variants.values():
        for output, reference in zip(variant(averages, weights), right, strict=True):
            torch.testing.assert_close(output.double(), reference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("variant", ["loop", "foreach"])
def test_horizontal_keeps_infinities_and_inputs(variant):
    averages, weights = [torch.tensor([float("inf"), 1e38, -0.0])], [torch.tensor([1.0, 1e38, 0.0])]
    result, = horizontal.variants[variant](averages, weights)
    assert result.tolist()[0] == float("inf") and torch.isfinite(result[1:]).all()
    assert averages[0][1] == torch.tensor(1e38) and weights[0][0] == 1


def test_horizontal_counts_three_tensors_each():
    averages, weights = horizontal.inputs(count=4, elements=10, device="cpu")
    assert horizontal.minimum_bytes(averages, weights) == 4 * 3 * 10 * 4
