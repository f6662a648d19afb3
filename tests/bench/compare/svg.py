"""Plots as SVG text, without a library: one line a row, a dot for each peer at the median of its ratio, a whisker
from the least to the greatest round, and a rule at 1. Log scale: half as quick and twice as quick are equally far."""
import math
from xml.sax.saxutils import escape

COLOURS = ("#1f6fb4", "#d1662c", "#3d8f4f", "#8657a8", "#777777", "#b8a12c", "#c2548f")
LABELS, PLOT, LINE, TOP, FONT = 270, 520, 24, 46, 12
TICKS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50)


def points_of(rows):
    """[(label, [(peer, median, min, max)])] of the rows that have a peer."""
    found = []
    for row in rows:
        if "failed" in row:
            continue
        threads = f" {row['threads']}t" if row.get("threads") else ""
        peers = [(name, side["ratio"]["median"], side["ratio"]["min"], side["ratio"]["max"])
                 for name, side in row["sides"].items() if "ratio" in side]
        if peers:
            found.append((f"{row['shape']} {row['type']}{threads}", peers))
    return found


def bounds(points):
    """Round limits around every whisker, 1 among them."""
    low = min([0.9] + [low for _, peers in points for _, _, low, _ in peers])
    high = max([1.1] + [high for _, peers in points for _, _, _, high in peers])
    below = [tick for tick in TICKS if tick <= low]
    above = [tick for tick in TICKS if tick >= high]
    return (below[-1] if below else low), (above[0] if above else high)


def chosen_ticks(low, high, most=9):
    """1 and, evenly thinned, the ticks between the limits."""
    inside = [tick for tick in TICKS if low <= tick <= high]
    while len(inside) > most:
        keep = inside.index(1) % 2
        inside = [tick for i, tick in enumerate(inside) if i % 2 == keep]
    return inside


def draw(title, rows):
    """The SVG of one group, or "" where there is nothing to draw."""
    points = points_of(rows)
    if not points:
        return ""
    names = list(dict.fromkeys(name for _, peers in points for name, *_ in peers))
    low, high = bounds(points)
    scale = PLOT / (math.log(high) - math.log(low))

    def x(value):
        return LABELS + (math.log(value) - math.log(low)) * scale

    height = TOP + LINE * len(points) + 54
    width = LABELS + PLOT + 40
    bottom = TOP + LINE * len(points)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="{FONT}">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           f'<text x="12" y="20" font-size="14" font-weight="bold">{escape(title)}</text>']
    at = LABELS
    for name, colour in zip(names, colours(names)):
        out.append(f'<circle cx="{at}" cy="32" r="4" fill="{colour}"/>'
                   f'<text x="{at + 8}" y="36">{escape(name)}</text>')
        at += 26 + 7 * len(name)
    out += [f'<rect x="0" y="{TOP + LINE * i}" width="{width}" height="{LINE}" fill="#f5f5f5"/>'
            for i in range(1, len(points), 2)]
    for tick in chosen_ticks(low, high):
        colour, weight = ("#222222", 1.5) if tick == 1 else ("#dddddd", 1)
        out.append(f'<line x1="{x(tick):.1f}" y1="{TOP}" x2="{x(tick):.1f}" y2="{bottom}" stroke="{colour}" '
                   f'stroke-width="{weight}"/><text x="{x(tick):.1f}" y="{bottom + 16}" '
                   f'text-anchor="middle">{tick:g}</text>')
    for index, (label, peers) in enumerate(points):
        middle = TOP + LINE * index + LINE / 2
        out.append(f'<text x="{LABELS - 10}" y="{middle + 4:.1f}" text-anchor="end">{escape(label)}</text>')
        for name, median, least, most in peers:
            where = names.index(name)
            y = middle + (where - (len(names) - 1) / 2) * min(6, (LINE - 6) / max(1, len(names)))
            colour = colours(names)[where]
            out.append(f'<line x1="{x(least):.1f}" y1="{y:.1f}" x2="{x(most):.1f}" y2="{y:.1f}" stroke="{colour}" '
                       f'stroke-width="1.5"/><circle cx="{x(median):.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">'
                       f'<title>{escape(f"{label}, {name}: {median:.3f} [{least:.3f}..{most:.3f}]")}</title></circle>')
    out.append(f'<text x="{LABELS + PLOT / 2}" y="{bottom + 38}" text-anchor="middle">'
               "peer's time / Kachel's time: right of 1, Kachel is quicker</text></svg>")
    return "\n".join(out) + "\n"


def colours(names):
    return [COLOURS[i % len(COLOURS)] for i in range(len(names))]


def write_plots(folder, rows, plot_name):
    """One file for each group of rows; returns their paths."""
    import os
    os.makedirs(folder, exist_ok=True)
    written = []
    for device, group in dict.fromkeys((row["device"], row["group"]) for row in rows):
        text = draw(f"{group}, {device}", [r for r in rows if (r["device"], r["group"]) == (device, group)])
        if text:
            written.append(os.path.join(folder, plot_name(device, group)))
            with open(written[-1], "w", encoding="utf-8") as file:
                file.write(text)
    return written
