"""Figures of a whole run: what is written to bench/results/*.json, and the tables made of it.

    {"context": {...},
     "groups": [{"name", "title", "hosts", "per_host", "ranks", "rate", "model", "iters", "warmup",
                 "cases": [{"peer", "title", "level", "own", "reference", "mode", "bytes",
                            "wire_us": least time on this group's links, or null,
                            "skipped": reason, or null,
                            "rounds": [{"median_us", "p95_us", "best_us", "samples", "times_us",
                                        "foreign_cpus", "cpu_s_per_step", "sent_sets"}]}]}]}
"""
import json
import os
import platform
import statistics
import time


def _first_line(path, key=None):
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if key is None or line.startswith(key):
                    return line.partition(":")[2].strip() if key else line.strip()
    except OSError:
        pass
    return "unknown"


def context(suite):
    return {"suite": suite, "date": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            "cpu": _first_line("/proc/cpuinfo", "model name"), "cores": os.cpu_count(),
            "kernel": platform.release(), "load_at_start": os.getloadavg()[0]}


def new_group(group):
    place = group.place
    return {"name": group.name, "title": group.title, "hosts": max(1, place.hosts),
            "per_host": place.per_host, "ranks": place.ranks,
            "rate": place.rate if place.in_lab else None, "model": group.model,
            "iters": group.iters, "warmup": group.warmup, "cases": []}


def new_case(peer, mode, payload=None, wire_us=None, skipped=None):
    return {"peer": peer.name, "title": peer.title, "level": peer.level, "own": peer.own,
            "reference": peer.reference, "mode": mode, "bytes": payload, "wire_us": wire_us,
            "skipped": skipped, "rounds": []}


def median_us(case):
    return statistics.median(each["median_us"] for each in case["rounds"])


def spread_us(case):
    medians = [each["median_us"] for each in case["rounds"]]
    return min(medians), max(medians)


def mean_of(case, key):
    values = [each[key] for each in case["rounds"] if each[key] is not None]
    return statistics.fmean(values) if values else None


def ratio(case, other):
    """How many times the other's time a case takes: by round, since neighbours in time share what
    the machine was doing, then the median."""
    pairs = list(zip(case["rounds"], other["rounds"]))
    return statistics.median(a["median_us"] / b["median_us"] for a, b in pairs) if pairs else None


def measured(group):
    return [case for case in group["cases"] if case["rounds"]]


def yardstick(group):
    """The reference that times are divided by: memcpy on one host. None between hosts, where the
    wire's least time is in each case."""
    return next((case for case in measured(group) if case["peer"] == "memory-copy"), None)


def fastest_peer(group, payload):
    """The best of the others at the same bytes, per tensor or fused."""
    others = [case for case in measured(group)
              if not case["own"] and not case["reference"] and case["bytes"] == payload]
    return min(others, key=median_us) if others else None


def show_us(us):
    if us < 1000:
        return f"{us:.1f} us"
    return f"{us / 1e3:.1f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def columns(group, case):
    """What tables say of a case: (heading, text) pairs."""
    low, high = spread_us(case)
    row = [("library", case["title"]), ("level", case["level"]), ("mode", mode_text(case)),
           ("time", show_us(median_us(case))), ("rounds", f"{show_us(low)} .. {show_us(high)}")]
    memory = yardstick(group)
    if case["wire_us"]:
        row.append(("% of the wire", f"{100 * case['wire_us'] / median_us(case):.0f}"))
    elif memory and not case["mode"] == "latency":
        row.append(("x memcpy", f"{ratio(case, memory):.2f}"))
    best = fastest_peer(group, case["bytes"])
    row.append(("x fastest peer", f"{ratio(case, best):.2f}" if best else ""))
    cpu, sent = mean_of(case, "cpu_s_per_step"), mean_of(case, "sent_sets")
    row.append(("CPU per step", show_us(cpu * 1e6) if cpu is not None else ""))
    if group["rate"]:
        row.append(("sets sent per host", f"{sent:.2f}" if sent is not None else ""))
    row.append(("CPUs used by others", f"{mean_of(case, 'foreign_cpus'):.2f}"))
    return row


def mode_text(case):
    if case["reference"]:
        return ""
    if case["mode"] == "latency":
        size = case["bytes"]
        return f"{size} B" if size < 1024 else f"{size >> 10} KiB" if size < 1 << 20 else \
            f"{size >> 20} MiB"
    return {"tensor": "per tensor", "fused": "fused"}[case["mode"]]


def payload_text(group):
    """What is summed: `resnet50, 102.2 MB of float32`, or `single calls of float32`."""
    sizes = {case["bytes"] for case in measured(group)}
    if len(sizes) != 1:
        return "single calls of float32"
    return f"{group['model']}, {sizes.pop() / 1e6:.1f} MB of float32"


def ordered(group):
    """Cases by what they measure, fastest first."""
    return sorted(measured(group), key=lambda case: (
        case["bytes"] if case["mode"] == "latency" else 0, median_us(case)))


def markdown(results):
    lines = []
    for group in results["groups"]:
        cases = ordered(group)
        lines += ["", f"### {group['title']}", "", f"{payload_text(group)}", ""]
        if cases:
            headings = [heading for heading, _ in columns(group, cases[0])]
            lines += [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
        for case in cases:
            lines.append(f"| {' | '.join(text for _, text in columns(group, case))} |")
        for reason, titles in skipped(group).items():
            lines.append(f"\nNot measured: {', '.join(titles)}: {reason}")
    return "\n".join(lines[1:]) + "\n"


def skipped(group):
    """Titles of what was not measured, by reason."""
    by_reason = {}
    for case in group["cases"]:
        if case["skipped"]:
            titles = by_reason.setdefault(case["skipped"], [])
            title = f"{case['title']} ({case['level']})"
            if title not in titles:
                titles.append(title)
    return by_reason


def write(results, path):
    unfinished = f"{path}.new"
    with open(unfinished, "w", encoding="utf-8") as out:
        json.dump(results, out, indent=1)
        out.write("\n")
    os.replace(unfinished, path)
