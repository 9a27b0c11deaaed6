package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// The people behind the key of Open WebUI are listed with what they used, and one is forgotten.
func testPeopleBehindAKey(t *testing.T, r *rig) {
	bea := r.newUser("behind", "bea")
	r.paired(bea, "gpu")
	key := r.key(bea, "open-webui", "*")
	bea.Open("/console/keys")
	bea.Press("open-webui")
	bea.Press("Change name, scope, limits…")
	bea.Press("People behind the key")
	bea.Look("key-people-form")
	bea.Fill("#user_header", "X-OpenWebUI-User-Email")
	bea.Press("Save")
	bea.Sees("open-webui is changed.")
	client := r.Client(t, key)
	for i, person := range []string{
		"anna@example.com", "anna@example.com", "bert@example.com", "", "x",
		strings.Repeat("a-very-long-name-", 7) + "@x.org", "<script>alert(1)</script>",
	} {
		// As Open WebUI sends them with ENABLE_FORWARD_USER_INFO_HEADERS.
		answer := client.Post(t, harness.Chat("scripted", ""), "X-OpenWebUI-User-Name: Anna%20Meyer",
			"X-OpenWebUI-User-Id: 7d5b6c1e-0f6a-4d7b-9f57-0d2c8d3c8a11", "X-OpenWebUI-User-Email: "+person,
			"X-OpenWebUI-User-Role: user")
		if answer.Status != http.StatusOK {
			t.Fatalf("%d: status %d", i, answer.Status)
		}
	}
	bea.Open("/console/keys")
	bea.Press("open-webui")
	bea.Sees("usage by person")
	bea.Look("key-people")
	bea.Press("usage by person")
	bea.Sees("anna@example.com 2")
	bea.Look("people")
	bea.Press("Person")
	bea.Sees("anna@example.com 2")
	bea.Click(`tr:has(input[value="anna@example.com"]) summary`)
	bea.Look("people-forget")
	bea.Click(`tr:has(input[value="anna@example.com"]) button`)
	bea.Sees("open-webui has forgotten the person.")
	bea.SeesNot("anna@example.com")
	bea.Sees("bert@example.com")
	bea.Open("/console/activity")
	bea.Sees("bert@example.com")
	bea.SeesNot("anna@example.com")
	bea.Look("activity-people")
	if log := r.Process.Log(); strings.Contains(log, "anna@") || strings.Contains(log, "bert@") {
		t.Error("a name is in the log")
	}
}
