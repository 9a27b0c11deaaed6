package kept

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

// peer is another gateway, with its store.
type peer struct {
	store *Store
	asked int
	err   error
	until time.Time // of the last question
}

func (p *peer) Fetch(ctx context.Context, owner Owner, id string, remove bool, read func(io.Reader) error) error {
	p.asked++
	p.until, _ = ctx.Deadline()
	var answer bytes.Buffer
	if err := p.store.Answer(&answer, owner, id, remove); err != nil {
		return err
	}
	if p.err != nil {
		return p.err
	}
	return read(&answer)
}

// testRemote returns a gateway's view of account a with the scope, and a peer.
func testRemote(scope string, hold func(int64) error) (View, *peer) {
	here, _ := testKept()
	there, _ := testKept()
	p := &peer{store: there}
	if hold == nil {
		hold = func(int64) error { return nil }
	}
	return here.View(Owner{"a", "k"}, "a", scopeOf(scope)).WithRemote(NewRemote(context.Background(), p, hold)), p
}

// mine returns the view of the same key at the peer.
func (p *peer) mine() View { return viewOf(p.store, "a", "k") }

func TestResponseOfPeer(t *testing.T) {
	held := int64(0)
	v, p := testRemote("*", func(n int64) error { held += n; return nil })
	want := keptOf("resp_1", strings.Repeat("x", 10_000))
	p.mine().Keep("resp_1", want)
	got, ok := v.Response("resp_1")
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v", got, ok)
	}
	if held != want.Size() {
		t.Errorf("%d bytes are held, want %d", held, want.Size())
	}
	if raw, ok := v.Item("out_resp_1"); !ok || string(raw) != `{"id":"out_resp_1"}` || p.asked != 1 {
		t.Errorf("item %s, %v, after %d questions", raw, ok, p.asked)
	}
	if _, ok := viewOf(p.store, "a", "other").WithRemote(v.remote).Response("resp_1"); ok {
		t.Error("another key gets the response")
	}
	if !v.Delete("resp_1") || v.Delete("resp_1") {
		t.Error("the response is not deleted once")
	}
	if _, ok := p.mine().Response("resp_1"); ok {
		t.Error("the response outlives its deletion")
	}
}

// A peer does not check scopes: the gateway of the request does.
func TestScopeOfPeer(t *testing.T) {
	v, p := testRemote("other", nil)
	p.mine().Keep("resp_1", keptOf("resp_1", "x"))
	if _, ok := v.Response("resp_1"); ok {
		t.Error("a response out of scope")
	}
	if _, ok := v.Item("in_resp_1"); ok {
		t.Error("an item out of scope")
	}
}

// One fetch returns all items of a conversation, and the fetches of a request are bounded.
func TestFetches(t *testing.T) {
	v, p := testRemote("*", nil)
	r := Response{Model: "m"}
	for i := range 1000 {
		r.Input = append(r.Input, fmt.Appendf(nil, `{"id":"item_%d"}`, i))
	}
	p.mine().Keep("resp_1", r)
	for i := range r.Input {
		if raw, ok := v.Item(fmt.Sprint("item_", i)); !ok || !bytes.Equal(raw, r.Input[i]) {
			t.Fatalf("item %d: %s", i, raw)
		}
	}
	if p.asked != 1 {
		t.Errorf("%d questions for one conversation", p.asked)
	}
	first := p.until
	for i := range 1000 {
		if _, ok := v.Item(fmt.Sprint("unknown_", i)); ok {
			t.Fatal("an unknown item exists")
		}
	}
	if p.asked != maxFetches {
		t.Errorf("%d questions, want %d", p.asked, maxFetches)
	}
	if !p.until.Equal(first) || time.Until(first) > fetchTime {
		t.Errorf("the questions end at %v and %v", first, p.until)
	}
}

func TestPeerFails(t *testing.T) {
	full := errors.New("full")
	for name, change := range map[string]func(v *View, p *peer){
		"no answer": func(_ *View, p *peer) { p.err = errors.New("gone") },
		"no memory": func(v *View, _ *peer) { v.remote.reserve = func(int64) error { return full } },
	} {
		v, p := testRemote("*", nil)
		p.mine().Keep("resp_1", keptOf("resp_1", "x"))
		change(&v, p)
		if r, ok := v.Response("resp_1"); ok || r.Body != nil {
			t.Errorf("%s: %q", name, r)
		}
	}
}

// TestDecodeBroken decodes truncated and invalid responses. They take no more memory than reserved.
func TestDecodeBroken(t *testing.T) {
	var whole bytes.Buffer
	if err := encode(&whole, keptOf("resp_1", "x")); err != nil {
		t.Fatal(err)
	}
	most := int64(0)
	hold := func(n int64) error { most = max(most, n); return nil }
	for n := range whole.Len() {
		if _, err := decode(bytes.NewReader(whole.Bytes()[:n]), hold); err == nil {
			t.Fatalf("%d of %d bytes are decoded", n, whole.Len())
		}
	}
	for name, text := range map[string]string{
		"a large size":     "\xff\xff\xff\xff\x0f",
		"many parts":       "\x80\x08\xff\xff\x03",
		"a long part":      "\x80\x08\x02\xff\x7f",
		"one part of head": "\x80\x08\x01\x01x\x00\x00",
	} {
		if _, err := decode(strings.NewReader(text), hold); !errors.Is(err, errSize) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if most > MaxBytes {
		t.Errorf("%d bytes were held", most)
	}
}

// FuzzRemote decodes any input: into a valid response, or an error, within the reserved memory.
func FuzzRemote(f *testing.F) {
	for _, r := range []Response{keptOf("resp_1", "x"), {}, {Input: [][]byte{[]byte(`[[0]]`), []byte(`{"id"`), nil}}} {
		var wire bytes.Buffer
		if err := encode(&wire, r); err != nil {
			f.Fatal(err)
		}
		f.Add(wire.Bytes())
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		held := int64(0)
		r, err := decode(bytes.NewReader(wire), func(n int64) error { held += n; return nil })
		if err != nil {
			return
		}
		size := int64(len(r.Model) + len(r.Body))
		for _, item := range append(r.Input, r.Output...) {
			if size += int64(len(item)); !json.Valid(item) {
				t.Fatalf("the item %q", item)
			}
		}
		if size > held {
			t.Fatalf("%d bytes, of which %d are held", size, held)
		}
	})
}
