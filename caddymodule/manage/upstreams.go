package manage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const (
	modelsWait   = 5 * time.Second // for an upstream's list of models
	modelsAsked  = 16              // upstreams at a time, for one operation
	maxModelList = 2 << 20         // bytes
	maxModels    = 1000
	maxModelID   = 256 // bytes
)

// UpstreamModels is what one upstream of a connector says of its models.
type UpstreamModels struct {
	Upstream string   `json:"upstream"`
	Models   []string `json:"models"`
	// Error is why the models are not known.
	Error string `json:"error,omitempty"`
}

// UpstreamModels asks the upstreams of a connector, which must be online, for
// their models.
func (s *Service) UpstreamModels(ctx context.Context, account, connector string) ([]UpstreamModels, error) {
	account, err := s.account(ctx, account)
	if err != nil {
		return nil, err
	}
	con, err := s.connector(account, connector)
	if err != nil {
		return nil, err
	}
	info, online := s.sessions()[con.ID]
	if !online {
		return nil, offline(con.Name)
	}
	lists := s.listsOf(con.Name, info)
	if lists == nil { // it has just gone
		return nil, offline(con.Name)
	}
	lists = s.models.fetch(ctx, lists)
	answers := make([]UpstreamModels, len(lists))
	for i, l := range lists {
		answers[i] = UpstreamModels{Upstream: l.upstream, Models: []string{}}
		if l.err != nil {
			answers[i].Error = l.err.Error()
			continue
		}
		answers[i].Models = append(answers[i].Models, l.models...)
	}
	return answers, nil
}

func offline(connector string) error {
	return faultf(ErrNotReady, "connector %q is offline; start it on its machine with `connector run`", connector)
}

// modelList is what an upstream was asked, and its answer.
type modelList struct {
	question
	key  listKey
	done chan struct{} // closed when what follows is there

	models []string
	err    error
}

// listsOf returns a list to ask for of each upstream of a connector, nil if its
// tunnel is gone.
func (s *Service) listsOf(connector string, info tunnel.Info) []*modelList {
	t, ok := s.tunnels.Tunnel(info.Connector)
	if !ok {
		return nil
	}
	lists := make([]*modelList, len(info.Upstreams))
	for i, upstream := range info.Upstreams {
		lists[i] = &modelList{
			question: question{tunnel: t, connector: connector, upstream: upstream, limit: modelsWait},
			key:      listKey{info.Connector, info.Session, upstream}, done: make(chan struct{}),
		}
	}
	return lists
}

// modelLists asks upstreams for their models. One that takes long is asked once,
// whoever waits for it, and asked to the end when nobody waits any more.
type modelLists struct {
	mu    sync.Mutex
	lists map[listKey]*modelList // that are being asked for
}

type listKey struct{ connector, session, upstream string }

// fetch returns the answers to lists, in their order. One that did not come
// before the end of ctx has that as its error.
func (m *modelLists) fetch(ctx context.Context, lists []*modelList) []*modelList {
	answers := make([]*modelList, len(lists))
	slots := make(chan struct{}, modelsAsked)
	var all sync.WaitGroup
	for i, l := range lists {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			answers[i] = l.missed()
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			current := m.get(ctx, l)
			select {
			case <-current.done:
				answers[i] = current
			case <-ctx.Done():
				answers[i] = l.missed()
			}
		})
	}
	all.Wait()
	return answers
}

// missed is l without an answer.
func (l *modelList) missed() *modelList {
	return &modelList{question: l.question, err: errors.New("the model server has not answered yet")}
}

// get returns the list to wait for: one that is asked for already, or else l, which
// it then asks for.
func (m *modelLists) get(ctx context.Context, l *modelList) *modelList {
	m.mu.Lock()
	defer m.mu.Unlock()
	if current, ok := m.lists[l.key]; ok {
		return current
	}
	m.lists[l.key] = l
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), modelsWait)
		defer cancel()
		l.models, l.err = l.ask(ctx)
		m.mu.Lock()
		delete(m.lists, l.key)
		m.mu.Unlock()
		close(l.done)
	}()
	return l
}

// ask asks the upstream.
func (l *modelList) ask(ctx context.Context) ([]string, error) {
	answer, err := l.do(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxModelList+1))
	if err != nil {
		return nil, l.explain(ctx, err)
	}
	if len(data) > maxModelList {
		return nil, fmt.Errorf("the model server's list of models is larger than %d bytes", maxModelList)
	}
	return parseModels(data)
}

// parseModels reads {"data": [{"id": text}, …]}. Ids that cannot be shown or
// sent as they are, and those beyond the limit, are left out.
func parseModels(data []byte) ([]string, error) {
	var body struct {
		Data json.RawMessage `json:"data"`
	}
	var entries []struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(data, &body) != nil || body.Data == nil || json.Unmarshal(body.Data, &entries) != nil {
		return nil, errors.New("the model server answered /v1/models with something else than a list of models; is the upstream's address that of an OpenAI-compatible server?")
	}
	ids := make([]string, 0, min(len(entries), maxModels))
	for _, e := range entries {
		if len(ids) < maxModels && isModelID(e.ID) {
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// isModelID tells whether an id is short and printable: it is shown on pages
// and terminals.
func isModelID(id string) bool {
	return id != "" && len(id) <= maxModelID && !strings.ContainsFunc(id, func(r rune) bool {
		// utf8.RuneError stands for what was no text.
		return !unicode.IsPrint(r) || r == utf8.RuneError
	})
}
