package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// renewed is testToken with another secret.
func renewed(secret string) link.Token {
	token := testToken
	token.Secret = secret
	return token
}

func writeConfig(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "connector.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

// Nothing but the token changes in the file.
func TestReplaceToken(t *testing.T) {
	old, next := testToken.Encode(), renewed("n3w").Encode()
	for name, form := range map[string]string{
		"plain":  `{"tunnel_token": "%s", "upstream": "http://localhost:11434"}`,
		"last":   "{\n\t\"upstream\" : \"http://localhost:11434\",\r\n\t\"tunnel_token\"\t:\n\"%s\"  \n}\n\n",
		"bom":    "\xef\xbb\xbf{ \"tunnel_token\":\"%s\",\"upstream\":\"http://localhost:11434\"}",
		"blanks": `{"tunnel_token": "%s", "upstream": "http://localhost:11434"}   ` + "\n",
		"many": `{ "routes": [ {"model":"tunnel_token", "upstream":"a"} ],
  "tunnel_token": "%s",
  "upstreams": { "a": {"BaseUrl": "http://localhost:8000/v1", "api_key_file": "a.key"} } }`,
	} {
		t.Run(name, func(t *testing.T) {
			path := writeConfig(t, fmt.Sprintf(form, old), 0o640)
			if err := ReplaceToken(path, old, next); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if want := fmt.Sprintf(form, next); err != nil || string(text) != want {
				t.Errorf("the file is %q, %v", text, err)
			}
			if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
				t.Errorf("its mode is %v, %v", info.Mode(), err)
			}
			// A repetition is allowed: the previous answer may have been lost.
			if err := ReplaceToken(path, old, next); err != nil {
				t.Errorf("once more: %v", err)
			}
			if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
				t.Errorf("files are left over: %v", files)
			}
		})
	}
}

// The token may be written with escapes.
func TestReplaceTokenWithEscapes(t *testing.T) {
	old, next := testToken.Encode(), renewed("n3w").Encode()
	path := writeConfig(t, `{"tunnel_token": "\u0070`+old[1:]+`", "upstream": "http://localhost:1"}`, 0o600)
	if err := ReplaceToken(path, old, next); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); string(text) != `{"tunnel_token": "`+next+`", "upstream": "http://localhost:1"}` {
		t.Errorf("the file is %q", text)
	}
}

func TestReplaceTokenThroughALink(t *testing.T) {
	old, next := testToken.Encode(), renewed("n3w").Encode()
	path := writeConfig(t, `{"tunnel_token": "`+old+`", "upstream": "http://localhost:1"}`, 0o600)
	link := filepath.Join(t.TempDir(), "link.json")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceToken(link, old, next); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); !bytes.Contains(text, []byte(next)) {
		t.Errorf("the file itself is %q", text)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is gone: %v", err)
	}
}

// If the token cannot be replaced, the file stays. The error contains no token.
func TestReplaceTokenErrors(t *testing.T) {
	old, next := testToken.Encode(), renewed("n3w").Encode()
	whole := `{"tunnel_token": "` + old + `", "upstream": "http://localhost:1"}`
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		part string
	}{
		"read-only":      {whole, 0o400, "is marked as read-only"},
		"another token":  {strings.Replace(whole, old, renewed("0ther").Encode(), 1), 0o600, "different tunnel token"},
		"no token":       {`{"upstream": "http://localhost:1"}`, 0o600, "comes from the environment"},
		"broken":         {whole[:len(whole)-1], 0o600, "ends too early"},
		"unknown fields": {strings.Replace(whole, "upstream", "up", 1), 0o600, "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeConfig(t, c.text, c.mode)
			err := ReplaceToken(path, old, next)
			if err == nil || !strings.Contains(err.Error(), c.part) || !strings.Contains(err.Error(), path) ||
				strings.Contains(err.Error(), "ptt_") {
				t.Errorf("error %v", err)
			}
			if text, _ := os.ReadFile(path); string(text) != c.text {
				t.Errorf("the file became %q", text)
			}
			if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
				t.Errorf("files are left over: %v", files)
			}
		})
	}
	if err := ReplaceToken(filepath.Join(t.TempDir(), "gone.json"), old, next); err == nil ||
		!strings.Contains(err.Error(), "gone.json") {
		t.Errorf("without a file: %v", err)
	}
}

// Files of processes that were killed are removed, but not files that another process may be
// writing.
func TestReplaceTokenRemovesLeftovers(t *testing.T) {
	old, next := testToken.Encode(), renewed("n3w").Encode()
	path := writeConfig(t, `{"tunnel_token": "`+old+`", "upstream": "http://localhost:1"}`, 0o600)
	stale, fresh := filepath.Join(filepath.Dir(path), ".connector-new-1.json"), filepath.Join(filepath.Dir(path),
		".connector-new-2.json")
	for _, name := range []string{stale, fresh} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-2 * leftover)
	if err := os.Chtimes(stale, before, before); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceToken(path, old, next); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the leftover is still there: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("what may be in use is gone: %v", err)
	}
}
