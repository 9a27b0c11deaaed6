#!/bin/bash
# Builds, runs and tests Postern. Building and running need only Go.
#
#   ./xcaddy.sh           build bin/caddy (Caddy with Postern), bin/connector, and the
#                         archive of the connector that the gateway offers for
#                         download, for this operating system and architecture
#   ./xcaddy.sh up [...]  build if sources have changed, then run everything on
#                         this machine: bin/caddy gateway up [...]
#   ./xcaddy.sh connectors
#                         build the archives for all systems into bin/connectors/
#   ./xcaddy.sh release [VERSION] [...]
#                         build archives, packages and images into dist/, by default
#                         with the version of the tag. Flags: tools/release/main.go
#   ./xcaddy.sh test      build, and run the tests that must pass before a change
#                         is merged
#   ./xcaddy.sh test long also run the slow tests: bad networks, attacks, 3,000
#                         connectors, clusters, ten minutes of faults under load,
#                         the bench, six platforms
#   ./xcaddy.sh test NAME run the tests whose names match the regular expression
#   ./xcaddy.sh lint      lint everything, and the connector for Windows
#   ./xcaddy.sh lint long also lint the connector for macOS
#
# The tests also need node and npm (SDKs for Node, axe-core), apt (to fetch a
# llama-server into .cache/, where an etcd is built, too), shellcheck, Chromium, and
# on Linux iproute2, nftables and root (network namespaces). On Debian, the tests
# install Chromium, shellcheck, iproute2 and nftables if root runs them. Without these
# tools, they fail. POSTERN_SKIP_NODE=1, POSTERN_SKIP_LLAMA=1,
# POSTERN_SKIP_BROWSER=1 and POSTERN_SKIP_NETWORK=1 skip the tests that need them.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")"

caddy_tags=nobadger,nomysql,nopgx # excludes some databases of Caddy's ACME server, as xcaddy does

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

# changed FILE: succeeds if a source file is newer than the built FILE.
changed() {
	[ -x "$1" ] || return 0
	[ -n "$(find go.mod go.sum plugin.go cmd caddymodule connector -type f \
		! -name '*_test.go' ! -path '*/testdata/*' -newer "$1" -print -quit)" ]
}

# version: prints the version of the tag. Without one, it is a version before the next release,
# with the number of commits: v0.9.0-dev.1234+g849d86f16a92. All package managers sort these.
version() {
	local next commit tag
	next=v$(cat connector/version/VERSION)
	commit=$(git describe --always --exclude '*' --abbrev=12 --dirty=.dirty 2>/dev/null) || {
		echo "$next-dev"
		return
	}
	if ! tag=$(git describe --exact-match --tags --match 'v[0-9]*' 2>/dev/null); then
		echo "$next-dev.$(git rev-list --count HEAD)+g$commit"
	elif [[ $commit == *.dirty ]]; then
		echo "$tag+dirty"
	else
		echo "$tag"
	fi
}

# version_flags VERSION: prints the linker flags that set the version and the commit.
version_flags() {
	local package=github.com/postern-dev/postern/connector/version
	echo "-X $package.number=$1 -X $package.commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)"
}

