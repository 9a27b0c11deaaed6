package dialect

import (
	"bytes"
	"net/netip"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Model servers fetch the addresses in a request from inside of their network, and
// some open files. So a client could reach what is not its own: a deployment
// decides, by its option remote_media, which addresses pass.

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

// mediaPlace is where in a request the address of media may stand.
type mediaPlace uint8

const (
	inMessage mediaPlace = iota // a message, or what stands where messages do
	inContent                   // a part of content
	inMedia                     // the value of one of mediaKeys: an address, or an object that holds it
	inAddress                   // an address in such an object
	inData                      // data, or an id, in such an object
)

// member is the place of a member of an object; false if there is nothing to look
// for. Each place has others behind it only, which bounds the work.
func (in mediaPlace) member(name []byte) (mediaPlace, bool) {
	switch {
	case in < inMedia && isMediaKey(name):
		return inMedia, true
	case in == inMessage && bytes.EqualFold(name, []byte("content")):
		return inContent, true
	case in == inMedia && isMediaKey(name):
		return inAddress, true
	case in == inMedia && isDataKey(name):
		return inData, true
	}
	return 0, false
}

// mediaFault looks for an address that the model server must not fetch in a value,
// or in those of a list. It returns where that is, and what is wrong with it; "" if
// there is none.
func mediaFault(value []byte, in mediaPlace, policy string) (path, problem string) {
	switch {
	case value[0] == '"' && in == inData:
		return "", dataFault(value, policy)
	case value[0] == '"' && in >= inMedia:
		return "", addressFault(value, policy)
	case value[0] != '{' && value[0] != '[':
		return "", ""
	}
	for m := jsonscan.Checked(value); m.Next(); {
		if value[0] == '[' {
			if m.Raw()[0] == '[' {
				continue // which no model server reads
			}
			if path, problem = mediaFault(m.Raw(), in, policy); problem != "" {
				return element("", m.Index) + path, problem
			}
		} else if inside, ok := in.member(m.Name()); ok {
			if path, problem = mediaFault(m.Raw(), inside, policy); problem != "" {
				return "." + show(string(m.Name())) + path, problem
			}
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
		return "this deployment does not allow remote media. Send the content itself as a data: URL."
	case !isPublicHTTPS(address):
		return "this deployment allows only https:// URLs of public hosts. Use one, or send the content itself as a data: URL."
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

// Networks that are not public, in addition to those that netip knows: shared address
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
