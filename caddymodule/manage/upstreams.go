package manage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/text"
)

const (
	modelsTimeout = 5 * time.Second // for an upstream's list of models
	maxModelCalls = 16              // concurrent requests of one operation
	maxModelList  = 2 << 20         // bytes
)

// UpstreamModels are the models that one upstream of a connector lists.
type UpstreamModels struct {
	Upstream string   `json:"upstream"`
	Models   []string `json:"models"`
	// Slots are the numbers of requests that models run at once, as far as the server lists them.
	Slots map[string]int `json:"slots,omitempty"`
	// Error is why the models are not known.
	Error string `json:"error,omitempty"`
}

// UpstreamModels queries the models of the upstreams of a connector, which must be
// online.
func (s *Service) UpstreamModels(ctx context.Context, connector string) ([]UpstreamModels, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	con, err := s.connector(account, connector)
	if err != nil {
		return nil, err
	}
	info, online := s.sessions()[con.ID]
	tun, open := s.tunnels.Tunnel(con.ID)
	if !online || !open {
		return nil, faultf(ErrNotReady, "connector %q is offline; start it on its machine with `connector run`", con.Name)
	}
	answers := make([]UpstreamModels, len(info.Upstreams))
	var all errgroup.Group
	all.SetLimit(maxModelCalls)
	for i, upstream := range info.Upstreams {
		all.Go(func() error {
			u := upstreamCall{tunnel: tun, connector: con.Name, upstream: upstream}
			list, err := s.modelsOf(ctx, u, con.ID+"/"+info.Session)
			answers[i] = UpstreamModels{Upstream: upstream, Models: append([]string{}, list.IDs...), Slots: list.Slots}
			if err != nil {
				answers[i].Error = err.Error()
			}
			return nil
		})
	}
	return answers, all.Wait()
}

// modelsOf returns the models of an upstream. Concurrent callers share one request,
// which continues when they have left.
func (s *Service) modelsOf(ctx context.Context, u upstreamCall, session string) (link.ModelList, error) {
	result := s.models.DoChan(session+"/"+u.upstream, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), modelsTimeout)
		defer cancel()
		var list link.ModelList
		err := panics.Do(s.log, "reading the models of a model server", func() (err error) {
			list, err = u.models(ctx)
			return err
		})
		if _, panicked := errors.AsType[*panics.Error](err); panicked {
			err = errors.New("the gateway failed to read the model server's answer because of a bug; its log has the stack " +
				"trace")
		}
		return list, err
	})
	select {
	case answer := <-result:
		list, _ := answer.Val.(link.ModelList)
		return list, answer.Err
	case <-ctx.Done():
		return link.ModelList{}, errors.New("the model server has not answered yet")
	}
}

// models queries the models of the upstream. Ids that are not printable, and those
// beyond the limit, are left out.
func (u upstreamCall) models(ctx context.Context) (list link.ModelList, err error) {
	answer, err := u.get(ctx, "/v1/models")
	if err != nil {
		return list, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxModelList+1))
	if err != nil {
		return list, u.explain(ctx, err)
	}
	if len(data) > maxModelList {
		return list, fmt.Errorf("the model server's list of models is larger than %d bytes", maxModelList)
	}
	list, ok := link.ParseModels(data)
	if !ok {
		return list, errors.New("the model server's answer to /v1/models is not a list of models; check that the " +
			"upstream's address is that of an OpenAI-compatible server")
	}
	ids := slices.DeleteFunc(list.IDs, func(id string) bool { // for pages and terminals
		return id == "" || len(id) > link.MaxField || text.Line(id) != id
	})
	ids = ids[:min(len(ids), link.MaxListed)]
	slices.Sort(ids)
	list.IDs = slices.Compact(ids)
	maps.DeleteFunc(list.Slots, func(id string, _ int) bool {
		_, listed := slices.BinarySearch(list.IDs, id)
		return !listed
	})
	return list, nil
}
