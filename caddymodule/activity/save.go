package activity

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/panics"
)

// Intervals at which the activity is saved.
const (
	saveUsage    = 10 * time.Second
	saveRequests = 5 * time.Second
	// retryRequests is the pause after requests could not be saved.
	retryRequests = 30 * time.Second
	// saveQuotas is the minimum pause between two batches for keys and accounts with quotas. Batches may
	// use one part in quotaShare of the time.
	saveQuotas = time.Second
	quotaShare = 20
)

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

// run saves until the log is closed.
func (l *Log) run(ctx context.Context) {
	usage, requests := time.NewTicker(saveUsage), time.NewTimer(0) // at first, to open the file
	defer usage.Stop()
	defer requests.Stop()
	quotas := time.NewTimer(0)
	defer quotas.Stop()
	next := time.Now() // of quotas
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-usage.C:
			err = panics.Do(l.log, "saving the usage", l.saveUsage)
		case <-l.counted:
			quotas.Reset(time.Until(next))
		case <-quotas.C:
			began := time.Now()
			err = panics.Do(l.log, "saving the usage of quotas", l.saveQuotas)
			now := time.Now()
			if next = now.Add(max(saveQuotas, quotaShare*now.Sub(began))); err != nil {
				next = now.Add(saveUsage)
			}
		case <-requests.C:
			err = panics.Do(l.log, "saving the requests", l.saveRequests)
			if requests.Reset(saveRequests); err != nil {
				requests.Reset(retryRequests)
			}
		}
		if err != nil {
			l.log.Warn("failed to save the activity", "error", err)
		}
	}
}
