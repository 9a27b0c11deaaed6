package dialect

import (
	"github.com/postern-dev/postern/caddymodule/compat"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Gateway is whom a decoder asks while it reads a request.
type Gateway interface {
	// Admit returns how the model server behind a model is to be treated, or
	// why the caller may not use the model. A decoder calls it once, as soon as
	// the request's model is known and before anything is translated.
	Admit(model string) (compat.Options, *Error)
	// Hold reserves memory for n bytes that are to be translated in addition to
	// the body, or returns why that cannot be.
	Hold(n int64) *Error
}

// admit does Gateway.Admit. Without a gateway each model has the defaults.
func (e *Env) admit(model string) (compat.Options, *Error) {
	if e.Gateway == nil {
		return compat.Options{}, nil
	}
	return e.Gateway.Admit(model)
}

// hold does Gateway.Hold.
func (e *Env) hold(n int) *Error {
	if e.Gateway == nil {
		return nil
	}
	return e.Gateway.Hold(int64(n))
}

// reasoningStore seals and opens what clients carry for the account.
func (e *Env) reasoningStore() reasoningStore { return reasoningStore{e.Sealer, e.Account} }

// effortLevel is a degree of thinking as model servers know it: they know
// fewer than clients ask for.
func effortLevel(effort string) string {
	switch effort {
	case "minimal":
		return "low"
	case "xhigh", "max":
		return "high"
	}
	return effort
}

// Budgets of thinking, in tokens, from which on a client that names one wants
// more than little of it, and much.
const (
	mediumBudget = 4096
	highBudget   = 16384
)

// budgetLevel is the degree of thinking that a budget stands for.
func budgetLevel(tokens int64) string {
	switch {
	case tokens < mediumBudget:
		return "low"
	case tokens < highBudget:
		return "medium"
	}
	return "high"
}

// readEffort reads how much the model is to think, for a model server that can
// be told. The client's word for it counts more than its budget, which agents
// leave at one number whatever their user chooses.
func (c *messagesCall) readEffort(fields fieldList) *Error {
	if !c.options.Reasoning {
		return nil
	}
	level := effortLevel(jsonscan.Text(given(fields, "output_config"), "effort"))
	thinking := given(fields, "thinking")
	switch jsonscan.Text(thinking, "type") {
	case "disabled":
		level = "none"
	case "enabled":
		if budget, ok := jsonscan.Integer(readFields(thinking).get("budget_tokens")); ok && level == "" {
			level = budgetLevel(budget)
		}
	}
	if level != "" {
		c.askEffort(level)
	}
	return nil
}

// filePart is a file as a part of a chat message; data is a data URL.
func filePart(name, data string) contentPart {
	b := jsonscan.AppendQuoted([]byte(`{"type":"file","file":{"filename":`), name)
	b = jsonscan.AppendQuoted(append(b, `,"file_data":`...), data)
	return contentPart{raw: append(b, "}}"...), mark: "[file]"}
}

// fileName is the name of a file: that which the client gave, or one that shows
// its type.
func fileName(given, media string) string {
	switch {
	case given != "":
		return given
	case media == "application/pdf":
		return "document.pdf"
	}
	return "document"
}
