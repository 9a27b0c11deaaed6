package activity

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/panics"
)

// Intervals at which the activity is saved.
const (
	saveUsage  = 10 * time.Second
	saveRecent = time.Minute
)

// Close saves the unsaved activity. Requests that are recorded later are lost.
func (l *Log) Close() error {
	l.stop()
	l.worker.Wait()
	return errors.Join(l.saveUsage(), l.saveRecent())
}

// run saves until the log is closed.
func (l *Log) run(ctx context.Context) {
	usage, recent := time.NewTicker(saveUsage), time.NewTicker(saveRecent)
	defer usage.Stop()
	defer recent.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-usage.C:
			err = panics.Do(l.log, "saving the usage", l.saveUsage)
		case <-recent.C:
			err = panics.Do(l.log, "saving the recent requests", l.saveRecent)
		}
		if err != nil {
			l.log.Warn("failed to save the activity", "error", err)
		}
	}
}
