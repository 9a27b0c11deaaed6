package activity

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/postern-dev/postern/caddymodule/store"
)

// file has the requests of all accounts in a bucket for each. A key is a class and a cursor, a value is the
// JSON of a request without what the key has. The file may be lost: requests that matter are in the usage.
type file struct {
	path     string // "": none
	maxBytes int
	log      *slog.Logger

	db     atomic.Pointer[bolt.DB] // nil if it is not open
	broken atomic.Bool             // it is damaged, or full

	saving sync.Mutex             // held by the writer; guards the fields below
	rows   map[string]classCounts // by account
	retry  time.Time              // when to try again after a failure
	full   int                    // writes that failed for the file's size
	closed bool
}

// The classes of requests, which are kept for different times.
const (
	classAnswered = iota
	classCounted  // refused, or by the client's fault
	classFailed
	classes
)

// classCounts has a number of rows for each class.
type classCounts [classes]int

const (
	// DefaultMaxBytes is the default of [Options.MaxBytes].
	DefaultMaxBytes = 64 << 20
	// MinMaxBytes is the minimum of [Options.MaxBytes].
	MinMaxBytes = 16 << 20

	// maxAge and maxRows bound the failed requests of an account, and the entries that count others.
	maxAge  = 30 * 24 * time.Hour
	maxRows = 5000

	allocBytes = 1 << 20 // by which the file grows
	rowBytes   = 600     // about, of a row
	maxFull    = 3       // failed writes, after which a new file is begun
	retryAfter = 30 * time.Second
)

// bucketMeta is not the name of an account.
var (
	bucketMeta = []byte("/")
	keyCreated = []byte("created")
)

// class returns the class of a request.
func (r *Request) class() int {
	switch r.Outcome() {
	case Answered:
		return classAnswered
	case Failed:
		return classFailed
	}
	return classCounted
}

// open opens the file if it is not open. One that is damaged or foreign is moved aside. The caller holds f.saving.
func (f *file) open() error {
	if f.db.Load() != nil && !f.broken.Load() {
		return nil
	}
	now := time.Now()
	if f.path == "" || f.closed || now.Before(f.retry) {
		return errNotNow
	}
	f.retry = now.Add(retryAfter)
	err := store.Errorf(store.ErrSchema, "it is damaged or full")
	if f.db.Swap(nil) == nil { // else it is not closed, since the locks of a damaged one may be held
		err = f.prepare()
	}
	if err != nil && !errors.Is(err, store.ErrLocked) {
		aside := f.path + ".damaged"
		f.log.Warn("the file of the activity cannot be used, so a new one is begun", "path", f.path, "moved_to", aside,
			"error", err)
		if moved := os.Rename(f.path, aside); moved != nil && !errors.Is(moved, fs.ErrNotExist) {
			return errors.Join(err, moved)
		}
		err = f.prepare()
	}
	if err == nil {
		f.broken.Store(false)
		f.retry = time.Time{}
	}
	return err
}

// prepare opens the file and counts its rows.
func (f *file) prepare() error {
	db, err := store.OpenFile(f.path, f.maxBytes)
	if err != nil {
		return err
	}
	db.AllocSize = allocBytes
	f.rows = make(map[string]classCounts)
	err = db.Update(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		if k, _ := tx.Cursor().First(); k != nil && meta == nil {
			return store.Errorf(store.ErrSchema, "it is of another program")
		} else if meta == nil {
			if meta, err = tx.CreateBucket(bucketMeta); err == nil {
				err = meta.Put(keyCreated, []byte(cursor(time.Now(), "")))
			}
			return err
		}
		return tx.ForEach(f.countRows)
	})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	f.db.Store(db)
	return nil
}

func (f *file) countRows(name []byte, b *bolt.Bucket) error {
	if bytes.Equal(name, bucketMeta) {
		return nil
	}
	var n classCounts
	err := b.ForEach(func(k, _ []byte) error {
		if k[0] < classes {
			n[k[0]]++
		}
		return nil
	})
	f.rows[string(name)] = n
	return err
}

func (f *file) close() error {
	f.saving.Lock()
	defer f.saving.Unlock()
	f.closed = true
	if db := f.db.Swap(nil); db != nil && !f.broken.Load() {
		return db.Close()
	}
	return nil
}

// use calls do with the open file, unless there is none.
func (f *file) use(do func(*bolt.DB) error) error {
	db := f.db.Load()
	if db == nil || f.broken.Load() {
		return nil
	}
	err := store.Guard(f.path, func() error { return do(db) })
	if errors.Is(err, store.ErrSchema) {
		f.broken.Store(true)
	}
	return err
}

// write adds requests and entries, and removes what is kept no longer. An account in removed may be there again.
// The caller holds f.saving.
func (f *file) write(requests []logged, entries []counted, removed []string, known func(account string) bool) error {
	now := time.Now()
	if err := store.Guard(f.path, f.open); err != nil {
		return err
	}
	for account := range f.rows {
		if !known(account) {
			removed = append(removed, account)
		}
	}
	// Pages that a transaction frees can be used in the next one.
	if size := f.excess(len(requests) + len(entries)); size+len(removed) > 0 {
		err := f.change(known, func(w *writer) {
			w.drop(removed)
			w.free(size)
		})
		if err != nil {
			return err
		}
	}
	if len(requests)+len(entries) == 0 {
		return nil
	}
	return f.change(known, func(w *writer) {
		w.add(requests, entries)
		w.expire(cursor(now.Add(-maxAge), ""))
	})
}

// change makes a transaction. A file that stays full is taken for damaged.
func (f *file) change(known func(account string) bool, do func(*writer)) error {
	w := writer{rows: maps.Clone(f.rows), known: known}
	err := f.use(func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			w.tx = tx
			do(&w)
			return w.err
		})
	})
	if err == nil {
		f.rows, f.full = w.rows, 0
	} else if errors.Is(err, bolterrors.ErrMaxSizeReached) {
		f.full++
		f.broken.Store(f.full == maxFull)
	}
	return err
}

// errNotNow is not logged: the failure before it was.
var errNotNow = errors.New("the file is tried again later")

// excess returns how many bytes are to be freed before some rows are added. The last fifth of the file is for the
// pages that a transaction replaces.
func (f *file) excess(rows int) int {
	db := f.db.Load()
	info, err := os.Stat(f.path)
	if err != nil {
		return 0
	}
	stats := db.Stats()
	used := int(info.Size()) + rows*rowBytes - (stats.FreePageN+stats.PendingPageN)*db.Info().PageSize
	if used < f.maxBytes/10*8 {
		return 0
	}
	return used - f.maxBytes/10*7
}
