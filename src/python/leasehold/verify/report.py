"""A page for people: the grants over time, and for each rule that was broken the leases that show it, as SVG without scripts."""
from __future__ import annotations

import html
import time
from typing import Any, Iterable, Mapping, Sequence

from .history import Event, Hold, Loss, Waiter

WIDTH, LEFT, ROW = 960, 140, 22
MOST_PICTURES = 10  # of a rule; each key has one all the same
STYLE = """body { font: 15px sans-serif; max-width: 62em; margin: 2em auto; color: #222 } svg { width: 100%; background: #fafafa }
text { font: 12px sans-serif } .hold { fill: #8fb4d9 } .bad { fill: #d9483b } .wait { fill: #e7d9a0 } .ok { color: #2b7a3d } .wrong { color: #b3261e }
line { stroke: #bbb }"""


def bar(begin: float, end: float, row: int, scale: tuple[float, float], kind: str, words: str) -> str:
    first, last = scale
    x = LEFT + (WIDTH - LEFT) * (max(begin, first) - first) / (last - first)
    width = max(2.0, (WIDTH - LEFT) * (min(end, last) - max(begin, first)) / (last - first))
    return (f'<rect class="{kind}" x="{x:.1f}" y="{row * ROW + 3}" width="{width:.1f}" height="{ROW - 6}"><title>{html.escape(words)}</title></rect>'
            f'<text x="{x + 3:.1f}" y="{row * ROW + 15}">{html.escape(words)}</text>')


def leases_of(thing: Any) -> list[Hold | Waiter | Loss]:
    """The holds, waits and losses that a finding is made of."""
    if isinstance(thing, (Hold, Waiter, Loss)):
        return [thing]
    if isinstance(thing, tuple) and not isinstance(thing, Event):
        return [lease for part in thing for lease in leases_of(part)]
    return []


def drawn_for(thing: Any, holds: Iterable[Hold]) -> list[Hold | Waiter | Loss]:
    """What is red in a finding's picture: its leases, or the holds that its events are about."""
    events = {(part.scope, part.token) for part in thing if isinstance(part, Event)} if isinstance(thing, tuple) else set()
    return leases_of(thing) or [hold for hold in holds if (hold.scope, hold.token) in events]


def tell(thing: Any, begun: float) -> str:
    """In words; times are seconds since the beginning."""
    words = [f"{type(lease).__name__.lower()} of {lease.scope}, token {lease.token or 'none'}, from {times(lease)[0] - begun:.3f} to "
             f"{times(lease)[1] - begun:.3f} s" for lease in leases_of(thing)]
    names = [part for part in thing if isinstance(part, str) and part] if words and type(thing) is tuple else []
    return "; ".join(names + words) or str(thing)


def times(lease: Hold | Waiter | Loss) -> tuple[float, float]:
    if isinstance(lease, Hold):
        return lease.begin, lease.end
    if isinstance(lease, Waiter):
        return lease.asked, lease.ended
    return lease.at, lease.deadline


def picture(bad: Sequence[Hold | Waiter | Loss], holds: Iterable[Hold], begun: float) -> str:
    """The holds of this scope around what is bad, a row each; what is bad in red."""
    first, last = min(times(lease)[0] for lease in bad), max(times(lease)[1] for lease in bad)
    around_s = (last - first) / 2 + 0.1
    scale = (first - around_s, last + around_s)
    others = sorted((hold for hold in holds if hold.scope == bad[0].scope and hold.end > scale[0] and hold.begin < scale[1] and hold not in bad),
                    key=lambda hold: hold.begin)[:40]
    rows = [(lease, "bad") for lease in bad] + [(hold, "hold") for hold in others]
    drawn = "".join(bar(*times(lease), row, scale, kind, f"{type(lease).__name__.lower()} {lease.token or ''}") for row, (lease, kind) in enumerate(rows))
    height = ROW * (len(rows) + 1)
    axis = "".join(f'<text x="{LEFT + (WIDTH - LEFT) * part / 4 - (60 if part == 4 else 0):.0f}" y="{height - 6}">'
                   f'{scale[0] + (scale[1] - scale[0]) * part / 4 - begun:.1f} s</text>' for part in range(5))
    name = f'<text x="4" y="15">{html.escape(bad[0].scope)}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {height}">{name}{drawn}{axis}</svg>'


def rate(grants: Sequence[Any], begun: float, ended: float) -> str:
    """The grants of each second."""
    length = max(1, int(ended - begun) + 1)
    counts = [0] * length
    for grant in grants:
        counts[min(length - 1, max(0, int(grant.at - begun)))] += 1
    most, step = max([*counts, 1]), (WIDTH - LEFT) / length
    drawn = "".join(f'<rect class="hold" x="{LEFT + second * step:.1f}" y="{100 - 90 * count / most:.1f}" width="{max(step - 0.3, 0.5):.1f}" '
                    f'height="{90 * count / most:.1f}"><title>{second} s: {count}</title></rect>' for second, count in enumerate(counts))
    words = f'<text x="4" y="20">grants a second</text><text x="4" y="38">most {most}</text>'
    return f'<svg viewBox="0 0 {WIDTH} 120">{words}{drawn}<text x="{LEFT}" y="115">0 s</text><text x="{WIDTH - 50}" y="115">{length} s</text></svg>'


def page(load: Any, found: Mapping[str, Sequence[Any]], words: str, begun: float, started: float) -> str:
    ended = max([begun + 1, *(grant.at for grant in load.grants)])
    parts = []
    for rule, things in found.items():
        parts.append(f'<h3 class="{"wrong" if things else "ok"}">{html.escape(rule)}: {len(things)}</h3>')
        scopes: set[str] = set()
        for place, thing in enumerate(things):
            bad = drawn_for(thing, load.holds)
            if place >= MOST_PICTURES and (not bad or bad[0].scope in scopes):
                continue
            scopes.update(lease.scope for lease in bad)
            parts.append(f"<p>{html.escape(tell(thing, begun))}</p>" if thing else "")
            parts.append(picture(bad, load.holds, begun) if bad else "")
    return (f'<!doctype html><meta charset="utf-8"><title>leasehold-verify</title><style>{STYLE}</style><h1>What the clients saw</h1>'
            f"<p>{time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(started))}, {html.escape(', '.join(load.site.servers))}, "
            f"namespace {html.escape(load.site.namespace)}. {html.escape(words)}.</p>{rate(load.grants, begun, ended)}{''.join(parts)}\n")
