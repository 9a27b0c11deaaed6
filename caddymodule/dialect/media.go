package dialect

import (
	"bytes"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Model servers fetch addresses in a request from inside their network, and some open
// files. To prevent server-side request forgery, they are refused unless the deployment has
// the option remote_media.

// noRemoteMedia is the problem of an address that is refused.
const noRemoteMedia = "this deployment does not allow remote media. Send the content itself as a data: URL."

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

// mediaKeysByLength contains mediaKeys by their length.
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

// isMediaField reports whether a field of a media operation may contain an address to fetch.
func isMediaField(name []byte) bool {
	isLikeName := func(f string) bool { return strings.EqualFold(string(name), f) }
	return isMediaKey(name) || slices.ContainsFunc([]string{"images", "mask", "ref_images", "ref_audio"}, isLikeName)
}

// isRemoteText reports whether a text may be an address, and not data in base64 or a data: URL.
func isRemoteText(text []byte) bool {
	const inline = "data:"
	return bytes.ContainsAny(text, ":.") &&
		!(len(text) >= len(inline) && bytes.EqualFold(text[:len(inline)], []byte(inline)))
}

// findRemoteField is findRemote for a field of a media operation. Its texts may be data, unlike those of messages.
func findRemoteField(name string, value []byte) (path string, found bool) {
	switch {
	case !isMediaField([]byte(name)):
		return findRemote(value, inMessage)
	case value[0] == '"':
		return "", isRemoteText([]byte(jsonscan.Unquote(value)))
	case value[0] != '[':
		return findRemote(value, inMedia)
	}
	for m := jsonscan.Checked(value); m.Next() && !found; {
		if path, found = findRemoteField(name, m.Raw()); found {
			path = element("", m.Index) + path
		}
	}
	return path, found
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
	case jsonscan.IsObject(value):
		return isTensorKey(key)
	case !jsonscan.IsArray(value) && (!jsonscan.IsString(value) || isInline(value)):
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

// findRemote searches a value, or the elements of a list, for the address of remote media, and
// returns its path.
func findRemote(value []byte, level mediaLevel) (path string, found bool) {
	switch {
	case value[0] == '"' && (level < inMedia || isInline(value) || level == inData && !mayBeURL(value)):
		return "", false
	case value[0] == '"':
		return "", isRemote(jsonscan.Unquote(value))
	case value[0] != '{' && value[0] != '[':
		return "", false
	}
	for m := jsonscan.Checked(value); m.Next(); {
		if value[0] == '[' {
			if jsonscan.IsArray(m.Raw()) {
				continue // no model server supports nested lists
			}
			if path, found = findRemote(m.Raw(), level); found {
				return element("", m.Index) + path, true
			}
		} else if inner, ok := level.member(m.Name()); ok {
			if path, found = findRemote(m.Raw(), inner); found {
				return "." + string(show(string(m.Name()))) + path, true
			}
		}
	}
	return "", false
}

// mayBeURL reports whether data or an id, a JSON string, may be an address: it has a colon or a dot.
func mayBeURL(quoted []byte) bool {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		quoted = []byte(jsonscan.Unquote(quoted))
	}
	return bytes.ContainsAny(quoted, ":.")
}

// isInline reports whether the text starts with a JSON string that is a data: URL.
func isInline(quoted []byte) bool {
	const inline = `"data:`
	return len(quoted) >= len(inline) && bytes.EqualFold(quoted[:len(inline)], []byte(inline))
}

// isRemote reports whether an address is not a data: URL.
func isRemote(address string) bool {
	const inline = "data:"
	return address != "" && (len(address) < len(inline) || !strings.EqualFold(address[:len(inline)], inline))
}
