
say() { printf '%s\n' "$*" >&2; }
fail() {
	say "$script: $*"
	exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# platform prints the system and architecture as in the names of archives.
platform() {
	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	FreeBSD) system=freebsd ;;
	*) system=$(uname -s) ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	armv7* | armv8*) arch=armv7 ;;
	*) arch=$(uname -m) ;;
	esac
	echo "$system/$arch"
}

# download URL FILE
download() {
	if has curl; then
		# shellcheck disable=SC2086 # one word, or none
		curl -fsSL ${unverified:+-k} -o "$2" "$1"
	elif has wget; then
		hsts='' # GNU wget would record the site in the home folder
		if wget --help 2>&1 | grep -q -e --no-hsts; then hsts=--no-hsts; fi
		# shellcheck disable=SC2086 # one word, or none
		wget -q $hsts ${unverified:+--no-check-certificate} -O "$2" "$1"
	else
		fail "neither curl nor wget is installed; install one of them"
	fi || fail "cannot download $1"
}

# sha256 FILE
sha256() {
	if has sha256sum; then
		sha256sum "$1"
	elif has shasum; then
		shasum -a 256 "$1"
	else
		openssl dgst -sha256 -r "$1"
	fi | cut -d ' ' -f 1
}

# fetch downloads, checks and unpacks the connector into the folder $scratch, which is removed at the end.
fetch() {
	new=''
	scratch=$(mktemp -d) || fail "cannot create a folder for temporary files; name one with TMPDIR"
	trap 'rm -rf "$scratch" "$new"' EXIT
	trap 'exit 1' HUP INT TERM
	has sha256sum || has shasum || has openssl ||
		fail "the download cannot be checked; install sha256sum, shasum or openssl"
	here=$(platform)
	line=$(printf '%s\n' "$archives" | grep "^$here ") ||
		fail "the gateway has no connector for $here; its operator can add it with './xcaddy.sh connectors' in the gateway's clone. $otherwise"
	name=$(printf '%s\n' "$line" | cut -d ' ' -f 2)
	say "Downloading $name"
	download "$console/connectors/$name" "$scratch/archive"
	[ "$(sha256 "$scratch/archive")" = "$(printf '%s\n' "$line" | cut -d ' ' -f 3)" ] ||
		fail "$name is damaged: its SHA-256 differs from the gateway's; try again"
	tar -xzf - -C "$scratch" connector <"$scratch/archive" || fail "cannot unpack $name"
}

main "$@"
