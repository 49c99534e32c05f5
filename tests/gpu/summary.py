#!/usr/bin/env python3
"""What tests/gpu/run.sh and multi.sh found and measured, in tables: python3 summary.py OUTDIR"""
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
    patterns = ("kernels.txt", "exec-*.txt", "memcheck-*.txt", "racecheck-*.txt", "synccheck-*.txt")
    for path in [path for pattern in patterns for path in sorted(out.glob(pattern))]:
        text = path.read_text(errors="replace")
        said = re.findall(r"^\d+ passed, \d+ failed$|^=+ (?:ERROR|RACECHECK) SUMMARY.*$|^skipped:.*$", text, re.MULTILINE)
        if not re.search(r"^\d+ passed", text, re.MULTILINE):  # ended before its end: in the entry that began last
            said += re.findall(r"^begins: .*$", text, re.MULTILINE)[-1:]
        rows.append([path.stem, state_of(out, path.stem)[0], "; ".join(line.strip("= ") for line in said)])
    if rows:
        print("## Checks\n")
        print_table(["part", "state", "what it said"], rows)


# ---- multi.sh ----

LINK_SIZES = (4 << 10, 64 << 10, 2 << 20, 16 << 20, 128 << 20, 1 << 30)
SIZE_NAMES = ("4 KiB", "64 KiB", "2 MiB", "16 MiB", "128 MiB", "1 GiB")
SCHEDULES = {"ddp": ("dp-",), "1f1b": ("1f1b-local", "1f1b-ipc", "1f1b-nccl"), "interleaved": ("interleaved-",),
             "zbv": ("zb-v-", "zb-h1-")}  # PyTorch's and those of ours that are held to it


def objects(path):
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def print_links(out):
    for path in sorted(out.glob("links-*.jsonl")):
        rows, cells = {}, {}
        for one in objects(path):
            rows[one["row"]] = one
            cells[one["row"], one["bytes"]] = one
        if not rows:
            continue
        print(f"## Links: {path.stem[len('links-'):]}\n\nMicroseconds of a message; behind them, in GB/s of each that goes: "
              "alone / beside products of bf16; × what products take longer meanwhile, and while NCCL waits (`tests/bench_cuda_links.c`).\n")
        table = []
        for row, any_size in rows.items():
            line = [row, str(any_size["gpus"]), str(any_size["flows"])]
            for size in LINK_SIZES:
                one = cells.get((row, size))
                if one is None:
                    line.append("–")
                    continue
                text = f"{one['us']:.1f} µs, {one['gb_per_s']:.1f} / {number(one['beside_gb_per_s'])}"
                text += f", × {one['gemm_slowing']:.2f}" if one["gemm_slowing"] else ""
                line.append(text + (f", waiting × {one['waiting_slowing']:.2f}" if one.get("waiting_slowing") else ""))
            table.append(line)
        print_table(["row", "GPUs", "at once", *SIZE_NAMES], table)


def read_multi(out):
    """Cases of multi.sh by name: what bench_cuda_step said, None where it did not come so far; and how they ended."""
    found = {}
    for path in sorted(out.glob("multi-*.txt")):
        state = state_of(out, path.stem)[0]
        own = last_object(path)
        found[path.stem[len("multi-"):]] = (own if own and "first_loss" in own else None, state)
    return found


def off(own, one, name):
    return abs(own[name] / one[name] - 1) if one and one[name] else None


def print_multi(cases):
    if not cases:
        return
    print("## Steps on several GPUs\n\nMedians in milliseconds, bf16. ×: how many times as fast as one GPU with the same batch in the "
          "same microbatches. Memory in GiB: of the worker that needs most, as planned; taken of all devices, with contexts and "
          "libraries. Losses: how far the first and the last are from one GPU's. Profile: the share of the ops' time that the "
          "prediction has from profile-MODEL.json, which saw no pipeline.\n")
    rows = []
    for name, (own, state) in cases.items():
        if own is None:
            rows.append([name] + ["–"] * 14 + [state])
            continue
        one = cases.get(name.split("-")[0] + "-one", (None, ""))[0]
        same = one and one["batch"] == own["batch"]
        step_ms = own["step_ms"]
        rows.append([name, str(own["workers"]), str(own["processes"]), number(step_ms), number(1000 * own["batch"] / step_ms),
                     ratio(one["step_ms"] if same else None, step_ms), number(own["predicted_step_ms"]),
                     ratio(own["predicted_step_ms"], step_ms), number(own["bubble"], "{:.3f}"),
                     number(own["predicted_bubble"], "{:.3f}"), number(own.get("measured_share"), "{:.2f}"), number(own["busy_ms"]),
                     number(own["largest_planned_gb"] * 1e9 / GIB), number(own["taken_gb"] * 1e9 / GIB),
                     " / ".join(number(off(own, one if same else None, loss), "{:.1e}") for loss in ("first_loss", "last_loss")),
                     state])
    print_table(["case", "workers", "processes", "step", "samples/s", "×", "predicted", "predicted / step", "bubble",
                 "predicted bubble", "profile", "busy", "planned", "taken", "losses off", "state"], rows)


def fastest(cases, peer):
    """Of ours, on as many GPUs with the same batch and by a schedule like the peer's: name and result; None: none."""
    best = None
    for name, (own, state) in cases.items():
        model, _, rest = name.partition("-")
        if own is None or state != "passed" or model != peer["model"] or own["batch"] != peer["batch"]:
            continue
        alike = any(rest.startswith(words) for words in SCHEDULES[peer["way"]])
        if alike and own["workers"] == peer["gpus"] and (best is None or own["step_ms"] < best[1]["step_ms"]):
            best = name, own
    return best


def print_torch_multi(out, cases):
    rows, about = [], None
    for path in sorted(out.glob("torch-*.json")):
        try:
            about = json.loads(path.read_text())
        except ValueError:
            continue
        for peer in about["cases"]:
            own = fastest(cases, peer) if peer["way"] in SCHEDULES else None
            rows.append([peer["case"], str(peer["gpus"]), str(peer["batch"]), str(peer["microbatch"]), peer["attention"],
                         number(peer["median_ms"]), number(peer["samples_per_s"]), number(peer["peak_bytes"] / GIB),
                         own[0] if own else "–", number(own[1]["step_ms"] if own else None),
                         ratio(peer["median_ms"], own[1]["step_ms"] if own else None)])
    if not rows:
        return
    print(f"## PyTorch on the same GPUs\n\nEager, PyTorch {about['torch']}, diffusers {about['diffusers']}. Beside it the fastest of "
          "ours on as many GPUs with the same batch and such a schedule; the ratio is PyTorch's time over ours. Its weights and "
          "moments are bf16, ours fp32 beside weights in bf16; it does not clip, ours does. Memory in GiB: the most that PyTorch's "
          "allocator had on one GPU.\n")
    print_table(["case", "GPUs", "batch", "microbatch", "attention", "step", "samples/s", "memory", "ours", "step", "ratio"], rows)


def print_processes(out):
    lines = []
    for path in sorted(out.glob("processes-*.txt")):
        said = [line for line in path.read_text(errors="replace").splitlines() if re.match(r"^\S+ +(passed|FAILED),", line)]
        lines += [[" ".join(line.split()), state_of(out, path.stem)[0]] for line in said]
    if lines:
        print("## Processes\n")
        print_table(["what", "part"], lines)


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
    commits = {state_of(out, path.name)[1] for path in (out / "state").glob("*") if path.name[:4] not in ("peer", "comp", "torc")}
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
    print_links(out)
    multi = read_multi(out)
    print_multi(multi)
    print_torch_multi(out, multi)
    print_processes(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
