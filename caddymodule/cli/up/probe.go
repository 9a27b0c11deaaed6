package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/link"
)

// modelServer is a model server that answered: its base URL without /v1, and the ids
// of its models in its order.
type modelServer struct {
	base   string
	models []string
}

// errNeedsKey means that a server requires an API key, as a gateway does.
var errNeedsKey = errors.New("it requires an API key, which `caddy gateway up` cannot send; use a separate connector, with \"api_key_file\" in its configuration")

const (
	// probeTimeout bounds the search on this machine, where servers answer at once.
	probeTimeout = 2 * time.Second
	// connectTimeout bounds the request to the server of --connect.
	connectTimeout = 15 * time.Second
	// maxModelList bounds the list of models, in bytes.
	maxModelList = 8 << 20
)

// usualBases are the default addresses of model servers, in order of preference:
// Ollama, llama.cpp, LM Studio, vLLM.
var usualBases = []string{"http://localhost:11434", "http://localhost:8080", "http://localhost:1234", "http://localhost:8000"}

// prober asks model servers which models they have.
type prober struct {
	client *http.Client
}

// newProber returns a prober that uses no proxy, follows no redirect and
// keeps no connection.
func newProber() prober {
	return prober{client: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// search queries all bases at once and returns the first of them that has models. The
// notes are about the other servers that answered.
func (p prober) search(ctx context.Context, bases []string) (found modelServer, ok bool, notes []string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	servers, errs := make([]modelServer, len(bases)), make([]error, len(bases))
	var wg sync.WaitGroup
	for i, base := range bases {
		wg.Go(func() { servers[i], errs[i] = p.ask(ctx, base) })
	}
	wg.Wait()
	for i, server := range servers {
		var unreachable *net.OpError
		switch {
		case errors.As(errs[i], &unreachable):
		case errs[i] != nil:
			notes = append(notes, fmt.Sprintf("%s is not used: %v", bases[i], errs[i]))
		case len(server.models) == 0:
			notes = append(notes, fmt.Sprintf("%s is not used: it has no models", server.base))
		case ok:
			notes = append(notes, fmt.Sprintf("%s has models too; --connect %s uses it instead", server.base, server.base))
		default:
			found, ok = server, true
		}
	}
	return found, ok, notes
}

// ask lists the models of the server at base.
func (p prober) ask(ctx context.Context, base string) (modelServer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/models", nil)
	if err != nil {
		return modelServer{}, fmt.Errorf("creating the request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return modelServer{}, fmt.Errorf("querying its models: %w", err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return modelServer{}, errNeedsKey
	case resp.StatusCode != http.StatusOK:
		return modelServer{}, fmt.Errorf("it answers GET /v1/models with %s", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxModelList))
	list, ok := link.ParseModels(data)
	if err != nil || !ok {
		return modelServer{}, errors.New("it answers GET /v1/models with something other than a list of models")
	}
	return modelServer{base: base, models: list.IDs}, nil
}

// parseConnect returns the value of --connect as a base URL without /v1.
func parseConnect(raw string) (string, error) {
	text := raw
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", usagef("--connect %q is not the base URL of a model server, such as http://localhost:11434", raw)
	}
	base := strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/")
	return strings.TrimSuffix(base, "/v1"), nil
}

// deploymentName returns the public name for a model id: the id, or a similar valid
// name (llama.cpp may report a file path). It is empty if no valid character is
// left.
func deploymentName(id string) string {
	if scope.CheckName(id) == nil {
		return id
	}
	name := id[strings.LastIndexAny(id, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if scope.CheckName(string(r)) != nil {
			return '-'
		}
		return r
	}, name)
	if name = strings.Trim(name, "-"); scope.CheckName(name) != nil {
		return ""
	}
	return name
}
