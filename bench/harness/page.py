"""One HTML page of results: plots as inline SVG, tables, nothing fetched from anywhere."""
import html
import math
import os

from harness import results

LABEL, PLOT, VALUE, ROW, BAR = 250, 560, 150, 24, 14  # pixels
CUT = 10  # a bar that is longer than this many times the shortest is cut, and says so

STYLE = """
:root { --ink: #1c2430; --dim: #66707f; --line: #d8dde4; --paper: #ffffff; --own: #1667c5;
  --cpp: #8d98a7; --mxnet: #d0902b; --python: #8a63b8; --reference: #3c9a6c;
  --mark: #1c2430; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --dim: #98a2b1; --line: #38414e;
  --paper: #14181f; --own: #5aa2f2; --mark: #f4f6f9; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1040px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .3rem; }
h3 { font-size: 1rem; margin: 1rem 0 .2rem; } p { margin: .3rem 0; } .dim { color: var(--dim); }
svg { max-width: 100%; height: auto; display: block; }
svg text { font-size: 13px; fill: var(--ink); }
svg .dim { fill: var(--dim); } .axis { stroke: var(--line); }
.mark { fill: var(--mark); opacity: .75; }
.spread { stroke: var(--mark); stroke-width: 1.5; } .aim { stroke: var(--reference);
  stroke-width: 1.5; stroke-dasharray: 5 3; } .own { fill: var(--own); font-weight: 600; }
.cpp { fill: var(--cpp); } .mxnet { fill: var(--mxnet); } .python { fill: var(--python); }
.reference { fill: var(--reference); } .key { display: inline-block; width: .8em; height: .8em;
  margin: 0 .35em 0 1em; border-radius: 2px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; margin-top: .5rem; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; } td { font-variant-numeric: tabular-nums; } tr.ours td { font-weight: 600; }
"""


def _colour(case):
    return "own" if case["own"] else {"C++": "cpp", "MXNet": "mxnet", "Python": "python"}.get(
        case["level"], "reference")


def _tick_step(longest):
    """A step of 1, 2 or 5 times a power of ten that gives four to eight ticks."""
    rough = longest / 6
    power = 10 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


class _Plot:
    """Horizontal bars: the median of the rounds, their spread, a point for each round."""

    def __init__(self, cases, aim):
        self.cases = cases
        self.aim = aim  # (time, text) of the dashed line, or None
        times = [results.spread_us(case)[1] for case in cases]
        shortest = min(results.median_us(case) for case in
                       [case for case in cases if not case["reference"]] or cases)
        self.longest = min(max(times), CUT * shortest) * 1.02

    def x(self, us):
        return LABEL + PLOT * min(us, self.longest) / self.longest

    def render(self):
        height = ROW * len(self.cases) + 40
        parts = [f'<svg viewBox="0 0 {LABEL + PLOT + VALUE} {height}" '
                 f'width="{LABEL + PLOT + VALUE}" height="{height}" role="img">']
        parts += self._axis(height)
        for row, case in enumerate(self.cases):
            parts += self._bar(case, 18 + row * ROW)
        return "".join(parts) + "</svg>"

    def _axis(self, height):
        step = _tick_step(self.longest)
        for tick in range(int(self.longest / step) + 1):
            x = self.x(tick * step)
            yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="16" y2="{height - 20}"/>'
            yield (f'<text class="dim" x="{x:.1f}" y="{height - 6}" text-anchor="middle">'
                   f'{results.show_us(tick * step) if tick else 0}</text>')
        if self.aim:
            x = self.x(self.aim[0])
            yield f'<line class="aim" x1="{x:.1f}" x2="{x:.1f}" y1="14" y2="{height - 20}"/>'
            yield f'<text class="dim" x="{x + 4:.1f}" y="11">{html.escape(self.aim[1])}</text>'

    def _bar(self, case, top):
        middle, median = top + BAR / 2 + 1, results.median_us(case)
        low, high = results.spread_us(case)
        name = html.escape(", ".join(filter(None, [case["title"], _short(case)])))
        colour = _colour(case)
        cut = " (cut)" if median > self.longest else ""
        yield (f'<text x="{LABEL - 8}" y="{middle + 4}" text-anchor="end"'
               f'{" class=own" if case["own"] else ""}>{name}</text>')
        yield (f'<rect class="{colour}" x="{LABEL}" y="{top}" height="{BAR}" rx="2" '
               f'width="{self.x(median) - LABEL:.1f}"><title>{name}: {results.show_us(median)}, '
               f'rounds {results.show_us(low)} to {results.show_us(high)}</title></rect>')
        yield (f'<line class="spread" x1="{self.x(low):.1f}" x2="{self.x(high):.1f}" y1="{middle}" '
               f'y2="{middle}"/>')
        for each in case["rounds"]:
            if each["median_us"] <= self.longest:
                yield (f'<circle class="mark" cx="{self.x(each["median_us"]):.1f}" cy="{middle}" '
                       'r="2.6"/>')
        after = max(self.x(median), self.x(high)) + 8
        yield f'<text x="{after:.1f}" y="{middle + 4}">{results.show_us(median)}{cut}</text>'


