"""Charts of what run.py measured, as SVG: bars for ways side by side, lines over a number."""

import html
import math

# Told apart with any kind of colour vision; after Okabe and Ito, "Color Universal Design" (2008).
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 760, 400, 60, 84, 46, 24


def text(x, y, words, attributes=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{html.escape(str(words))}</text>'


def step_of(largest):
    """The distance of grid lines: 1, 2 or 5 times a power of ten, so that there are four to ten."""
    power = 10 ** math.floor(math.log10(largest / 4))
    return next(factor * power for factor in (5, 2, 1) if largest / (factor * power) >= 4)


def frame(title, subtitle, ways, largest, unit):
    """The paper, its titles, legend and grid. Returns the lines of the drawing, and where a value stands."""
    step = step_of(largest)
    top = math.ceil(largest / step) * step
    plot = HEIGHT - TOP - BOTTOM
    y = lambda value: HEIGHT - BOTTOM - value / top * plot
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        "font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"#222\">",
        '<rect width="100%" height="100%" fill="#fff"/>',
        text(20, 26, title, 'font-size="17" font-weight="600"'),
        text(20, 44, subtitle, 'fill="#666"'),
    ]
    x = 20
    for colour, way in zip(COLOURS, ways):
        out += [f'<rect x="{x}" y="55" width="12" height="12" fill="{colour}"/>', text(x + 17, 66, way)]
        x += 34 + 7 * len(way)
    decimals = max(0, -math.floor(math.log10(step)))
    for tick in range(round(top / step) + 1):
        value = tick * step
        stroke = "#e4e4e4" if tick else "#888"
        out.append(f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}" stroke="{stroke}"/>')
        out.append(text(LEFT - 6, y(value) + 4, f"{value:.{decimals}f}", 'text-anchor="end" fill="#666"'))
    out.append(text(LEFT - 6, TOP - 14, unit, 'text-anchor="end" fill="#666"'))
    return out, y


def bars(title, subtitle, ways, groups, unit="s"):
    """`groups`: a name, and by way a value or None. The value stands above each bar."""
    largest = max(value for _, values in groups for value in values if value is not None)
    out, y = frame(title, subtitle, ways, largest, unit)
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    width = min(40.0, room * 0.8 / len(ways))
    for at, (name, values) in enumerate(groups):
        middle = LEFT + (at + 0.5) * room
        out.append(text(middle, HEIGHT - BOTTOM + 18, name, 'text-anchor="middle"'))
        there = [(colour, value) for colour, value in zip(COLOURS, values) if value is not None]
        for bar, (colour, value) in enumerate(there):
            x = middle + (bar - len(there) / 2) * width
            height = HEIGHT - BOTTOM - y(value)
            out.append(f'<rect x="{x:.1f}" y="{y(value):.1f}" width="{width - 2:.1f}" height="{height:.1f}" fill="{colour}"/>')
            label = f"{value:.1f}" if value >= 10 else f"{value:.2f}"
            out.append(text(x + width / 2 - 1, y(value) - 4, label, 'text-anchor="middle" font-size="10"'))
    return "\n".join(out + ["</svg>", ""])


def lines(title, subtitle, ways, points, axis, unit="s"):
    """`points`: a label of the x axis, and by way a value or None. Labels are as far from one another as the next."""
    largest = max(value for _, values in points for value in values if value is not None)
    out, y = frame(title, subtitle, ways, largest, unit)
    room = (WIDTH - LEFT - RIGHT) / max(1, len(points))
    x = lambda at: LEFT + (at + 0.5) * room
    for at, (label, _) in enumerate(points):
        out.append(text(x(at), HEIGHT - BOTTOM + 16, label, 'text-anchor="middle"'))
    out.append(text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 10, axis, 'text-anchor="middle" fill="#666"'))
    for way, colour in zip(range(len(ways)), COLOURS):
        there = [(x(at), y(values[way]), values[way]) for at, (_, values) in enumerate(points) if values[way] is not None]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in there)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for a, b, value in there:
            out.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>')
            label = f"{value:.1f}" if value >= 10 else f"{value:.2f}"
            out.append(text(a, b - 8, label, 'text-anchor="middle" font-size="10"'))
    return "\n".join(out + ["</svg>", ""])
