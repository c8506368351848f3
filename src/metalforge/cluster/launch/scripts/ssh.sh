# The head is here, workers are on the hosts. Each has the same folder for the token and what runs the node.
state="$HOME/$folder"
connect=(ssh -o BatchMode=yes -o ConnectTimeout=20 --)

stop_nodes() {
  local host
  for host in "${hosts[@]}"; do
    "${connect[@]}" "$host" "$remote_stop" </dev/null || say "$host: could not be stopped; see $folder there"
  done
  if [[ -e $state/node.sh ]]; then bash "$state/node.sh" stop || true; fi
  end_children
  # After all of them: home may be one folder for all hosts.
  for host in "${hosts[@]}"; do
    "${connect[@]}" "$host" "$remote_remove" </dev/null || true
  done
  rm -rf "$state"
}

if [[ ${1:-$action} == stop ]]; then
  stop_nodes
  exit 0
fi
if [[ -e $state ]]; then
  say "a cluster of this name was started already: $state"
  say "hint: the same command with --stop ends it; --name NAME starts another"
  exit 2
fi
finish() {
  local code=$?
  trap '' TERM INT USR1 HUP
  stop_nodes
  if ((code == 75)); then say "interrupted; the same command goes on with it"; fi
  exit "$code"
}
trap finish EXIT
mkdir -p -- "$state"
write_node_script
make_token
activate_environment

cluster="$(bash "$state/node.sh" address):$ports"
bash "$state/node.sh" head </dev/null &
children+=($!)
await_nodes 1
for host in "${hosts[@]}"; do
  # The token goes through the encrypted connection's input, as does the script.
  "${connect[@]}" "$host" "$remote_token" <"$state/token"
  "${connect[@]}" "$host" "$remote_script" <"$state/node.sh"
  "${connect[@]}" "$host" "$remote_worker $cluster" </dev/null &
  children+=($!)
done
await_nodes "$((${#hosts[@]} + 1))"

run_campaign
