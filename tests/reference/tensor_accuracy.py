#!/usr/bin/env python3
"""Predicted against measured time of Flux's single blocks on one H200 and on a tensor group of two.

usage: tensor_accuracy.py DIFFPIPE reports/measured/h200/tensor_parallel.csv

A block is an eighth of the difference between ten and two of them. Prints the table of doc/accuracy.md.
"""
import csv, json, os, subprocess, sys, tempfile

TEXT_TOKENS, MORE, FEWER = 512, 10, 2
SCENARIO = """format = "diffpipe-scenario"
version = 1
[model]
config = "{config}"
height = {side}
width = {side}
text_tokens = {text}
[task]
{task}
global_batch = 1
[cluster]
[[cluster.node]]
[[cluster.node.device]]
model = "H200-SXM-141GB"
count = 2
[plan]
stages = 1
tensor_parallel = {members}
"""


def worker(diffpipe, folder, blocks, side, members, task):
    data = os.environ.get("DIFFPIPE_DATA_DIR") or os.path.join(os.path.dirname(__file__), "..", "..", "scenarios")
    with open(os.path.join(data, "models", "flux_dev.json")) as file:
        config = json.load(file) | {"num_layers": 0, "num_single_layers": blocks}
    paths = [os.path.join(folder, name) for name in ("model.json", "scenario.toml")]
    with open(paths[0], "w") as file:
        json.dump(config, file)
    with open(paths[1], "w") as file:
        file.write(SCENARIO.format(config=paths[0], side=side, text=TEXT_TOKENS, members=members, task=task))
    run = subprocess.run([diffpipe, "simulate", paths[1], "--json"], check=True, capture_output=True)
    return json.loads(run.stdout)["workers"][0]


def predicted_ms(diffpipe, folder, side, members, task):
    keys = ("forward_s", "backward_s", "tensor_s")
    more, fewer = (worker(diffpipe, folder, n, side, members, task) for n in (MORE, FEWER))
    return [sum(more[k] - fewer[k] for k in ks) / (MORE - FEWER) * 1e3 for ks in (keys, keys[2:])]


def main():
    diffpipe = os.path.abspath(sys.argv[1])
    print("| tokens | members | work | predicted ms | of it collectives | measured ms | error |\n|---|---|---|---|---|---|---|")
    with open(sys.argv[2]) as file, tempfile.TemporaryDirectory() as folder:
        for row in csv.DictReader(file):
            side = int((int(row["tokens"]) - TEXT_TOKENS) ** 0.5) * 16
            for column, work, task in (("forward_ms", "forward", 'kind = "sample"\nsteps = 1'),
                                       ("forward_backward_ms", "forward and backward", 'kind = "train"')):
                both, tensor = predicted_ms(diffpipe, folder, side, int(row["members"]), task)
                measured = float(row[column])
                print(f"| {row['tokens']} | {row['members']} | {work} | {both:.3f} | {tensor:.3f} | {measured:.3f} | "
                      f"{100 * (both / measured - 1):+.0f}% |")


main()
