"""Tables, JSON, the plots, and `--render`."""
import contextlib
import io
import math
import os
import tempfile
import unittest
import xml.etree.ElementTree as xml

from compare import main, report, svg
from compare.tests.results import FAILED, result, row, side


class Tables(unittest.TestCase):
    def test_a_line_for_each_peer(self):
        lines = report.aligned([row()]).split("\n")
        self.assertEqual(len(lines), 3)
        self.assertIn("0.963 [0.934..0.982]", lines[1])
        self.assertIn("Triton", lines[2])
        self.assertEqual(lines[1].index("0.963"), lines[2].index("1.263"), "aligned")

    def test_what_is_wrong_absent_or_failed_is_said(self):
        wrong = row(shape="a", sides={"Kachel": side(1.0, check=False, error=math.nan), "cuBLAS": side(1.0, 1.0)})
        absent = row(shape="b", sides={"Kachel": side(1.0)}, skipped={"cuDNN": "no kernel"})
        text = report.aligned([wrong, absent, FAILED])
        for expected in ("WRONG NaN", "absent", "FAILED", "compile: no candidate compiled"):
            self.assertIn(expected, text)
        self.assertNotIn("and more", text)
        reasons = "\n".join(report.reasons([wrong, absent, FAILED]))
        for expected in ("Kachel is WRONG", "no cuDNN: no kernel", "Kachel FAILED", "and more"):
            self.assertIn(expected, reasons)

    def test_numbers(self):
        self.assertEqual([report.number(value) for value in (1234.5, 123.45, 12.345, 1.2345, math.nan, None)],
                         ["1234", "123.5", "12.35", "1.234", "-", "-"])
        self.assertEqual(report.rate(0.2, "TFLOP/s"), "200.0 GFLOP/s")
        self.assertEqual(report.rate(4.2, "TB/s"), "4.200 TB/s")

    def test_markdown_keeps_its_columns(self):
        text = report.markdown([result(row(), FAILED)], plots="plots")
        table = [line for line in text.split("\n") if line.startswith("|")]
        self.assertEqual({line.replace("\\|", "").count("|") for line in table}, {len(report.HEADS)})
        self.assertIn("![matmul](plots/cuda_matmul.svg)", text)
        self.assertIn("a made-up GPU, driver 1.2, 2026-01-02, commit 0123456789ab", text)

    def test_json_goes_round_without_nan(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            report.write_json(path, result(row(kachel_us=math.nan)))
            self.assertIsNone(report.read_json(path)["rows"][0]["kachel_us"])
            self.assertEqual(os.listdir(folder), ["out.json"])
            report.write_json(path, {"schema": 2})
            with self.assertRaisesRegex(ValueError, "not a result"):
                report.read_json(path)


class Plots(unittest.TestCase):
    def test_a_plot_is_xml_with_a_dot_for_each_ratio(self):
        root = xml.fromstring(svg.draw("a < b", [row(), row(shape="<&>")]))
        dots = [e for e in root.iter("{http://www.w3.org/2000/svg}circle") if e.get("r") == "3.5"]
        self.assertEqual(len(dots), 4)
        self.assertLess(float(dots[0].get("cx")), float(dots[1].get("cx")), "0.963 is left of 1.263")
        width = float(root.get("width"))
        self.assertTrue(all(svg.LABELS <= float(dot.get("cx")) <= width for dot in dots))

    def test_limits_hold_the_whiskers_and_one(self):
        self.assertEqual(svg.bounds([("", [("p", 0.06, 0.05, 0.07)])]), (0.05, 1.1))
        self.assertEqual(svg.bounds([("", [("p", 300.0, 200.0, 400.0)])]), (0.9, 400.0))
        for low, high in ((0.02, 50), (0.9, 1.1), (0.05, 1.1)):
            ticks = svg.chosen_ticks(low, high)
            self.assertIn(1, ticks)
            self.assertLessEqual(len(ticks), 9)

    def test_nothing_to_draw(self):
        self.assertEqual(svg.draw("empty", [FAILED]), "")
        self.assertEqual(svg.draw("empty", [row(sides={"Kachel": side(1.0)})]), "")


class Render(unittest.TestCase):
    def test_results_become_markdown_and_plots(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("a.json", "b.json")]
            report.write_json(paths[0], result(row()))
            report.write_json(paths[1], result(row(group="norm", shape="softmax")))
            printed = io.StringIO()
            plots = os.path.join(folder, "plots")
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(main.main(["--render", *paths, "--plots", plots]), 0)
            self.assertEqual(sorted(os.listdir(plots)), ["cuda_matmul.svg", "cuda_norm.svg"])
            self.assertIn("plots/cuda_norm.svg", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
