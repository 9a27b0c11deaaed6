package config

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// onlyFile fails if the folder of a file contains another file.
func onlyFile(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

func TestStoreMakesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "postern", "connector.json")
	s := &Store{path, false}
	c, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 0 {
		t.Errorf("preparing left %v, %v", entries, err)
	}
	c.TunnelToken, c.Upstream = testToken.Encode(), "http://localhost:11434"
	if err := s.Save(c); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && (mode(t, path) != 0o600 || mode(t, filepath.Dir(path)) != 0o700) {
		t.Errorf("modes %v and %v", mode(t, path), mode(t, filepath.Dir(path)))
	}
	onlyFile(t, path)
	loaded, err := Load(path, func(string) string { return "" })
	if err != nil || loaded.Config.TunnelToken != c.TunnelToken || loaded.Config.Upstream != c.Upstream ||
		len(loaded.Warnings) != 0 {
		t.Errorf("loaded %+v, %v", loaded, err)
	}
}

func TestStoreKeepsWhatThereIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "connector.json")
	writeFile(t, path, `{"upstreams":{"ollama":{"BaseUrl":"http://a:1/v1","api_key_file":"key"}},`+
		`"routes":[{"model":"<*>","upstream":"ollama"}]}`)
	s := &Store{path, false}
	c, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	c.TunnelToken = testToken.Encode()
	if err := s.Save(c); err != nil {
		t.Fatal(err)
	}
	again, err := (&Store{path, true}).Load()
	if err != nil || again.TunnelToken != c.TunnelToken ||
		again.Upstreams["ollama"] != (Upstream{BaseURL: "http://a:1/v1", APIKeyFile: "key"}) ||
		len(again.Routes) != 1 || again.Routes[0] != (link.Route{Model: "<*>", Upstream: "ollama"}) {
		t.Errorf("it holds %+v, %v", again, err)
	}
	if runtime.GOOS != "windows" && mode(t, path) != 0o600 { // it was readable by others
		t.Errorf("mode %v", mode(t, path))
	}
}

func TestStoreKeepsATokenUnlessForced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "connector.json")
	old := `{"tunnel_token":"` + testToken.Encode() + `","upstream":"http://a:1"}`
	s := &Store{path, false}
	c, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	// The token is added to the file while a person decides.
	writeFile(t, path, old)
	c.TunnelToken = "ptt_new"
	for _, err := range []error{s.Save(c), func() error { _, err := s.Load(); return err }()} {
		if !errors.Is(err, ErrPaired) || strings.Contains(err.Error(), testToken.Encode()) {
			t.Errorf("error = %v", err)
		}
	}
	if data, _ := os.ReadFile(path); string(data) != old {
		t.Errorf("it holds %s", data)
	}
	if err := (&Store{path, true}).Save(c); err != nil {
		t.Error(err)
	}
	if data, _ := os.ReadFile(path); !strings.Contains(string(data), "ptt_new") {
		t.Errorf("forced, it holds %s", data)
	}
	onlyFile(t, path)
}

func TestStoreErrors(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.json")
	writeFile(t, broken, `{"tunnel_token":`)
	_, err := (&Store{broken, true}).Load()
	wantText(t, err, broken, "ends too early")
	file := &Store{filepath.Join(broken, "connector.json"), false} // its folder is a file
	if err := file.Prepare(); err == nil {
		t.Error("prepared below a file")
	}
	empty := filepath.Join(dir, "empty.json")
	writeFile(t, empty, " \n")
	if c, err := (&Store{empty, false}).Load(); err != nil || c.TunnelToken != "" {
		t.Errorf("empty: %+v, %v", c, err)
	}
	if runtime.GOOS == "windows" || os.Getuid() == 0 {
		return
	}
	sealed := filepath.Join(dir, "sealed")
	if err := os.Mkdir(sealed, 0o500); err != nil {
		t.Fatal(err)
	}
	wantText(t, (&Store{filepath.Join(sealed, "connector.json"), false}).Prepare(), "writing "+sealed)
}

func TestStoreFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "real.json"), filepath.Join(t.TempDir(), "connector.json")
	writeFile(t, target, `{"upstream":"http://a:1"}`)
	if err := os.Symlink(target, path); err != nil {
		t.Skip(err)
	}
	if err := (&Store{path, false}).Save(Config{TunnelToken: "ptt_new"}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	if data, _ := os.ReadFile(target); !strings.Contains(string(data), "ptt_new") {
		t.Errorf("the target holds %s", data)
	}
}

func TestDefaultPath(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other folders")
	}
	for _, test := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"HOME": "/home/me"}, "/home/me/.config/postern/connector.json"},
		{map[string]string{"HOME": "/home/me", "XDG_CONFIG_HOME": "/etc/xdg"}, "/etc/xdg/postern/connector.json"},
		{map[string]string{"HOME": "/home/me", "XDG_CONFIG_HOME": "relative"}, "/home/me/.config/postern/connector.json"},
		{nil, ""},
	} {
		if got := DefaultPath(func(name string) string { return test.env[name] }); got != test.want {
			t.Errorf("%v: %q, want %q", test.env, got, test.want)
		}
	}
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v lacks %q", err, part)
		}
	}
}
