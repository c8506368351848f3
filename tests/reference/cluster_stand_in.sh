#!/bin/bash
# Stands for srun, scontrol, ray, ssh, metalforge, hostname, getent and ip: what is called is written down, then done as
# far as one machine can. $STAND: a folder with the records (`called`) and what is to happen (`plan`, `state`).
name=${0##*/}
host=${SLURMD_NODENAME:-${STAND_HOST:-n1}}
record() { printf '%s\t%s\t%s\n' "$host" "$1" "$2" >>"$STAND/called"; }
arguments=$(printf '%q ' "$@")

until_told() { # that is: until SIGTERM, which is written down; $1: the exit code then
  sleep 100 >/dev/null 2>&1 &
  local sleeper=$! code=$1
  trap 'record "$name" TERM; kill $sleeper; exit $code' TERM
  if [[ $name == metalforge ]]; then echo $$ >"$STAND/running"; else record ready "$2"; fi
  wait $sleeper
}

case $name in
  hostname)
    [[ ${1:-} == -I ]] && cat "$STAND/addresses" || echo "$host"
    exit
    ;;
  getent) exit 2 ;;
  ip)
    [[ $6 == ib0 ]] && echo "2: ib0    inet 172.16.5.9/16 brd 172.16.255.255 scope global ib0"
    exit
    ;;
esac
record "$name" "$arguments"
case $name in
  scontrol)
    if [[ $1 == show && $2 == hostnames ]]; then echo "$3" | tr , '\n'; fi
    if [[ $1 == show && $2 == job ]]; then cat "$STAND/state"; fi
    ;;
  srun)
    while [[ $1 == --* ]]; do
      [[ $1 == --nodelist=* ]] && list=${1#*=}
      shift
    done
    for node in ${list//,/ }; do
      # Where Ray is no stand-in, nodes of one host must not have the same ports, which follow from this number.
      SLURM_JOB_ID=$((SLURM_JOB_ID + ${STAND_ONE_HOST:-0} * (${node#n} - 1))) SLURMD_NODENAME=$node "$@" &
      tasks+=($!)
    done
    trap 'kill -TERM "${tasks[@]}" 2>/dev/null; wait; exit 143' TERM
    wait
    ;;
  ray)
    record token "$RAY_AUTH_MODE $(stat -c %a "$RAY_AUTH_TOKEN_PATH") $(<"$RAY_AUTH_TOKEN_PATH") ${RAY_AUTH_TOKEN-unset}"
    port=$(sed 's/.*\(--port=\|--address=[0-9.]*:\)\([0-9]*\).*/\2/' <<<"$*")
    until_told 0 "$port"
    ;;
  ssh)
    while [[ $1 == -o ]]; do shift 2; done
    [[ $1 == -- ]] && shift
    STAND_HOST=$1 HOME="$STAND/home-$1"
    export STAND_HOST HOME
    mkdir -p "$HOME" && cd "$HOME" && shift && exec bash -c "$*"
    ;;
  metalforge)
    plan=$(<"$STAND/plan")
    case $1/$2 in
      cluster/check)
        [[ $plan == old-ray ]] && exit 3
        echo "Ray 2.60.0, token"
        ;;
      cluster/wait)
        head=${*: -1}
        until (($(grep -c $'\tready\t'"${3#*:}" "$STAND/called") >= $5)); do
          kill -0 "$head" 2>/dev/null || exit 3
          sleep 0.02
        done
        ;;
      scan/* | resume/*)
        [[ $plan == until-told ]] && until_told 75
        exit "$plan"
        ;;
    esac
    ;;
esac
