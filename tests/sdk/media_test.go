package sdk

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream"
)

// sent is a request as a client has sent it.
type sent struct {
	path, contentType string
	length            int64 // -1: it had none
	body              bytes.Buffer
}

// recorder passes requests to a gateway, and keeps their bodies.
type recorder struct {
	*httptest.Server
	mu  sync.Mutex
	all []*sent
}

func record(t *testing.T, gateway string) *recorder {
	t.Helper()
	to, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s := &sent{path: q.URL.Path, contentType: q.Header.Get("Content-Type"), length: q.ContentLength}
		r.mu.Lock()
		r.all = append(r.all, s)
		r.mu.Unlock()
		q.Body = io.NopCloser(io.TeeReader(q.Body, &s.body))
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(r.Close)
	return r
}

// mediaServer is a server for all kinds, each in the shape of a real one.
func mediaServer(model string) upstream.Handler {
	next := make(chan struct{})
	close(next)
	m := &upstream.Media{Model: model, Next: next}
	return func(x *upstream.Exchange) {
		switch body := string(x.Request.Body); {
		case x.Request.Target == "/v1/audio/speech":
			m.Kokoro(x)
		case x.Request.Target == "/v1/images/generations":
			m.LocalAI(x)
		case x.Request.Target == "/v1/images/edits":
			m.SD(x)
		case x.Request.Target == "/v1/embeddings":
			vector := `[1,-2]`
			if strings.Contains(body, `"base64"`) {
				vector = `"AACAPwAAAMA="`
			}
			upstream.JSON(`{"object":"list","model":"` + model + `","data":[{"object":"embedding","index":0,"embedding":` +
				vector + `}],"usage":{"prompt_tokens":2,"total_tokens":2}}`)(x)
		case strings.Contains(body, "\r\nvtt\r\n"), strings.Contains(body, "name=\"stream\"\r\n\r\ntrue\r\n"):
			m.Speaches(x)
		default:
			m.VLLM(x)
		}
	}
}

// What the SDKs send for audio, images and embeddings arrives byte for byte, except for the name of the model, and they
// understand the answers.
func TestMedia(t *testing.T) {
	const public, private = "org/media:1b", "media.gguf"
	g, up := harness.Start(t, harness.Options{}), upstream.Start(t)
	up.Handle("", mediaServer(private))
	_, key := g.Key(t, "sdk", "*")
	g.Deploy(t, public, g.Connector(t, "box", up.URL).ID, "", private)
	file := filepath.Join(t.TempDir(), "meeting.wav")
	content := []byte(strings.Repeat("RIFF\x00\xff\r\n--\r\n\r\nname=\"model\"\r\n\r\n"+public+"\r\n", 10_000))
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, requests int, cmd *exec.Cmd) []*sent {
		r, before := record(t, g.URL), len(up.Requests())
		cmd.Env = append(os.Environ(), "GATEWAY="+r.URL, "API_KEY="+key, "MODEL="+public, "FILE="+file,
			"HEARD="+upstream.Heard, "PIXEL="+upstream.Pixel,
			"SOUND="+hex.EncodeToString([]byte(upstream.Sound[0]+upstream.Sound[1])))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		r.Close() // waits for the last request
		received := up.Requests()[before:]
		if len(received) != requests || len(r.all) != requests {
			t.Fatalf("the SDK has sent %d requests, and the server got %d", len(r.all), len(received))
		}
		for i, got := range received {
			want := r.all[i]
			if got.Target != want.path || got.Header.Get("Content-Type") != want.contentType {
				t.Errorf("%s, %s came as %s, %s", want.path, want.contentType, got.Target, got.Header.Get("Content-Type"))
			}
			if w := renamed(t, want, public, private); !bytes.Equal(got.Body, w) {
				t.Errorf("%s: %d bytes came, want %d", got.Target, len(got.Body), len(w))
			}
		}
		return r.all
	}
	t.Run("go", func(t *testing.T) {
		first := run(t, 6, exec.Command(buildGo(t), "media"))[0]
		body := first.body.String()
		if model := strings.LastIndex(body, `name="model"`); model < len(content) || first.length < 0 {
			t.Errorf("the model does not stand after the file: at %d", model)
		}
	})
	t.Run("node", func(t *testing.T) {
		if skipNode() {
			t.Skip("POSTERN_SKIP_NODE=1: not testing the SDKs for Node")
		}
		if err := rig.NPM("node"); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("node", "media.mjs", "scripted")
		cmd.Dir = "node"
		if first := run(t, 8, cmd)[0]; first.length >= 0 {
			t.Errorf("the form with a stream of a file has the length %d", first.length)
		}
	})
}

// renamed returns the body of a request with another name of the model.
func renamed(t *testing.T, s *sent, from, to string) []byte {
	t.Helper()
	part, body := `"model":"`+from+`"`, s.body.String()
	if _, boundary, ok := strings.Cut(s.contentType, "boundary="); ok {
		part = "--" + boundary + "\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n" + from + "\r\n"
	}
	if n := strings.Count(body, part); n != 1 {
		t.Fatalf("%s has %d models", s.path, n)
	}
	return []byte(strings.Replace(body, part, strings.Replace(part, from, to, 1), 1))
}
