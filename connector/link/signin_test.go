package link

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// The hash of a name as it was entered stays out of logs.
func TestSignInIsHidden(t *testing.T) {
	m := SignIn{Address: "192.0.2.1", Who: []byte("hash")}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("message", "message", m)
	for _, text := range []string{log.String(), fmt.Sprint(m), fmt.Sprintf("%+v", m), fmt.Sprintf("%#v", m)} {
		if strings.Contains(text, "hash") || strings.Contains(text, "104") {
			t.Errorf("the text %s", text)
		}
	}
}
