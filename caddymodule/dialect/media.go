package dialect

import (
	"bytes"
	"net/netip"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Model servers fetch what a request gives the address of, from inside of the
// network that they are in, and some open files. So a client could reach what
// is not its own: a deployment decides, by its option remote_media, which addresses
// pass.

// mediaKeys are the keys of a part of content, and of what is in it, whose
// value is the address of something to fetch, or holds one. Some model servers
// ignore the case of keys.
var mediaKeys = [...]string{
	"url", "file", "image", "audio", "video", "source",
	"image_url", "audio_url", "video_url", "file_url", "input_audio", "input_image", "input_video",
}

// isMediaKey reports whether a key is one of mediaKeys.
func isMediaKey(key []byte) bool {
	const shortest, longest = len("url"), len("input_audio")
	if len(key) < shortest || len(key) > longest {
		return false
	}
	switch key[0] | 0x20 {
	case 'a', 'f', 'i', 's', 'u', 'v':
	default:
		return false
	}
	for _, name := range mediaKeys {
		if len(name) == len(key) && strings.EqualFold(string(key), name) {
			return true
		}
	}
	return false
}

// isDataKey reports whether a key is one of those whose value is data, or an id,
// in an object that a media key leads to.
func isDataKey(key []byte) bool {
	return bytes.EqualFold(key, []byte("data")) || bytes.EqualFold(key, []byte("file_data")) || bytes.EqualFold(key, []byte("file_id"))
}

// mayHoldAddress reports whether a key has an address, as far as the beginning of
// its value shows: an object has keys of its own.
func mayHoldAddress(key, value []byte) bool {
	if len(value) == 0 || value[0] != '[' && (value[0] != '"' || isInline(value)) {
		return false
	}
	return isMediaKey(key) || isDataKey(key)
}

// messageFault is partFault for a message, whose content may be a list of parts,
// or a part that stands where messages do.
func messageFault(message []byte, policy string) (path, problem string) {
	if path, problem = partFault(message, policy); problem != "" {
		return path, problem
	}
	for m := jsonscan.Checked(message); m.Next(); {
		if !bytes.EqualFold(m.Name(), []byte("content")) {
			continue
		}
		switch m.Raw()[0] {
		case '{': // no list, but some readers take it for one
			if path, problem = partFault(m.Raw(), policy); problem != "" {
				return ".content" + path, problem
			}
			continue
		case '[':
		default:
			continue
		}
		for parts := jsonscan.Checked(m.Raw()); parts.Next(); {
			if parts.Raw()[0] != '{' {
				continue
			}
			if path, problem = partFault(parts.Raw(), policy); problem != "" {
				return element(".content", parts.Index) + path, problem
			}
		}
	}
	return "", ""
}

// partFault looks for an address that the model server must not fetch in a part
// of content, an object. It returns where in the part that is, and what is wrong
// with it; "" if there is none.
func partFault(part []byte, policy string) (path, problem string) {
	for m := jsonscan.Checked(part); m.Next(); {
		if !isMediaKey(m.Name()) {
			continue
		}
		if path, problem = mediaFault(m.Raw(), policy); problem != "" {
			return "." + show(string(m.Name())) + path, problem
		}
	}
	return "", ""
}

// mediaFault is partFault for the value of one of mediaKeys: an address, an
// object that holds one, or a list of these.
func mediaFault(value []byte, policy string) (path, problem string) {
	switch value[0] {
	case '"':
		return "", addressFault(value, policy)
	case '{':
		return sourceFault(value, policy)
	case '[':
		for m := jsonscan.Checked(value); m.Next(); {
			switch m.Raw()[0] {
			case '"':
				problem = addressFault(m.Raw(), policy)
			case '{':
				path, problem = sourceFault(m.Raw(), policy)
			}
			if problem != "" {
				return element("", m.Index) + path, problem
			}
		}
	}
	return "", ""
}

// sourceFault is partFault for an object that holds an address or the data
// themselves.
func sourceFault(source []byte, policy string) (path, problem string) {
	for m := jsonscan.Checked(source); m.Next(); {
		value := m.Raw()
		if !jsonscan.IsString(value) {
			continue
		}
		switch name := m.Name(); {
		case isMediaKey(name):
			problem = addressFault(value, policy)
		case isDataKey(name):
			problem = dataFault(value, policy)
		}
		if problem != "" {
			return "." + show(string(m.Name())), problem
		}
	}
	return "", ""
}

// dataFault returns what is wrong with data, or an id, that may be an address: what
// is not one has neither a colon nor a dot.
func dataFault(quoted []byte, policy string) string {
	text := quoted
	if bytes.IndexByte(quoted, '\\') >= 0 {
		text = []byte(jsonscan.Unquote(quoted))
	}
	if bytes.IndexByte(text, ':') < 0 && bytes.IndexByte(text, '.') < 0 {
		return ""
	}
	return addressFault(quoted, policy)
}

// addressFault returns what is wrong with an address, a JSON string.
func addressFault(quoted []byte, policy string) string {
	if isInline(quoted) {
		return "" // and not copied: it may be large
	}
	return remoteFault(jsonscan.Unquote(quoted), policy)
}

// isInline reports whether what begins with a JSON string begins with a data: URL.
func isInline(quoted []byte) bool {
	const inline = `"data:`
	return len(quoted) >= len(inline) && bytes.EqualFold(quoted[:len(inline)], []byte(inline))
}

// remoteFault returns why the model server must not fetch an address, "" if it may.
func remoteFault(address, policy string) string {
	const inline = "data:"
	switch {
	case policy == compat.RemoteAllow, address == "",
		len(address) >= len(inline) && strings.EqualFold(address[:len(inline)], inline):
		return ""
	case policy != compat.RemoteHTTPS:
		return "the model server of this deployment fetches nothing. Send the content itself, as a data: URL."
	case !isPublicHTTPS(address):
		return "the model server of this deployment fetches from https:// URLs of public hosts alone. Use one, or send the content itself, as a data: URL."
	}
	return ""
}

// isPublicHTTPS reports whether an address is an https:// URL whose host is not
// plainly one of a private network. Names are not resolved here.
func isPublicHTTPS(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.User != nil || strings.ContainsAny(address, "\\ \t\r\n") {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if strings.IndexFunc(host, func(r rune) bool { return r >= 0x80 }) >= 0 {
		return false // some readers take such digits and dots for ASCII ones
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return isPublic(ip.Unmap())
	}
	dot := strings.LastIndexByte(host, '.')
	if dot < 0 || dot+1 == len(host) {
		return false
	}
	switch last := host[dot+1:]; last {
	case "internal", "local", "localdomain", "localhost":
		return false
	default: // what ends in a number is an address of IPv4 in one of its old forms
		return last[0] < '0' || last[0] > '9'
	}
}

// Networks that are not public, besides those that netip knows: shared address
// space (RFC 6598), and addresses of IPv6 that hold one of IPv4 (RFC 4291, 6052, 3056).
var notPublic = [...]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
}

// isPublic reports whether an address is one of the public internet.
func isPublic(ip netip.Addr) bool {
	for _, network := range notPublic {
		if network.Contains(ip) {
			return false
		}
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && ip.Zone() == ""
}
