"""A result as text: aligned columns for a terminal, Markdown for docs/performance.md, and JSON. All from one table of
cells, so that they cannot say different things. A ratio is the peer's time over Kachel's: above 1 Kachel is quicker."""
import json
import math

HEADS = ("row", "shape", "type", "Kachel µs", "rate", "peer", "peer µs", "ratio [min..max]", "configuration", "error")
RIGHT = {3, 4, 6, 7, 9}


def number(value):
    """Three or four digits, without an exponent."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}" if value >= 10 \
        else f"{value:.3f}"


def rate(value, unit):
    """Below one of a unit, in the next smaller one: TFLOP/s and GFLOP/s, TB/s and GB/s."""
    return f"{number(value)} {unit}" if value >= 1 else f"{number(value * 1000)} G{unit[1:]}"


def checked(check):
    if check is None:
        return "-"
    error = check["norm"]
    text = "NaN" if error is None or math.isnan(error) else f"{error:.0e}" if error else "0"
    return text if check["ok"] else f"WRONG {text}"


def cells_of(row):
    """One line for each peer of a row; one with a dash where there is none; the reason where Kachel failed."""
    start = [row["group"], row["shape"], row["type"] + (f" {row['threads']}t" if row.get("threads") else "")]
    if "failed" in row:
        return [start + ["FAILED", "-", "-", "-", "-", row["failed"].split("\n")[0][:80], "-"]]
    ours = row["sides"]["Kachel"]
    own = [number(row["kachel_us"]), rate(ours["rate"], row["unit"])]
    mark = "" if ours["mode"] in ("graph", "calls") else " (launches)"
    tail = [row["winner"] + mark, checked(ours["check"])]
    lines = []
    for name, side in row["sides"].items():
        if name == "Kachel":
            continue
        ratio, wrong = side["ratio"], side["check"] is not None and not side["check"]["ok"]
        text = f"{ratio['median']:.3f} [{ratio['min']:.3f}..{ratio['max']:.3f}]"
        lines.append(start + own + [name + (" WRONG" if wrong else ""), number(side["median_us"]), text] + tail)
    for name, why in row["skipped"].items():
        lines.append(start + own + [name, "failed" if why.startswith("failed") else "absent", "-"] + tail)
    return lines or [start + own + ["-", "-", "-"] + tail]


def aligned(rows):
    """For a terminal."""
    lines = [list(HEADS)] + [cells for row in rows for cells in cells_of(row)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
    return "\n".join("  ".join(cell.rjust(width) if i in RIGHT else cell.ljust(width)
                               for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines)


def reasons(rows):
    """Why something is missing, once for each reason, loud."""
    found = {}
    for row in rows:
        if "failed" in row:
            found.setdefault(("Kachel FAILED", row["failed"]), []).append(row["name"])
            continue
        for peer, why in row["skipped"].items():
            found.setdefault((f"no {peer}", why), []).append(row["name"])
        for name, side in row["sides"].items():
            if side["check"] is not None and not side["check"]["ok"]:
                check = side["check"]
                found.setdefault((f"{name} is WRONG", f"error {check['norm']}, worst element {check['worst']}, "
                                  f"allowed {check['allowed']}"), []).append(row["name"])
    return [f"{what}: {why}\n    in {', '.join(names)}" for (what, why), names in found.items()]


def markdown(results, plots=None):
    """Tables by group, the newest result last; `plots` is the folder of the plots as the page sees it."""
    parts = []
    for result in results:
        device, method = result["device"], result["method"]
        where = ", ".join(filter(None, (device["name"], f"driver {device['driver']}" if device["driver"] else "",
                                        result["date"][:10], f"commit {result['commit']}")))
        tools = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        parts.append(f"{where}. {tools}. {method['rounds']} rounds of {method['block_ms']:g} ms.\n\n"
                     f"    {result['command']}\n")
    rows = [row for result in results for row in result["rows"]]
    for group in dict.fromkeys((row["device"], row["group"]) for row in rows):
        mine = [row for row in rows if (row["device"], row["group"]) == group]
        if plots:
            parts.append(f"![{group[1]}]({plots}/{plot_name(*group)})\n")
        parts.append("| " + " | ".join(HEADS[1:]) + " |\n|" +
                     "|".join("--:" if i in RIGHT else "---" for i in range(1, len(HEADS))) + "|")
        parts[-1] += "".join("\n| " + " | ".join(cell.replace("|", "\\|") for cell in cells[1:]) + " |"
                             for row in mine for cells in cells_of(row)) + "\n"
    return "\n".join(parts)


def plot_name(device, group):
    return f"{device}_{group}.svg"


def plain(value):
    """NaN and infinities, which JSON has not, as null."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path, result):
    """At once or not at all, so that an interrupted run leaves the rows that it had."""
    import os
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(plain(result), file, indent=1, ensure_ascii=False)
        file.write("\n")
    os.replace(f"{path}.new", path)


def read_json(path):
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    if result.get("schema") != 1:
        raise ValueError(f"{path} is not a result of this version")
    return result
