package up

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// serveModels returns a server that answers GET /v1/models.
func serveModels(t *testing.T, status int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/models" {
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
		if status == http.StatusFound {
			w.Header().Set("Location", "/login")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// closedServer returns a base URL where nothing listens.
func closedServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	return server.URL
}

func TestAsk(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		models []string
		err    string
	}{
		{"OpenAI list", 200, `{"object":"list","data":[{"id":"b","object":"model"},{"id":"a"}]}`, []string{"b", "a"}, ""},
		{
			"llama.cpp has two lists", 200, `{"models":[{"name":"x"}],"object":"list","data":[{"id":"/models/x.gguf"}]}`,
			[]string{"/models/x.gguf"},
			"",
		},
		{"empty list", 200, `{"object":"list","data":[]}`, nil, "has no models"},
		{"Ollama's empty list", 200, `{"object":"list","data":null}`, nil, "has no models"},
		{"entry without an id", 200, `{"data":[{},{"id":"a"}]}`, []string{"a"}, ""},
		{"gateway of ours, without a key", 401, `{"error":{"message":"no key"}}`, nil, "requires an API key"},
		{"forbidden", 403, ``, nil, "requires an API key"},
		{"no such path", 404, `not found`, nil, "404"},
		{"still loading", 503, `{"error":{"message":"Loading model"}}`, nil, "503"},
		{"redirect", 302, ``, nil, "302"},
		{"web page", 200, `<html>hello</html>`, nil, "not a list of models"},
		{"empty answer", 200, ``, nil, "not a list of models"},
		{"other JSON", 200, `{"data":{"id":"x"}}`, nil, "not a list of models"},
		{"JSON of another service", 200, `{"status":"ok"}`, nil, "not a list of models"},
		{"JSON array", 200, `[]`, nil, "not a list of models"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, err := listModels(t.Context(), serveModels(t, tt.status, tt.body))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error = %v, want %q", err, tt.err)
				}
				return
			}
			must(t, err)
			if !reflect.DeepEqual(server.models, tt.models) {
				t.Errorf("models = %q, want %q", server.models, tt.models)
			}
		})
	}
}

func TestSearch(t *testing.T) {
	const list = `{"data":[{"id":"%s"}]}`
	nothing := closedServer(t)
	empty := serveModels(t, 200, `{"data":[]}`)
	first := serveModels(t, 200, fmt.Sprintf(list, "first"))
	second := serveModels(t, 200, fmt.Sprintf(list, "second"))
	ourselves := serveModels(t, 401, `{}`)
	page := serveModels(t, 200, `<html>`)
	tests := []struct {
		name  string
		bases []string
		found string
		notes []string // one part of each
	}{
		{"none", []string{nothing, nothing}, "", nil},
		{"one", []string{nothing, first}, first, nil},
		{"order wins", []string{first, second}, first, []string{"--connect " + second}},
		{"order wins the other way", []string{second, first}, second, []string{"--connect " + first}},
		{
			"a server without models is passed over",
			[]string{empty, first},
			first,
			[]string{empty + " is not used: it has no models"},
		},
		{"only one without models", []string{empty}, "", []string{"has no models"}},
		{
			"a gateway is no model server",
			[]string{ourselves, first},
			first,
			[]string{ourselves + " is not used: it requires an API key"},
		},
		{"a web page is no model server", []string{page}, "", []string{page + " is not used"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, ok, notes := search(t.Context(), tt.bases)
			if ok != (tt.found != "") || server.base != tt.found {
				t.Errorf("found %q (%v), want %q", server.base, ok, tt.found)
			}
			if len(notes) != len(tt.notes) {
				t.Fatalf("notes = %q, want %q", notes, tt.notes)
			}
			for i, part := range tt.notes {
				if !strings.Contains(notes[i], part) {
					t.Errorf("note %q has no %q", notes[i], part)
				}
			}
		})
	}
}

// All servers are queried at once, and the context bounds the wait for one that never
// answers.
func TestSearchIsParallel(t *testing.T) {
	const servers = 4
	arrived := make(chan struct{}, servers)
	all := make(chan struct{})
	bases := make([]string, servers)
	for i := range bases {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			arrived <- struct{}{}
			<-all // each answers only once all were asked
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
		}))
		t.Cleanup(server.Close)
		bases[i] = server.URL
	}
	go func() {
		for range servers {
			<-arrived
		}
		close(all)
	}()
	if _, ok, _ := search(t.Context(), bases); !ok {
		t.Error("the servers were not asked at once")
	}
}

func TestSearchOfASilentServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var both sync.WaitGroup // the silent server is asked, and the list of the other one has been read
	both.Add(2)
	asked, read := sync.OnceFunc(both.Done), sync.OnceFunc(both.Done)
	go func() {
		both.Wait()
		cancel()
	}()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked()
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rest, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		const list = `{"data":[{"id":"m"}]}`
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			len(list), list)
		_, _ = rest.ReadByte() // until the client, which has read it, closes
		read()
	}))
	t.Cleanup(good.Close)
	server, ok, notes := search(ctx, []string{silent.URL, good.URL})
	if !ok || server.base != good.URL || len(notes) != 1 {
		t.Errorf("found %q (%v), notes %q", server.base, ok, notes)
	}
}

func TestParseConnect(t *testing.T) {
	for raw, want := range map[string]string{
		"http://localhost:11434":          "http://localhost:11434",
		"http://localhost:11434/":         "http://localhost:11434",
		"http://localhost:11434/v1":       "http://localhost:11434",
		"http://localhost:11434/v1/":      "http://localhost:11434",
		"localhost:11434":                 "http://localhost:11434",
		"192.168.1.20:8000/v1":            "http://192.168.1.20:8000",
		"https://models.example.com/api/": "https://models.example.com/api",
		"http://[::1]:8000":               "http://[::1]:8000",
	} {
		if got, err := parseConnect(raw); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"ftp://localhost", "http://", "http://:8080", "http://localhost:x", "http://a b",
		"http://user:secret@localhost:1", "http://localhost/?x=1", "http://localhost/#x", "unix:///x",
	} {
		if _, err := parseConnect(raw); !errors.As(err, new(UsageError)) {
			t.Errorf("%q: error %v, want a usage error", raw, err)
		}
	}
}

func TestDeploymentName(t *testing.T) {
	for id, want := range map[string]string{
		"llama3.2:3b":                         "llama3.2:3b",
		"Qwen/Qwen3-32B":                      "Qwen/Qwen3-32B",
		"/models/llama.gguf":                  "/models/llama.gguf",
		`C:\models\My Model.gguf`:             "My-Model.gguf",
		"/srv/my models/Llama 3 (q4).gguf":    "Llama-3--q4-.gguf",
		"modèle":                              "mod-le",
		"日本語":                                 "",
		"":                                    "",
		"dir/":                                "dir/",
		"/" + strings.Repeat("d/", 100) + "m": "m",
		strings.Repeat("x", 200):              "",
	} {
		if got := deploymentName(id); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}
