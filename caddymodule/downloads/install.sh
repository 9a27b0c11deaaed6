
# Usage: install.sh [CODE [--to DIR] [--service | --no-service] [FLAG...]]
#
# Installs the connector in /usr/local/bin as root, otherwise in ~/.local/bin. With a pairing
# code it also pairs this machine; the remaining flags are those of "connector pair".
# --service installs the service without a question, --no-service runs the connector
# in the foreground.

# install_program moves the program into its folder, under its name once it is complete. A
# running one is not disturbed.
install_program() {
	if [ -z "$to" ]; then
		if [ "$(id -u)" = 0 ]; then to=/usr/local/bin; else to=$HOME/.local/bin; fi
	fi
	mkdir -p -- "$to" || fail "cannot create $to; choose a folder with --to DIR"
	to=$(CDPATH='' cd -- "$to" && pwd)
	if ! { [ ! -d "$to/connector" ] && new=$(mktemp "$to/.connector.XXXXXX") && cp "$scratch/connector" "$new" &&
		chmod 755 "$new" && mv -f "$new" "$to/connector"; }; then
		fail "cannot write $to/connector; choose a folder with --to DIR"
	fi
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

# start runs the connector: as a service, or in the foreground.
start() {
	if [ -z "$service" ] && ! (: </dev/tty >/dev/tty) 2>/dev/null; then
		say "Start it with:   $to/connector run${config:+ --config $config}"
		say "or as a service: $to/connector service install${config:+ --config $config}"
		return
	fi
	if want_service; then
		"$to/connector" service install ${config:+--config "$config"} </dev/null && return
		[ "$service" != yes ] || exit 1
		say "Running it in the foreground instead."
	fi
	exec "$to/connector" run ${config:+--config "$config"} </dev/null
}

main() {
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
	fetch
	install_program
	rm -rf "$scratch"
	[ -n "$code" ] || return 0

	# A system service cannot read the configuration of a user.
	[ -n "$config" ] || [ "$(id -u)" != 0 ] || config=/etc/postern/connector.json
	"$to/connector" pair "$gateway" "$code" ${config:+--config "$config"} --no-run "$@" </dev/null || exit
	start
}
