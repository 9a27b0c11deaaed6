package console

import (
	"net/http"
	"slices"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
)

// A form that publishes a model under a name in use asks whether to add the connector or to replace the model. Until
// then, the model stays as it is.
func TestPublishUnderNameInUse(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	gpu, mini := g.connector("gpu-box"), g.connector("mac-mini")
	g.lines.connect(gpu, "qwen3:8b")
	g.lines.connect(mini, "qwen3:8b", "bge-m3")
	d := store.Deployment{
		Account: store0, Name: "qwen3:8b", Connectors: []string{gpu.ID}, AlsoAs: []string{"coder"}, MaxConcurrency: 3,
		Kind: store.ChatModel,
	}
	must(t, errOf(g.store.SetDeployment(t.Context(), d)))
	form := []string{"name", "", "connector", mini.ID, "pick", target{"", "qwen3:8b"}.encode()}
	w := g.post("/console/models", form...)
	g.refused(w, http.StatusConflict, "qwen3:8b is published already, on gpu-box.")
	has(t, w.Body.String(), `name="taken.qwen3:8b" value="add"`, "Add mac-mini", ">Publish</button>", `value="qwen3:8b"`)
	lacks(t, w.Body.String(), "readonly", `name="change"`)
	const shown = "/console/models/show?name=qwen3%3A8b"
	g.goes(g.post("/console/models", append(form, "taken.qwen3:8b", "add")...), shown)
	if now, _ := g.store.Deployment(store0, "qwen3:8b"); !slices.Equal(now.Connectors, []string{gpu.ID, mini.ID}) ||
		!slices.Equal(now.AlsoAs, d.AlsoAs) || now.MaxConcurrency != 3 {
		t.Errorf("added: %+v", now)
	}

	form[5] = target{"", "bge-m3"}.encode()
	form[1] = "qwen3:8b"
	g.refused(g.post("/console/models", append(form, "taken.other", "replace")...), http.StatusConflict,
		"is published already")
	g.goes(g.post("/console/models", append(form, "taken.qwen3:8b", "replace")...), shown)
	if now, _ := g.store.Deployment(store0, "qwen3:8b"); now.Model != "bge-m3" || now.AlsoAs != nil ||
		now.MaxConcurrency != 0 {
		t.Errorf("replaced: %+v", now)
	}
	has(t, g.page(shown), "Saved: new requests for qwen3:8b go to mac-mini.")
	g.refused(g.post("/console/start/register", "only", gpu.ID+"  qwen3:8b", "name "+gpu.ID+"  qwen3:8b", "qwen3:8b"),
		http.StatusConflict, "is published already, on mac-mini")
}

// A move to a machine that does not list the model asks first, and shows the models of the machine.
func TestMoveToMachineWithoutModel(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	gpu, mini := g.connector("gpu-box"), g.connector("mac-mini")
	g.lines.connect(gpu, "qwen3:8b", "gemma-3-12b")
	g.lines.connect(mini, "llama3.2:3b")
	must(t, errOf(g.store.SetDeployment(t.Context(),
		store.Deployment{Account: store0, Name: "llama3.2", Connectors: []string{mini.ID}, Model: "llama3.2:3b"})))
	picked := target{"", "llama3.2:3b"}.encode()
	choices := mainOf(g.page("/console/models/choices?connector=" + gpu.ID + "&pick=" + picked))
	has(t, choices, " selected>Keep llama3.2:3b (not listed here)</option>", ">gemma-3-12b</option>")
	lacks(t, choices, `value="llama3.2:3b"`)

	form := []string{"name", "llama3.2", "change", "llama3.2", "connector", gpu.ID, "pick", picked}
	w := g.post("/console/models", form...)
	g.refused(w, http.StatusConflict, "gpu-box does not list llama3.2:3b")
	has(t, w.Body.String(), `name="anyway" value="`+gpu.ID+`"`, ">qwen3:8b</option>", `name="change" value="llama3.2"`)
	if d, _ := g.store.Deployment(store0, "llama3.2"); !slices.Equal(d.Connectors, []string{mini.ID}) {
		t.Errorf("moved: %+v", d)
	}
	g.goes(g.post("/console/models", append(form, "anyway", gpu.ID)...), "/console/models/show?name=llama3.2")
	has(t, g.page("/console/models/show?name=llama3.2"), "Saved: new requests for llama3.2 go to gpu-box.",
		"Requests fail now")
	form[7] = target{"", "qwen3:8b"}.encode()
	g.goes(g.post("/console/models", form...), "/console/models/show?name=llama3.2")
}
