#!/bin/sh
# Before a removal. dpkg calls it with "remove", rpm with 0, apk with the version; before
# an upgrade, dpkg with "upgrade", rpm with 1. The upgrade restarts the service.
set -e
package=postern

case $1 in
upgrade | failed-upgrade | deconfigure) # postinstall.sh reads it
	if [ -d /run/systemd/system ]; then : >"/run/$package.upgrade"; fi
	exit 0
	;;
1) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl stop "$package.service" || true
fi
case $1 in
remove) ;; # dpkg remembers whether it is enabled, until a purge
*) if command -v systemctl >/dev/null; then systemctl disable "$package.service" >/dev/null 2>&1 || true; fi ;;
esac
