"""A bar chart of ratios with their targets, as SVG for light and dark backgrounds."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LEFT, RIGHT, TOP, STEP, BAR = 760, 270, 60, 64, 28, 16

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .quiet { font-size: 12px } .value, .title { font-weight: 600 } .title { font-size: 15px }
  .target { stroke-width: 2 }
  text { fill: #1f2328 } .quiet { fill: #59636e } .page { fill: #ffffff }
  .grid { stroke: #d1d9e0 } .target { stroke: #1f2328 }
  .bar { fill: #2f6fd0 } .missed { fill: #c4501b } .plain { fill: #8a94a0 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 } .page { fill: #0d1117 }
    .grid { stroke: #30363d } .target { stroke: #e6edf3 }
    .bar { fill: #5b9bff } .missed { fill: #f0883e } .plain { fill: #6e7681 }
  }
"""


class Ratio(NamedTuple):
    title: str
    value: float
    target: float | None


def draw(ratios: Sequence[Ratio], title: str, subtitle: str, footer: str) -> str:
    bottom = TOP + STEP * len(ratios)
    height = bottom + 52
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text class="title" x="20" y="30">{escape(title)}</text>',
        f'<text class="quiet" x="20" y="48">{escape(subtitle)}</text>',
        *_grid(bottom),
    ]
    for number, ratio in enumerate(ratios):
        parts += _bar(ratio, TOP + STEP * number)
    parts.append(f'<text class="quiet" x="20" y="{height - 14}">{escape(footer)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(ratio: float) -> float:
    """The horizontal position of a ratio; bars above 1.1 are cut off."""
    return round(LEFT + min(ratio, 1.1) / 1.1 * (WIDTH - LEFT - RIGHT), 1)


def _grid(bottom: int) -> list[str]:
    lines = []
    for tenths in (0, 2, 4, 6, 8, 10):
        x = _x(tenths / 10)
        lines.append(f'<path class="grid" d="M{x} {TOP - 4}V{bottom}"/>')
        lines.append(
            f'<text class="quiet" x="{x}" y="{bottom + 16}" text-anchor="middle">'
            f"{tenths / 10:.1f}</text>"
        )
    return lines


def _bar(ratio: Ratio, top: int) -> list[str]:
    title, value, target = ratio
    kind = "plain" if target is None else "bar" if value >= target else "missed"
    y, end = top + (STEP - BAR) // 2, _x(value)
    text_y = y + BAR - 3
    parts = [
        f'<text x="{LEFT - 12}" y="{text_y}" text-anchor="end">{escape(title)}</text>',
        f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{max(end - LEFT, 1):.1f}" '
        f'height="{BAR}" rx="2"/>',
    ]
    if target is not None:
        parts.append(f'<path class="target" d="M{_x(target)} {y - 3}v{BAR + 6}"/>')
    parts.append(
        f'<text class="value" x="{WIDTH - 20}" y="{text_y}" text-anchor="end">{value:.2f}</text>'
    )
    return parts
