package manage_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/caught"
)

func TestUpstreamModels(t *testing.T) {
	var many []string
	for i := range 1200 {
		many = append(many, fmt.Sprintf("m%04d", i))
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		models  []string // nil: error has it
		error   string
	}{
		{"sorted, once each", models("b", "a", "b"), []string{"a", "b"}, ""},
		{"none", answer(200, "application/json", `{"object":"list","data":[]}`), []string{}, ""},
		{"null, as Ollama has it", answer(200, "application/json", `{"object":"list","data":null}`), []string{}, ""},
		{
			"other members", answer(200, "application/json", `{"data":[{"id":"a","meta":{"x":[1]}}],"models":[{}]}`),
			[]string{"a"},
			"",
		},
		{
			"hostile ids", models("ok", "", "a\x00b", "a\nb", "\u202eevil", "bad\xff", "<script>alert(1)</script>",
				strings.Repeat("x", 257), strings.Repeat("y", 256)),
			[]string{"<script>alert(1)</script>", "ok", strings.Repeat("y", 256)},
			"",
		},
		{"too many", models(many...), many[:1000], ""},
		{"no list", answer(200, "application/json", `{"models":[]}`), nil, "is not a list of models"},
		{
			"list of something else", answer(200, "application/json", `{"data":["a"]}`), nil,
			"is not a list of models",
		},
		{"a page", answer(200, "text/html", `<html>hello</html>`), nil, "is not a list of models"},
		{"nothing", answer(200, "application/json", ``), nil, "is not a list of models"},
		{"cut off", answer(200, "application/json", `{"data":[{"id":"a"`), nil, "is not a list of models"},
		{"huge", answer(200, "application/json", `{"data":[{"id":"`+strings.Repeat("x", 3<<20)+`"}]}`), nil, "larger than"},
		{
			"refused", answer(401, "application/json", `{"error":{"message":"wrong key"}}`), nil,
			"refused the connector's credentials",
		},
		{"an error page", answer(502, "text/html", `<html>bad</html>`), nil, "the model server answered HTTP 502: bad"},
		{
			"error text with control characters", answer(500, "text/plain", "\x1b[31mred\n\nline"), nil,
			"HTTP 500: [31mred line",
		},
		{
			"broken off", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":`); abort() }, nil,
			"closed the connection early",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t)
			g.connector("default", "home", map[string]http.Handler{"ollama": tt.handler})
			got := want[[]manage.UpstreamModels](g, 200, "GET", "/connectors/home/models", "")
			if len(got) != 1 || got[0].Upstream != "ollama" || got[0].Models == nil {
				t.Fatalf("answer = %+v", got)
			}
			if !slices.Equal(got[0].Models, tt.models) {
				t.Errorf("models = %q, want %q", got[0].Models, tt.models)
			}
			if !strings.Contains(got[0].Error, tt.error) || (tt.error == "") != (got[0].Error == "") {
				t.Errorf("error = %q, want %q", got[0].Error, tt.error)
			}
		})
	}
}

// A panic where the answer of a model server is read is an error of that upstream.
func TestPanicOfUpstreamModels(t *testing.T) {
	g := newGateway(t)
	home := g.connector("default", "home", map[string]http.Handler{"ollama": models("a")})
	home.err = errCrash
	got := want[[]manage.UpstreamModels](g, 200, "GET", "/connectors/home/models", "")
	if len(got) != 1 || !strings.Contains(got[0].Error, "because of a bug") {
		t.Errorf("answer = %+v", got)
	}
	if log := g.log.String(); !strings.Contains(log, "reading the models of a model server") ||
		strings.Contains(log, caught.Secret) {
		t.Errorf("log: %s", log)
	}
}

// Each upstream has its result, even if others fail, and each failure of the tunnel
// has its message.
func TestUpstreamModelsOfSeveral(t *testing.T) {
	g := newGateway(t)
	home := g.connector("default", "home",
		map[string]http.Handler{"llama": models("l"), "vllm": answer(503, "text/plain", "loading"), "z": models()})
	got := want[[]manage.UpstreamModels](g, 200, "GET", "/connectors/"+home.info.Connector+"/models", "")
	if len(got) != 3 || !slices.Equal(got[0].Models, []string{"l"}) ||
		got[1].Error != "the model server answered HTTP 503: loading" || got[2].Error != "" {
		t.Errorf("answer = %+v", got)
	}
	for err, part := range map[error]string{
		link.ErrUpstreamDown:  `cannot reach its upstream "llama"; start the model server there`,
		link.ErrRefused:       `refused the request`,
		link.ErrTunnelLost:    `tunnel of connector "home" was lost`,
		link.ErrNotSent:       `tunnel of connector "home" was lost`,
		link.ErrUpstreamReset: `closed the connection early`,
		link.ErrMalformed:     `request to the model server failed: malformed`,
	} {
		home.err = fmt.Errorf("wrapped: %w", err)
		if errors.Is(err, link.ErrMalformed) {
			home.err = err
		}
		got := want[[]manage.UpstreamModels](g, 200, "GET", "/connectors/home/models", "")
		if !strings.Contains(got[0].Error, part) {
			t.Errorf("%v is reported as %q", err, got[0].Error)
		}
	}
	g.refused(operator, 404, "GET", "/connectors/none/models", "", "")
	g.tunnels.connect()
	w := g.do("GET", "/connectors/home/models", "")
	if w.Code != 409 {
		t.Errorf("offline: %d", w.Code)
	}
	wantError(t, w, `connector "home" is offline; start it`)
}

