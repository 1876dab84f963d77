"""The clocks of memory/measuring on a device that is not there, and the operations that write or read in part."""
from types import SimpleNamespace

import pytest
import torch

from harness import measure, snippet

measuring, one_way = snippet.load("memory/measuring"), snippet.load("memory/one_way")


@pytest.fixture
def device(monkeypatch):
    """What a call would wait for: synchronize moves the host's clock on by what the device still has to do."""
    state = SimpleNamespace(now=0.0, owed=0.0, emptied=[])

    def synchronize():
        state.now, state.owed = state.now + state.owed, 0.0
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: state.emptied.append(state.now))
    monkeypatch.setattr(measuring, "time", SimpleNamespace(perf_counter=lambda: state.now))
    return state


def call_of(device, host_us, device_us):
    def call():
        device.now += host_us / 1e6
        device.owed += device_us / 1e6
    return call


def test_measuring_wall_counts_what_it_waits_for(device):
    call = call_of(device, 10, 80)
    assert measuring.wall_us(call, synchronize=False) == pytest.approx(10)
    assert measuring.wall_us(call) == pytest.approx(90)
    assert measuring.wall_us(call, 4) == pytest.approx(90)  # this device does not overlap with its host


def test_measuring_work_before_the_clock_starts_is_not_in_it(device):
    device.owed = 1.0
    assert measuring.wall_us(call_of(device, 10, 80)) == pytest.approx(90)


def test_measuring_outliers_come_at_every_25th_call(device):
    found = measuring.with_outliers(call_of(device, 10, 80))
    assert len(found["samples_us"]) == 100 and len(device.emptied) == 4


def test_measuring_first_calls_include_the_first(device):
    pending = [call_of(device, 9000, 80)]
    usual = call_of(device, 10, 80)
    found = measuring.first_calls(lambda x: (pending.pop() if pending else usual)(), None)
    assert found["samples_us"][0] == pytest.approx(9080) and found["samples_us"][1:] == pytest.approx([90] * 99)


@pytest.mark.parametrize("operation", one_way.OPERATIONS)
@pytest.mark.parametrize("n", [64, 96, 128])
def test_one_way_operation_is_right(operation, n):
    torch.manual_seed(0)
    args = one_way.inputs(operation, n, "cpu")
    right = measure.reference_of(one_way, args)
    assert measure.gate(lambda: one_way.run(*args), right, args, one_way)["relative"] < 6e-4


def test_one_way_parts_touch_what_their_share_says():
    for operation, share in one_way.SHARE.items():
        x = torch.zeros(128, 128, dtype=torch.float16)
        if operation.startswith("fill_"):
            assert float((one_way.run(x, operation) != 0).double().mean()) == share
        elif operation.startswith("sum_"):
            assert one_way.run(torch.ones_like(x), operation)[0] == 128 * share
        assert one_way.minimum_bytes(x, operation) == x.nbytes * share


def test_one_way_pieces_are_whole_sectors_of_32_bytes():
    x = one_way.fill_pieces(torch.zeros(1, 64, dtype=torch.float16))
    assert [bool(piece.all()) for piece in x.view(-1, 16)] == [True, False, True, False]

