"""Draws docs/peers.svg, the chart of the README, from figures of docs/benchmarks.md: python3 docs/peers.py"""

from pathlib import Path

# Seconds for the 22 queries of TPC-H: "TPC-H at scale 1, embedded against peers" and "TPC-H on ranks, two cores".
GROUPS = [
    ("alone, scale 1", [("Harrier", 6.71), ("DataFusion 55", 7.79), ("DuckDB 2", 4.30)]),
    ("alone, scale 10", [("Harrier", 41.6), ("DataFusion 55", 75.9)]),
    ("2 ranks, scale 1", [("MPI", 2.52), ("gRPC, uncompressed", 5.35), ("gRPC, lz4", 5.79)]),
    ("2 ranks, scale 10", [("MPI", 36.3), ("gRPC, uncompressed", 45.1), ("gRPC, lz4", 51.2)]),
]
WIDTH, LEFT, LONGEST = 760, 270, 400

STYLE = """text{font:13px sans-serif;fill:#24292f}.group{font-weight:600}.name{text-anchor:end}.value{fill:#57606a}
.own{fill:#0969da}.peer{fill:#afb8c1}"""


def main():
    y, parts = 20, []
    for group, bars in GROUPS:
        parts.append(f'<text x="12" y="{y + 13}" class="group">{group}</text>')
        most = max(seconds for _, seconds in bars)
        for number, (name, seconds) in enumerate(bars):
            length = seconds / most * LONGEST
            shown = f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
            parts.append(f'<text x="{LEFT - 8}" y="{y + 13}" class="name">{name}</text>')
            kind = "peer" if number else "own"
            parts.append(f'<rect x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="15" class="{kind}"/>')
            parts.append(f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}" class="value">{shown}</text>')
            y += 21
        y += 14
    label = "Seconds for the 22 queries of TPC-H, Harrier and its peers"
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img" '
            f'aria-label="{label}">')
    background = f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>'
    svg = "\n".join([head, f"<style>{STYLE}</style>", background, *parts, "</svg>", ""])
    Path(__file__).with_name("peers.svg").write_text(svg)


if __name__ == "__main__":
    main()
