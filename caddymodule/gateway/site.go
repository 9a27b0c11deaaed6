package gateway

import (
	"maps"
	"net"
	"net/netip"
	"strconv"
)

// HostOf returns the host of a host:port, "" if it is invalid.
func HostOf(hostport string) string {
	host, _, _ := net.SplitHostPort(hostport)
	return host
}

// OnlySite returns the only host and its URL, "" if there are several. The names of
// the loopback interface count as one.
func OnlySite(urls map[string]string) (host, url string) {
	if url, ok := urls["localhost"]; ok {
		maps.DeleteFunc(urls, func(name, _ string) bool {
			ip, err := netip.ParseAddr(name)
			return err == nil && ip.IsLoopback()
		})
		if len(urls) == 1 {
			return "localhost", url
		}
	}
	if len(urls) != 1 {
		return "", ""
	}
	for host, url = range urls {
	}
	return host, url
}

// Site describes how a host name is served.
type Site struct {
	HTTPS bool
	Port  uint
	Usual bool // clients reach it on the scheme's default port
}

// Before reports whether a site is preferred to another of the same host: HTTPS
// before HTTP, then the lower port.
func (s Site) Before(other Site) bool {
	if s.HTTPS != other.HTTPS {
		return s.HTTPS
	}
	return s.Port < other.Port
}

// URL returns the base URL of a host name, without /v1.
func (s Site) URL(host string) string {
	scheme := "http"
	if s.HTTPS {
		scheme = "https"
	}
	if s.Usual {
		return scheme + "://" + host
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(s.Port)))
}
