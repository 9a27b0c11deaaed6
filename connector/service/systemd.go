package service

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stopGrace is what a service manager adds to the drain before it kills.
const stopGrace = 10 * time.Second

// Unit returns the unit for systemd.
func (p Plan) Unit() string {
	if p.User {
		return p.userUnit()
	}
	return p.systemUnit()
}

// unitHead is common to both units. READY=1 is sent when the configuration is
// right: a gateway that is away must not keep a machine from starting.
func (p Plan) unitHead(config string) string {
	return fmt.Sprintf(`[Service]
Type=notify
NotifyAccess=main
ExecStart=%s run --config %s --log-format json --drain-timeout %s
Restart=on-failure
RestartSec=5s
# Wrong flags or configuration, or a connector that the gateway does not know any
# more: another start would not help.
RestartPreventExitStatus=2 78
TimeoutStopSec=%d
WatchdogSec=60s
# Some 30 MiB are what it mostly needs. The model server is to have the rest.
MemoryHigh=1G
MemoryMax=2G
`, quote(p.Executable), config, p.Drain, int((p.Drain + stopGrace).Seconds()))
}

// systemUnit runs as a user that exists only while it runs. systemd, which may
// read them, hands it the configuration and keys.
func (p Plan) systemUnit() string {
	var credentials strings.Builder
	for _, path := range append([]string{p.Config}, slices.Compact(slices.Sorted(slices.Values(p.Keys)))...) {
		name := filepath.Base(path)
		if path == p.Config {
			name = "connector.json"
		}
		fmt.Fprintf(&credentials, "LoadCredential=%s:%s\n", strings.ReplaceAll(name, "%", "%%"), strings.ReplaceAll(path, "%", "%%"))
	}
	return `[Unit]
Description=` + p.displayName() + `
Wants=network-online.target
After=network-online.target nss-lookup.target
StartLimitIntervalSec=0

` + p.unitHead("${CREDENTIALS_DIRECTORY}/connector.json") + `
DynamicUser=yes
` + credentials.String() + `StateDirectory=` + p.Name + `
RuntimeDirectory=` + p.Name + `
RuntimeDirectoryMode=0755
UMask=0077
LimitNOFILE=65536

ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
PrivateIPC=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
ProcSubset=pid
CapabilityBoundingSet=
AmbientCapabilities=
` + seccomp + `
[Install]
WantedBy=multi-user.target
`
}

// seccomp is the part of the hardening that needs no rights.
const seccomp = `NoNewPrivileges=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
`

// userUnit runs as the user, and reads the files itself.
func (p Plan) userUnit() string {
	return `[Unit]
Description=` + p.displayName() + `
StartLimitIntervalSec=0

` + p.unitHead(quote(p.Config)) + `ExecReload=/bin/kill -HUP $MAINPID
UMask=0077

` + seccomp + `
[Install]
WantedBy=default.target
`
}

// quote makes one word of a command line in a unit.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(s) + `"`
}
