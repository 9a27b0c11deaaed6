package activity

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/panics"
)

// saveInterval is the time between two saves.
const saveInterval = 10 * time.Second

// eraseInterval is the time between two calls of [Log.erasePeople].
const eraseInterval = 10 * time.Minute

// Close saves the unsaved activity. Requests that are recorded later are lost.
func (l *Log) Close() error {
	l.stop()
	l.worker.Wait()
	err := errors.Join(l.saveUsage(), l.saveRequests())
	if db := l.file.db.Swap(nil); db != nil {
		err = errors.Join(err, db.Close())
	}
	return err
}

// run saves until the log is closed, at first to open the file.
func (l *Log) run(ctx context.Context) {
	next := time.NewTicker(saveInterval)
	defer next.Stop()
	var erased time.Time
	for {
		err := errors.Join(
			panics.Do(l.log, "saving the usage", l.saveUsage),
			panics.Do(l.log, "saving the requests", l.saveRequests),
		)
		if time.Since(erased) >= eraseInterval {
			err, erased = errors.Join(err, panics.Do(l.log, "erasing people", l.erasePeople)), time.Now()
		}
		if err != nil {
			l.log.Warn("failed to save the activity", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}
