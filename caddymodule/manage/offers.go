package manage

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const maxOffers = 1000

// Offer is a model of a connector that no deployment publishes.
type Offer struct {
	Connector     string `json:"connector"` // id
	ConnectorName string `json:"connector_name"`
	// Upstream is "" if the connector has only one, so that it can be renamed later.
	Upstream string `json:"upstream"`
	Model    string `json:"model"`
	// Name is a free public name for it. If Adds is set, it is the name of a deployment of the same model, to which
	// the connector can be added.
	Name string `json:"name"`
	Adds bool   `json:"adds,omitempty"`
	// Kind is the kind that its name suggests.
	Kind store.ModelKind `json:"kind"`
}

// Offers lists the models that online connectors of the account have reported and that
// no deployment publishes, at most 1,000. It sends no request to a model server.
// missing is why the models of some servers are not known; "" if all are.
func (s *Service) Offers(ctx context.Context) (offers []Offer, missing string, err error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, "", err
	}
	live := s.sessions()
	taken, published := make(map[string]bool), make(map[location]bool)
	byModel := make(map[string][]store.Deployment)
	for _, d := range s.store.Deployments(account) {
		model := scope.Canonical(cmp.Or(d.Model, d.Name))
		byModel[model] = append(byModel[model], d)
		taken[d.Name] = true
		for _, r := range s.deploymentOf(d, live).Through {
			published[location{r.ID, r.Upstream, scope.Canonical(r.Model)}] = true
		}
	}
	offers = []Offer{}
	unknown := 0
	for _, c := range s.store.Connectors(account) {
		for _, u := range live[c.ID].States {
			if reason := unknownModels(c.Name, u); reason != "" {
				missing = cmp.Or(missing, reason)
				unknown++
			}
			for _, model := range u.Models {
				l := location{c.ID, u.Name, scope.Canonical(model)}
				if published[l] || len(offers) == maxOffers {
					continue
				}
				published[l] = true
				o := Offer{Connector: c.ID, ConnectorName: c.Name, Model: model, Kind: KindOf(model)}
				if len(live[c.ID].Upstreams) > 1 {
					o.Upstream = u.Name
				}
				if o.Name = sameModel(byModel[l.model], live[c.ID], l); o.Name != "" {
					o.Adds = true
				} else {
					o.Name = freeName(taken, model, c.Name)
					taken[o.Name] = true
				}
				offers = append(offers, o)
			}
		}
	}
	if unknown > 1 {
		missing += fmt.Sprintf(" (and %d more)", unknown-1)
	}
	return offers, missing, nil
}

// location identifies a model of a connector.
type location struct{ connector, upstream, model string }

// sameModel returns the first of the deployments that would find its model at a location and lacks its connector,
// "" if there is none.
func sameModel(deployments []store.Deployment, info tunnel.Info, l location) string {
	for _, d := range deployments {
		route := info.DeploymentRoute(tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model})
		if route.State == health.Available && route.Upstream == l.upstream && scope.Canonical(route.Model) == l.model &&
			!slices.Contains(d.Connectors, l.connector) {
			return d.Name
		}
	}
	return ""
}

// unknownModels returns why the models of an upstream are not known, "" if they are.
func unknownModels(connector string, u tunnel.UpstreamState) string {
	switch {
	case !u.Known:
		return fmt.Sprintf("connector %q has not yet reported the models of its model server %q", connector, u.Name)
	case u.Down():
		return fmt.Sprintf("connector %q cannot reach its model server %q", connector, u.Name)
	case u.Models == nil:
		return fmt.Sprintf("model server %q of connector %q does not list its models", u.Name, connector)
	default:
		return ""
	}
}

// freeName returns a free public name for a model: its own name, with the name of the
// connector appended if it is taken, or with a number.
func freeName(taken map[string]bool, model, connector string) string {
	name := publicName(model)
	if !taken[name] {
		return name
	}
	name = publicName(cut(name, scope.MaxName-40) + "-" + cut(connector, 32))
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", cut(publicName(model), scope.MaxName-8), n)
	}
	return name
}

// publicName returns a valid public name for a model. For a path, it is the name of
// the file.
func publicName(model string) string {
	if strings.HasPrefix(model, "/") {
		model = path.Base(model)
	}
	model = strings.TrimSuffix(model, ".gguf")
	name := strings.Map(func(r rune) rune {
		if scope.CheckName(string(r)) != nil {
			return '-'
		}
		return r
	}, cut(model, scope.MaxName))
	if name = strings.Trim(name, "-/"); name == "" {
		return "model"
	}
	return name
}

// kindWords are words in the names of models of each kind that is not chat. The first match counts.
var kindWords = []struct {
	kind  store.ModelKind
	words *regexp.Regexp
}{
	{store.RerankModel, regexp.MustCompile(`rerank`)},
	{store.EmbeddingsModel, regexp.MustCompile(`embed`)},
	{store.TranscriptionModel, regexp.MustCompile(`whisper|transcri|parakeet|voxtral|(^|[^a-z])(asr|stt)([^a-z]|$)`)},
	{store.SpeechModel, regexp.MustCompile(`kokoro|piper|orpheus|(^|[^a-z])(tts|speech)([^a-z]|$)`)},
	{store.ImageModel, regexp.MustCompile(`stable-?diffusion|(^|[^a-z])(sd|sdxl|flux|image)([^a-z]|$)`)},
}

// KindOf returns the kind of model that a name suggests.
func KindOf(model string) store.ModelKind {
	for _, k := range kindWords {
		if k.words.MatchString(strings.ToLower(model)) {
			return k.kind
		}
	}
	return store.ChatModel
}

// IsCloud reports whether a model runs in the cloud of its server's maker: Ollama marks such models by their names.
func IsCloud(model string) bool {
	name := strings.ToLower(model)
	return strings.HasSuffix(name, ":cloud") || strings.HasSuffix(name, "-cloud")
}

// Sample picks a deployment for a sample request: the first local chat model, else the first chat model, if there is
// one.
func Sample(deployments []Deployment) Deployment {
	local := func(d Deployment) bool { return d.Chats() && !IsCloud(cmp.Or(d.Model, d.Name)) }
	i := slices.IndexFunc(deployments, local)
	if i < 0 {
		i = max(0, slices.IndexFunc(deployments, Deployment.Chats))
	}
	return deployments[i]
}

// cut returns at most n bytes of s.
func cut(s string, n int) string { return s[:min(len(s), n)] }
