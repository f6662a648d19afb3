"""The binding on the CPU device, with arrays of ctypes. $KACHEL_LIBRARY names the library."""
import ctypes as c
import math
import os
import re
import unittest

from compare import capi, kachel

PROGRAM = """tile 1
kernel shifted<T: f32 | f16, const twice: bool>(X: T[N, K], Y: out T[N, K], offset: f32)
key  bucket(N)
tune rows = 1 | 2
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, K]
  x = X[r*rows +: rows, :]
  parallel i < rows, k < K { x[i, k] = x[i, k] * (twice ? 2 : 1) + offset }
  Y[r*rows +: rows, :] = x
}
"""
N, K = 5, 12


class Layout(unittest.TestCase):
    """The structs against tests/capi/layout.cc, which writes down every offset of kachel.h."""

    def test_offsets(self):
        structs = {"device": capi.Device, "dtype": capi.Dtype, "tensor": capi.Tensor, "arg": capi.Arg,
                   "const": capi.Const, "engine_options": capi.EngineOptions, "device_info": capi.DeviceInfo,
                   "param_info": capi.ParamInfo, "launch_options": capi.LaunchOptions, "candidate": capi.Candidate,
                   "stats": capi.Stats}
        text = (capi.ROOT / "tests/capi/layout.cc").read_text()
        sizes = dict(re.findall(r"LAYOUT\(kachel_(\w+), (\d+)\)", text))
        checked = 0
        for name, struct in structs.items():
            self.assertLessEqual(c.sizeof(struct), int(sizes[name]), name)  # a newer library may have appended
        for name, field, offset in re.findall(r"FIELD\(kachel_(\w+), (\w+), (\d+)\)", text):
            if hasattr(structs.get(name), field):
                self.assertEqual(getattr(structs[name], field).offset, int(offset), f"{name}.{field}")
                checked += 1
        self.assertGreater(checked, 60)


@unittest.skipUnless(os.environ.get("KACHEL_LIBRARY"), "KACHEL_LIBRARY is not set: the binding is not tested")
class Binding(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = kachel.Engine(os.environ["KACHEL_LIBRARY"], store="", cpu_threads=1)
        cls.device = cls.engine.device(capi.CPU).device
        cls.kernel = cls.engine.kernel(PROGRAM, "shifted", {"twice": True}, "shifted.tile")

    def arrays(self):
        x = (c.c_float * (N * K))(*range(N * K))
        return x, (c.c_float * (N * K))(*[math.nan] * (N * K))

    def arguments(self, x, y, offset=0.5):
        tensors = [kachel.Argument("f32", (N, K), c.addressof(array)) for array in (x, y)]
        return self.kernel.arguments([*tensors, offset], self.device)

    def run_or_skip(self, function):
        try:
            return function()
        except kachel.KachelError as error:
            if error.status == "no device":
                self.skipTest(f"the CPU's compiler is absent: {error.message}")
            raise

    def test_every_declared_function_is_exported(self):
        library = capi.Library(os.environ["KACHEL_LIBRARY"])
        self.assertEqual(library.abi_version(), 0)
        self.assertRegex(library.version().decode(), r"^\d+\.\d+\.\d+$")

    def test_reflection(self):
        self.assertEqual(self.kernel.name, "shifted")
        self.assertEqual(self.kernel.dims, ["N", "K"])
        self.assertEqual([(p.name, p.type, p.kind, p.rank) for p in self.kernel.params],
                         [("X", "T", "in", 2), ("Y", "T", "out", 2), ("offset", "f32", "scalar", 0)])
        self.assertEqual(self.kernel.shape(1, {"N": 3, "K": 4}), (3, 4))
        with self.assertRaisesRegex(kachel.KachelError, "needs a value for K"):
            self.kernel.shape(0, {"N": 3})

    def test_a_launch_tunes_computes_and_tells_the_winner(self):
        x, y = self.arrays()
        args = self.arguments(x, y)
        self.run_or_skip(lambda: self.kernel.prepare(args, policy="blocking", budget_s=2))
        self.assertTrue(all(math.isnan(value) for value in y), "prepare must not write")
        self.kernel.launch(args)
        self.assertEqual(list(y), [2 * value + 0.5 for value in x])
        tuning = self.kernel.tuning(args)
        self.assertIn(tuning.winner, ("rows=1", "rows=2"))
        self.assertEqual(len(tuning.candidates), 2)
        self.assertGreater(tuning.total_ns, 0)
        self.assertGreaterEqual(self.engine.stats().tunings, 1)

    def test_a_bound_call_takes_other_pointers_and_scalars(self):
        x, y = self.arrays()
        call = self.run_or_skip(lambda: self.kernel.bind(self.arguments(x, y), policy="off"))
        other, result = self.arrays()
        other[0] = 100.0
        call.with_arguments(self.arguments(other, result, offset=-1.25))()
        self.assertEqual(list(result), [2 * value - 1.25 for value in other])
        self.assertTrue(all(math.isnan(value) for value in y))

    def test_strides_are_in_elements(self):
        x, y = self.arrays()
        columns = kachel.Argument("f32", (K, N), c.addressof(x), strides=(1, K))  # x transposed
        out = kachel.Argument("f32", (K, N), c.addressof(y))
        args = self.kernel.arguments([columns, out, 0.0], self.device)
        self.run_or_skip(lambda: self.kernel.launch(args, policy="off"))
        self.assertEqual(y[1], 2 * x[K])

    def test_errors_carry_the_message(self):
        with self.assertRaises(kachel.KachelError) as caught:
            self.engine.kernel("tile 1\nkernel broken(\n", file="broken.tile")
        self.assertEqual(caught.exception.status, "invalid")
        self.assertIn("broken.tile:", caught.exception.message)
        x, y = self.arrays()
        with self.assertRaisesRegex(kachel.KachelError, "takes 3 arguments, not 2"):
            self.kernel.arguments([1, 2], self.device)
        with self.assertRaisesRegex(kachel.KachelError, "no element type is called f12"):
            self.kernel.arguments([kachel.Argument("f12", (1,), 0), 0, 0], self.device)
        with self.assertRaises(kachel.KachelError):
            self.engine.kernel(PROGRAM, "shifted", {})  # a const is missing
        with self.assertRaises(kachel.KachelError) as caught:
            fresh = kachel.Engine(self.engine.library, store="").kernel(PROGRAM, None, {"twice": True})
            fresh.launch(self.arguments(x, y), policy="cached_only")
        self.assertEqual(caught.exception.status, "not cached")


if __name__ == "__main__":
    unittest.main()
