package store

// UsageDay counts what an account used on one day.
type UsageDay struct {
	Account      string `json:"account"`
	Day          string `json:"day"` // like 2026-11-21, in UTC
	Requests     int64  `json:"requests"`
	Errors       int64  `json:"errors"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
}