# as_caddy COMMAND...: runs a Go command with the settings of bin/caddy, so that it shares
# compiled packages with bin/caddy.
as_caddy() { CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath" "$@"; }

# Test programs are linked without DWARF. Packages compile a sixth faster without it, too.
# With -trimpath, all clones share compiled packages.
no_dwarf=-gcflags=all=-dwarf=false
race=(-race -trimpath "$no_dwarf")

# With fewer garbage collections, compilers and linters need a tenth less time. Tests use
# the default.
compile_gogc=400

# as_tests COMMAND...: runs a linter with the settings of the tests, so that both share
# Caddy's many compiled packages.
as_tests() { GOFLAGS="$(go env GOFLAGS) ${race[*]}" "$@"; }

# Both programs are built under a temporary name, because a running binary cannot be
# overwritten, and an incomplete one must not be started. touch is necessary because a
# build of unchanged sources may keep the old date.
build_caddy() {
	step "building bin/caddy"
	GOGC=$compile_gogc as_caddy go build -tags "$caddy_tags" -ldflags "-s -w $(version_flags "$(version)")" -o bin/caddy.new ./cmd/postern
	touch bin/caddy.new
	mv bin/caddy.new bin/caddy
}

# The archive and bin/connector have the same version, so they are built together.
build_connector() {
	step "building bin/connector"
	local version platform
	version=$(version)
	platform=$(go env GOOS)_$(go env GOARCH | sed 's/^arm$/armv7/')
	as_caddy go build -ldflags "-s -w $(version_flags "$version")" -o bin/connector.new ./connector
	rm -rf bin/connectors/connector_*_"$platform".tar.gz
	mkdir -p bin/connectors bin/archive
	cp bin/connector.new bin/archive/connector
	tar -czf "bin/connectors/connector_${version#v}_$platform.tar.gz" -C bin/archive connector -C ../.. LICENSE
	rm -r bin/archive
	touch bin/connector.new
	mv bin/connector.new bin/connector
}

build_changed() {
	mkdir -p bin
	if changed bin/caddy; then build_caddy; fi
	if changed bin/connector || [ ! -d bin/connectors ]; then build_connector; fi
}

build() {
	mkdir -p bin
	build_caddy
	build_connector
}

# need COMMAND VARIABLE WHAT: fails unless COMMAND exists or VARIABLE is 1.
need() {
	if [ "${!2:-}" != 1 ] && ! command -v "$1" >/dev/null; then
		echo "xcaddy.sh: $1 is missing: install $3, or set $2=1 to skip the tests that need it" >&2
		exit 1
	fi
}

# bring COMMAND OTHERWISE PACKAGE...: installs Debian packages that have COMMAND, or fails with
# OTHERWISE as the alternative if it cannot install them.
bring() {
	local command=$1 otherwise=$2
	shift 2
	if command -v "$command" >/dev/null; then return; fi
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "xcaddy.sh: $command is missing: install it$otherwise" >&2
		exit 1
	fi
	step "installing $*"
	quietly apt-get -q update
	quietly env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"
}

# need_chromium: installs Chromium if it can. Otherwise it fails, unless
# POSTERN_SKIP_BROWSER is 1.
need_chromium() {
	local name
	for name in chromium-browser google-chrome google-chrome-stable; do
		if command -v "$name" >/dev/null; then return; fi
	done
	if [ "${POSTERN_SKIP_BROWSER:-}" = 1 ]; then return; fi
	bring chromium ", or set POSTERN_SKIP_BROWSER=1 to skip the tests that need it" chromium fonts-dejavu-core
}

# need_network: installs the tools for the tests of bad networks if it can. Otherwise it
# fails, unless POSTERN_SKIP_NETWORK is 1.
need_network() {
	local command otherwise=", or set POSTERN_SKIP_NETWORK=1 to skip the tests that need it"
	if [ "${POSTERN_SKIP_NETWORK:-}" = 1 ] || [ "$(uname)" != Linux ]; then return; fi
	if [ "$(id -u)" != 0 ]; then
		echo "xcaddy.sh: network namespaces need root: run as root, or set POSTERN_SKIP_NETWORK=1 to skip the tests that need them" >&2
		exit 1
	fi
	for command in ip nft; do
		bring "$command" "$otherwise" iproute2 nftables
	done
}

# part NAME COMMAND...: runs a part of the tests and prints its duration. After a failure, it
# repeats the output without the packages that passed.
part() {
	local name=$1 start=$SECONDS log
	shift
	log=$(mktemp)
	step "$name"
	if ! "$@" 2>&1 | tee "$log" >&2; then
		step "$name failed after $((SECONDS - start)) s"
		awk '!/^ok\t/' "$log" >&2
		rm -f "$log"
		exit 1
	fi
	rm -f "$log"
	step "$name took $((SECONDS - start)) s"
}

# tests MODULE FLAG...: runs the tests of a module without vet, which the linters include. It prints
# a line per package, what failed, and the number of tests. On a busy machine, a package may take
# longer than the ten minutes of go test.
tests() {
	local module=$1
	shift
	go -C "$module" test -json -vet=off -shuffle=on -timeout 30m "$@" 2>&1 | "$root/.cache/testreport" -skips "$skips"
}

# lint SYSTEM...: lints everything, and the connector for other systems. Short runs leave out
# macOS: no file is specific to it, and with an empty cache it takes a minute.
lint() {
	local linter=$PWD/.cache/golangci-lint actionlint=$PWD/.cache/actionlint
	local -x GOGC=$compile_gogc
	bring shellcheck "" shellcheck # actionlint uses it, too
	# go tool ignores the settings of bin/caddy, and would compile many packages again.
	part "building the linters" as_caddy go -C tools build -o "$linter" github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	part "building the linter of the workflows" as_caddy go -C tools/release build -o "$actionlint" github.com/rhysd/actionlint/cmd/actionlint
	as_tests part "lint" "$linter" run ./...
	part "lint of the scripts" shellcheck xcaddy.sh packaging/*.sh tests/llama/fetch.sh docs/cluster/run.sh
	part "lint of the workflows" "$actionlint"
	part "lint of the SDK tests" as_caddy go -C tests/sdk/go vet -gcflags='github.com/...=-N -l -dwarf=false' ./... # the flags of their test
	part "lint of the tools" as_caddy env -C tools "$linter" run ./testreport
	part "lint of the release" as_caddy env -C tools/release "$linter" run ./...
	as_tests part "lint of the cluster tests" env -C tests/cluster "$linter" run ./...
	as_tests part "lint of the tests with an issuer" env -C tests/oidc "$linter" run ./...
	for system in "$@"; do
		GOOS=$system CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) '-gcflags=all=-N -l -dwarf=false'" part "lint for $system" "$linter" run ./connector/...
	done
}

need_tools() {
	need npm POSTERN_SKIP_NODE "Node.js 20 or newer with npm"
	need node POSTERN_SKIP_NODE "Node.js 20 or newer"
	need apt-get POSTERN_SKIP_LLAMA "a Debian-like system's apt"
	need_chromium
	need_network
	bring shellcheck "" shellcheck # without it, its tests would be skipped
}

# run_tests FLAG...: builds, and runs the tests, the fast ones first.
run_tests() {
	# Tests of these packages wait for pings and handshakes. No other tests run, and no packages
	# are compiled, at the same time.
	local units tunnel timed='/(tunnel|agent|dial|link)(/|$)' root=$PWD skips
	need_tools
	build_changed
	as_caddy go -C tools build -o "$root/.cache/testreport" ./testreport
	skips=$(mktemp)
	units=$(go list ./... | grep -vE "/tests(/|\$)|$timed")
	tunnel=$(go list ./... | grep -E "$timed")
	# More packages than cores run in parallel, because they wait for processes and timers.
	# shellcheck disable=SC2086 # one word per package
	part "unit tests" tests . "${race[@]}" -ldflags=-w -p 4 "$@" $units
	# shellcheck disable=SC2086
	part "unit tests of the tunnel" tests . "${race[@]}" -ldflags=-w -p 3 "$@" $tunnel
	# These measure time and memory, so they run without the race detector.
	as_caddy part "bounded work" tests . -p 1 -run '^(TestWorkIsBounded|TestManyKeys|TestParametersAllocate)$' "$@" ./caddymodule/dialect ./caddymodule/store
	part "end-to-end tests" tests . "${race[@]}" -ldflags=-w -timeout 60m -p 3 "$@" ./tests/...
	part "tests with an issuer" tests tests/oidc "${race[@]}" -ldflags=-w "$@" .
	part "cluster and release" cluster_and_release "$@"
	step "all tests passed; $(summary "$skips")"
	rm -f "$skips"
}

# cluster_and_release FLAG...: runs both in parallel, because the tests of etcd wait for leases
# while those of the release compile.
cluster_and_release() {
	tests tests/cluster "${race[@]}" -ldflags=-w -parallel 8 "$@" . &
	local failed=0 cluster=$!
	as_caddy tests tools/release "$@" . || failed=1
	wait "$cluster" || failed=1
	return "$failed"
}

# summary FILE: prints the number of skipped tests and the reasons.
summary() {
	local reasons
	reasons=$(sed 's/^[^:]*: //' "$1" | sort | uniq -c | sort -rn | awk '{ n = $1; $1 = ""; printf "%s%d ×%s", sep, n, $0; sep = ", " }')
	echo "skipped: ${reasons:-none}"
}

# run_matching NAME: runs the matching tests, in the packages that have any. The tests of etcd,
# with an issuer and of the release are separate modules.
run_matching() {
	local found packages
	found=$(grep -rEo --include='*_test.go' '^func (Test|Fuzz)[A-Za-z0-9_]+' caddymodule connector tests tools/release |
		awk -F '[: ]' -v name="${1%%/*}" '$3 ~ name { sub("/[^/]*$", "", $1); print "./" $1 }' | sort -u)
	if [ -z "$found" ]; then
		echo "xcaddy.sh: no test matches $1" >&2
		exit 1
	fi
	packages=$(grep -vE '^./(tools/release|tests/cluster|tests/oidc)$' <<<"$found" || true)
	if [ "$packages" ]; then
		build_changed
		# shellcheck disable=SC2086 # one word per package
		part "tests that match $1" go test "${race[@]}" -p 1 -run "$1" $packages
	fi
	if grep -qx ./tests/cluster <<<"$found"; then
		part "tests of etcd that match $1" go -C tests/cluster test "${race[@]}" -parallel 8 -run "$1" .
	fi
	if grep -qx ./tests/oidc <<<"$found"; then
		part "tests with an issuer that match $1" go -C tests/oidc test "${race[@]}" -run "$1" .
	fi
	if grep -qx ./tools/release <<<"$found"; then
		part "tests of the release that match $1" as_caddy go -C tools/release test -run "$1" .
	fi
}

# release [VERSION] [FLAG...]: builds a release. The programs and the names of the files have
# the same version.
release() {
	local version next root=$PWD
	case "${1:-}" in
	v[0-9]* | [0-9]*) version=v${1#v} && shift ;;
	*)
		version=$(version) next=$(cat connector/version/VERSION)
		if ! [[ $version =~ ^v"$next"([-+]|$) ]]; then
			echo "xcaddy.sh: the tag $version is not of $next, the number in connector/version/VERSION" >&2
			return 1
		fi
		;;
	esac
	as_caddy go -C tools/release run . -root "$root" -version "$version" -tags "$caddy_tags" -ldflags "-s -w $(version_flags "$version")" "$@"
}

# connectors: builds the connector's archives of a release, next to bin/caddy.
connectors() {
	release -programs connector -parts archives -out .cache/connectors
	mkdir -p bin/connectors
	rm -f bin/connectors/connector_*
	mv .cache/connectors/connector_* bin/connectors/
	rm -r .cache/connectors
	ls bin/connectors >&2
}

# help: prints the comment at the beginning of this file.
help() { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; }

case "${1:-build}" in
build) build ;;
help | -h | --help) help ;;
build-changed) build_changed ;;
up)
	shift
	build_changed
	exec bin/caddy gateway up "$@"
	;;
connectors) connectors ;;
release)
	shift
	release "$@"
	;;
test)
	case "${2:-}" in
	"") run_tests -short ;;
	long) run_tests -p 1 ;; # one package at a time, because some measure time
	*) run_matching "$2" ;;
	esac
	;;
lint)
	case "${2:-}" in
	long) lint windows darwin ;;
	*) lint windows ;;
	esac
	;;
*)
	help >&2
	echo "
xcaddy.sh: unknown command: $1" >&2
	exit 2
	;;
esac