def _short(case):
    level = "" if case["level"] in ("C++", "reference") else f" ({case['level']})"
    return ("" if case["reference"] else results.mode_text(case)) + level


def _aim(group, cases):
    wire = next((case["wire_us"] for case in cases if case["wire_us"]), None)
    if wire:
        return wire, f"the wire's least time, {results.show_us(wire)}"
    memory = results.yardstick(group)
    if memory and cases[0]["mode"] != "latency":
        return results.median_us(memory), "memcpy of the same bytes"
    return None


def _plots(group, cases):
    """One plot, or one per size where single calls were timed."""
    sizes = sorted({case["bytes"] for case in cases if case["mode"] == "latency"})
    if not sizes:
        yield _Plot(cases, _aim(group, cases)).render()
    for size in sizes:
        of_size = [case for case in cases if case["bytes"] == size]
        yield f"<h3>{results.mode_text(of_size[0])}</h3>{_Plot(of_size, None).render()}"


def _table(group, cases):
    headings = [heading for heading, _ in results.columns(group, cases[0])]
    yield '<div class="scroll"><table><tr>'
    yield "".join(f"<th>{html.escape(heading)}</th>" for heading in headings) + "</tr>"
    for case in cases:
        cells = dict(results.columns(group, case))
        yield f'<tr{" class=ours" if case["own"] else ""}>'
        yield "".join(f"<td>{html.escape(cells.get(key, ''))}</td>" for key in headings) + "</tr>"
    yield "</table></div>"


def _group(group):
    cases = results.ordered(group)
    yield f'<h2 id="{group["name"]}">{html.escape(group["title"])}</h2>'
    rounds = max((len(case["rounds"]) for case in cases), default=0)
    yield (f'<p class="dim">{results.payload_text(group)}; {rounds} round{"s" * (rounds != 1)} of '
           f'{group["iters"]} steps, {group["warmup"]} before them untimed</p>')
    if cases:
        yield from _plots(group, cases)
        yield from _table(group, cases)
    for reason, titles in results.skipped(group).items():
        yield (f'<p class="dim">Not measured: {html.escape(", ".join(titles))}: '
               f'{html.escape(reason)}</p>')


def _legend():
    keys = [("own", "pushpull"), ("cpp", "C++ peer"), ("mxnet", "peer through MXNet"),
            ("python", "peer through Python"), ("reference", "reference")]
    spans = "".join(f'<span class="key" style="background: var(--{name})"></span>{text}'
                    for name, text in keys)
    return f"<p>{spans}</p>"


def render(runs):
    parts = ['<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
             '<meta name="viewport" content="width=device-width, initial-scale=1">'
             f"<title>pushpull and its peers</title><style>{STYLE}</style></head><body>"
             "<h1>pushpull and its peers</h1>"
             "<p>Time to sum a model's gradients over all ranks; shorter is better. A bar is the "
             "median of the rounds, a point one round (the median of its steps, each of which "
             "counts with its slowest rank), the line their spread.</p>", _legend()]
    for run in runs:
        about = run["context"]
        parts.append(f'<p class="dim">{html.escape(about["date"])}; {html.escape(about["cpu"])}, '
                     f'{about["cores"]} cores; Linux {html.escape(about["kernel"])}; load at the '
                     f'start {about["load_at_start"]:.2f}; suite {html.escape(about["suite"])}</p>')
        for group in run["groups"]:
            parts += _group(group)
    return "".join(parts) + "</body></html>\n"


def write(runs, path):
    unfinished = f"{path}.new"
    with open(unfinished, "w", encoding="utf-8") as out:
        out.write(render(runs))
    os.replace(unfinished, path)
