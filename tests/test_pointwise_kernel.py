"""The own kernel of fusion/pointwise: its polynomials in float64; in Triton's interpreter, awkward shapes and values."""
import json
import math
import os
import subprocess
import sys

import pytest
import torch

from harness import results, snippet

chain = snippet.load("fusion/pointwise/chain")  # puts snippets/ on the path
from fusion.pointwise import fit, kernel  # noqa: E402

# Runs where TRITON_INTERPRET is set before Triton is imported.
# Prints {form, dtype and shape: relative error} and {form: gelu of special values}.
INTERPRETED = """
import json, torch
from fusion.pointwise.kernel import POLYNOMIALS, bias_gelu
inf, found, special = float("inf"), {}, {}
torch.manual_seed(0)
def error(form, dtype, shape, block):
    x, bias = (3 * torch.randn(shape)).to(dtype), torch.randn(shape[1]).to(dtype)
    z = x.double() + bias.double()
    right = 0.25 * z * torch.erfc(-z / 2**0.5) + 0.1
    y = bias_gelu(x, bias, form, block=block)
    assert y.dtype == dtype and y.shape == x.shape
    return float((y.double() - right).norm() / right.norm())
for form in POLYNOMIALS:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for shape, block in (((1, 70), 64), ((70, 1), 64), ((5, 129), 64), ((1, 1), 16), ((3, 64), 64)):
            found[f"{form} {str(dtype)[6:]} {shape}"] = error(form, dtype, shape, block)
    z = torch.tensor([[inf, -inf, float("nan"), 65504.0, -65504.0, 3e38, -3e38, 0.0, -13.5, 20.0]])
    special[form] = [str(value) for value in bias_gelu(z, torch.zeros(10), form, block=16, scale=1.0, shift=0.0)[0].tolist()]
print(json.dumps([found, special]))
"""
LIMITS = {"float16": 6e-4, "bfloat16": 8e-3, "float32": 1e-5}  # the interpreter cuts bf16 off instead of rounding it


@pytest.fixture(scope="module")
def interpreted():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(snippet.SNIPPETS)}
    command = [sys.executable, "-W", "ignore", "-c", INTERPRETED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_kernel_is_right_for_every_shape_type_and_form(interpreted):
    errors = interpreted[0]
    assert len(errors) == 4 * 3 * 5
    assert {where: error for where, error in errors.items() if not error <= LIMITS[where.split()[1]]} == {}
    assert all(error < 3e-7 for where, error in errors.items() if where.startswith("fp32 float32"))


def test_recorded_error_in_bf16_is_below_that_of_the_eager_chain():
    """Eager rounds after each operation, on a CPU as on a GPU; the record of the chain has no bf16."""
    torch.manual_seed(0)
    args = chain.inputs(1024, 4096, torch.bfloat16, "cpu")
    right = chain.reference(*args)
    eager = float((chain.chain(*args).double() - right).norm() / right.norm())
    assert 1.3 * results.load("fusion/pointwise/ladder").bf16.tail.error.relative < eager < 4e-3


def test_final_form_is_right_at_infinity_and_far_out(interpreted):
    for form in ("tail", "fp32"):
        plus, minus, nan, large, small, largest, least, zero, tail, twenty = map(float, interpreted[1][form])
        assert plus == math.inf and math.isnan(nan) and (large, largest, twenty) == (65504, pytest.approx(3e38), 20)
        assert all(-1e-37 < value <= 0 for value in (minus, small, least, tail)) and zero == 0


def test_erf_form_is_nan_at_minus_infinity_as_eager_is(interpreted):
    assert math.isnan(float(interpreted[1]["erf"][1])) and torch.nn.functional.gelu(torch.tensor(-math.inf)).isnan()


def polynomial(c, v):
    return sum(coefficient * v**power for power, coefficient in enumerate(c))


def right(z):
    return 0.5 * z * torch.erfc(-z / 2**0.5)


def tail(c, z):
    a = z.abs()
    return z.clamp_min(0) - a * torch.exp2(polynomial(c, a))


Z = torch.linspace(-13, 13, 260_001, dtype=torch.float64)


def relative(value, z):
    return ((value - right(z)) / right(z)).abs()


def test_tail_is_far_below_a_rounding_of_sixteen_bits():
    """fp16 rounds by up to 2^-11 where it is normal (gelu above 2^-14, z above -4.18), bf16 by up to 2^-8 down to z = -13."""
    z = Z[Z != 0]
    error = relative(tail(kernel.TAIL, z), z)
    assert error[z > -4.18].max() < 0.3 * 2**-11 and error.max() < 0.3 * 2**-8


def test_sigmoid_is_good_in_the_sum_and_bad_in_the_tail():
    z = Z[Z != 0]
    value = z / (1 + torch.exp2(-z * polynomial(kernel.ODDS, z * z)))
    assert (value - right(z)).abs().max() < 4e-6
    assert relative(value, z)[(z > -3.5) & (z < -3)].max() > 2**-11 and relative(value, z)[(z > -4.5) & (z < -4)].max() > 0.01


def test_fp32_polynomials_meet_and_are_within_a_few_roundings():
    z = Z[Z != 0]
    near = z * z < 2
    core = z * (0.5 + z * (fit.SLOPE + polynomial(kernel.CORE_FP32, z * z)))
    assert float(torch.tensor(1 / math.sqrt(2 * math.pi), dtype=torch.float32)) == fit.SLOPE
    assert relative(core, z)[near].max() < 0.25 * 2**-24
    assert relative(tail(kernel.TAIL_FP32, z), z)[~near & (z > -6)].max() < 5 * 2**-24
    assert relative(tail(kernel.TAIL_FP32, z), z)[~near].max() < 1e-4


@pytest.fixture(scope="module")
def fits():
    return fit.fits()


@pytest.mark.parametrize("name", ["ODDS", "TAIL", "TAIL_FP32", "CORE_FP32"])
def test_fit_finds_the_published_coefficients(fits, name):
    found, error = fits[name]
    assert getattr(kernel, name) == pytest.approx(found, rel=1e-5)
    assert 0 < error < 1e-5


def test_minimax_error_alternates():
    """Chebyshev: the best polynomial of degree n errs equally, with alternating sign, at n + 2 points."""
    c, error = fit.minimax(torch.exp, torch.ones_like, 3, 0.0, 1.0)
    v = torch.linspace(0, 1, 5001, dtype=torch.float64)
    wrong = polynomial(c, v) - v.exp()
    assert float(wrong.abs().max()) == pytest.approx(error, rel=1e-6) and error == pytest.approx(5.45e-4, rel=0.01)
    assert int((wrong.sign().diff() != 0).sum()) == 4
