#!/bin/bash
# Builds, runs and tests Postern. It needs Go and nothing else to build and run.
#
#   ./xcaddy.sh           build bin/caddy (Caddy with Postern) and bin/connector
#   ./xcaddy.sh up [...]  build if sources have changed, then run everything on
#                         this machine: bin/caddy gateway up [...]
#   ./xcaddy.sh test      lint, build, and run the tests that must pass before a
#                         change is merged
#   ./xcaddy.sh test long the same with the slow tests: bad networks,
#                         attacks, 3,000 connectors, faults under load, six platforms
#   ./xcaddy.sh test NAME run the tests whose names match the regular expression
#
# The tests also need node and npm (SDKs for Node, axe-core), apt (it brings a
# llama-server into .cache/), Chromium, and on Linux iproute2, nftables and root
# (network namespaces). Root gets Chromium and the two installed on Debian.
# POSTERN_SKIP_NODE=1, POSTERN_SKIP_LLAMA=1, POSTERN_SKIP_BROWSER=1 and
# POSTERN_SKIP_NETWORK=1 leave out what needs them; otherwise a machine without
# them fails.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")"

caddy_version=v2.11.9 # as in go.mod

step() { echo "--- $*" >&2; }

# quietly COMMAND...: shows what a command prints only if it fails.
quietly() {
	local log
	log=$(mktemp)
	if ! "$@" >"$log" 2>&1; then
		cat "$log" >&2
		rm -f "$log"
		exit 1
	fi
	rm -f "$log"
}

# changed FILE: whether a source file is newer than the built FILE.
changed() {
	[ -x "$1" ] || return 0
	[ -n "$(find go.mod go.sum plugin.go caddymodule connector -type f \
		! -name '*_test.go' ! -path '*/testdata/*' -newer "$1" -print -quit)" ]
}

# version_flags: has the linker write down which Postern this is.
version_flags() {
	local package=github.com/postern-dev/postern/connector/version
	echo "-X $package.number=$(git describe --tags --always --dirty 2>/dev/null || echo dev)" \
		"-X $package.commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)"
}

