"""The rows against the programs that they name: whatever changes in examples/ is noticed before a GPU is."""
import collections
import contextlib
import io
import os
import unittest

from compare import capi, kachel, main, row, table


class Rows(unittest.TestCase):
    def test_names_are_unique_and_work_is_counted(self):
        names = collections.Counter((one.device, one.name) for one in table.rows())
        self.assertEqual([name for name, count in names.items() if count > 1], [])
        for one in table.rows():
            self.assertIn(one.type, row.TOLERANCES, one.name)
            self.assertGreater(one.bytes, 0, one.name)
            self.assertTrue(one.peers, one.name)
            self.assertEqual(one.threads > 0, one.device == "cpu", one.name)

    def test_selection(self):
        rows = table.rows()
        self.assertEqual({one.group for one in row.select(rows, "cuda", ["norm", "gemv"])}, {"norm", "gemv"})
        self.assertEqual([one.name for one in row.select(rows, "cuda", ["matmul 4096^3 *", "matmul 4096^3 f16"])],
                         ["matmul 4096^3 f16", "matmul 4096^3 bf16"])
        self.assertEqual({one.device for one in row.select(rows, "cpu")}, {"cpu"})
        self.assertTrue(all(one.quick for one in row.select(rows, "cuda", quick=True)))
        with self.assertRaisesRegex(ValueError, "no row for cuda matches 'matmull'; groups: matmul, "):
            row.select(rows, "cuda", ["matmull"])

    def test_peers_are_left_out(self):
        rows = row.select(table.rows(), "cuda", ["matmul"])
        self.assertEqual({peer for each in row.only_peers(rows, ["cu*"]) for peer in each.peers}, {"cuBLAS"})
        self.assertEqual(row.only_peers(rows, []), rows)
        with self.assertRaises(ValueError):
            row.only_peers(rows, ["nobody"])

    def test_rates(self):
        one, = row.select(table.rows(), "cuda", ["matmul 4096^3 f16"])
        self.assertAlmostEqual(one.rate(183.25), 750.0, delta=0.1)
        self.assertEqual(one.unit, "TFLOP/s")

    def test_the_command_lists_and_refuses(self):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.assertEqual(main.main(["--list", "--device", "cpu"]), 0)
            self.assertEqual(main.main(["--device", "cpu", "--rows", "nothing"]), 2)
        self.assertIn("matmul 512^3 f32 1t", out.getvalue())
        self.assertIn("no row for cpu matches 'nothing'", err.getvalue())

    @unittest.skipUnless(os.environ.get("KACHEL_LIBRARY"), "KACHEL_LIBRARY is not set: programs are not looked at")
    def test_every_row_fits_its_program(self):
        engine = kachel.Engine(os.environ["KACHEL_LIBRARY"], store="")
        for one in table.rows():
            with self.subTest(one.name):
                dims = dict(one.dims)
                names, used = set(), set()
                for step in one.steps:
                    kernel = engine.kernel((capi.ROOT / step.program).read_text(), step.kernel, step.consts,
                                           step.program)
                    used |= set(kernel.dims)
                    for index, param in enumerate(kernel.params):
                        names.add(param.name)
                        if param.kind == "scalar":
                            self.assertIn(param.name, one.scalars)
                        else:
                            self.assertIn(one.types.get(param.type, param.type), row.SIZES)
                            self.assertTrue(all(extent > 0 for extent in kernel.shape(index, dims)))
                            self.assertNotEqual(param.kind, "inout", "a row must be repeatable")
                self.assertEqual(used, set(dims), "every dimension is the kernel's")
                self.assertLessEqual({one.output, *one.fills}, names)

    def test_peers_and_references_exist(self):
        registries = {}
        try:
            from compare import peers_cpu
            registries["cpu"] = (peers_cpu.PEERS, peers_cpu.REFERENCES)
        except ImportError as error:
            print(f"SKIPPED: peers on the CPU: {error}")
        try:
            from compare import cuda, fills_torch
            registries["cuda"] = (cuda.PEERS, cuda.REFERENCES)
        except ImportError as error:
            print(f"SKIPPED: peers on CUDA: {error}")
        if not registries:
            self.skipTest("neither numpy nor torch")
        for one in table.rows():
            if one.device in registries:
                peers, references = registries[one.device]
                self.assertIn(one.reference, references, one.name)
                self.assertLessEqual(set(one.peers), set(peers), one.name)
            if "cuda" in registries:
                for fill in one.fills.values():
                    self.assertIn(fill if isinstance(fill, str) else fill[0], fills_torch.FILLS, one.name)


if __name__ == "__main__":
    unittest.main()