// A request to an upstream times out after five seconds, and does not delay the
// others.
func TestUpstreamModelsAreBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		stuck := func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"data":[`)
			hang(w, r)
		}
		g.connector("default", "home",
			map[string]http.Handler{"a": http.HandlerFunc(hang), "b": models("m"), "c": http.HandlerFunc(stuck)})
		begin := time.Now()
		got, err := g.service.UpstreamModels(asOperator(t.Context()), "home")
		must(t, err)
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		for _, i := range []int{0, 2} {
			if got[i].Error != "the model server did not answer within 5 seconds" {
				t.Errorf("error = %q", got[i].Error)
			}
		}
		if len(got[1].Models) != 1 {
			t.Errorf("models = %q", got[1].Models)
		}
	})
}

// lists is a model server that is reachable and has models.
func lists(models ...string) health.Server { return health.Reported(true, models, false) }

// Offers come from the reports of connectors: no model server gets a request.
func TestOffers(t *testing.T) {
	g := newGateway(t)
	nobody := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a model server was asked") })
	home := g.connector("default", "home", map[string]http.Handler{"ollama": nobody})
	time.Sleep(2 * time.Millisecond) // lists are in the order of milliseconds
	rack := g.connector("default", "rack", map[string]http.Handler{"vllm": nobody, "down": nobody, "strict": nobody})
	g.connector("default", "elsewhere", nil)
	g.tunnels.report(home.info.Connector, "ollama",
		lists("qwen3:8b:latest", "llama3", "hf.co/org/Model GGUF", "/srv/models/phi-4.gguf", "日本語"))
	g.tunnels.report(rack.info.Connector, "vllm", lists("llama3", "big", "LLAMA3:latest"))
	g.tunnels.report(rack.info.Connector, "down", health.Server{Known: true})
	g.deployment("qwen3:8b", home, "", "")
	g.deployment("large", rack, "vllm", "big")
	type offer struct{ connector, upstream, model, name string }
	got, missing, err := g.service.Offers(asOperator(t.Context()))
	var offers []offer
	for _, o := range got {
		offers = append(offers, offer{o.ConnectorName, o.Upstream, o.Model, o.Name})
	}
	wanted := []offer{
		{"home", "", "/srv/models/phi-4.gguf", "phi-4"},
		{"home", "", "hf.co/org/Model GGUF", "hf.co/org/Model-GGUF"},
		{"home", "", "llama3", "llama3"},
		{"home", "", "日本語", "model"},
		{"rack", "vllm", "llama3", "llama3-rack"},
	}
	if !slices.Equal(offers, wanted) {
		t.Errorf("offers = %q\nwant     %q", offers, wanted)
	}
	if err != nil || !strings.Contains(missing, `connector "rack" cannot reach its model server "down" (and 1 more)`) {
		t.Errorf("missing = %q, %v", missing, err)
	}
	// All names can be registered; then no offers are left.
	for _, o := range got {
		body := fmt.Sprintf(`{"connector":%q,"upstream":%q,"model":%q}`, o.Connector, o.Upstream, o.Model)
		want[map[string]any](g, 200, "PUT", "/deployments/"+strings.ReplaceAll(o.Name, "/", "%2F"), body)
	}
	if left := want[[]manage.Offer](g, 200, "GET", "/offers", ""); len(left) != 0 {
		t.Errorf("offers after all were taken: %+v", left)
	}
}

// A model that another connector serves already is offered to be added there.
func TestOffersOfKnownModel(t *testing.T) {
	g := newGateway(t)
	home := g.connector("default", "home", map[string]http.Handler{"ollama": http.NotFoundHandler()})
	time.Sleep(2 * time.Millisecond)
	rack := g.connector("default", "rack", map[string]http.Handler{"vllm": http.NotFoundHandler()})
	g.tunnels.report(home.info.Connector, "ollama", lists("llama3.2:3b", "qwen3:8b", "phi"))
	g.tunnels.report(rack.info.Connector, "vllm", lists("LLAMA3.2:3b", "qwen3:8b", "phi"))
	want[map[string]any](g, 200, "PUT", "/deployments/small", `{"connector":"home","model":"llama3.2:3b"}`)
	want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"connector":"home","upstream":"ollama"}`)
	want[map[string]any](g, 200, "PUT", "/deployments/phi", `{"connector":"home"}`)
	type offer struct {
		model, name string
		adds        bool
	}
	offers := func() (list []offer) {
		t.Helper()
		for _, o := range want[[]manage.Offer](g, 200, "GET", "/offers", "") {
			if o.ConnectorName != "rack" {
				t.Errorf("offered: %+v", o)
			}
			list = append(list, offer{o.Model, o.Name, o.Adds})
		}
		return list
	}
	// The upstream of qwen3:8b is not on rack, so that it needs a deployment of its own.
	if got, wanted := offers(), []offer{
		{"LLAMA3.2:3b", "small", true},
		{"phi", "phi", true},
		{"qwen3:8b", "qwen3:8b-rack", false},
	}; !slices.Equal(got, wanted) {
		t.Errorf("offers %v, want %v", got, wanted)
	}
	set := want[map[string]any](g, 200, "PUT", "/deployments/small", `{"add_connector":"rack"}`)
	if connectors := set["connectors"].([]any); len(connectors) != 2 || connectors[0] != home.info.Connector ||
		set["model"] != "llama3.2:3b" {
		t.Errorf("set: %v", set)
	}
	want[map[string]any](g, 200, "PUT", "/deployments/small", `{"add_connector":"rack"}`) // again
	if got := offers(); len(got) != 2 {
		t.Errorf("offers %v", got)
	}
	if d, _ := g.store.Deployment("default", "small"); len(d.Connectors) != 2 {
		t.Errorf("stored: %+v", d)
	}
}

