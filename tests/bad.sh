#!/bin/sh
# Malformed and absurd inputs. Each case in tests/bad is an input and, beside it, the one line that the program must say:
# exit status 2, that line on stderr, nothing on stdout. DIFFPIPE_REWRITE=1 writes the lines anew; read the diff.
#
#   scenario-NAME.toml   diffpipe simulate on it             cluster-NAME.toml   on good.toml with that cluster
#   set-NAME.args        on good.toml with those arguments   model-NAME.json     diffpipe inspect on it
#   devices-NAME.toml, links-NAME.toml, nccl-NAME.toml       on good.toml with that file in the catalogue
#   advise-NAME.toml     diffpipe advise on it, with good-dataset.toml
#   dataset-NAME.toml    diffpipe advise on good-advise.toml with that dataset
#   NAME.expected        the line, with DATA for the data folder; a case without an input names a missing file
program=${DIFFPIPE:-./diffpipe}
case $program in /*) ;; *) program=$PWD/$program ;; esac
cd "${SRCDIR:-.}/tests/bad" || exit 1
real=${DIFFPIPE_DATA_DIR:-$(cd ../../scenarios && pwd)}
"$program" help simulate >/dev/null 2>&1 && "$program" help inspect >/dev/null 2>&1 || exit 77
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
LC_ALL=C
export LC_ALL
failed=0
total=0

run() {
  data=$real
  case $1 in
    devices-* | links-* | nccl-*)
      data=$scratch/data
      rm -rf "$data"
      mkdir -p "$data/catalogue"
      cp "$real"/catalogue/*.toml "$data/catalogue" && chmod u+w "$data"/catalogue/*
      cp "$1.toml" "$data/catalogue/${1%%-*}.toml"
      ln -s "$real/clusters" "$data/clusters"
      ;;
  esac
  DIFFPIPE_DATA_DIR=$data
  export DIFFPIPE_DATA_DIR
  case $1 in
    scenario-*) "$program" simulate "$1.toml" ;;
    cluster-*) "$program" simulate good.toml --set "cluster.file=$1.toml" ;;
    advise-*) "$program" advise "$1.toml" --dataset good-dataset.toml --cluster clusters/4xrtx4090.toml ;;
    dataset-*) "$program" advise good-advise.toml --dataset "$1.toml" --cluster clusters/4xrtx4090.toml ;;
    model-*) "$program" inspect "$1.json" ;;
    set-*) set -- $(cat "$1.args") && "$program" simulate good.toml "$@" ;;
    *) "$program" simulate good.toml ;;
  esac >"$scratch/out" 2>"$scratch/raw"
  status=$?
  sed "s|$data/|DATA/|g" "$scratch/raw" >"$scratch/err"
}

complain() {
  echo "bad/$name: $1" >&2
  failed=$((failed + 1))
}

for file in *.expected *.toml *.json *.args; do echo "${file%.*}"; done | sort -u >"$scratch/names"
while read -r name; do
  case $name in good | good-*) continue ;; esac
  total=$((total + 1))
  run "$name"
  test "$status" -eq 2 || complain "exit status $status, expected 2"
  test ! -s "$scratch/out" || complain "wrote to stdout"
  lines=$(wc -l <"$scratch/err")
  test "$lines" -eq 1 || complain "$lines lines on stderr, expected 1"
  if test -n "$DIFFPIPE_REWRITE"; then cp "$scratch/err" "$name.expected"; fi
  cmp -s "$scratch/err" "$name.expected" && continue
  complain "did not say what it should:"
  diff "$name.expected" "$scratch/err" >&2
done <"$scratch/names"
echo "$total bad inputs, $failed complaints"
test "$failed" -eq 0 && test "$total" -ge 60
