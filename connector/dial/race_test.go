package dial

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestRunnerWaitsAfterAnAnswer: only silence ends an attempt soon.
func TestRunnerWaitsAfterAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		send, receive time.Duration // 0: never
		want          time.Duration
	}{
		"silence":       {send: time.Millisecond, want: 2*time.Second + time.Millisecond},
		"nothing sent":  {want: 2 * time.Second},
		"sent late":     {send: 1500 * time.Millisecond, want: 3500 * time.Millisecond},
		"answered":      {send: time.Millisecond, receive: 1900 * time.Millisecond, want: answeredTimeout},
		"answered late": {send: time.Second, receive: 2500 * time.Millisecond, want: answeredTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Runner{Limit: 2 * time.Second, Dial: func(ctx context.Context, a *Activity) (*Conn, error) {
					if test.send > 0 {
						time.AfterFunc(test.send, a.sending)
					}
					if test.receive > 0 {
						time.AfterFunc(test.receive, a.receive)
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}}
				start := time.Now()
				_, err := r.run(t.Context(), newActivity())
				if took := time.Since(start); took != test.want || err == nil {
					t.Errorf("it took %v, want %v", took, test.want)
				}
			})
		})
	}
}