// A connector is shown with its models and deployments, and can be renamed while it is online.
func TestConnector(t *testing.T) {
	g := newGateway(t)
	home := g.connector("default", "home",
		map[string]http.Handler{"ollama": http.NotFoundHandler(), "down": http.NotFoundHandler()})
	g.connector("default", "rack", nil)
	g.tunnels.report(home.info.Connector, "ollama", lists("qwen3:8b", "llama3"))
	g.tunnels.report(home.info.Connector, "down", health.Server{Known: true})
	g.deployment("qwen3:8b", home, "", "")
	c := want[manage.ConnectorDetail](g, 200, "GET", "/connectors/home", "")
	if c.ID != home.info.Connector || c.State != manage.Online || !slices.Equal(c.Deployments, []string{"qwen3:8b"}) ||
		len(c.Models) != 2 {
		t.Errorf("connector: %+v", c)
	}
	for _, u := range c.Models {
		if listed := slices.Equal(u.Models, []string{"llama3", "qwen3:8b"}); listed != (u.Upstream == "ollama") ||
			(u.Error == "") != listed {
			t.Errorf("upstream: %+v", u)
		}
	}
	g.refused(operator, 409, "PATCH", "/connectors/home", `{"name":"rack"}`, "another connector has the name")
	renamed := want[manage.Connector](g, 200, "PATCH", "/connectors/home", `{"name":"gpu-box"}`)
	if renamed.Name != "gpu-box" || renamed.ID != c.ID || renamed.State != manage.Online {
		t.Errorf("renamed: %+v", renamed)
	}
	want[manage.Connector](g, 200, "PATCH", "/connectors/gpu-box", `{"name":"gpu-box"}`)
	g.refused(operator, 404, "GET", "/connectors/home", "", "")
	want[manage.CreatedConnector](g, 201, "POST", "/connectors", `{"name":"home"}`) // it is free again
	if c := want[manage.ConnectorDetail](g, 200, "GET", "/connectors/gpu-box", ""); c.ID != renamed.ID {
		t.Errorf("by the new name: %+v", c)
	}
}

// The models are queried at the model server; concurrent callers share one request.
func TestUpstreamModelsAreAskedOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		home := g.connector("default", "home",
			map[string]http.Handler{"a": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(3 * time.Second)
				models("m")(w, r)
			})})
		for asked := range int64(2) {
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					if got, err := g.service.UpstreamModels(asOperator(t.Context()), "home"); err != nil || len(got) != 1 ||
						len(got[0].Models) != 1 {
						t.Errorf("models = %+v, %v", got, err)
					}
				})
			}
			both.Wait()
			if n := home.requests.Load(); n != asked+1 {
				t.Errorf("asked %d times, want %d", n, asked+1)
			}
		}
	})
}

// Slots are of listed models alone.
func TestSlotsOfModels(t *testing.T) {
	g := newGateway(t)
	g.connector("default", "home", map[string]http.Handler{"llama": answer(200, "application/json",
		`{"data":[{"id":"a","aliases":["b"],"status":{"value":"loaded","args":["llama-server","--parallel","4"]}},`+
			`{"id":"\u202eevil","status":{"value":"loaded","args":["--parallel","2"]}}]}`)})
	got := want[[]manage.UpstreamModels](g, 200, "GET", "/connectors/home/models", "")
	if len(got) != 1 || !maps.Equal(got[0].Slots, map[string]int{"a": 4}) {
		t.Errorf("%+v", got)
	}
}
