# The tables of doc/autotuner.md; $table picks one. Input: a list of what `tune --baselines --json` printed, each with `name`,
# `own`, the scenario's own plan as `simulate --json` printed it, and `cpu_s`.
def significant(n): if . == 0 then 0 else pow(10; n - 1 - (fabs | log10 | floor)) as $p | (. * $p | round) / $p end;
def fixed(n): pow(10; n) as $p | (. * $p | round) / $p;
def percent(n): 100 * . | fixed(n) | if . < 0 then "\(.) %" else "+\(.) %" end;
def gb: . / 1e9 | if . > 0 and . < 0.005 then "< 0.01" else "\(fixed(2))" end;
def plan: .plan as $p |
  "\($p.stages) x \($p.data_parallel)"
  + (if ($p.tensor_parallel // 1) > 1 then " in groups of \($p.tensor_parallel)" else "" end)
  + (if $p.stages > 1 then " \($p.schedule)" else "" end)
  + (if $p.schedule == "interleaved" then "/\($p.chunks)" else "" end)
  + ", \($p.microbatches) x \($p.microbatch_size)"
  + (if $p.recompute == "all" then ", all recomputed"
     elif ($p.recomputed_units // 0) > 0 then ", \($p.recomputed_units) recomputed" else "" end)
  + (($p.skips // []) | length | if . == 0 then "" elif . == 1 then ", 1 skip of its own" else ", \(.) skips of their own" end);
def row(name): .baselines[] | select(.name == name);
def cell(name): [row(name)] | if length == 0 then "–" else .[0] |
    if .fits | not then "does not fit"
    elif .gain_of_best | fabs < 1e-9 then "equal, \(.skip_bytes | gb)"
    else "\(.gain_of_best | percent(1)), \(.skip_bytes | gb)" end end;
def line: "| " + join(" | ") + " |";
def head: line, (map("---") | "|" + join("|") + "|");

def found:
  (["scenario", "own plan", "found", "plan found", "simulated / all", "CPU s"] | head),
  (.[] | .own.throughput_samples_per_s as $own | [.name,
    (if .own.fits then "\($own | significant(4))" else "does not fit" end),
    "\(.best.throughput_samples_per_s | significant(4))"
      + (if .own.fits then " (\(.best.throughput_samples_per_s / $own - 1 | percent(0)))" else "" end),
    (.best | plan), "\(.trials) / \(.candidates)", "\(.cpu_s | fixed(2))"] | line);

def gains:
  (["scenario", "plan found", "its skips, GB", "(a) equal parameters", "(b) equal units", "(c) straight 1F1B",
    "replicas alone"] | head),
  (.[] | [.name, (.best | plan), (.best.skip_bytes | gb), cell("equal-parameters"), cell("equal-units"),
    cell("straight"), cell("replicas")] | line);

def frozen:
  (["scenario", "equal parameters", "split", "equal trainable parameters", "split"] | head),
  (.[] | select(any(.baselines[]; .name == "equal-trainable")) | [.name,
    cell("equal-parameters"), (row("equal-parameters").plan.split | tostring),
    cell("equal-trainable"), (row("equal-trainable").plan.split | tostring)] | line);

def figures: "\(.bubble_ratio * 100 | fixed(1)) %, \(
    if has("boundary_and_skip_bytes") then .boundary_and_skip_bytes else .boundary_bytes + .skip_bytes end | gb) GB, \(
    .peak_memory_bytes / 1e9 | fixed(1)) GB";
def folded:
  (["scenario", "plan found", "its bubble, traffic, memory", "best folded plan", "its bubble, traffic, memory",
    "folded is"] | head),
  (.[] | . as $all | row("folded") as $f | [.name, (.best | plan), (.best | figures), ($f | plan), ($f | figures),
    (if $f.fits | not then $f.why elif $f.gain_of_best | fabs < 1e-9 then "the plan found" else $f.why end)] | line);

if $table == "found" then found elif $table == "gains" then gains elif $table == "frozen" then frozen
elif $table == "folded" then folded else error("no table \($table)") end