# as_caddy COMMAND...: runs a Go command with the settings of xcaddy, so that the packages
# which its program shares with Caddy are compiled once.
as_caddy() { CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath" "$@"; }

# Both are built under a temporary name: a running binary cannot be overwritten,
# and an incomplete one must not be started. touch: a build of unchanged sources
# may leave an old date.
build_caddy() {
	step "building bin/caddy"
	# As xcaddy's own flags, and the version of Postern in a folder, which Go does not know.
	XCADDY_GO_BUILD_FLAGS="-trimpath -tags nobadger,nomysql,nopgx -ldflags '-s -w $(version_flags)'" \
		quietly as_caddy go tool xcaddy build "$caddy_version" --with github.com/postern-dev/postern@v0.0.0=. --output bin/caddy.new
	touch bin/caddy.new
	mv bin/caddy.new bin/caddy
}

build_connector() {
	step "building bin/connector"
	go build -trimpath -ldflags "-s -w $(version_flags)" -o bin/connector.new ./connector
	touch bin/connector.new
	mv bin/connector.new bin/connector
}

build_changed() {
	mkdir -p bin
	if changed bin/caddy; then build_caddy; fi
	if changed bin/connector; then build_connector; fi
}

build() {
	mkdir -p bin
	build_caddy
	build_connector
}

# need COMMAND VARIABLE WHAT: fails unless COMMAND is there or VARIABLE is 1.
need() {
	if [ "${!2:-}" != 1 ] && ! command -v "$1" >/dev/null; then
		echo "xcaddy.sh: $1 is missing: install $3, or set $2=1 to leave out the tests that need it" >&2
		exit 1
	fi
}

# need_chromium: installs Chromium where that is possible, or fails unless
# POSTERN_SKIP_BROWSER is 1.
need_chromium() {
	local name
	for name in chromium chromium-browser google-chrome google-chrome-stable; do
		if command -v "$name" >/dev/null; then return; fi
	done
	if [ "${POSTERN_SKIP_BROWSER:-}" = 1 ]; then return; fi
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "xcaddy.sh: chromium is missing: install it, or set POSTERN_SKIP_BROWSER=1 to leave out the tests that need it" >&2
		exit 1
	fi
	step "installing Chromium"
	quietly apt-get -q update
	quietly env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends chromium fonts-dejavu-core
}

# need_network: installs the tools of the tests of bad networks where that is
# possible, or fails unless POSTERN_SKIP_NETWORK is 1.
need_network() {
	if [ "${POSTERN_SKIP_NETWORK:-}" = 1 ] || [ "$(uname)" != Linux ]; then return; fi
	if [ "$(id -u)" != 0 ]; then
		echo "xcaddy.sh: network namespaces need root: run as root, or set POSTERN_SKIP_NETWORK=1 to leave out the tests that need them" >&2
		exit 1
	fi
	if command -v ip >/dev/null && command -v nft >/dev/null; then return; fi
	if ! command -v apt-get >/dev/null; then
		echo "xcaddy.sh: ip or nft is missing: install iproute2 and nftables, or set POSTERN_SKIP_NETWORK=1 to leave out the tests that need them" >&2
		exit 1
	fi
	step "installing iproute2 and nftables"
	quietly apt-get -q update
	quietly env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends iproute2 nftables
}

# part NAME COMMAND...: runs a part of the tests and prints how long it took. What a
# failing one printed comes again at the end, without the packages that passed.
part() {
	local name=$1 start=$SECONDS log
	shift
	log=$(mktemp)
	step "$name"
	if ! "$@" 2>&1 | tee "$log" | { grep --line-buffered -v 'no test files' || true; } >&2; then
		step "$name failed after $((SECONDS - start)) s"
		awk '!/^ok |no test files/' "$log" >&2
		rm -f "$log"
		exit 1
	fi
	rm -f "$log"
	step "$name took $((SECONDS - start)) s"
}

# lint SYSTEM...: the linters look at the code as the race detector has it, so that
# they and the tests compile Caddy's many packages once and not twice. Only the
# connector is built for other systems. Short runs leave out macOS: no file is for it
# alone, and an empty cache costs a minute.
lint() {
	local linter
	linter=$(as_caddy go -C tools tool -n golangci-lint)
	GOFLAGS="$(go env GOFLAGS) -race" part "lint" "$linter" run ./...
	part "lint of the SDK tests" as_caddy go -C tests/sdk/go vet -gcflags='github.com/...=-N -l' ./... # as their test builds it
	for system in "$@"; do
		GOOS=$system CGO_ENABLED=0 part "lint for $system" "$linter" run ./connector/...
	done
}

need_tools() {
	need npm POSTERN_SKIP_NODE "Node.js 20 or newer with npm"
	need node POSTERN_SKIP_NODE "Node.js 20 or newer"
	need apt-get POSTERN_SKIP_LLAMA "a Debian-like system's apt"
	need_chromium
	need_network
}

# run_tests SYSTEMS FLAG...: lints, builds, and runs the tests. The linters have vetted the
# code.
run_tests() {
	local units systems=$1
	shift
	need_tools
	# shellcheck disable=SC2086 # one word per system
	lint $systems
	build_changed
	units=$(go list ./... | grep -v '/tests\(/\|$\)')
	# shellcheck disable=SC2086 # one word per package
	part "unit tests" go test -race -vet=off -shuffle=on "$@" $units
	part "bounded work" as_caddy go test -vet=off -run '^TestWorkIsBounded$' ./caddymodule/dialect
	part "end-to-end tests" go test -race -vet=off -shuffle=on -timeout 60m "$@" ./tests/...
	step "all tests passed"
}

# run_matching NAME: runs the tests that match, of the packages that have some.
run_matching() {
	local packages
	packages=$(grep -rEo --include='*_test.go' '^func (Test|Fuzz)[A-Za-z0-9_]+' caddymodule connector tests |
		awk -F '[: ]' -v name="${1%%/*}" '$3 ~ name { sub("/[^/]*$", "", $1); print "./" $1 }' | sort -u)
	if [ -z "$packages" ]; then
		echo "xcaddy.sh: no test matches $1" >&2
		exit 1
	fi
	build_changed
	# shellcheck disable=SC2086 # one word per package
	part "tests that match $1" go test -race -p 1 -run "$1" $packages
}

case "${1:-build}" in
build) build ;;
build-changed) build_changed ;;
up)
	shift
	build_changed
	exec bin/caddy gateway up "$@"
	;;
test)
	case "${2:-}" in
	"") run_tests windows -short ;;
	long) run_tests "windows darwin" -p 1 ;; # some measure time
	*) run_matching "$2" ;;
	esac
	;;
*)
	sed -n '2,18s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
