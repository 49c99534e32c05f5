#!/usr/bin/env python3
"""Compares what tests/gpu/profile.sh left in a folder: python3 profile_check.py OUTDIR

plain-N.json, traced-N.json   tests/gpu/profile_train.py without and under `diffpipe profile`, in pairs
profiler.json                 the same under PyTorch's profiler
ranges.json, auto.json        `diffpipe profile report` on the first traced run, by its NVTX ranges and by itself
unet-*.json                   the same of diffusers' UNet, where it was asked for
torchrun.json                 the report of two processes on two GPUs, or on one; torchrun-steps.json is what the first of them timed
small-*.json                  pairs of a model whose kernels are short; figures only
bench-plain.txt, bench-traced.txt, bench.json   tests/bench_cuda_step, where it was asked for
Prints a line for each check, and last `N passed, N failed, N skipped`.
"""
import json
import pathlib
import statistics
import sys

out = pathlib.Path(sys.argv[1])
counts = {"passed": 0, "failed": 0, "skipped": 0}


def say(state, what, text):
    counts[state] += 1
    print(f"{'ok  ' if state == 'passed' else 'FAIL' if state == 'failed' else 'skip'} {what}: {text}")


def read(name):
    path = out / name
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def close(what, ours, theirs, most):
    if not theirs:
        return say("failed", what, f"{ours * 1e3:.3f} ms, and none by PyTorch")
    error = ours / theirs - 1
    return say("passed" if abs(error) <= most else "failed", what,
               f"{ours * 1e3:.3f} ms, PyTorch {theirs * 1e3:.3f} ms, {100 * error:+.2f} % (allowed {100 * most:g} %)")


def counted(run):
    """Milliseconds of the steps that count; the last one lasts until everything is done, so it is left out."""
    return run["step_ms"][run["warm"]:-1]


def pairs(prefix):
    found = []
    for number in range(1, 10):
        plain, traced = read(f"{prefix}plain-{number}.json"), read(f"{prefix}traced-{number}.json")
        if plain and traced:
            found.append((statistics.median(counted(plain)), statistics.median(counted(traced))))
    return found


def check_overhead(prefix):
    found = pairs(prefix)
    if not found:
        return say("skipped", f"{prefix}overhead", "no pair of runs")
    overhead = statistics.median(traced / plain - 1 for plain, traced in found)
    text = ", ".join(f"{plain:.2f} -> {traced:.2f} ms" for plain, traced in found)
    say("passed" if overhead < 0.02 else "failed", f"{prefix}overhead",
        f"{100 * overhead:+.2f} % (allowed 2 %), medians of {len(found)} pairs: {text}")


def check_steps(run, ranges, auto):
    warm = run["warm"]
    ours = [step["step_s"] for step in ranges["steps"]][warm:-1]
    theirs = [ms * 1e-3 for ms in counted(run)]
    if len(ours) != len(theirs):
        return say("failed", "steps of the range", f"{len(ours)} after {warm}, wanted {len(theirs)}")
    close("step time, median", statistics.median(ours), statistics.median(theirs), 0.01)
    close("step time, sum", sum(ours), sum(theirs), 0.01)
    found = max(auto["processes"], key=lambda p: p["records"])["steps"]
    say("passed" if found["count"] == run["steps"] else "failed", "steps found by themselves",
        f"{found['count']} of {run['steps']}, sure {found['confidence']:.2f}: {found['why']}")
    ours = [step["step_s"] for step in auto["steps"]][warm:-1]
    if ours:
        close("step time of those, median", statistics.median(ours), statistics.median(theirs), 0.01)
    lost = sum(sum(process["lost"].values()) for process in ranges["processes"])
    say("passed" if lost == 0 else "failed", "records lost", str(lost))
    for row in ranges["classes"]:
        if row["count"]:
            print(f"     {row['class']:12} {row['count']:7} {row['sum_s']:9.4f} s {100 * row['share']:5.1f} %")
    for row in ranges["devices"]:
        parts = ", ".join(f"{name[:-2]} {100 * s / row['window_s']:.1f} %" for name, s in row["parts"].items())
        print(f"     device {row['device']}: {parts}; peak {row['peak_bytes'] / 1e9:.2f} GB")


def check_kernels(prefix, run, ranges):
    profiler = read(f"{prefix}profiler.json")
    if not profiler:
        return say("skipped", f"{prefix}kernel sums", "no run under PyTorch's profiler")
    steps = ranges["steps"][run["warm"]:]
    sums = [sum(s for name, s in step["classes_s"].items() if name != "copy") for step in steps]
    print(f"     PyTorch's profiler: {profiler['kernels_a_step']:.1f} kernels a step")
    close(f"{prefix}kernels' sum a step", sum(sums) / len(sums), profiler["kernels_s_a_step"], 0.02)


