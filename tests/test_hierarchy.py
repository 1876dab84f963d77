"""Working sets of snippets/memory/hierarchy.py, laid out on the CPU: a chase that missed lines would measure a smaller set."""
import pytest
import torch

from harness import snippet

hierarchy = snippet.load("memory/hierarchy")


def walk(after: list[int], steps: int) -> list[int]:
    at, seen = 0, []
    for _ in range(steps):
        seen.append(at)
        at = after[at]
    return [*seen, at]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000, 4097])
def test_cycle_visits_every_place_once_and_returns(count):
    torch.manual_seed(0)
    *seen, last = walk(hierarchy.cycle(count).tolist(), count)
    assert sorted(seen) == list(range(count)) and last == 0


def test_cycle_is_not_a_walk_in_order():
    torch.manual_seed(0)
    after = hierarchy.cycle(1000)
    assert (after == torch.arange(1000).roll(-1)).sum() < 20


@pytest.mark.parametrize("stride_bytes", [128, 4096])
def test_lay_out_links_the_first_word_of_every_line(stride_bytes):
    set_bytes = 64 * stride_bytes
    room = torch.full((set_bytes // 8 + 8,), -1, dtype=torch.int64)
    assert hierarchy.lay_out(room, set_bytes, stride_bytes) == 64
    words = room[:set_bytes // 8].view(64, -1)
    after = ((words[:, 0] - room.data_ptr()) // stride_bytes).tolist()
    assert sorted(walk(after, 64)[:-1]) == list(range(64))
    assert bool((words[:, 1:] == -1).all()) and bool((room[set_bytes // 8:] == -1).all())  # nothing beside them is touched


@pytest.mark.parametrize(("set_bytes", "count"), [(2**20, 15258), (8e9, 2), (64e9, 2)])
def test_passes_are_even(set_bytes, count):
    assert hierarchy.passes(set_bytes) == count  # halved for the second timing


def test_sets_are_whole_lines_and_slices_whole_rounds():
    assert all(size % hierarchy.LINE == 0 for size in hierarchy.NEAR + hierarchy.FAR)
    assert sorted(hierarchy.NEAR + hierarchy.FAR) == hierarchy.NEAR + hierarchy.FAR
    assert all(size % (4 * 1024 * 16) == 0 for size in hierarchy.SLICES)  # four vectors for each of 1024 threads


def test_per_load_divides_what_a_chase_wrote():
    assert hierarchy.per_load(torch.tensor([320, 160, 7, 0]), 10) == {"cycles": 32.0, "ns": 16.0}
