#!/usr/bin/env python3
"""What tests/gpu/accuracy.sh predicted and measured, in a table: python3 accuracy.py OUTDIR

Errors are predicted over measured, less 1; of bubble ratios their difference. Kendall's tau is over the pairs of plans of one
model, batch and way of training: the share of pairs in the right order, less that in the wrong one.
"""
import itertools
import json
import pathlib
import statistics
import sys


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


def read_plans(out):
    plans = []
    for path in sorted(out.glob("plan-*.txt")):
        state = out / "state" / path.stem
        plan = last_object(path)
        if not plan or not state.exists() or not state.read_text().startswith("passed"):
            continue
        plan["name"] = path.stem[len("plan-"):]
        plan["step_error"] = plan["predicted_step_ms"] / plan["step_ms"] - 1
        plan["bubble_error"] = plan["predicted_bubble"] - plan["bubble"]
        plan["memory_error"] = plan["predicted_gb"] / plan["taken_gb"] - 1
        plans.append(plan)
    return plans


def kendall(plans):
    """tau, and of how many pairs; None without pairs."""
    agree = pairs = 0
    for a, b in itertools.combinations(plans, 2):
        if (a["model"], a["batch"], a["lora"]) != (b["model"], b["batch"], b["lora"]):
            continue
        product = (a["step_ms"] - b["step_ms"]) * (a["predicted_step_ms"] - b["predicted_step_ms"])
        agree += (product > 0) - (product < 0)
        pairs += 1
    return (agree / pairs, pairs) if pairs else (None, 0)


def picks(plans):
    """Of what tune picked: how much slower than the best plan measured for the same model on as many workers."""
    for tuned in plans:
        if not tuned["name"].endswith("-tuned"):
            continue
        alike = [plan for plan in plans if all(plan[key] == tuned[key] for key in ("model", "workers", "batch", "lora"))]
        best = min(alike, key=lambda plan: plan["step_ms"])
        yield (f"tune picked for {tuned['model']} on {tuned['workers']} workers: {tuned['plan']}: {tuned['step_ms']:.1f} ms, "
               f"{tuned['step_ms'] / best['step_ms'] - 1:+.1%} of the best measured of {len(alike)} ({best['name']})")


def summary(plans):
    yield f"{len(plans)} plans"
    for key, form, what in (("step_error", "{:.1%}", "step time"), ("memory_error", "{:.2%}", "memory"),
                            ("bubble_error", "{:.3f}", "bubble ratio")):
        worst = max(plans, key=lambda plan: abs(plan[key]))
        mean = statistics.mean(abs(plan[key]) for plan in plans)
        yield (f"{what}: mean absolute error {form.format(mean)}, worst {form.format(worst[key])} ({worst['name']})")
    tau, pairs = kendall(plans)
    if pairs:
        yield f"Kendall's tau {tau:.3f} over {pairs} pairs"
    yield from picks(plans)
    off = [plan["name"] for plan in plans if abs(plan["step_error"]) > 0.05]
    yield f"off by more than 5 %: {', '.join(off) if off else 'none'}"


def main():
    out = pathlib.Path(sys.argv[1])
    plans = read_plans(out)
    print("# Predictions from one calibration, against runs\n")
    machine = out / "machine.txt"
    if machine.exists():
        print("".join(f"- {line}\n" for line in machine.read_text().splitlines()))
    if not plans:
        print("Nothing was run yet.")
        return
    print("| plan | step ms | predicted | error | bubble | predicted | taken GB | predicted | units measured |")
    print("|---|---|---|---|---|---|---|---|---|")
    for plan in plans:
        print(f"| {plan['name']} | {plan['step_ms']:.1f} | {plan['predicted_step_ms']:.1f} | {plan['step_error']:+.1%} "
              f"| {plan['bubble']:.3f} | {plan['predicted_bubble']:.3f} | {plan['taken_gb']:.2f} "
              f"| {plan['predicted_gb']:.2f} | {plan['measured_share']:.0%} |")
    print("\n" + "\n".join(f"- {line}" for line in summary(plans)))


if __name__ == "__main__":
    main()
