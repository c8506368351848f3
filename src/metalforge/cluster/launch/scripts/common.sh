set -euo pipefail
umask 077

say() { printf 'metalforge on %s: %s\n' "$(hostname)" "$*" >&2; }

activate_environment() {
  if [[ -n $activate ]]; then
    set +u # what activates an environment is not ours to correct
    # shellcheck source=/dev/null
    source "$activate"
    set -u
  fi
}

# The token is in a file of this folder that only its owner may read; no command line and no variable has it.
use_token() {
  unset RAY_AUTH_TOKEN # it would be taken before the file
  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$1/token" RAY_USAGE_STATS_ENABLED=0
}
