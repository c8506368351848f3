# Others have another working directory.
if [[ $out != /* ]]; then out="$PWD/$out"; fi

# A signal to this script goes to what it waits for: the scan checkpoints and ends with exit code 75.
stopping='' signalled='' attended=''
forward() {
  stopping=1 signalled=1
  if [[ -n $attended ]]; then kill -TERM "$attended" 2>/dev/null || true; fi
}
trap forward TERM INT USR1 HUP

# Run a command and return its exit code, whatever signals come meanwhile.
attend() {
  local code
  [[ -z $stopping ]] || return 75
  "$@" &
  attended=$!
  if [[ -n $stopping ]]; then forward; fi
  while :; do
    signalled='' code=0
    wait "$attended" || code=$?
    [[ -n $signalled ]] || break
  done
  attended=
  # What dies of the signal before it can catch it was interrupted, too.
  if [[ -n $stopping && $code == 143 ]]; then code=75; fi
  return "$code"
}

# 256 random bits, never on a command line.
make_token() {
  rm -f "$state/token"
  od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$state/token"
  use_token "$state"
}

# Wait for so many nodes. Those that come later get work when they come; without the head there is none.
await_nodes() {
  attend metalforge cluster wait "$cluster" --nodes "$1" --seconds "$patience" --head-process "${children[0]}"
}

# Begin the campaign, or go on with it where it has a journal.
run_campaign() {
  if [[ -e $out/journal.jsonl ]]; then
    attend metalforge resume "$out" --cluster "$cluster"
  else
    attend metalforge scan "${what[@]}" --cluster "$cluster" --out "$out"
  fi
}

children=()
# End what this script started, and nothing else.
end_children() {
  local child alive
  ((${#children[@]})) || return 0
  kill -TERM "${children[@]}" 2>/dev/null || true
  for _ in {1..450}; do
    alive=
    for child in "${children[@]}"; do
      if kill -0 "$child" 2>/dev/null; then alive=1; fi
    done
    [[ -n $alive ]] || return 0
    sleep 0.1
  done
  kill -KILL "${children[@]}" 2>/dev/null || true
}
