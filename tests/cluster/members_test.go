package cluster

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/postern-dev/postern/caddymodule/cluster/etcd"
	"github.com/postern-dev/postern/caddymodule/store"
)

// fakeMember is a member of etcd that is cut off from the others, and has noticed it.
type fakeMember struct {
	pb.UnimplementedKVServer
	txns atomic.Int64 // transactions that it has refused
}

func (*fakeMember) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return nil, rpctypes.ErrGRPCNoLeader
}

func (m *fakeMember) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	m.txns.Add(1)
	return nil, rpctypes.ErrGRPCNoLeader
}

// serve starts the member and returns its URL.
func (m *fakeMember) serve(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := grpc.NewServer()
	pb.RegisterKVServer(server, m)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return "http://" + l.Addr().String()
}

// TestMemberWithoutLeader: a member without a leader refuses a transaction before it does anything. The next
// attempt needs no new epoch, which would make the transactions of all other clients fail.
func TestMemberWithoutLeader(t *testing.T) {
	t.Parallel()
	all, away := start(t, 1), new(fakeMember)
	kv := open(t, all[0].url, newProxy(t, all[0]).url, away.serve(t))
	before := epochs(t, all)
	for away.txns.Load() < 5 {
		put(t, kv, store.Put("a", nil))
	}
	if n := epochs(t, all) - before; n != 0 {
		t.Errorf("%d epochs after %d refusals", n, away.txns.Load())
	}
}

// epochs returns the number of epochs that clients have begun, with those of their starts.
func epochs(t testing.TB, of servers) int64 {
	t.Helper()
	client := of.client(t)
	defer client.Close()
	resp, err := client.Get(t.Context(), "postern/meta/schema")
	must(t, err)
	return resp.Kvs[0].Version // counts its puts
}

// TestOpenFull opens a store while etcd has reached its quota. A new store needs space.
func TestOpenFull(t *testing.T) {
	t.Parallel()
	url := start(t, 1, "--quota-backend-bytes", "2097152")[0].url
	kv := open(t, url)
	for full := false; !full; {
		_, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("a", make([]byte, 512<<10))}})
		if full = errors.Is(err, store.ErrNoSpace); err != nil && !full {
			t.Fatal(err)
		}
	}
	if item, err := open(t, url).Get(t.Context(), "a"); err != nil || !item.Exists() {
		t.Errorf("%d bytes, %v", len(item.Value), err)
	}
	wantError(t, etcd.Options{Endpoints: []string{url}, Prefix: "new"}, store.ErrNoSpace, "has reached its quota")
}
