"""What /fusion/when-not-to-fuse/ says, as far as a CPU can show it; what torch 2.11 did on the H200 is in the records."""
import pytest
import torch
import torch.nn.functional as F
from torch._inductor.utils import run_and_get_code

from harness import snippet
from tests.conftest import need
from tests.test_measure import COMPILER

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
NO_COMPILER = "no C++ compiler, which torch.compile needs on a CPU"


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


class Settings:
    scale = 4.0
    calls = []


def scaled(x):
    Settings.calls.append(len(x))
    return x * Settings.scale


def test_state_of_a_class_is_forgotten_by_torch_2_11():
    torch._dynamo.reset()
    Settings.scale, Settings.calls[:] = 4.0, []
    compiled = torch.compile(scaled, backend="eager")
    assert compiled(torch.ones(1)).item() == 4.0
    Settings.scale = 40.0
    found = compiled(torch.ones(1)).item(), len(Settings.calls)
    if TORCH >= (2, 13):
        assert found == (40.0, 2)
    elif TORCH <= (2, 11):  # 2.12 was not run
        assert found == (4.0, 0)


def split(x):
    """A float32 as two float16: what fits, and what that rounding lost."""
    hi = x.half()
    return hi, (x - hi.float()).half()


@pytest.mark.parametrize(("form", "keeps"), [({}, False), ({"emulate_precision_casts": True}, True)], ids=["default", "casts"])
def test_rounding_that_code_needs_is_left_out_by_default(form, keeps):
    need(COMPILER, NO_COMPILER)
    torch._dynamo.reset()
    x = torch.randn(256)
    hi, lo = torch.compile(split, options=form, dynamic=False)(x)
    assert torch.equal(hi, split(x)[0]) and torch.equal(lo, split(x)[1] if keeps else torch.zeros_like(lo))


def dropout(x):
    return F.dropout(x, 0.5)


@pytest.mark.parametrize("fallback", [False, True])
def test_dropout_has_eager_s_mask_for_a_seed_only_with_fallback_random(fallback):
    need(COMPILER, NO_COMPILER)
    torch._dynamo.reset()
    compiled, kept = torch.compile(dropout, options={"fallback_random": fallback}, dynamic=False), []
    for form in (dropout, compiled):
        torch.manual_seed(0)
        kept.append(form(torch.ones(4096)) != 0)
    differing = float((kept[0] != kept[1]).float().mean())
    assert differing == 0 if fallback else 0.4 < differing < 0.6
