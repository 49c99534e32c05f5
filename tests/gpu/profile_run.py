#!/usr/bin/env python3
"""What `diffpipe run --profile-steps` finds and costs on a GPU: python3 profile_run.py OUTDIR DIFFPIPE [CASE...]

Trains adapters of Stable Diffusion 1.5 at 512 x 512 on drawn pictures, in pairs of runs without and with it, whichever goes
first taking turns. Cases: whole (one worker), parts (four parts of the card), folded (four parts, two chunks each); without
any, whole and parts. PAIRS=2, STEPS=80, KEPT=12 in the environment. Checks of each case that every kept step was joined, that no
record was lost, that almost all work of the devices is of an instruction and most of a unit of the model, that each step lasts as long as
its own events say, that the parts of each step sum to it, that no more was done than there was time for; that recording costs a run less than 2 %, by the pairs and by what the run says of itself, which agree;
and that a step which is not recorded takes as long as one of a run without CUPTI. The last line is `N passed, N failed`.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

PAIRS, STEPS, KEPT = (int(os.environ.get(name, fallback)) for name, fallback in (("PAIRS", 2), ("STEPS", 80), ("KEPT", 12)))
COLD = 3  # steps in which graphs are made
CASES = {"whole": (1, "1f1b", 8), "parts": (4, "1f1b", 1), "folded": (4, "folded", 1)}
SCENARIO = """format = "diffpipe-scenario"
version = 1
[model]
config = "models/sd15_unet.json"
height = 512
width = 512
text_tokens = 77
precision = "bf16"
[task]
kind = "train"
trainable = "lora"
lora_rank = 16
global_batch = 8
implementation = "cuda"
[cluster]
[[cluster.node]]
[[cluster.node.device]]
model = "H200-SXM-141GB"
virtual = {0}
[plan]
stages = {0}
schedule = "{1}"
microbatch_size = {2}
[data]
path = "{3}"
[train]
seed = 1
"""
counts = {"passed": 0, "failed": 0}


def say(good, what, text):
    counts["passed" if good else "failed"] += 1
    print(f"{'ok  ' if good else 'FAIL'} {what}: {text}", flush=True)


def call(arguments, said):
    with open(said, "w", encoding="utf-8") as stream:
        code = subprocess.run(arguments, stdout=stream, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        print(f"-- {' '.join(map(str, arguments))}: exit status {code}")
        print("\n".join(said.read_text(errors="replace").splitlines()[-15:]), flush=True)
    return code == 0


def train(diffpipe, out, name, scenario, steps, *more):
    """The steps after those in which graphs are made, by the host's clock, without such as the system held up; None: it failed."""
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    if not call([diffpipe, "run", scenario, "--backend", "cuda", "--out", folder, "--no-plots", "--steps", str(steps),
                 "--on-anomaly", "off", "--algorithms", out / "algorithms.json", *more], out / f"{name}.txt"):
        return None
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    times = [row["step_s"] for row in rows if "step_s" in row][COLD:]
    return [time for time in times if time < 1.5 * statistics.median(times)]


def check(name, folder):
    profile = json.loads((folder / "profile.json").read_text())
    say(profile["recorded"], f"{name}, recorded", f"{profile['work']} pieces of work of instructions")
    if not profile["recorded"]:
        return
    say(profile["step"]["count"] == KEPT and profile["steps_left_out"] == 0, f"{name}, steps",
        f"{profile['step']['count']}, wanted {KEPT}; {profile['steps_left_out']} left out")
    say(profile["lost"] == 0, f"{name}, records lost", str(profile["lost"]))
    work_s = sum(row["sum_s"] for row in profile["classes"])
    say(profile["stray_s"] < 0.02 * (work_s + profile["stray_s"]), f"{name}, work of no instruction",
        f"{profile['stray']} pieces, {1e3 * profile['stray_s']:.3f} ms of {1e3 * work_s:.1f} ms (allowed 2 %)")
    worst = max(abs(sum(step["parts"].values()) / (profile["workers"] * step["step_s"]) - 1) for step in profile["steps"])
    say(worst < 1e-6, f"{name}, parts sum to the step", f"within {worst:.1e}")
    check_steps(name, profile)
    check_sums(name, profile, work_s)
    units = profile["units"]
    share = sum(row["share"] for row in units)
    say(len(units) > 10 and share > 0.8 and all(row["forward_s"] > 0 for row in units), f"{name}, work of units",
        f"{len(units)} units, {100 * share:.1f} % of all time (wanted: more than 10 and 80 %, each with a forward)")
    print((folder / "profile.txt").read_text(), flush=True)


def check_steps(name, profile):
    """Each step by its own events: a median does not see the one that has the times of another."""
    events_s = profile["events_step_s"]
    error = profile["step"]["p50_s"] / events_s - 1
    say(abs(error) < 0.02, f"{name}, the step by records and by events",
        f"{1e3 * profile['step']['p50_s']:.2f} and {1e3 * events_s:.2f} ms, {100 * error:+.2f} % (allowed 2 %)")
    unknown = [step["step"] for step in profile["steps"] if not step["events_step_s"]]
    off = {step["step"]: step["step_s"] / step["events_step_s"] - 1 for step in profile["steps"] if step["events_step_s"]}
    worst = max(off, key=lambda number: abs(off[number]), default=None)
    say(not unknown and worst is not None and abs(off[worst]) < 0.02, f"{name}, each step by records and by its own events",
        f"{len(off)} steps, not known of {unknown}" + (f"; step {worst} {100 * off[worst]:+.2f} % (allowed 2 %)" if off else ""))
    say(profile["steps_impossible"] == 0, f"{name}, steps with times that cannot be", str(profile["steps_impossible"]))


