#!/usr/bin/env python3
"""What tests/gpu/run.sh found and measured, in tables: python3 summary.py OUTDIR"""
import json
import pathlib
import re
import sys

GIB = 1 << 30


def last_object(path):
    """The last line of a file that is a JSON object; None: there is none."""
    found = None
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
    return found


def read_peers(out):
    peers = {}
    for path in sorted(out.glob("peer*.json")) + sorted(out.glob("compile*.json")):
        try:
            about = json.loads(path.read_text())
        except ValueError:
            continue
        peers["about"] = {key: about[key] for key in ("torch", "diffusers", "cuda", "cudnn") if key in about}
        for case in about.get("cases", []):
            peers[case["case"]] = case
    return peers


def number(value, form="{:.1f}"):
    return "–" if value is None else form.format(value)


def ratio(peer, own):
    return "–" if peer is None or not own else f"{peer / own:.2f}"


def of(peers, case, name):
    return peers[case][name] if case in peers else None


def print_table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def print_steps(out, peers):
    rows, lanes = [], []
    order = {"sdxl": 0, "sd15": 1, "sd3": 2}
    paths = sorted(out.glob("steps-*.txt"), key=lambda path: (order.get(path.stem.split("-")[1], 9), path.stem))
    for path in paths:
        name = path.stem[len("steps-"):]
        own = last_object(path)
        state = state_of(out, path.stem)[0]
        if own is None or state != "passed":
            rows.append([name, "–", state] + ["–"] * 15)
            continue
        model, work, batch = name.split("-")[:3]
        eager, compiled = f"{model}:{work}:{batch}", f"{model}:{work}:{batch}:compile"
        forward = f"{model}:forward:{batch}"
        if work == "lora":
            forward = "none"  # adapters' forward is not what was timed
        eager_ms, compiled_ms = of(peers, eager, "median_ms"), of(peers, compiled, "median_ms")
        forward_ms, forward_compiled_ms = of(peers, forward, "median_ms"), of(peers, forward + ":compile", "median_ms")
        peaks = [peers[case]["peak_bytes"] / GIB for case in (eager, compiled) if case in peers]
        planned = own["planned_gb"] * 1e9 / GIB
        rows.append([name, str(own["workers"]), number(own["step_ms"]),
                     number(eager_ms), ratio(eager_ms, own["step_ms"]),
                     number(compiled_ms), ratio(compiled_ms, own["step_ms"]),
                     number(own["forward_ms"]),
                     number(forward_ms), ratio(forward_ms, own["forward_ms"]),
                     number(forward_compiled_ms), ratio(forward_compiled_ms, own["forward_ms"]),
                     number(planned), " / ".join(number(peak) for peak in peaks) or "–",
                     ratio(peaks[0] if peaks else None, planned),
                     number(own["bubble"], "{:.3f}"), number(own.get("predicted_bubble"), "{:.3f}"),
                     number(own["predicted_step_ms"])])
        lanes.append((name, [line.strip() for line in path.read_text(errors="replace").splitlines()
                             if line.startswith("  worker ")]))
    if not rows:
        return
    print("## Steps\n\nMedians in milliseconds, bf16. Each ratio is PyTorch's over ours. PyTorch has the whole card, "
          "also beside pipelines on parts of it; its weights and moments are bf16, ours fp32 beside weights in bf16; it "
          "does not clip, ours does. Memory in GiB: what our plan allocates; PyTorch's peak, eager / compiled.\n")
    print_table(["case", "workers", "step", "eager", "ratio", "compile", "ratio", "forward", "eager", "ratio", "compile",
                 "ratio", "memory", "PyTorch's", "ratio", "bubble", "predicted", "predicted step"], rows)
    print("## Where a step goes\n")
    for name, lines in lanes:
        print(f"- {name}: " + "; ".join(lines))
    print()


def state_of(out, name):
    """How a part ended, and of which commit it was."""
    path = out / "state" / name
    lines = path.read_text().splitlines() if path.exists() else []
    return lines[:2] if len(lines) >= 2 else ["?", "commit ?"]


def print_checks(out):
    rows = []
    patterns = ("kernels.txt", "exec-*.txt", "memcheck-*.txt", "racecheck-*.txt")
    for path in [path for pattern in patterns for path in sorted(out.glob(pattern))]:
        text = path.read_text(errors="replace")
        said = re.findall(r"^\d+ passed, \d+ failed$|^=+ (?:ERROR|RACECHECK) SUMMARY.*$|^skipped:.*$", text, re.MULTILINE)
        rows.append([path.stem, state_of(out, path.stem)[0], "; ".join(line.strip("= ") for line in said)])
    if rows:
        print("## Checks\n")
        print_table(["part", "state", "what it said"], rows)


def main():
    if len(sys.argv) != 2:
        print("usage: summary.py OUTDIR", file=sys.stderr)
        return 2
    out = pathlib.Path(sys.argv[1])
    peers = read_peers(out)
    print("# Measured on a GPU\n")
    machine = out / "machine.txt"
    for line in machine.read_text().splitlines() if machine.exists() else []:
        print(f"- {line}")
    commits = {state_of(out, path.name)[1] for path in (out / "state").glob("*") if path.name[:4] not in ("peer", "comp")}
    if len(commits) > 1:
        print("- parts are of several: " + ", ".join(sorted(commits)))
    kernels = out / "kernels.txt"
    for line in kernels.read_text(errors="replace").splitlines() if kernels.exists() else []:
        if line.startswith("libraries: "):
            print(f"- {line}")
    if "about" in peers:
        print("- PyTorch: " + ", ".join(f"{key} {value}" for key, value in peers["about"].items()))
    print()
    print_checks(out)
    print_steps(out, peers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
