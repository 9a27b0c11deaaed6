package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecrets(t *testing.T) {
	type token struct {
		Secrets
		ID     string `json:"id"`
		Secret []byte `json:"secret"`
	}
	v := token{ID: "con_1", Secret: []byte("s3cret")}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", v)
		fmt.Fprintf(&out, verb+"\n", &v)
		fmt.Fprintf(&out, verb+"\n", struct{ Token token }{v})
		fmt.Fprintf(&out, verb+"\n", []token{v})
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "token", v, "pointer", &v)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "token", v, "pointer", &v)
	if printer, ok := any(v).(fmt.Stringer); ok { // which zap calls
		fmt.Fprintln(&out, printer.String())
	}
	for _, secret := range []string{"s3cret", fmt.Sprintf("%x", "s3cret"), fmt.Sprint([]byte("s3cret"))[1:9], "czNjcmV0"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("output with %q: %s", secret, &out)
		}
	}
	if got := strings.Count(out.String(), hidden); got != 7*4+4+1 {
		t.Errorf("%d values are hidden: %s", got, &out)
	}
	if got, err := json.Marshal(v); string(got) != `{"id":"con_1","secret":"czNjcmV0"}` || err != nil {
		t.Errorf("JSON %s, %v", got, err)
	}
}
