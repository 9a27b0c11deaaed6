package manage

import "context"

// Whether a model calls tools, as far as a test can tell.
const (
	ToolsWork    = "works"
	ToolsNo      = "no"
	ToolsUnknown = "unknown"
)

// TestResult is what a short completion told of a deployment.
type TestResult struct {
	OK               bool    `json:"ok"`
	FirstTokenMillis float64 `json:"first_token_ms"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
	Tokens           int     `json:"tokens"`
	Tools            string  `json:"tools"` // ToolsWork, ToolsNo or ToolsUnknown
	// ToolsReason is why tools do not work, or why that is not known.
	ToolsReason string `json:"tools_reason,omitempty"`
	// Answer is the beginning of what the model said.
	Answer string `json:"answer"`
	// Error is why the completion failed, empty if OK.
	Error string `json:"error,omitempty"`
}

// TestDeployment runs a short completion on a deployment and asks for the call
// of a tool. That the model does not answer is no error of the operation.
func (s *Service) TestDeployment(ctx context.Context, account, name string) (TestResult, error) {
	return TestResult{}, faultf(ErrNotReady, "not built yet")
}
