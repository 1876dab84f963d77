"""Who works when: causal attention tiles dealt to the SMs in three orders, simulated. Plain Python; needs nothing.

A persistent kernel starts one program an SM and deals it tiles of query rows. Under a causal mask tile j of a head costs j + 1
blocks of keys (times 1 block), so that a deal which is fair in tiles is not fair in blocks. Time is in blocks; what an SM pays
besides blocks (a tile's start and end) is `overhead`.
"""


# --8<-- [start:orders]
def head_by_head(tiles, heads):
    """Costs in blocks, tile after tile, one head after the other: the order of a plain grid."""
    return [tile + 1 for _ in range(heads) for tile in range(tiles)]


def longest_first(tiles, heads):
    """The most expensive tile of every head first."""
    return [tile + 1 for tile in reversed(range(tiles)) for _ in range(heads)]


def dealt(costs, sms, back_and_forth=False):
    """Each SM's costs, in the order in which it works: round after round, every second round in reverse where asked."""
    queues = [[] for _ in range(sms)]
    for number, cost in enumerate(costs):
        turn, place = divmod(number, sms)
        queues[sms - 1 - place if back_and_forth and turn % 2 else place].append(cost)
    return queues


def drawn(costs, sms, overhead=0.0, speed=None):
    """Each SM's costs when a free SM draws the next tile (an atomic counter). `speed`: blocks a unit of time."""
    queues, free = [[] for _ in range(sms)], [0.0] * sms
    speed = speed or [1.0] * sms
    for cost in costs:
        sm = min(range(sms), key=free.__getitem__)
        queues[sm].append(cost)
        free[sm] += (cost + overhead) / speed[sm]
    return queues
# --8<-- [end:orders]


# --8<-- [start:simulate]
def intervals(queue, overhead=0.0, speed=1.0):
    """[(start, end, blocks)] of one SM, in time units of a block."""
    now, found = 0.0, []
    for cost in queue:
        end = now + (cost + overhead) / speed
        found.append((now, end, cost))
        now = end
    return found


def makespan(queues, overhead=0.0, speed=None):
    """When the last SM is done."""
    speed = speed or [1.0] * len(queues)
    return max((sum(queue) + overhead * len(queue)) / rate for queue, rate in zip(queues, speed, strict=True))


def utilisation(queues, overhead=0.0, speed=None):
    """Blocks done over blocks that all SMs could have done by the time the last one is done: 1 is perfect."""
    speed = speed or [1.0] * len(queues)
    return sum(map(sum, queues)) / (makespan(queues, overhead, speed) * sum(speed))
# --8<-- [end:simulate]


ORDERS = {
    "head by head, dealt": lambda tiles, heads, sms: dealt(head_by_head(tiles, heads), sms),
    "longest first, dealt": lambda tiles, heads, sms: dealt(longest_first(tiles, heads), sms),
    "longest first, back and forth": lambda tiles, heads, sms: dealt(longest_first(tiles, heads), sms, back_and_forth=True),
    "longest first, drawn": lambda tiles, heads, sms: drawn(longest_first(tiles, heads), sms),
}


def capture(device="cpu", *, sms=132, rows=128, tokens=16384, hidden=2048, head_dim=128):
    """Utilisation of each order for each length at a constant number of tokens, and one small picture of who works when."""
    lengths = {}
    for length in (512, 1024, 2048, 4096, 8192, 16384):
        tiles, heads = -(-length // rows), tokens // length * (hidden // head_dim)
        lengths[str(length)] = {name: round(utilisation(deal(tiles, heads, sms)), 4) for name, deal in ORDERS.items()}
    picture = {name: [intervals(queue) for queue in deal(8, 6, 8)] for name, deal in ORDERS.items()}
    return {"sm_count": sms, "tile_rows_count": rows, "utilisation": lengths,
            "picture": {"sm_count": 8, "tiles_count": 8, "heads_count": 6, "orders": picture}}
