package up

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/upstream"
)

// modelServer is a model server that answered.
type modelServer struct {
	base   string   // URL, without /v1
	models []string // ids, in the server's order
}

var (
	// errNeedsKey means that a server requires an API key, as a gateway does.
	errNeedsKey = errors.New(program.Named("it requires an API key, which `caddy gateway up` cannot send; " +
		"use a separate connector, with \"api_key_file\" in its configuration"))
	errNoModels = errors.New("it has no models")
)

// probeTimeout bounds the search on this machine, where servers answer at once.
const probeTimeout = 2 * time.Second

// usualBases are the default addresses of model servers, in order of preference:
// Ollama, llama.cpp, LM Studio, vLLM.
var usualBases = []string{
	"http://localhost:11434", "http://localhost:8080", "http://localhost:1234", "http://localhost:8000",
}

// search queries all bases at once and returns the first server of the list that has
// models. The notes are about the other servers that answered.
func search(ctx context.Context, bases []string) (found modelServer, ok bool, notes []string) {
	servers, errs := make([]modelServer, len(bases)), make([]error, len(bases))
	var wg sync.WaitGroup
	for i, base := range bases {
		wg.Go(func() { servers[i], errs[i] = listModels(ctx, base) })
	}
	wg.Wait()
	for i, server := range servers {
		switch {
		case errors.Is(errs[i], upstream.ErrNotConnected):
		case errs[i] != nil:
			notes = append(notes, fmt.Sprintf("%s is not used: %v", bases[i], errs[i]))
		case ok:
			notes = append(notes, fmt.Sprintf("%s has models too; --connect %s uses it instead", server.base, server.base))
		default:
			found, ok = server, true
		}
	}
	return found, ok, notes
}

// listModels lists the models of the server at base, as a connector does.
func listModels(ctx context.Context, base string) (modelServer, error) {
	set, err := upstream.Open(&config.Config{Upstreams: upstreams(base)}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return modelServer{}, err
	}
	list, err := set[ownName].Models(ctx)
	status := new(upstream.StatusError)
	switch {
	case errors.As(err, &status) && (status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden):
		err = errNeedsKey
	case errors.As(err, &status):
		err = fmt.Errorf("it %w when asked for its models", err)
	case err == nil && len(list.IDs) == 0:
		err = errNoModels
	}
	return modelServer{base: base, models: list.IDs}, err
}

// upstreams returns the only upstream of the connector.
func upstreams(base string) map[string]config.Upstream {
	return map[string]config.Upstream{ownName: {BaseURL: base}}
}

// parseConnect returns the value of --connect as a base URL without /v1; "" for "".
func parseConnect(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	text := raw
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", Usagef("--connect %q is not the base URL of a model server, such as http://localhost:11434", raw)
	}
	base := strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/")
	return strings.TrimSuffix(base, "/v1"), nil
}

// deploymentName returns the public name for a model id: the id, or a similar valid name,
// as llama.cpp may report the path of a file. It is "" if no valid character is left.
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
