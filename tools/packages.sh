# Sourced by quickstart.sh and tests/run.sh: the one list of the Debian packages that Ashlar needs.
# shellcheck shell=bash disable=SC2034

PACKAGES_BUILD="g++ cmake ninja-build pkg-config ccache liburing-dev libabsl-dev libxxhash-dev
  libblkid-dev libcli11-dev nlohmann-json3-dev"
PACKAGES_TESTS="libgtest-dev libgmock-dev libbenchmark-dev clang libclang-rt-14-dev e2fsprogs fdisk mount util-linux
  bsdutils perl-base"
# For comparison only: what is missing, kv_bench is built without.
PACKAGES_BENCH="librocksdb-dev"

# as_root COMMAND...
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "not root and no sudo: cannot run $*" >&2
    return 1
  fi
}

missing_packages() {
  local name
  for name in "$@"; do
    case $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) in
      installed) ;;
      *) printf '%s ' "$name" ;;
    esac
  done
}

# install_packages NAME...: installs those that are missing; the package lists are fetched when there are none
# or they are too old to find a package. On another system it only says what is wanted.
install_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian system; wanted, by Debian's names: $*"
    return 0
  fi
  missing=$(missing_packages "$@")
  [ -z "$missing" ] && return 0
  echo "installing ${missing% }"
  # shellcheck disable=SC2086
  set -- apt-get install -y -q --no-install-recommends $missing
  as_root env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >/dev/null 2>&1 && return 0
  as_root apt-get update -q </dev/null >/dev/null &&
    as_root env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >/dev/null
}

# The same objects from any checkout: what ccache keeps names no directory.
use_ccache() {
  export CCACHE_BASEDIR=$1 CCACHE_NOHASHDIR=1
}
