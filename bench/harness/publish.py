"""The figures that README quotes: runs merged into one file that is kept, and one table made of it."""
import json
import os

from harness import page, results

BEGIN = "<!-- bench/run.py --publish writes from here -->"
END = "<!-- to here -->"
BULK = "bulk-8"
COLUMNS = (("host-2", "1 host, N=2"), ("host-4", "1 host, N=4"), ("1gbit-2", "2 x 1 Gbit/s"),
           ("1gbit-4", "4 x 1 Gbit/s"), ("1gbit-8", "8 x 1 Gbit/s"),
           ("1gbit-2x2", "2 hosts x 2 ranks, 1 Gbit/s"), ("10gbit-2", "2 x 10 Gbit/s"))


def merge(runs):
    """One run with each group of the given ones, the later where several have it; without single times."""
    groups, contexts = {}, []
    for run in runs:
        contexts.append(run["context"])
        for group in run["groups"]:
            if not results.measured(group):
                continue
            for case in group["cases"]:
                for once in case["rounds"]:
                    once["times_us"] = []
            groups[group["name"]] = group
    return {"context": max(contexts, key=lambda context: context["date"]),
            "groups": list(groups.values())}


def _best(group, peer, level):
    """A library's faster mode."""
    cases = [case for case in results.measured(group)
             if (case["peer"], case["level"]) == (peer, level) and case["mode"] != "latency"]
    return min(cases, key=results.median_us) if cases else None


def _name(case):
    return f"**{case['title']}**" if case["own"] else case["title"]


def table(run):
    """Markdown: a library a row, a place a column, milliseconds to sum ResNet-50's gradients."""
    groups = {group["name"]: group for group in run["groups"]}
    columns = [(groups[name], title) for name, title in COLUMNS if name in groups]
    rows = {}
    for group, _ in columns:
        for case in results.measured(group):
            rows.setdefault((case["peer"], case["level"]), case)
    order = sorted(rows.values(), key=lambda case: (case["reference"], not case["own"],
                                                    case["level"], case["title"]))
    lines = [f"| library | level | {' | '.join(title for _, title in columns)} |",
             f"|{'---|' * (len(columns) + 2)}"]
    for case in order:
        cells = []
        for group, _ in columns:
            best = _best(group, case["peer"], case["level"])
            cells.append(f"{results.median_us(best) / 1000:.1f}" if best else "-")
        lines.append(f"| {_name(case)} | {case['level']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bulk_table(run):
    """Markdown: 400 MB over eight hosts, a library a row; nothing where that was not measured."""
    group = next((group for group in run["groups"] if group["name"] == BULK), None)
    if group is None:
        return ""
    cases = results.ordered(group)
    lines = ["", f"400 MB over 8 hosts of 1 Gbit/s, against the {cases[0]['wire_us'] / 1e6:.1f} s in which each host's "
             "bytes would cross its link once:", "", "| library | level | s | x ideal |", "|---|---|---|---|"]
    for case in cases:
        median = results.median_us(case)
        lines.append(f"| {_name(case)} | {case['level']} | {median / 1e6:.2f} | {median / case['wire_us']:.2f} |")
    return "\n".join(lines) + "\n"


def section(run):
    """What stands in README between the marks."""
    about = run["context"]
    busy = max((results.mean_of(case, "foreign_cpus") or 0 for group in run["groups"]
                for case in results.measured(group)), default=0)
    return (f"Milliseconds to sum the 161 gradients of ResNet-50 (102 MB of float32), each library at its "
            f"faster of per tensor and fused; {about['date']}, {about['cpu']}, {about['cores']} cores, Linux "
            f"{about['kernel']}; other processes used up to {busy:.2f} cores meanwhile.\n\n"
            f"{table(run)}\n{bulk_table(run)}")


def replace_section(text, run):
    """The README's text with the section of `run`."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"README.md has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{section(run)}{END}{after}"


def publish(runs, folder, readme):
    """Writes <folder>/published.json and published.html, and README's table."""
    run = merge(runs)
    results.write(run, os.path.join(folder, "published.json"))
    page.write([run], os.path.join(folder, "published.html"))
    with open(readme, encoding="utf-8") as text:
        changed = replace_section(text.read(), run)
    with open(readme, "w", encoding="utf-8") as out:
        out.write(changed)


def load(path):
    with open(path, encoding="utf-8") as text:
        return json.load(text)