def check_training(prefix):
    run, ranges, auto = read(f"{prefix}traced-1.json"), read(f"{prefix}ranges.json"), read(f"{prefix}auto.json")
    if not (run and ranges and auto):
        return say("failed", f"{prefix}traced run", f"left no figures: see {prefix}traced-1.txt and {prefix}ranges.txt")
    print(f"     {prefix or 'transformer, '}torch {run['torch']}, {run['steps']} steps, {run['warm']} of them to warm up")
    check_steps(run, ranges, auto)
    check_kernels(prefix, run, ranges)
    check_overhead(prefix)


def check_small():
    small = pairs("small-")
    if small:
        ratio = statistics.median(traced / plain - 1 for plain, traced in small)
        print(f"     short kernels, where the host is slower than the device: {100 * ratio:+.2f} %, "
              + ", ".join(f"{plain:.2f} -> {traced:.2f} ms" for plain, traced in small))


def check_torchrun():
    """Two processes: each has all steps and time in NCCL; a step, in which they wait for each other, is one on both clocks."""
    if not (out / "torchrun.txt").exists():
        return
    run, ranges = read("torchrun-steps.json"), read("torchrun.json")
    if not (run and ranges):
        return say("failed", "torchrun", "left no figures: see torchrun.txt")
    counts_of = [process["steps"]["count"] for process in ranges["processes"] if process["records"] > 1000]
    say("passed" if counts_of == [run["steps"]] * 2 else "failed", "torchrun, steps of each process",
        f"{counts_of}, wanted {run['steps']} of two")
    by_process = {}
    for step in ranges["steps"]:
        by_process.setdefault(step["process"], []).append(step)
    ends = [[step["start_ns"] * 1e-9 + step["step_s"] for step in steps[run["warm"]:-1]] for steps in by_process.values()]
    if len(ends) == 2 and ends[0]:
        apart = statistics.median(abs(a - b) for a, b in zip(*ends))
        step_s = statistics.median(counted(run)) * 1e-3
        say("passed" if apart < 0.05 * step_s else "failed", "torchrun, ends of a step in both processes",
            f"{apart * 1e3:.3f} ms apart in the median, steps of {step_s * 1e3:.2f} ms (allowed 5 %)")
        times = [step["step_s"] for step in next(iter(by_process.values()))[run["warm"]:-1]]
        close("torchrun, step time, median", statistics.median(times), step_s, 0.01)
    nccl = [row["nccl_s"] for row in ranges["devices"]]
    say("passed" if nccl and min(nccl) > 0 else "failed", "torchrun, time in NCCL on each GPU",
        ", ".join(f"{s:.3f} s" for s in nccl))


def last_object(name):
    path = out / name
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    objects = [line for line in lines if line.startswith("{")]
    return json.loads(objects[-1]) if objects else None


def check_bench():
    if not (out / "bench-traced.txt").exists():
        return
    plain, traced, summary = last_object("bench-plain.txt"), last_object("bench-traced.txt"), read("bench.json")
    if not (plain and traced and summary):
        return say("failed", "bench_cuda_step", "left no figures: see bench-plain.txt and bench-traced.txt")
    overhead = traced["step_ms"] / plain["step_ms"] - 1
    say("passed" if overhead < 0.02 else "failed", "bench_cuda_step, overhead",
        f"{100 * overhead:+.2f} % (allowed 2 %): {plain['step_ms']:.2f} -> {traced['step_ms']:.2f} ms")
    steps = summary["processes"][0]["steps"]
    print(f"     steps found: {steps['count']}, sure {steps['confidence']:.2f}: {steps['why']}; "
          f"median {1e3 * summary['step']['p50_s']:.2f} ms")
    for row in summary["classes"]:
        if row["count"]:
            print(f"     {row['class']:12} {row['count']:7} {row['sum_s']:9.4f} s {100 * row['share']:5.1f} %")


check_training("")
if (out / "unet-plain-1.txt").exists():
    check_training("unet-")
check_torchrun()
check_small()
check_bench()
kill = out / "killed.txt"
if kill.exists():
    words = kill.read_text().split()
    say("passed" if words[:1] == ["ok"] else "failed", "a killed run", " ".join(words[1:]))
else:
    say("skipped", "a killed run", "there was no time for it")
print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
sys.exit(counts["failed"] > 0)
