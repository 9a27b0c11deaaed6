
# Usage: use.sh CLIENT CODE [FLAG...]
#        use.sh --undo CLIENT
#
# Sets up a client, such as claude, with a code of the gateway's console. The flags are those of "connector use". A
# connector that is not installed is downloaded for that, and removed again.

main() {
	[ $# -ge 2 ] || fail "a client and a code are needed, such as: claude USE-7K3M-Q9TX"
	if ! { program=$(command -v connector) && "$program" use --help >/dev/null 2>&1; }; then
		otherwise="To set up the client by hand, open the page of a model: $console/models"
		fetch
		program=$scratch/connector
	fi
	terminal=/dev/tty # standard input is this script
	(: </dev/tty) 2>/dev/null || terminal=/dev/null
	gateway=${console%/console} # which trades the code
	"$program" use "$@" --gateway "$gateway" <"$terminal"
}
