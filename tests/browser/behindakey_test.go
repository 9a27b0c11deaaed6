package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// The people behind the key of Open WebUI are listed with what they used, and one is forgotten.
func testPeopleBehindAKey(t *testing.T, r *rig) {
	ada := r.newUser("behind", "ada")
	r.paired(ada, "gpu")
	key := r.key(ada, "open-webui", "*")
	ada.Open("/console/keys")
	ada.Press("open-webui")
	ada.Press("Change name, scope, limits…")
	ada.Press("People behind the key")
	ada.Look("key-people-form")
	ada.Fill("#user_header", "X-OpenWebUI-User-Email")
	ada.Press("Save")
	ada.Sees("open-webui is changed.")
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
	ada.Open("/console/keys")
	ada.Press("open-webui")
	ada.Look("key-people")
	ada.Press("usage by person")
	ada.Sees("anna@example.com 2")
	ada.Look("people")
	ada.Press("Person")
	ada.Sees("anna@example.com 2")
	ada.Click(`tr:has(input[value="anna@example.com"]) summary`)
	ada.Look("people-forget")
	ada.Click(`tr:has(input[value="anna@example.com"]) button`)
	ada.Sees("open-webui has forgotten the person.")
	ada.SeesNot("anna@example.com")
	ada.Sees("bert@example.com")
	ada.Open("/console/activity")
	ada.Sees("bert@example.com")
	ada.SeesNot("anna@example.com")
	ada.Look("activity-people")
	if log := r.Process.Log(); strings.Contains(log, "anna@") || strings.Contains(log, "bert@") {
		t.Error("a name is in the log")
	}
}
