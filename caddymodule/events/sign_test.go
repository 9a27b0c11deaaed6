package events

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The example of the documentation, checked with OpenSSL:
//
//	printf '%s' 'msg_1.1795270000.{"a":1}' | openssl dgst -sha256 -hmac 'sixteen bytes !!' -binary | base64
func TestSignature(t *testing.T) {
	for _, secret := range []string{"sixteen bytes !!", "whsec_c2l4dGVlbiBieXRlcyAhIQ=="} {
		key, err := SigningKey(secret)
		must(t, err)
		h := make(http.Header)
		sign(h, key, message{name: "name", id: "msg_1", Payload: Payload{Body: []byte(`{"a":1}`)}}, time.Unix(1795270000, 5))
		if h.Get("Webhook-Id") != "msg_1" || h.Get("Webhook-Timestamp") != "1795270000" ||
			h.Get("Webhook-Signature") != "v1,oeI3k1rCzCYoOm6TSqtKbxo2+pVNW2IOsCQ26QRUEJM=" {
			t.Errorf("signed with %s: %v", secret, h)
		}
	}
}

// Each attempt is signed again, with any configured headers.
func TestWebhookSigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		receiver := &answers{statuses: []int{503, 204}}
		w, _ := newWebhook(receiver, &log)
		w.Key = []byte("sixteen bytes !!")
		w.Header.Set("Webhook-Signature", "forged")
		w.Post("default", "model_gateway.key_created", "msg_1", Payload{Body: []byte(`{"id":"msg_1"}`)})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(receiver.requests) != 2 {
			t.Fatalf("%d attempts", len(receiver.requests))
		}
		for i, r := range receiver.requests {
			body, err := r.GetBody()
			must(t, err)
			text, err := io.ReadAll(body)
			must(t, err)
			want := make(http.Header)
			sign(want, w.Key, message{id: r.Header.Get("Webhook-Id"), Payload: Payload{Body: text}}, receiver.received[i])
			for name := range want {
				if got := r.Header[name]; len(got) != 1 || got[0] != want.Get(name) {
					t.Errorf("try %d has %s: %q, want %q", i, name, got, want.Get(name))
				}
			}
			if !strings.Contains(string(text), r.Header.Get("Webhook-Id")) {
				t.Errorf("the id %q is not the event's: %s", r.Header.Get("Webhook-Id"), text)
			}
		}
		first := receiver.requests[0].Header.Get("Webhook-Timestamp")
		if second := receiver.requests[1].Header.Get("Webhook-Timestamp"); first == second {
			t.Errorf("both attempts are of %s", first)
		}
		if strings.Contains(log.String(), "sixteen") {
			t.Errorf("the log has the secret: %s", log.String())
		}
		w.Close(false)
	})
}
