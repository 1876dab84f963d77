"""The simulation of who works when."""
import pytest

from harness import snippet

s = snippet.load("attention/schedule")


@pytest.mark.parametrize("order", s.ORDERS.values())
@pytest.mark.parametrize(("tiles", "heads", "sms"), [(1, 1, 4), (8, 6, 8), (5, 7, 3), (16, 1, 132)])
def test_schedule_gives_every_tile_to_one_sm(order, tiles, heads, sms):
    queues = order(tiles, heads, sms)
    assert len(queues) == sms
    assert sorted(cost for queue in queues for cost in queue) == sorted(s.head_by_head(tiles, heads))


def test_schedule_utilisation_by_hand():
    assert s.utilisation([[3], [1]]) == pytest.approx(4 / 6)
    assert s.utilisation([[2, 2], [4]]) == 1
    assert s.utilisation([[2, 2], [4]], overhead=1) == pytest.approx(8 / 12)  # the SM with two tiles pays twice
    assert s.makespan([[4], [4]], speed=[1, 0.5]) == 8
    assert s.intervals([2, 1], overhead=1) == [(0, 3, 2), (3, 5, 1)]


def test_schedule_longest_first_beats_head_by_head():
    """16 heads of 16384 rows over 132 SMs: the case of the page's ladder."""
    found = s.capture()["utilisation"]["16384"]
    assert found["head by head, dealt"] < 0.7
    assert found["longest first, back and forth"] > 0.99
    assert found["longest first, drawn"] >= found["longest first, dealt"]


def test_schedule_draw_adapts_to_a_slow_sm():
    speed = [1.0] * 7 + [0.8]
    costs = s.longest_first(8, 40)
    fixed = s.utilisation(s.dealt(costs, 8, back_and_forth=True), speed=speed)
    assert fixed < 0.85
    assert s.utilisation(s.drawn(costs, 8, speed=speed), speed=speed) > 0.95
