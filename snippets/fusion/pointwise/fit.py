"""Finds the polynomials of kernel.py and says how far each is from what it stands for. Needs only torch, on the CPU.

    python3 snippets/fusion/pointwise/fit.py
"""
import math

import torch

POINTS = 20_001
SLOPE = 0.3989422917366028  # the float32 next to 1 / sqrt(2 pi), which is Phi's slope at 0
LONGEST_TAIL = 13.0  # Phi(-13) = 6e-39 is below the least normal float32


# --8<-- [start:minimax]
def minimax(target, tolerance, degree, low, high):
    """Coefficients c of p(v) = sum c[k] v^k with the least max |p - target| / tolerance on [low, high], and that maximum.

    Remez's exchange: ask for an error of equal size and alternating sign at degree + 2 points, find where the
    polynomial so got errs most, ask again there. target and tolerance: functions of a float64 tensor.
    """
    v = low + (high - low) * (1 - torch.cos(torch.linspace(0, math.pi, POINTS, dtype=torch.float64))) / 2  # dense at both ends
    wanted, allowed = target(v), tolerance(v)
    powers = (v[:, None] / high) ** torch.arange(degree + 1)
    signs = (-1.0) ** torch.arange(degree + 2, dtype=torch.float64)
    at = torch.linspace(0, POINTS - 1, degree + 2).long()
    for _ in range(100):
        system = torch.cat([powers[at], (signs * allowed[at])[:, None]], dim=1)
        c = torch.linalg.solve(system, wanted[at])[:-1]
        error = (powers @ c - wanted) / allowed
        found = peaks(error, degree + 2)
        if torch.equal(found, at):
            break
        at = found
    return (c / high ** torch.arange(degree + 1)).tolist(), float(error.abs().max())


def peaks(error, count):
    """Where |error| is largest between two changes of its sign; the largest `count` neighbours of them."""
    group = torch.cat([torch.zeros(1, dtype=torch.long), (error.sign().diff() != 0).long().cumsum(0)])
    found = [int(torch.where(group == k, error.abs(), -1).argmax()) for k in range(int(group[-1]) + 1)]
    while len(found) > count:
        found.pop(0 if error[found[0]].abs() < error[found[-1]].abs() else -1)
    return torch.tensor(found)
# --8<-- [end:minimax]


# --8<-- [start:targets]
def log2_phi(a):
    """log2 of Phi(-a): how far the tail's weight is below 1, in powers of two."""
    return torch.special.log_ndtr(-a) / math.log(2)


def tail_tolerance(a):
    """An error d of log2(Phi) is a relative error d ln 2 of Phi. float32 itself keeps log2(Phi) to some 1e-7 of its size."""
    return 0.3 + log2_phi(a).abs()


def log2_odds(u):
    """log2(Phi(z) / Phi(-z)) / z for u = z * z: what turns 2^x into Phi."""
    z = u.sqrt()
    return (log2_phi(-z) - log2_phi(z)) / z


def odds_tolerance(u):
    """Such that gelu's absolute error is even: it is u Phi(z) Phi(-z) ln 2 times that of log2_odds."""
    z = u.sqrt()
    return 1 / (u * torch.special.ndtr(z) * torch.special.ndtr(-z)).clamp_min(1e-5)


def core(u):
    """(Phi(z) - 1/2) / z - SLOPE for u = z * z; without its largest part the rest needs fewer digits."""
    z = u.sqrt()
    return torch.erf(z / 2**0.5) / (2 * z) - SLOPE
# --8<-- [end:targets]


def fits():
    """{name in kernel.py: (coefficients, the largest |error| / tolerance)}."""
    return {
        "ODDS": minimax(log2_odds, odds_tolerance, 4, 1e-6, 5.0**2),
        "TAIL": minimax(log2_phi, tail_tolerance, 8, 0.0, LONGEST_TAIL),
        "TAIL_FP32": minimax(log2_phi, tail_tolerance, 11, 1.4, LONGEST_TAIL),
        "CORE_FP32": minimax(core, torch.ones_like, 6, 1e-6, 2.0)}


if __name__ == "__main__":
    for name, (coefficients, error) in fits().items():
        print(f"{name} = ({', '.join(f'{c:.9g}' for c in coefficients)})  # {error:.1e}")
