# What no step could be told otherwise lies beside the campaign, where all nodes see it, and goes when the job ends.
state="$out.cluster-$SLURM_JOB_ID"
# Interrupted, by the end of its time as a rule: the same job goes on later. One that was cancelled does not.
requeue() {
  if [[ $(scontrol show job "$SLURM_JOB_ID") == *JobState=CANCELLED* ]]; then
    say "cancelled; go on with: sbatch of this script"
  elif ((${SLURM_RESTART_COUNT:-0} >= requeues)); then
    say "requeued $requeues times already; go on with: sbatch of this script"
  else
    scontrol requeue "$SLURM_JOB_ID" || say "requeue was refused; go on with: sbatch of this script"
  fi
}
finish() {
  local code=$?
  trap '' TERM INT USR1 HUP
  end_children
  rm -rf "$state"
  if ((code == 75)); then requeue || true; fi
  exit "$code"
}
trap finish EXIT
mkdir -p -- "$state"
write_node_script
make_token
activate_environment

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
cluster="$(bash "$state/node.sh" address):$ports"
step=(srun --cpus-per-task="${cpus:-$SLURM_CPUS_ON_NODE}" --cpu-bind=none --ntasks-per-node=1)
if ((gpus)); then step+=(--gpus-per-node="$gpus"); fi

"${step[@]}" --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" bash "$state/node.sh" head </dev/null &
children+=($!)
await_nodes 1
if ((${#nodes[@]} > 1)); then
  # One step for all of them, which a node that fails does not end.
  workers=("${nodes[@]:1}")
  list=$(IFS=, && printf '%s' "${workers[*]}")
  "${step[@]}" --nodes="${#workers[@]}" --ntasks="${#workers[@]}" --nodelist="$list" --no-kill --kill-on-bad-exit=0 \
    --wait=0 bash "$state/node.sh" worker "$cluster" </dev/null &
  children+=($!)
  await_nodes "${#nodes[@]}"
fi

run_campaign
