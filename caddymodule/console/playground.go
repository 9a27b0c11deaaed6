package console

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// playForm is the form of the playground, as typed.
type playForm struct {
	Key, System, Prompt, Temperature, MaxTokens, Stop string
	Keys                                              []manage.Key // that the user may choose
}

// newPlayForm returns the submitted form, for the model of the URL. It is empty for a page that was opened.
func newPlayForm(v *visit) playForm {
	t := v.typed
	f := playForm{t("key"), t("system"), t("prompt"), t("temperature"), t("max_tokens"), t("stop"), nil}
	for _, k := range load(v, v.Manage.Keys) {
		s, err := v.Manage.KeyScope(v.ctx, k.KeyFields)
		if k.Owner == v.User.ID && k.State == store.KeyValid && err == nil && s.Allows(v.r.FormValue("name")) {
			f.Keys = append(f.Keys, k)
		}
	}
	return f
}

// play returns the request of the form.
func (f playForm) play(model string) (p manage.Play, err error) {
	p = manage.Play{Model: model, Key: f.Key, System: strings.TrimSpace(f.System), Prompt: f.Prompt}
	if text := strings.TrimSpace(f.Temperature); text != "" {
		temperature, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return p, badForm("Temperature must be a number from 0 to 2; leave it empty for the model server's.")
		}
		p.Temperature = &temperature
	}
	if text := strings.TrimSpace(f.MaxTokens); text != "" {
		if p.MaxTokens, err = strconv.Atoi(text); err != nil || p.MaxTokens < 1 {
			return p, badForm("Max tokens must be a whole number; leave it empty for 1024.")
		}
	}
	for line := range strings.Lines(strings.ReplaceAll(f.Stop, "\r\n", "\n")) {
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			p.Stop = append(p.Stop, line)
		}
	}
	return p, nil
}

// mediaNDJSON is the type of an answer that arrives in pieces: a JSON object in each line.
const mediaNDJSON = "application/x-ndjson"

// play answers with the whole page, or with the pieces of the answer for scripts. Nothing of
// either is stored.
func play(v *visit) error {
	form := newPlayForm(v)
	request, err := form.play(v.r.FormValue("name"))
	if err != nil {
		return err
	}
	if v.r.Header.Get("Accept") == mediaNDJSON {
		return v.playLive(request)
	}
	played, err := v.Manage.Play(v.ctx, request, nil)
	if err != nil {
		return err
	}
	p := modelData(v).(*modelPage)
	p.Played = &played
	return v.show(modelTab, p, v.err)
}

// playLive sends the pieces as they arrive, and then the result.
func (v *visit) playLive(request manage.Play) error {
	s := &stream{visit: v, to: http.NewResponseController(v.w)}
	opened, sendErr := false, error(nil)
	send := func(value any) {
		line, err := json.Marshal(value)
		if err != nil || sendErr != nil {
			return
		}
		if !opened {
			opened = true
			v.w.Header().Set("Content-Type", mediaNDJSON)
			v.w.Header().Set("X-Accel-Buffering", "no") // for proxies in front of Caddy
		}
		sendErr = s.send(append(line, '\n'))
	}
	played, err := v.Manage.Play(v.ctx, request, func(p manage.Piece) { send(p) })
	if err != nil {
		return err // nothing was sent
	}
	send(struct {
		Done manage.Played `json:"done"`
	}{played})
	return nil
}
