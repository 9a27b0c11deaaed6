package link

import (
	"io"
	"reflect"
	"strings"
	"testing"
)

// TestAsk reads messages for a gateway itself as its peer does: what follows is left.
func TestAsk(t *testing.T) {
	for _, m := range []Message{
		Activity{Account: "default"},
		Kept{Account: "default", Key: "key_1", ID: "resp_1", Delete: true},
	} {
		a := new(fakeStream)
		if err := Ask(a, m); err != nil {
			t.Fatal(err)
		}
		b := &fakeStream{Reader: io.MultiReader(&a.written, strings.NewReader("rest"))}
		if to, err := ReadRelayHeader(b); to != (RelayHeader{}) || err != nil {
			t.Fatalf("for %+v, %v", to, err)
		}
		got, err := ReadAsked(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v, %v, want %+v", got, err, m)
		}
		if rest, err := io.ReadAll(b); err != nil || string(rest) != "rest" {
			t.Errorf("then %q, %v", rest, err)
		}
	}
	if err := Ask(new(fakeStream), Kept{ID: strings.Repeat("x", maxControl)}); err == nil {
		t.Error("a message that is too large was sent")
	}
}
