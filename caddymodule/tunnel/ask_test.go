package tunnel

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

// answeringPeer is a gateway that answers messages of its peers to itself.
type answeringPeer struct {
	anyPeer
	serve func(stream *quic.Stream, m link.Message)
}

func (a answeringPeer) Serve(stream *quic.Stream, m link.Message) { a.serve(stream, m) }

// answers is a Serve that answers with an account.
func answers(stream *quic.Stream, m link.Message) {
	_, _ = io.WriteString(stream, m.(link.Activity).Account)
	_ = stream.Close()
	stream.CancelRead(0)
}

// TestAsk asks peers themselves: one that answers, one that does not, one that knows no answer, and
// one without a connection.
func TestAsk(t *testing.T) {
	tests := map[string]struct {
		peer  string
		serve func(stream *quic.Stream, m link.Message) // nil: the peer is in no cluster
		want  string
		err   error
		text  string // of the error
	}{
		"an answer": {peer: "b", serve: answers, want: "default"},
		"no answer": {
			peer: "b", err: context.DeadlineExceeded,
			serve: func(stream *quic.Stream, _ link.Message) { <-stream.Context().Done() },
		},
		"half an answer": {
			peer: "b", err: io.ErrUnexpectedEOF,
			serve: func(stream *quic.Stream, _ link.Message) {
				_, _ = io.WriteString(stream, "def")
				_ = stream.Close()
			},
		},
		"refused":       {peer: "b", serve: func(stream *quic.Stream, _ link.Message) { link.Refuse(stream, link.CodeDraining) }, text: "canceled by remote"},
		"no cluster":    {peer: "b", text: "canceled by remote"},
		"no connection": {peer: "c", serve: answers, err: errNoPeer, text: `the gateway "c"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
				a, b := newEdge("a"), newEdge("b")
				b.joins(t, a, "b")
				if tt.serve == nil {
					b.SetOptions(Options{})
				} else {
					b.SetOptions(Options{Peers: answeringPeer{serve: tt.serve}})
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				begun := time.Now()
				got := make([]byte, len("default"))
				err := a.Ask(ctx, tt.peer, link.Activity{Account: "default"}, func(from io.Reader) error {
					_, err := io.ReadFull(from, got)
					return err
				})
				switch {
				case tt.err == nil && tt.text == "":
					if err != nil || string(got) != tt.want {
						t.Errorf("answer %q, %v", got, err)
					}
				case err == nil, tt.err != nil && !errors.Is(err, tt.err), !strings.Contains(err.Error(), tt.text):
					t.Errorf("error %v", err)
				}
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
