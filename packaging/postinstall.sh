#!/bin/sh
# Runs after an installation or an upgrade. dpkg passes "configure" with the old version, if
# there was one, or "abort-…"; rpm passes 1 or 2; apk passes the new and the old version.
set -e
package=postern # replaced in the package of the connector

first="" upgrade=""
case $1:${2:-} in
2:* | *.*:?*) upgrade=yes ;;
configure:?* | abort-*:*) # dpkg does the same after a removal
	if [ -e "/run/$package.upgrade" ]; then upgrade=yes; fi
	rm -f "/run/$package.upgrade"
	;;
*) first=yes ;;
esac

if [ "$package" = postern ]; then
	if ! id postern >/dev/null 2>&1; then
		if command -v useradd >/dev/null; then
			useradd --system --user-group --no-create-home --home-dir /var/lib/postern \
				--shell /usr/sbin/nologin --comment "Postern gateway" postern
		else # Alpine
			addgroup -S postern
			adduser -S -D -H -G postern -h /var/lib/postern -s /sbin/nologin -g "Postern gateway" postern
		fi
	fi
	# systemd creates it, too. Without systemd, the gateway needs it.
	install -d -m 0750 -o postern -g postern /var/lib/postern
fi

if command -v systemctl >/dev/null; then
	if [ "$first" ]; then # the distribution decides whether services are enabled
		systemctl preset "$package.service" >/dev/null 2>&1 || true
	fi
	if [ -d /run/systemd/system ]; then # not in a chroot or a container
		systemctl daemon-reload
		# A restart is necessary to run the new program. An upgrade does not start a stopped service.
		action=try-restart
		if [ ! "$upgrade" ] && systemctl --quiet is-enabled "$package.service"; then action=restart; fi
		systemctl "$action" "$package.service" || echo "$package.service failed to start; see: journalctl -u $package" >&2
	fi
fi

if [ "$first" ] && [ "$package" = postern ]; then
	# Fedora and containers do not start services, and Alpine has no systemd.
	run="postern run --config /etc/postern/Caddyfile, as the user postern" restart="restart the gateway"
	if command -v systemctl >/dev/null; then
		run="systemctl enable --now postern" restart="sudo systemctl restart postern"
		if systemctl --quiet is-active postern.service 2>/dev/null; then run=""; fi
	fi
	echo "Postern serves http://localhost, for this machine only. Next:"
	echo "  1. ${run:+start the gateway ($run), and }create the first user with the link of: sudo postern gateway setup-link"
	echo "  2. to publish the gateway, write its DNS name into /etc/postern/Caddyfile"
	echo "  3. $restart"
fi
if [ "$first" ] && [ "$package" = postern-connector ]; then
	echo "Pair this machine, and start the connector:"
	echo "  sudo connector pair https://GATEWAY PAIRING-CODE --upstream http://localhost:11434 --config /etc/postern/connector.json --no-run"
	echo "  sudo systemctl enable --now postern-connector"
fi
