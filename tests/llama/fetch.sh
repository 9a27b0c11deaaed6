#!/bin/bash
# usage: fetch.sh DIR
# Installs a real llama.cpp server as DIR/llama-server, unless it exists.
#
# Only Debian unstable has a package of it, which would install a newer libc on
# the system. So its files are unpacked into DIR and run with their own loader.
# apt uses its own state folder: this needs no root, and installs nothing on the
# system. It downloads about 12 MB in a few seconds.
set -euo pipefail
dir=$(realpath -m "${1:?usage: fetch.sh DIR}")
if [ -x "$dir/llama-server" ] && "$dir/llama-server" --version >/dev/null 2>&1; then
	exit 0
fi
command -v apt-get >/dev/null || {
	echo "fetch.sh: needs apt-get (a Debian system) to fetch llama-server" >&2
	exit 1
}

# The machine's own Debian mirror. A new image may have none before an update.
find_mirror() {
	# shellcheck disable=SC2016 # apt fills it in
	apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Created-By: Packages' 2>/dev/null |
		awk '$2 == "Debian" && $3 == "Debian" {print $1; exit}'
}
mirror=$(find_mirror)
mirror=${mirror:-http://deb.debian.org/debian/}

apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs"
: >"$apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$apt/sources.list"
opt=(-o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/nonexistent
	-o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
	-o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3
	-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
	-o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false)
echo "fetch.sh: fetching llama-server from $mirror sid"
apt-get -qq "${opt[@]}" update

# The dependencies of the server, except those that only maintainer scripts and
# https models use.
unused='^(debconf|wget|curl|perl.*|openssl-provider-legacy|libc-gconv-modules-extra|libgmp.*|libnettle.*|libhogweed.*|libunistring.*'
unused+='|libidn2.*|libffi.*|libp11.*|libtasn1.*|libgnutls.*|libpcre2.*|libpsl.*|libuuid1|gcc-.*-base)$'
mapfile -t packages < <(apt-get -q "${opt[@]}" -s --no-install-recommends install llama.cpp-tools |
	awk '$1 == "Inst" {print $2}' | grep -Ev "$unused")
(cd "$apt/debs" && apt-get -qq "${opt[@]}" download "${packages[@]}")

rm -rf "$dir"
mkdir -p "$dir/root"
for deb in "$apt"/debs/*.deb; do dpkg -x "$deb" "$dir/root"; done
rm -rf "$dir"/root/usr/share "$dir"/root/usr/lib/*-linux-gnu/gconv
cat >"$dir/llama-server" <<'S'
#!/bin/sh
# Starts the unpacked server with its own loader and libraries.
usr=$(dirname "$(realpath "$0")")/root/usr
lib=$(echo "$usr"/lib/*-linux-gnu*)
# The server searches its compute back ends at an absolute path. Select one that
# this processor supports. Any of them is good enough for a test model.
if [ -z "$GGML_BACKEND_PATH" ]; then
	backend=x64
	grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo && backend=haswell
	GGML_BACKEND_PATH=$(ls "$lib"/ggml/backends*/libggml-cpu-$backend.so 2>/dev/null | head -1)
	export GGML_BACKEND_PATH
fi
loader=$(ls "$lib"/ld-linux-*.so.* "$usr"/lib64/ld-linux-*.so.* 2>/dev/null | head -1)
exec "$loader" --library-path "$lib:$lib/llama" "$usr/bin/llama-server" "$@"
S
chmod +x "$dir/llama-server"
"$dir/llama-server" --version 2>&1 | head -1
