package dialect

import (
	"bytes"
	"net/netip"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Model servers fetch addresses in a request from inside their network, and some open
// files. To prevent server-side request forgery, the deployment's option remote_media
// controls which addresses are allowed.

// mediaKeys are the keys of a content part, and of its members, whose value is or
// contains an address to fetch, or tensors to load. Some model servers ignore the case of
// keys.
var mediaKeys = [...]string{
	"url", "file", "image", "audio", "video", "media", "source",
	"image_url", "audio_url", "video_url", "file_url", "pdf_url", "document_url", "video_path",
	"input_audio", "input_image", "input_video", "image_embeds", "audio_embeds", "video_embeds", "image_pil",
}

// longestMediaKey is the length of the longest of mediaKeys.
const longestMediaKey = len("document_url")

// mediaKeysByLength has mediaKeys by their length.
var mediaKeysByLength = func() (names [longestMediaKey + 1][]string) {
	for _, name := range mediaKeys {
		names[len(name)] = append(names[len(name)], name)
	}
	return names
}()

// isMediaKey reports whether a key is one of mediaKeys.
func isMediaKey(key []byte) bool {
	if len(key) > longestMediaKey {
		return false
	}
	for _, name := range mediaKeysByLength[len(key)] {
		if strings.EqualFold(string(key), name) {
			return true
		}
	}
	return false
}

// isDataKey reports whether a key's value is data or an id, in an object below a media
// key.
func isDataKey(key []byte) bool {
	return bytes.EqualFold(key, []byte("data")) || bytes.EqualFold(key, []byte("file_data")) ||
		bytes.EqualFold(key, []byte("file_id"))
}

// isTensorKey reports whether a media key's value is tensors: one, or an object of several.
func isTensorKey(key []byte) bool {
	const suffix = "_embeds"
	return len(key) > len(suffix) && isMediaKey(key) && bytes.EqualFold(key[len(key)-len(suffix):], []byte(suffix))
}

// mayBeAddress reports whether the value of a key may be an address. value is its
// prefix. Objects are not considered, as their keys are checked separately, except for those of
// tensors, whose keys depend on the model.
func mayBeAddress(key, value []byte) bool {
	switch {
	case len(value) > 0 && value[0] == '{':
		return isTensorKey(key)
	case len(value) == 0 || value[0] != '[' && (value[0] != '"' || isInline(value)):
		return false
	}
	return isMediaKey(key) || isDataKey(key)
}

// mediaLevel is a level of a request that may contain the address of media.
type mediaLevel uint8

const (
	inMessage mediaLevel = iota // a message, or an element in place of one
	inContent                   // a content part
	inNested                    // a content part of a content part
	inMedia                     // the value of a media key: an address, or an object that contains it
	inTensors                   // the value of a key of tensors: each string is one
	inAddress                   // an address in such an object
	inData                      // data, or an id, in such an object
)

// member returns the level of an object's member, false if it cannot contain an
// address. Levels are strictly ordered, which bounds the recursion.
func (level mediaLevel) member(name []byte) (mediaLevel, bool) {
	switch {
	case level < inMedia && isTensorKey(name):
		return inTensors, true
	case level < inMedia && isMediaKey(name):
		return inMedia, true
	case level == inTensors:
		return inAddress, true
	case level < inNested && bytes.EqualFold(name, []byte("content")):
		return level + 1, true
	case level == inMedia && isMediaKey(name):
		return inAddress, true
	case level == inMedia && isDataKey(name):
		return inData, true
	}
	return 0, false
}

// mediaFault searches a value, or the elements of a list, for an address that is not
// allowed. It returns the path of the address and the problem, or "".
func mediaFault(value []byte, level mediaLevel, policy string) (path, problem string) {
	switch {
	case value[0] == '"' && level == inData:
		return "", dataFault(value, policy)
	case value[0] == '"' && level >= inMedia:
		return "", addressFault(value, policy)
	case value[0] != '{' && value[0] != '[':
		return "", ""
	}
	for m := jsonscan.Checked(value); m.Next(); {
		if value[0] == '[' {
			if m.Raw()[0] == '[' {
				continue // no model server supports nested lists
			}
			if path, problem = mediaFault(m.Raw(), level, policy); problem != "" {
				return element("", m.Index) + path, problem
			}
		} else if inner, ok := level.member(m.Name()); ok {
			if path, problem = mediaFault(m.Raw(), inner, policy); problem != "" {
				return "." + string(show(string(m.Name()))) + path, problem
			}
		}
	}
	return "", ""
}

// dataFault returns the problem of data or an id that may be an address, or "". Values
// with neither a colon nor a dot are not addresses.
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

// addressFault returns the problem of an address, a JSON string, or "".
func addressFault(quoted []byte, policy string) string {
	if isInline(quoted) {
		return "" // before copying it, as it may be large
	}
	return remoteFault(jsonscan.Unquote(quoted), policy)
}

// isInline reports whether the text starts with a JSON string that is a data: URL.
func isInline(quoted []byte) bool {
	const inline = `"data:`
	return len(quoted) >= len(inline) && bytes.EqualFold(quoted[:len(inline)], []byte(inline))
}

// remoteFault returns why an address is not allowed, or "".
func remoteFault(address, policy string) string {
	const inline = "data:"
	switch {
	case policy == compat.RemoteAllow, address == "",
		len(address) >= len(inline) && strings.EqualFold(address[:len(inline)], inline):
		return ""
	case policy != compat.RemoteHTTPS:
		return "this deployment does not allow remote media. Send the content itself as a data: URL."
	case !isPublicHTTPS(address):
		return "this deployment allows only https:// URLs of public hosts. " +
			"Use one, or send the content itself as a data: URL."
	}
	return ""
}

// isPublicHTTPS reports whether an address is an https:// URL whose host is not
// obviously private. Names are not resolved.
func isPublicHTTPS(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.User != nil || strings.ContainsAny(address, "\\ \t\r\n") {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if strings.IndexFunc(host, func(r rune) bool { return r >= 0x80 }) >= 0 {
		return false // some parsers convert Unicode digits and dots to ASCII
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
	default: // a last label that starts with a digit is a legacy form of an IPv4 address
		return last[0] < '0' || last[0] > '9'
	}
}

// notPublic lists private networks that netip does not detect: shared address space
// (RFC 6598), and IPv6 addresses that embed IPv4 addresses (RFC 4291, 6052, 3056).
var notPublic = [...]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
}

// isPublic reports whether an IP address is public.
func isPublic(ip netip.Addr) bool {
	for _, network := range notPublic {
		if network.Contains(ip) {
			return false
		}
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && ip.Zone() == ""
}
