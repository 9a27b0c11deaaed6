package edge

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

const (
	// answerTimeout bounds how long a peer may take to read an answer.
	answerTimeout = 10 * time.Second
	// reportTimeout bounds how long a page waits for the report of a peer. Reports are cached as long.
	reportTimeout = time.Second
	// maxReport bounds the report of a peer, in bytes.
	maxReport = 16 << 20
)

// Serve implements peer.Gateway.
func (e *Edge) Serve(stream *quic.Stream, m link.Message) {
	switch m := m.(type) {
	case link.Activity:
		answer(stream, func(w io.Writer) error {
			r, err := e.activity(stream.Context(), m)
			if err != nil {
				return err
			}
			return json.NewEncoder(w).Encode(r)
		})
	case link.Kept:
		answer(stream, func(w io.Writer) error {
			return e.services.AnswerKept(w, kept.Owner{Account: m.Account, Key: m.Key}, m.ID, m.Delete)
		})
	default: // a question of a newer peer
		link.Refuse(stream, link.CodeDraining)
	}
}

// activity answers a question about the activity.
func (e *Edge) activity(ctx context.Context, m link.Activity) (any, error) {
	if len(m.Query) == 0 {
		return e.services.Activity.Report(ctx, m.Account)
	}
	var q activity.Query
	if err := json.Unmarshal(m.Query, &q); err != nil {
		return nil, err
	}
	return e.services.Activity.Find(ctx, m.Account, q)
}

// answer writes an answer and ends the stream.
func answer(stream *quic.Stream, write func(io.Writer) error) {
	_ = stream.SetWriteDeadline(time.Now().Add(answerTimeout))
	if write(stream) != nil {
		link.Refuse(stream, link.CodeInternal)
		return
	}
	_ = stream.Close()
	stream.CancelRead(0)
}

// tagSize is the length of the tag at the end of an id. It leaves 105 random bits.
const tagSize = 5

// tag returns the end of ids that were created at an edge. It does not reveal the name to clients.
func (e *Edge) tag(edge string) string {
	h := hmac.New(sha256.New, e.Links.Key)
	h.Write([]byte("postern kept responses\x00" + edge))
	return base32.StdEncoding.EncodeToString(h.Sum(nil))[:tagSize]
}

// NewID implements serve.Peers.
func (e *Edge) NewID(prefix string) string {
	id := dialect.NewID(prefix)
	return id[:len(id)-tagSize] + e.tag(e.Name())
}

// Fetch implements kept.Peers.
func (e *Edge) Fetch(ctx context.Context, owner kept.Owner, id string, remove bool, read func(io.Reader) error) error {
	for _, other := range e.services.Store.Edges() {
		if other.Name != e.Name() && strings.HasSuffix(id, e.tag(other.Name)) {
			m := link.Kept{Account: owner.Account, Key: owner.Key, ID: id, Delete: remove}
			return e.Ask(ctx, other.Name, m, read)
		}
	}
	return nil
}

// reportCache caches the reports of the peers for reportTimeout.
type reportCache struct {
	mu       sync.Mutex
	since    time.Time
	accounts map[string]*accountReports
}

// accountReports are the reports about an account.
type accountReports struct {
	once   sync.Once
	edges  map[string]activity.Report // by name
	silent []string
}

// get returns the entry of an account.
func (c *reportCache) get(account string) *accountReports {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.since) >= reportTimeout {
		c.since, c.accounts = now, make(map[string]*accountReports)
	}
	r := c.accounts[account]
	if r == nil {
		r = new(accountReports)
		c.accounts[account] = r
	}
	return r
}

// Reports implements manage.Cluster.
func (e *Edge) Reports(ctx context.Context, account string) (edges map[string]activity.Report, silent []string) {
	r := e.reports.get(account)
	r.once.Do(func() {
		// Not canceled with ctx: other callers may wait for the result, too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
		defer cancel()
		r.edges, r.silent = askPeers[activity.Report](ctx, e, link.Activity{Account: account})
	})
	return r.edges, r.silent
}

// Find implements manage.Cluster.
func (e *Edge) Find(ctx context.Context, account string, q activity.Query) (found []activity.Found, silent []string) {
	query, err := json.Marshal(q)
	if err != nil { // no query does
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	edges, silent := askPeers[activity.Found](ctx, e, link.Activity{Account: account, Query: query})
	return slices.Collect(maps.Values(edges)), silent
}

// askPeers asks all peers in parallel. It returns their answers by name, and the peers that do not answer soon.
func askPeers[T any](ctx context.Context, e *Edge, m link.Activity) (answers map[string]T, silent []string) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	answers = make(map[string]T)
	for _, other := range e.services.Store.Edges() {
		if other.Name == e.Name() {
			continue
		}
		asking.Go(func() {
			var r T
			err := panics.Do(e.Cluster.Logger, "reading the activity of a peer", func() error {
				return e.Ask(ctx, other.Name, m, func(answer io.Reader) error {
					return json.NewDecoder(io.LimitReader(answer, maxReport)).Decode(&r)
				})
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				answers[other.Name] = r
			} else {
				silent = append(silent, other.Name)
			}
		})
	}
	asking.Wait()
	slices.Sort(silent)
	return answers, silent
}
