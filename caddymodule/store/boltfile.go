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
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, Errorf(ErrSchema, "%s is not a file", path)
	case err == nil && info.Size() > int64(maxBytes):
		return nil, Errorf(ErrSchema, "%s has %d bytes, more than %d", path, info.Size(), maxBytes)
	}
	db, _, err := openBolt(path, bolt.Options{Timeout: timeout, FreelistType: bolt.FreelistMapType, MaxSize: maxBytes})
	if err != nil {
		if err = explainOpen(path, err); errors.Is(err, ErrSchema) {
			err = Errorf(ErrSchema, "%s belongs to another program, or is damaged", path)
		}
		return nil, err
	}
	if err := db.View(checkPages); err != nil {
		return nil, errors.Join(Errorf(ErrSchema, "%s is damaged: %v", path, err), db.Close())
	}
	return db, nil
}

// Guard calls f, which uses a bolt file. Its error is ErrSchema if f meets a damaged page.
func Guard(path string, f func() error) (err error) {
	defer catchDamage(func(damage error) { err = Errorf(ErrSchema, "%s is damaged: %v", path, damage) })()
	return f()
}
