package activity

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/postern-dev/postern/caddymodule/store"
)

// file keeps the requests of each account in a bucket. A key is a cursor; a value is the first letter of the outcome
// and the JSON of a request without its time and id, which are in the key. The file may be lost: requests that matter
// are in the usage.
type file struct {
	path     string // "": none
	maxBytes int
	known    func(account string) bool
	mask     func(account string, r *Request) bool // removes a person who is no longer kept
	log      *slog.Logger
	db       atomic.Pointer[bolt.DB] // nil if it is not open
}

const (
	maxBytes = 64 << 20 // of the file

	// maxWrite bounds the requests of a transaction, so that the file has room for it.
	maxWrite   = 1024
	allocBytes = 1 << 20 // by which the file grows
	fill       = .9      // of pages after a split: most rows are added at the end
)

var (
	bucketMeta = []byte("/") // not the name of an account
	keyCreated = []byte("created")
	keyRemoved = []byte("removed") // of the cursor of the newest row that was removed; after all rows
)

// open opens the file, or creates it.
func (f *file) open() error {
	db, err := store.OpenFile(f.path, f.maxBytes)
	if err != nil {
		return err
	}
	db.AllocSize = allocBytes
	err = db.Update(func(tx *bolt.Tx) error {
		if k, _ := tx.Cursor().First(); k != nil && tx.Bucket(bucketMeta) == nil {
			return store.Errorf(store.ErrSchema, "%s is of another program", f.path)
		}
		meta, err := tx.CreateBucketIfNotExists(bucketMeta)
		if err == nil && meta.Get(keyCreated) == nil {
			err = meta.Put(keyCreated, []byte(cursor(time.Now(), "")))
		}
		return err
	})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	f.db.Store(db)
	return nil
}

// guard calls do, which uses db, or opens it if it is nil. A file that is damaged or full is moved aside; the next
// write begins a new one.
func (f *file) guard(db *bolt.DB, do func() error) error {
	err := store.Guard(f.path, do)
	if !errors.Is(err, store.ErrSchema) && !errors.Is(err, bolterrors.ErrMaxSizeReached) || !f.db.CompareAndSwap(db, nil) {
		return err
	}
	// It is not closed: the locks of a damaged one may be held.
	aside := f.path + ".damaged"
	if moving := os.Rename(f.path, aside); moving != nil {
		return fmt.Errorf("%w; moving it aside: %w", err, moving)
	}
	f.log.Warn("the file of the activity cannot be used, so a new one is begun", "path", f.path, "moved_to", aside,
		"error", err)
	return err
}

// write adds rows, and removes those that are no longer kept.
func (f *file) write(rows []logged) error {
	if f.db.Load() == nil {
		if err := f.guard(nil, f.open); err != nil {
			return err
		}
	}
	db := f.db.Load()
	for chunk := range slices.Chunk(rows, maxWrite) {
		err := f.guard(db, func() error {
			stats := db.Stats()
			unused := (stats.FreePageN + stats.PendingPageN) * db.Info().PageSize
			return db.Update(func(tx *bolt.Tx) (err error) {
				for i := range chunk {
					err = errors.Join(err, f.put(tx, &chunk[i]))
				}
				if int(tx.Size())-unused > f.maxBytes/10*8 { // the rest is for pages that a transaction replaces
					err = errors.Join(err, removeBytes(tx, f.maxBytes/10))
				}
				return errors.Join(err, f.removeAccounts(tx))
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// put adds a row, or replaces that of the same minute.
func (f *file) put(tx *bolt.Tx, r *logged) error {
	if !f.known(r.account) {
		return nil
	}
	b, err := tx.CreateBucketIfNotExists([]byte(r.account))
	if err != nil {
		return err
	}
	b.FillPercent = fill
	value := *r.Request
	f.mask(r.account, &value)
	if value.Time = (time.Time{}); value.Refusals == 0 {
		value.ID = ""
	}
	v, err := json.Marshal(value, json.OmitZeroStructFields(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	return b.Put([]byte(r.cursor()), append([]byte(r.Outcome()[:1]), v...))
}

// decode returns the request of a row.
func decode(k, v []byte) (r Request, err error) {
	err = json.Unmarshal(v[1:], &r)
	r.Time = timeOf(string(k))
	if id := string(k[timeDigits:]); r.Refusals > 0 {
		r.first = id
	} else {
		r.ID = id
	}
	return r, err
}

// removeBytes removes rows with about so many bytes: repeatedly the oldest tenth of the rows of the largest account.
func removeBytes(tx *bolt.Tx, size int) error {
	sizes := make(map[*bolt.Bucket]int)
	err := tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
		stats := b.Stats()
		sizes[b] = stats.LeafInuse + stats.InlineBucketInuse
		return nil
	})
	for size > 0 && err == nil {
		buckets := slices.Collect(maps.Keys(sizes))
		b := slices.MaxFunc(buckets, func(a, b *bolt.Bucket) int { return sizes[a] - sizes[b] })
		part := sizes[b] / 10
		if part == 0 {
			break
		}
		size, sizes[b] = size-part, sizes[b]-part
		err = removeOldest(b, part)
	}
	return err
}

// removeOldest removes the oldest rows of an account with about so many bytes, and stores the key of the last one. It
// finds all of them first: a search for the first row that is left would pass every page that is empty now.
func removeOldest(b *bolt.Bucket, size int) (err error) {
	var keys [][]byte
	c := b.Cursor()
	for k, v := c.First(); size > 0 && k != nil && !bytes.Equal(k, keyRemoved); k, v = c.Next() {
		keys = append(keys, k)
		size -= len(k) + len(v)
	}
	for _, k := range keys {
		err = errors.Join(err, b.Delete(k))
	}
	if n := len(keys); n > 0 {
		err = errors.Join(err, b.Put(keyRemoved, keys[n-1]))
	}
	return err
}

// removeAccounts removes the rows of unknown accounts.
func (f *file) removeAccounts(tx *bolt.Tx) error {
	var unknown [][]byte
	err := tx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if !f.known(string(name)) && !bytes.Equal(name, bucketMeta) {
			unknown = append(unknown, name)
		}
		return nil
	})
	for _, name := range unknown {
		err = errors.Join(err, tx.DeleteBucket(name))
	}
	return err
}