def check_sums(name, profile, work_s):
    shares = {f"{row['opcode']} of stage {row['rank']}": row["share"] for row in profile["instructions"]}
    shares |= {row["class"]: row["share"] for row in profile["classes"]} | {row["name"]: row["share"] for row in profile["units"]}
    most = max(shares, key=shares.get)
    say(0 < shares[most] <= 1, f"{name}, shares", f"{len(shares)}, the largest {100 * shares[most]:.1f} % of {most} (allowed 100 %)")
    rows = profile["steps"] + profile["stages"]
    least = min(row[key] for row in rows for key in ("exposed_comm_s", "hidden_comm_s"))
    say(least >= -1e-9, f"{name}, exposed and hidden communication", f"at least {1e3 * least:.3f} ms (allowed 0)")
    time_s = profile["workers"] * profile["step"]["sum_s"]
    full = max(sum(step["classes"].values()) / (profile["workers"] * step["step_s"]) for step in profile["steps"])
    say(full < 1 and work_s < time_s, f"{name}, all work of the workers",
        f"{work_s:.3f} s of {time_s:.3f} s, of a step at most {100 * full:.1f} % (allowed 100 %)")


def run(name, diffpipe, out, data):
    scenario = out / f"{name}.toml"
    scenario.write_text(SCENARIO.format(*CASES[name], data))
    if not data.exists() and not (
            call([diffpipe, "data", "shapes", data, "--count", "16", "--height", "512", "--width", "512"], out / "data.txt")
            and call([diffpipe, "data", "manifest", data], out / "data.txt")
            and call([diffpipe, "data", "cache", data, "--for", scenario], out / "data.txt")):
        return say(False, name, "there are no data: see data.txt")
    if train(diffpipe, out, f"{name}-first", scenario, 3) is None:  # it times the libraries' algorithms
        return say(False, name, f"see {name}-first.txt")
    found = []
    for pair in range(PAIRS):
        taken = {}
        for kind in ("plain", "recorded") if pair % 2 == 0 else ("recorded", "plain"):
            more = ["--profile-steps", str(KEPT)] if kind == "recorded" else []
            taken[kind] = train(diffpipe, out, f"{name}-{kind}", scenario, STEPS, *more)
        if None in taken.values():
            return say(False, name, "a run failed")
        profile = json.loads((out / f"{name}-recorded" / "profile.json").read_text())
        if not profile["recorded"]:
            return say(False, f"{name}, recorded", f"see {name}-recorded.txt")
        found.append((taken["plain"], taken["recorded"], profile))
    check(name, out / f"{name}-recorded")
    costs(name, found)


def costs(name, found):
    """found: of each pair the steps without recording, with it, and what that run says that recording costs."""
    by_pairs = statistics.median(statistics.mean(recorded) / statistics.mean(plain) - 1 for plain, recorded, _ in found)
    text = ", ".join(f"{1e3 * statistics.mean(plain):.2f} -> {1e3 * statistics.mean(recorded):.2f} ms" for plain, recorded, _ in found)
    say(by_pairs < 0.02, f"{name}, the run's overhead by pairs", f"{100 * by_pairs:+.2f} % (allowed 2 %), means of {PAIRS} pairs: {text}")
    said = [profile["recording"] for _, _, profile in found]
    if any(row["run_overhead"] is None for row in said):
        return say(False, f"{name}, the run's overhead by itself", "a run did not measure it")
    by_itself = statistics.median(row["run_overhead"] for row in said)
    say(by_itself < 0.02, f"{name}, the run's overhead by itself", f"{100 * by_itself:+.2f} % (allowed 2 %), "
        + ", ".join(f"{row['run_steps_recorded']} of {row['run_steps']} steps recorded" for row in said))
    say(abs(by_itself - by_pairs) < 0.01, f"{name}, both agree", f"{100 * (by_itself - by_pairs):+.2f} points (allowed 1)")
    steps = [(statistics.median(plain), row) for (plain, _, _), row in zip(found, said)]
    off = statistics.median(row["plain_step_s"] / plain - 1 for plain, row in steps)
    say(abs(off) < 0.01, f"{name}, a step that is not recorded, to one without CUPTI", f"{100 * off:+.2f} % (allowed 1 %)")
    on = statistics.median(row["recorded_step_s"] / plain - 1 for plain, row in steps)
    claim = statistics.median(row["step_overhead"] for row in said)
    print(f"     {name}, a step that is recorded: {100 * on:+.2f} % by pairs, medians; {100 * claim:+.2f} % as the run says, with switching",
          flush=True)


def main():
    out, diffpipe = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    cases = sys.argv[3:] or ["whole", "parts"]
    unknown = [case for case in cases if case not in CASES]
    if unknown:
        sys.exit(f"profile_run.py: found {unknown[0]}, allowed: {', '.join(CASES)}")
    out.mkdir(parents=True, exist_ok=True)
    for case in cases:
        run(case, diffpipe, out, out / "data")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    sys.exit(counts["failed"] > 0)


main()
