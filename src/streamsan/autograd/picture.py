"""A picture of backward passes, as SVG: streams are columns, time goes down, waits are arrows."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from streamsan.autograd.plan import ROWS, Arrow, Plan, Row

_LANE, _STEP, _BOX, _HIGH = 230, 40, 190, 26
_LEFT, _TOP = 20, 84
_FONT = "font-family='system-ui, sans-serif' font-size='12'"
_FILL = {
    "call": "#e8e8e8",
    "before": "#e8e8e8",
    "node": "#dbe9ff",
    "sum": "#fff0cc",
    "end": "#dff5e1",
    "left": "#ffe3e0",
}
_CHARACTERS = 26

_MARKER = (
    "<defs><marker id='tip' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='8' markerHeight='8'"
    " orient='auto'><path d='M0,0 L8,4 L0,8 z' fill='#b03030'/></marker></defs>"
)


def picture(passes: Sequence[Plan]) -> str:
    """An SVG document with `passes` one below the other."""
    parts: list[str] = []
    width, top = 2 * _LEFT + _LANE, 0
    for plan in passes:
        parts.append(f"<g transform='translate(0,{top})'>{_one(plan)}</g>")
        width = max(width, 2 * _LEFT + _LANE * len(plan.streams), 8 * len(_title(plan)))
        top += _TOP + _STEP * (min(len(plan.rows), ROWS) + 1)
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{top}'"
        f" viewBox='0 0 {width} {top}' {_FONT}>"
    )
    ground = f"<rect width='{width}' height='{top}' fill='white'/>"
    return "\n".join([head, _MARKER, ground, *parts, "</svg>"]) + "\n"


def _title(plan: Plan) -> str:
    return f"backward pass at {plan.site}, engine {plan.policy}"


def _one(plan: Plan) -> str:
    rows = plan.rows[:ROWS]
    lanes = {stream: _LEFT + _LANE * n + _LANE // 2 for n, stream in enumerate(plan.streams)}
    bottom = _TOP + _STEP * len(rows)
    parts = [_text(_LEFT, 24, _title(plan), "font-weight='bold'")]
    if plan.remark:
        parts.append(_text(_LEFT, 42, plan.remark, "fill='#555'"))
    for stream, x in lanes.items():
        parts.append(_text(x, _TOP - 20, _short(stream), "text-anchor='middle' fill='#333'"))
        parts.append(f"<line x1='{x}' x2='{x}' y1='{_TOP - 12}' y2='{bottom}' stroke='#bbb'/>")
    arrows = [_arrow(lanes, n, row, arrow) for n, row in enumerate(rows) for arrow in row.waits]
    parts += [line for line, _ in arrows]  # below the boxes that they pass, their rules above
    parts += [_box(lanes[row.stream], _middle(number), row) for number, row in enumerate(rows)]
    parts += [rule for _, rule in arrows]
    if len(plan.rows) > ROWS:
        parts.append(_text(_LEFT, bottom + 20, f"… {len(plan.rows) - ROWS:,} more"))
    return "\n".join(parts)


def _middle(row: int) -> int:
    return _TOP + _STEP * row + _STEP // 2


def _box(x: int, y: int, row: Row) -> str:
    corner, top = x - _BOX // 2, y - _HIGH // 2
    left = row.kind == "left"
    edge = "#b03030' stroke-dasharray='4 3" if left else "#777"
    label = f"{row.label}, waits for nothing" if left else row.label
    return (
        f"<rect x='{corner}' y='{top}' width='{_BOX}' height='{_HIGH}' rx='5'"
        f" fill='{_FILL[row.kind]}' stroke='{edge}'/>"
        f"<title>{escape(row.stream)}</title>"
        + _text(x, y + 4, _short(label), "text-anchor='middle'")
    )


def _arrow(lanes: dict[str, int], number: int, row: Row, arrow: Arrow) -> tuple[str, str]:
    """From the box that the event was recorded after to the one that waits; and the rule."""
    start, end = lanes[arrow.mark.stream], lanes[row.stream]
    side = 1 if end > start else -1
    x1, y1 = start + side * _BOX // 2, _middle(arrow.mark.row)
    x2, y2 = end - side * _BOX // 2, _middle(number)
    line = (
        f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='#b03030' stroke-width='1.5'"
        f" marker-end='url(#tip)'/>"
    )
    x, y = (x1 + x2) // 2 + 4, (y1 + y2) // 2 - 4
    halo = _text(x, y, arrow.rule, "stroke='white' stroke-width='3'")
    return line, halo + _text(x, y, arrow.rule, "fill='#b03030'")


def _text(x: int, y: int, text: str, style: str = "") -> str:
    return f"<text x='{x}' y='{y}' {style}>{escape(text)}</text>"


def _short(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
