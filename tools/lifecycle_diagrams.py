"""`python -m tools.lifecycle_diagrams`: draws the states of each wire into docs/img/life-*.svg.

Plain SVG without scripts, readable on light and dark pages; shown by docs/lifecycle.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

IMAGES: Final = Path(__file__).parent.parent / "docs" / "img"
_WIDTH: Final = 140
_HEIGHT: Final = 40
_COLUMN: Final = 226
_ROW: Final = 92
_MARGIN: Final = 16
_STYLE: Final = """\
text{font:13px system-ui,sans-serif;fill:#1c1e21}
.t{font-size:11.5px;fill:#57606a;paint-order:stroke;stroke:#fff;stroke-width:3px}
rect{fill:#fff;stroke:#57606a;stroke-width:1.3}.end rect{fill:#f0f2f4;stroke-width:2.2}
path{fill:none;stroke:#57606a;stroke-width:1.3}.h{fill:#57606a;stroke:none}
@media(prefers-color-scheme:dark){text{fill:#e6e8ea}.t{fill:#a0a8b0;stroke:#1e2129}
rect{fill:#1f2328;stroke:#a0a8b0}.end rect{fill:#30363d}path{stroke:#a0a8b0}.h{fill:#a0a8b0}}"""


@dataclass(frozen=True, slots=True)
class Edge:
    """A transition. `bend` moves the middle of its line, in pixels; `shift` its text."""

    source: str
    target: str
    text: str
    bend: tuple[int, int] = (0, 0)
    shift: tuple[int, int] = (0, -9)


@dataclass(frozen=True, slots=True)
class Diagram:
    """States by column and row, and the transitions between them."""

    states: Mapping[str, tuple[float, float]]
    ends: Sequence[str]
    edges: Sequence[Edge]

    def svg(self) -> str:
        width = int(max(x for x, _ in self.states.values()) * _COLUMN) + _WIDTH + 2 * _MARGIN
        lowest = [self._center(name)[1] + _HEIGHT // 2 for name in self.states]
        lowest += [int(self._middle(edge)[1] + edge.shift[1]) + 14 for edge in self.edges]
        height = max(lowest) + _MARGIN
        lines = [*self._edges(), *self._boxes()]
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">'
        )
        arrow = (
            '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path class="h" d="M0 0L8 4L0 8z"/></marker>'
        )
        return "\n".join([head, f"<style>{_STYLE}</style>", arrow, *lines, "</svg>\n"])

    def _boxes(self) -> Iterator[str]:
        for name in self.states:
            x, y = self._center(name)
            kind = ' class="end"' if name in self.ends else ""
            yield (
                f'<g{kind}><rect x="{x - _WIDTH // 2}" y="{y - _HEIGHT // 2}" width="{_WIDTH}" '
                f'height="{_HEIGHT}" rx="7"/><text x="{x}" y="{y + 5}" '
                f'text-anchor="middle">{escape(name)}</text></g>'
            )

    def _edges(self) -> Iterator[str]:
        for edge in self.edges:
            (x1, y1), (x2, y2) = self._center(edge.source), self._center(edge.target)
            middle = self._middle(edge)
            # A quadratic curve through the middle.
            control = (2 * middle[0] - (x1 + x2) / 2, 2 * middle[1] - (y1 + y2) / 2)
            start, end = _border((x1, y1), control), _border((x2, y2), control)
            yield (
                f'<path d="M{start[0]:.0f} {start[1]:.0f}Q{control[0]:.0f} {control[1]:.0f} '
                f'{end[0]:.0f} {end[1]:.0f}" marker-end="url(#a)"/>'
            )
            x, y = middle[0] + edge.shift[0], middle[1] + edge.shift[1]
            for number, line in enumerate(edge.text.split("\n")):
                yield (
                    f'<text class="t" x="{x:.0f}" y="{y + 14 * number:.0f}" '
                    f'text-anchor="middle">{escape(line)}</text>'
                )

    def _middle(self, edge: Edge) -> tuple[float, float]:
        (x1, y1), (x2, y2) = self._center(edge.source), self._center(edge.target)
        return (x1 + x2) / 2 + edge.bend[0], (y1 + y2) / 2 + edge.bend[1]

    def _center(self, name: str) -> tuple[int, int]:
        column, row = self.states[name]
        return (
            int(_MARGIN + _WIDTH / 2 + column * _COLUMN),
            int(_MARGIN + 14 + _HEIGHT / 2 + row * _ROW),
        )


def _border(center: tuple[float, float], toward: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the center of a box leaves it."""
    dx, dy = toward[0] - center[0], toward[1] - center[1]
    scale = max(abs(dx) / (_WIDTH / 2 + 2), abs(dy) / (_HEIGHT / 2 + 2), 1e-9)
    return center[0] + dx / scale, center[1] + dy / scale


DIAGRAMS: Final[Mapping[str, Diagram]] = {
    "jobs": Diagram(
        states={
            "queued": (0, 1),
            "running": (1.15, 1),
            "done": (2.3, 0),
            "error": (2.3, 1),
            "canceled": (2.3, 2),
        },
        ends=("done", "error", "canceled"),
        edges=(
            Edge("queued", "running", "take"),
            Edge("running", "queued", "retry, release, reclaim", (0, 40), (40, 24)),
            Edge("running", "done", "settle: result", (0, 0), (14, -30)),
            Edge("running", "error", "settle: error"),
            Edge("running", "canceled", "settle: canceled", (0, 0), (56, -8)),
            Edge("queued", "canceled", "cancel", (-40, 62), (0, 18)),
            Edge("queued", "error", "delivery_limit, unknown_task", (-60, -66), (-40, -18)),
        ),
    ),
    "queues": Diagram(
        states={
            "waiting, prioritized": (0, 1.1),
            "delayed": (0, 2.2),
            "waiting-children": (1.15, 0),
            "active": (1.15, 1.1),
            "completed": (2.3, 0.55),
            "failed": (2.3, 1.65),
        },
        ends=("completed", "failed"),
        edges=(
            Edge("waiting, prioritized", "active", "take", (0, -8), (0, -7)),
            Edge("active", "waiting, prioritized", "retry, stalled", (0, 16), (0, 15)),
            Edge("delayed", "waiting, prioritized", "due", (0, 0), (22, 4)),
            Edge("active", "delayed", "backoff, postpone", (20, 14), (36, 18)),
            Edge("active", "waiting-children", "waits for children", (0, 0), (60, 4)),
            Edge("waiting-children", "waiting, prioritized", "children ended", (0, 0), (-52, -4)),
            Edge("active", "completed", "result", (0, 0), (-16, -8)),
            Edge("active", "failed", "no attempts left", (0, 0), (34, -12)),
        ),
    ),
    "images": Diagram(
        states={
            "queued": (0, 0),
            "validating": (1, 0),
            "decoding": (2, 0),
            "processing": (3, 0),
            "encoding": (3, 1.2),
            "uploading": (2, 1.2),
            "done": (1, 1.2),
            "failed": (1, 2.4),
        },
        ends=("done", "failed"),
        edges=(
            Edge("queued", "validating", "upload is safe"),
            Edge("validating", "decoding", "a photo"),
            Edge("decoding", "processing", "pixels"),
            Edge("processing", "encoding", "faces hidden", (0, 0), (-42, 4)),
            Edge("encoding", "uploading", "WebP"),
            Edge("uploading", "done", "in the bucket"),
            Edge("queued", "failed", "TIMEOUT, CANCELED", (-60, 40), (10, 22)),
            Edge("uploading", "failed", "any step: an error code", (30, 20), (86, 14)),
        ),
    ),
    "predictions": Diagram(
        states={
            "accepted": (0, 0),
            "stored": (1, 0),
            "submitting": (2, 0),
            "started": (3, 0),
            "finished": (3, 1.3),
            "settled": (2, 1.3),
            "delivered": (1, 1.3),
        },
        ends=("delivered",),
        edges=(
            Edge("accepted", "stored", "photo stored"),
            Edge("stored", "submitting", "ask the\nprovider", (0, 0), (0, -20)),
            Edge("submitting", "started", "answered"),
            Edge("submitting", "stored", "busy: later", (0, 40), (0, 16)),
            Edge("started", "finished", "webhook or poll", (0, 0), (-50, 4)),
            Edge("finished", "settled", "outputs\nstored", (0, 0), (0, -20)),
            Edge("settled", "delivered", "picture sent"),
            Edge("accepted", "finished", "refused, or given up", (-30, 150), (0, 18)),
        ),
    ),
}


def main() -> None:
    """Write all pictures."""
    for name, diagram in DIAGRAMS.items():
        (IMAGES / f"life-{name}.svg").write_text(diagram.svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
