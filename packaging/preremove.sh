#!/bin/sh
# Runs before a removal or an upgrade. Before a removal, dpkg passes "remove", rpm 0, and apk
# the version. Before an upgrade, dpkg passes "upgrade" and rpm 1. postinstall.sh then
# restarts the service.
set -e
package=postern

case $1 in
upgrade | failed-upgrade | deconfigure) # postinstall.sh checks this file
	if [ -d /run/systemd/system ]; then : >"/run/$package.upgrade"; fi
	exit 0
	;;
1) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl stop "$package.service" || true
fi
case $1 in
remove) ;; # until a purge, dpkg keeps the service enabled or disabled
*) if command -v systemctl >/dev/null; then systemctl disable "$package.service" >/dev/null 2>&1 || true; fi ;;
esac
