# One node of a Ray cluster: bash node.sh address | head | worker HOST:PORT | stop
# Above stand the settings; beside this file lies the token that all nodes share.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# An address that no router of the internet forwards: RFC 1918, RFC 6598 (carriers), RFC 3927 (link-local).
is_private() {
  [[ $1 =~ ^(10\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|100\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.|169\.254\.) ]]
}

addresses() {
  if [[ -n $interface ]]; then
    ip -o -4 addr show dev "$interface" | sed 's/.* inet \([0-9.]*\).*/\1/'
  else
    getent ahostsv4 "${SLURMD_NODENAME:-$(hostname)}" | sed 's/ .*//' || true
    hostname -I | tr ' ' '\n'
  fi
}

# The address that other nodes are told: a private one, unless a public one was allowed.
own_address() {
  local found public=
  for found in $(addresses); do
    [[ $found =~ ^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$ && $found != 127.* ]] || continue
    if is_private "$found"; then
      printf '%s\n' "$found"
      return
    fi
    public=${public:-$found}
  done
  if [[ -n $public && $allow_public == yes ]]; then
    printf '%s\n' "$public"
    return
  fi
  say "no private IPv4 address${interface:+ on $interface}${public:+, only $public}"
  say "hint: --interface NAME chooses one; --allow-public-address where a firewall closes this host's ports"
  return 3
}

start() {
  local role=$1 address able folder options ray=0 signalled ended='' code
  address=$(own_address)
  activate_environment
  use_token "$here"
  # A node that is told to end hands its work over first, for so many seconds.
  export AUTOSCALER_METRIC_PORT=$((ports + 7)) RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=20
  # A Ray that knows no tokens would start, and let everybody in.
  able=$(metalforge cluster check)
  # Ray makes its folder and the sockets in it open to every user of the host; this one is not.
  folder=$(mktemp -d /tmp/mf-node-XXXXXX)
  options=(
    --block --node-ip-address="$address" --temp-dir="$folder/ray"
    --num-cpus="${cpus:-$(nproc)}" --num-gpus="$gpus"
    --node-manager-port=$((ports + 1)) --object-manager-port=$((ports + 2)) --runtime-env-agent-port=$((ports + 3))
    --dashboard-agent-grpc-port=$((ports + 4)) --dashboard-agent-listen-port=$((ports + 5))
    --metrics-export-port=$((ports + 6)) --min-worker-port="$worker_low" --max-worker-port="$worker_high"
  )
  if [[ $role == head ]]; then
    options+=(--head --port="$ports" --include-dashboard=false --disable-usage-stats)
    # Where Ray's client is installed its server cannot be switched off; it gets a port of this job at least.
    if [[ $client == yes || $able == *client* ]]; then
      options+=(--ray-client-server-port=$((ports + 8)))
    fi
  else
    options+=(--address="$2")
  fi
  trap 'signalled=1 ended=1; if ((ray)); then kill -TERM "$ray" 2>/dev/null || true; fi' TERM INT HUP
  printf '%s\n' $$ >"$here/$(hostname).pid"
  ray start "${options[@]}" </dev/null &
  ray=$!
  if [[ -n $ended ]]; then kill -TERM "$ray" 2>/dev/null || true; fi
  while :; do
    signalled='' code=0
    wait "$ray" || code=$?
    [[ -n $signalled ]] || break
  done
  rm -rf "$folder" "$here/$(hostname).pid"
  if [[ -z $ended ]]; then return "$code"; fi
}

# Only what this file started: `ray stop` would end every Ray of this user on the host.
stop() {
  local file pid
  file="$here/$(hostname).pid"
  [[ -r $file ]] || return 0
  pid=$(<"$file")
  if [[ $(ps -o args= -p "$pid" 2>/dev/null) == *node.sh* ]]; then
    kill -TERM "$pid" 2>/dev/null || true
    for _ in {1..450}; do
      kill -0 "$pid" 2>/dev/null || return 0
      sleep 0.1
    done
    say "process $pid still runs after 45 s"
    return 1
  fi
  rm -f "$file"
}

case ${1:-} in
  address) own_address ;;
  head) start head ;;
  worker) start worker "$2" ;;
  stop) stop ;;
  *)
    say "wanted address, head, worker HOST:PORT or stop. Got ${1:-nothing}"
    exit 2
    ;;
esac
