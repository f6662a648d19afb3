"""The few statistics that a comparison needs. Rounds are paired: side A and side B of one round ran right after each
other, so that drift of clock or temperature meets both; what is reported is the median of the rounds' ratios."""
import math


def median(values):
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no samples")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def spread(values):
    """{median, min, max} of the samples."""
    return {"median": median(values), "min": min(values), "max": max(values)}


def paired_ratios(peer, ours):
    """Peer's time over ours for each round: above 1, Kachel is the quicker one."""
    if len(peer) != len(ours):
        raise ValueError("both sides need a sample of each round")
    return [p / o for p, o in zip(peer, ours)]


def worse(one, other):
    """The larger of two errors; NaN if either is, which max() does not promise."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def repetitions(estimate_us, block_ms, least=1, most=100000):
    """How many runs of `estimate_us` fill a block of `block_ms`; never fewer than `least`."""
    if not estimate_us > 0:
        return least
    return max(least, min(most, math.ceil(block_ms * 1000 / estimate_us)))


def rotating_sets(set_bytes, cache_bytes, memory_bytes, most=256):
    """How many sets of buffers make a walk over all of them four times as large as the cache, within memory: one
    where a single set is as large as that already."""
    wanted = math.ceil(4 * cache_bytes / max(1, set_bytes))
    return max(1, min(wanted, most, int(memory_bytes // max(1, set_bytes))))
