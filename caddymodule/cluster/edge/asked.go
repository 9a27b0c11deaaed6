package edge

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"io"
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
	// answerTime bounds how long a peer may take to read an answer.
	answerTime = 10 * time.Second
	// reportTime bounds how long a page waits for the report of a peer, and how old it is at most.
	reportTime = time.Second
	// maxReport bounds the report of a peer, in bytes.
	maxReport = 16 << 20
)

// Serve implements peer.Gateway.
func (e *Edge) Serve(stream *quic.Stream, m link.Message) {
	switch m := m.(type) {
	case link.Activity:
		answer(stream, func(to io.Writer) error {
			r, err := e.services.Activity.Report(stream.Context(), m.Account)
			if err != nil {
				return err
			}
			return json.NewEncoder(to).Encode(r)
		})
	case link.Kept:
		answer(stream, func(to io.Writer) error {
			return e.services.AnswerKept(to, kept.Owner{Account: m.Account, Key: m.Key}, m.ID, m.Delete)
		})
	case link.Enter:
		e.owners.Serve(stream, m)
	default: // a newer peer asks
		link.Refuse(stream, link.CodeDraining)
	}
}

// answer writes an answer and ends the stream.
func answer(stream *quic.Stream, write func(io.Writer) error) {
	_ = stream.SetWriteDeadline(time.Now().Add(answerTime))
	if write(stream) != nil {
		link.Refuse(stream, link.CodeInternal)
		return
	}
	_ = stream.Close()
	stream.CancelRead(0)
}

// tagSize is the length of the end of an id that names the edge. It leaves 105 random bits.
const tagSize = 5

// tag returns the end of the ids that name an edge. It reveals no name to clients.
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

// reports caches the reports of the peers by account, for reportTime.
type reports struct {
	mu    sync.Mutex
	since time.Time
	of    map[string]*reportsOf
}

// reportsOf are the reports about an account.
type reportsOf struct {
	once   sync.Once
	by     map[string]activity.Report
	silent []string
}

// get returns the entry of an account.
func (r *reports) get(account string) *reportsOf {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.since) >= reportTime {
		r.since, r.of = now, make(map[string]*reportsOf)
	}
	of := r.of[account]
	if of == nil {
		of = new(reportsOf)
		r.of[account] = of
	}
	return of
}

// Reports implements manage.Cluster.
func (e *Edge) Reports(ctx context.Context, account string) (by map[string]activity.Report, silent []string) {
	of := e.reports.get(account)
	of.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime) // others wait for it, too
		defer cancel()
		of.by, of.silent = e.askReports(ctx, account)
	})
	return of.by, of.silent
}

// askReports asks all peers at a time.
func (e *Edge) askReports(ctx context.Context, account string) (by map[string]activity.Report, silent []string) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	by = make(map[string]activity.Report)
	for _, other := range e.services.Store.Edges() {
		if other.Name == e.Name() {
			continue
		}
		asking.Go(func() {
			var r activity.Report
			err := panics.Do(e.Cluster.Logger, "reading the report of a peer", func() error {
				return e.Ask(ctx, other.Name, link.Activity{Account: account}, func(from io.Reader) error {
					return json.NewDecoder(io.LimitReader(from, maxReport)).Decode(&r)
				})
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				by[other.Name] = r
			} else {
				silent = append(silent, other.Name)
			}
		})
	}
	asking.Wait()
	slices.Sort(silent)
	return by, silent
}
