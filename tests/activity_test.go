package tests

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// The activity tells how requests went, also where the client had its 200 long
// before: a stream that broke off is no success.
func TestActivityTellsHowRequestsWent(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "whole", upstream.JSON(upstream.Completion("up-whole", "hello")))
	r.serve(t, "dies", func(x *upstream.Exchange) {
		x.Stream()
		x.Chunk(upstream.Delta("up-dies", "hel"))
		x.Die()
	})
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hold := func(x *upstream.Exchange) {
		x.Stream()
		x.Chunk(upstream.Delta("up", "hel"))
		x.Hold(release)
	}
	r.serve(t, "left", hold)
	r.serve(t, "revoked", hold)

	const streamed = `,"stream":true`
	r.Post(t, harness.Chat("whole", ""))
	r.Post(t, harness.Chat("dies", streamed))
	left := r.Stream(t, harness.Chat("left", streamed))
	if _, err := left.Next(); err != nil {
		t.Fatal(err)
	}
	left.Close()
	id, key := r.Gateway.Key(t, "short", "*")
	cut := r.Gateway.Client(t, key).Stream(t, harness.Chat("revoked", streamed))
	if _, err := cut.Next(); err != nil {
		t.Fatal(err)
	}
	r.Revoke(t, id)

	want := map[string]int{
		"whole": http.StatusOK, "dies": http.StatusBadGateway, "left": 499, "revoked": http.StatusUnauthorized,
	}
	harness.Poll(t, limit, "the activity of all requests", func(context.Context) error {
		var list []struct {
			Deployment string
			Status     int
			Input      int  `json:"input_tokens"`
			Output     int  `json:"output_tokens"`
			Estimated  bool `json:"tokens_estimated"`
		}
		r.Manage(t, http.MethodGet, "/activity", nil, &list)
		got := map[string]int{}
		for _, item := range list {
			got[item.Deployment] = item.Status
			// None of the streams came to its usage.
			if item.Deployment != "whole" && (item.Input < 5 || item.Output != 1 || !item.Estimated) {
				return fmt.Errorf("%s cost %d and %d tokens, estimated: %v", item.Deployment, item.Input, item.Output, item.Estimated)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("it is %v, want %v", got, want)
		}
		return nil
	})
}
