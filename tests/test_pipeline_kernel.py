"""The softmax pipeline on the CPU, through tests/gluon_emulator.py: indices, masks, phases, deadlocks. Speed and layouts need a GPU."""
import random
import threading

import pytest
import torch

from tests import gluon_emulator

SMALL = {"block": 512, "places": 4}  # pieces of 512 elements, two lines for each warp


@pytest.fixture(scope="module")
def kernel():
    with gluon_emulator.imported("fusion/reduction/pipeline_kernel") as module:
        yield module


def check(kernel, x, **options):
    y = kernel.pipeline_softmax(x, **(SMALL | {"programs": 4} | options))
    right = torch.softmax(x.double(), -1)
    assert y.dtype == x.dtype and y.shape == x.shape
    torch.testing.assert_close(y.double(), right, rtol=1e-2 if x.dtype == torch.bfloat16 else 2e-3, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize(("rows", "columns"), [(1, 64), (1, 512), (3, 576), (1, 2048), (7, 1024), (5, 1984), (40, 512), (2, 4096)])
@pytest.mark.parametrize("places", [2, 4])
def test_pipeline_equals_softmax_for_any_number_of_pieces(kernel, rows, columns, places):
    torch.manual_seed(0)
    check(kernel, torch.randn(rows, columns).half(), places=places)


@pytest.mark.parametrize(("programs", "places"), [(1, 8), (2, 4), (5, 2), (4, 6), (30, 2)])
def test_pipeline_runs_with_any_room_that_holds_a_row(kernel, programs, places):
    torch.manual_seed(0)
    check(kernel, torch.randn(6, 4096).half(), programs=programs, places=places)  # 8 pieces a row, 48 in all


@pytest.mark.parametrize("resident", [1, 3])
def test_pipeline_needs_only_the_programs_that_have_started(kernel, monkeypatch, resident):
    """The last programs start first, and the others only when these have ended, as if another kernel held their SMs."""
    monkeypatch.setattr(gluon_emulator, "RESIDENT", resident)
    torch.manual_seed(0)
    check(kernel, torch.randn(6, 2048).half(), programs=6)  # 4 pieces a row: a single ring holds them


@pytest.mark.parametrize("places", [2, 4])
def test_pipeline_takes_copies_that_arrive_in_any_order(kernel, monkeypatch, places):
    copy = kernel.tma.async_copy_global_to_shared
    late = lambda *args: threading.Timer(random.random() * 4e-3, copy, args).start()  # noqa: E731
    monkeypatch.setattr(kernel.tma, "async_copy_global_to_shared", late)
    for seed in range(5):
        random.seed(seed)
        torch.manual_seed(seed)
        check(kernel, torch.randn(20, 1600).half(), places=places, programs=5)


def test_pipeline_stops_where_a_row_has_no_room(kernel, monkeypatch):
    with pytest.raises(NotImplementedError, match="room for 16"):
        kernel.pipeline_softmax(torch.zeros(1, 17 * 512).half(), **SMALL, programs=4)
    monkeypatch.setattr(gluon_emulator, "RESIDENT", 1)
    monkeypatch.setattr(gluon_emulator, "WAIT_S", 0.3)
    with pytest.raises(gluon_emulator.Stuck):
        kernel.pipeline_softmax(torch.zeros(1, 5 * 512).half(), **SMALL, programs=4)


def test_pipeline_takes_large_values_and_bf16(kernel):
    torch.manual_seed(0)
    check(kernel, (torch.randn(4, 1600) * 1e4).half())
    check(kernel, (torch.randn(4, 1600) * 1e30).bfloat16())
    check(kernel, torch.randn(4, 1600).bfloat16())
    check(kernel, (torch.randn(4, 1600) - 1000).half())  # zeros that TMA fills in would be the maximum


def test_pipeline_keeps_what_is_not_finite(kernel):
    inf, nan = float("inf"), float("nan")
    x = torch.randn(8, 1600).half()
    x[0] = -inf  # NaN
    x[1, 7], x[2, 1599], x[3, 800] = nan, inf, -inf
    x[4, :1599] = -inf  # 0 and a single 1
    x[5, :512] = -inf  # a piece of nothing but -inf
    x[6], x[7, 0] = nan, inf
    check(kernel, x)


def test_pipeline_refuses_what_it_cannot_do(kernel):
    x = torch.zeros(4, 1024).half()
    for wrong in (x.float(), x[:, :100].contiguous(), x[:, :512], x[:0]):
        with pytest.raises(NotImplementedError, match="wants"):
            kernel.pipeline_softmax(wrong, **SMALL, programs=2)
