
# Usage: install.sh [CODE [--to DIR] [--service | --no-service] [FLAG...]]
#
# Installs the connector in /usr/local/bin as root, otherwise in ~/.local/bin. With a pairing
# code it also pairs this machine; the remaining flags are those of "connector pair".
# --service installs the service without a question, --no-service runs the connector
# in the foreground.
#
# On a machine that has a connector, it replaces the program, keeps the configuration and the
# service, and restarts that.
#
# Usage: use.sh CLIENT CODE [FLAG...]
#
# Sets up a client, such as claude, with a code of the console. The flags are those of "connector use". The connector
# is downloaded for that, and removed again.

say() { printf '%s\n' "$*" >&2; }
fail() {
	say "$self: $*"
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

# choose_folder sets the folder of the program. An update must not install a second one.
choose_folder() {
	if [ -n "$to" ]; then return; fi
	if [ "$(id -u)" = 0 ]; then to=/usr/local/bin; else to=$HOME/.local/bin; fi
	other=$(command -v connector) || return 0
	[ -n "$code" ] || [ -e "$to/connector" ] ||
		fail "this machine has $other. If the line put it there, run this as the user who ran that, such as root; update a package as a package. --to DIR installs another connector"
}

# install_program moves the program into its folder, under its name once it is complete and has
# started. A running one is not disturbed.
install_program() {
	mkdir -p -- "$to" || fail "cannot create $to; choose a folder with --to DIR"
	to=$(CDPATH='' cd -- "$to" && pwd)
	if ! { [ ! -d "$to/connector" ] && new=$(mktemp "$to/.connector.XXXXXX") && cp "$scratch/connector" "$new" &&
		chmod 755 "$new"; }; then
		fail "cannot write $to/connector; choose a folder with --to DIR"
	fi
	"$new" --version >/dev/null || fail "the connector of the gateway does not start on this machine; nothing has changed"
	mv -f "$new" "$to/connector" || fail "cannot write $to/connector; choose a folder with --to DIR"
	say "Installed $("$to/connector" --version | head -n 1) in $to"
	case ":$PATH:" in
	*":$to:"*) ;;
	*) say "$to is not in PATH. To add it: export PATH=\"$to:\$PATH\"" ;;
	esac
}

# ask QUESTION asks on the terminal: standard input is this script.
ask() {
	printf '%s [Y/n] ' "$1" >/dev/tty
	read -r answer </dev/tty || return 1
	case $answer in
	'' | y* | Y*) ;;
	*) return 1 ;;
	esac
}

# want_service decides whether to install the service.
want_service() {
	case $service in
	yes) ;;
	no) return 1 ;;
	*) ask "Run the connector as a service, which starts with this machine?" ;;
	esac
}

# restart restarts the service with the program, and ends the script when it is online, or with the
# reason. It returns if there is no service. The terminal may be connected through this machine's connector.
restart() {
	user='' status=0
	[ "$(id -u)" = 0 ] || user=yes
	{
		problem=$(
			trap '' HUP
			"$to/connector" service restart ${user:+--user} ${config:+--config "$config"} </dev/null 2>&1 >&3 3>&-
		) || status=$?
	} 3>&1
	[ "$status" != 5 ] || return 0
	[ -z "$problem" ] || say "$problem"
	exit "$status"
}

# start runs the connector: as a service, or in the foreground.
start() {
	if [ -z "$service" ] && ! (: </dev/tty >/dev/tty) 2>/dev/null; then
		say "Start it with:   $to/connector run${config:+ --config $config}"
		say "or as a service: $to/connector service install${config:+ --config $config}"
		return
	fi
	if want_service; then
		"$to/connector" service install --no-start ${config:+--config "$config"} </dev/null && restart
		[ "$service" != yes ] || exit 1
		say "Running it in the foreground instead."
	fi
	exec "$to/connector" run ${config:+--config "$config"} </dev/null
}

# use_client CLIENT CODE [FLAG...]
use_client() {
	[ $# -ge 2 ] || fail "a client and a code are needed, such as: claude USE-7K3M-Q9TX"
	otherwise="To set up the client by hand, open the page of a model: $console/models"
	fetch
	terminal=/dev/tty # standard input is this script
	(: </dev/tty) 2>/dev/null || terminal=/dev/null
	"$scratch/connector" use "$@" --gateway "${console%/console}" <"$terminal"
}

main() {
	if [ "$self" = use.sh ]; then
		use_client "$@"
		return
	fi
	code='' to='' service='' config=''
	case ${1-} in
	[Pp][Aa][Ii][Rr]-*)
		code=$1
		shift
		;;
	esac
	left=$#
	while [ "$left" -gt 0 ]; do
		flag=$1
		shift
		left=$((left - 1))
		case $flag in
		--service) service=yes ;;
		--no-service) service=no ;;
		--to | --config | -c)
			[ "$left" -gt 0 ] || fail "$flag needs a value"
			if [ "$flag" = --to ]; then to=$1; else config=$1; fi
			shift
			left=$((left - 1))
			;;
		--to=*) to=${flag#*=} ;;
		--config=*) config=${flag#*=} ;;
		*) set -- "$@" "$flag" ;; # of connector pair
		esac
	done
	[ -n "$code" ] || [ $# = 0 ] || fail "unexpected argument $1; the pairing code comes first, like PAIR-7K3M-Q9TX"

	if [ "$(uname -s)" = Darwin ] && [ "$(id -u)" = 0 ]; then
		fail "on macOS, run this without sudo: the service is the user's"
	fi
	otherwise='Or run ./xcaddy.sh in a clone on this machine, and use bin/connector'
	choose_folder
	before=''
	[ ! -e "$to/connector" ] || before=yes
	fetch
	install_program
	rm -rf "$scratch"

	# A system service cannot read the configuration of a user.
	named=$config
	[ -n "$config" ] || [ "$(id -u)" != 0 ] || config=/etc/postern/connector.json
	if [ -z "$code" ]; then
		[ -n "$before" ] || return 0
		[ "$service" = no ] || restart
		say "If the connector runs, restart it: it still runs the former program."
		return
	fi
	status=0
	"$to/connector" pair "$gateway" "$code" ${config:+--config "$config"} --no-run "$@" </dev/null || status=$?
	case $status in
	0) ;;
	4) say "This machine stays paired." ;;
	*) exit "$status" ;;
	esac
	# A new token in the usual file is for the service. Another file is for another connector.
	if [ "$service" != no ] && { [ "$status" = 4 ] || [ -z "$named" ]; }; then restart; fi
	start
}

main "$@"
