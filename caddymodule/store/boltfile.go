package store

import (
	"errors"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// OpenFile opens a bolt file that is not a store, and keeps it below maxBytes. It fails with ErrSchema if
// the file is damaged, is larger, or is not a bolt file.
func OpenFile(path string, maxBytes int) (*bolt.DB, error) {
	const timeout = 2 * time.Second
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		db, size, err := openToRead(path, timeout)
		if err != nil {
			return nil, explainOpen(path, err)
		}
		err = errors.Join(db.View(func(tx *bolt.Tx) error { return checkPages(tx, size) }), db.Close())
		if err != nil || size > int64(maxBytes) {
			return nil, Errorf(ErrSchema, "%s is damaged, or larger than %d bytes: %v", path, maxBytes, err)
		}
	}
	return bolt.Open(path, 0o600, &bolt.Options{Timeout: timeout, FreelistType: bolt.FreelistMapType, MaxSize: maxBytes})
}

// Guard calls f, which uses a bolt file. Its error is ErrSchema if f meets a damaged page.
func Guard(path string, f func() error) (err error) {
	defer catchDamage(func(damage error) { err = Errorf(ErrSchema, "%s is damaged: %v", path, damage) })()
	return f()
}
