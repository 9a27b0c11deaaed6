package caddymodule

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// clientAddr returns clientIP as an address to compare with networks. The zero Addr is in none.
func clientAddr(r *http.Request) netip.Addr {
	addr, _ := netip.ParseAddr(clientIP(r))
	return addr.Unmap().WithZone("")
}

// clientIP returns the client's address as Caddy sees it: that of the connection
// or the one reported by a trusted proxy.
func clientIP(r *http.Request) string {
	if ip, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string); ok && ip != "" {
		return ip
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
