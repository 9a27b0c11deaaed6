#!/bin/sh
# Runs after a removal or an upgrade. A removal keeps the data; dpkg's "purge" deletes them.
set -e
package=postern

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
[ "$1" = purge ] || exit 0

rm -f "/etc/systemd/system/multi-user.target.wants/$package.service"
if [ "$package" = postern ]; then
	rm -rf /var/lib/postern
	if id postern >/dev/null 2>&1; then
		userdel postern || true # this also deletes the group
	fi
else
	rm -rf /etc/postern/connector.json /var/lib/private/postern-connector /var/lib/postern-connector
fi
rmdir /etc/postern 2>/dev/null || true
