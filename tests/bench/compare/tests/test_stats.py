import math
import unittest

from compare import machine, stats


class Statistics(unittest.TestCase):
    def test_median(self):
        self.assertEqual(stats.median([3, 1, 2]), 2)
        self.assertEqual(stats.median([4, 1, 2, 3]), 2.5)
        with self.assertRaises(ValueError):
            stats.median([])

    def test_ratios_are_paired_by_round(self):
        # A clock that halves in the second round: both sides take twice as long, and the ratio does not see it.
        self.assertEqual(stats.paired_ratios([10, 20, 10], [5, 10, 5]), [2, 2, 2])
        self.assertEqual(stats.spread([1.0, 3.0, 2.0]), {"median": 2.0, "min": 1.0, "max": 3.0})
        with self.assertRaises(ValueError):
            stats.paired_ratios([1], [1, 2])

    def test_blocks_are_filled(self):
        self.assertEqual(stats.repetitions(100, 20), 200)
        self.assertEqual(stats.repetitions(1e9, 20), 1)
        self.assertEqual(stats.repetitions(0, 20), 1)
        self.assertEqual(stats.repetitions(1e-9, 20, most=50), 50)

    def test_buffers_rotate_until_the_cache_is_cold(self):
        cache = 60 << 20
        self.assertEqual(stats.rotating_sets(1 << 20, cache, 1 << 40), 240)
        self.assertEqual(stats.rotating_sets(1 << 10, cache, 1 << 40), 256, "bounded")
        self.assertEqual(stats.rotating_sets(1 << 40, cache, 1 << 41), 1)
        self.assertEqual(stats.rotating_sets(1 << 20, cache, 3 << 20), 3, "by memory")

    def test_an_error_that_is_nan_stays_nan(self):
        self.assertTrue(math.isnan(stats.worse(math.nan, 1.0)))
        self.assertTrue(math.isnan(stats.worse(1.0, math.nan)))
        self.assertEqual(stats.worse(0.5, 0.25), 0.5)

    def test_what_nvidia_smi_says(self):
        state = machine.parse_smi("1980, 3201, 41, 688.12, 0x0000000000000004\n")
        self.assertEqual(state["clocks.sm"], "1980")
        self.assertEqual(machine.throttles(state), ["power cap"])
        self.assertEqual(machine.throttles({"clocks_event_reasons.active": "0x0000000000000001"}), [])
        self.assertEqual(machine.throttles({}), [])
        self.assertEqual(machine.throttles({"clocks_event_reasons.active": "[N/A]"}), [])
        self.assertEqual(machine.parse_smi("No devices were found"), {})


if __name__ == "__main__":
    unittest.main()
