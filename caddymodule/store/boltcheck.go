package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// checkBlank fails with ErrSchema if the file at path is empty: bolt would fill it, and the
// gateway would start without its records.
func checkBlank(path string) error {
	if info, err := os.Stat(path); err != nil || info.Size() > 0 {
		return nil
	}
	return Errorf(ErrSchema, "the store %s has 0 bytes and has lost its records: restore a backup; "+
		"to begin with a new store, remove the file", path)
}

// openBolt is bolt.Open for a file that may be damaged or too short. info is that of the open file.
func openBolt(path string, o bolt.Options) (db *bolt.DB, info fs.FileInfo, err error) {
	var file *os.File
	o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		opened, err := os.OpenFile(name, flag, mode)
		if file == nil { // backups open it again
			file = opened
		}
		return opened, err
	}
	defer catchDamage(func(damage error) {
		_ = file.Close() // also unlocks it
		err = fmt.Errorf("%w: %w", bolterrors.ErrInvalid, damage)
	})()
	if db, err = bolt.Open(path, 0o600, &o); err != nil {
		return nil, nil, err
	}
	if info, err = file.Stat(); err == nil {
		err = db.View(func(tx *bolt.Tx) error {
			if tx.Size() > info.Size() {
				return fmt.Errorf("%w: it has %d bytes of %d", bolterrors.ErrInvalid, info.Size(), tx.Size())
			}
			return nil
		})
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, info, nil
}

// catchDamage makes faults in the mapped file panics. The function that it returns, which
// must be deferred, recovers from them and calls damaged.
func catchDamage(damaged func(error)) func() {
	faulting := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(faulting)
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			damaged(errors.New("a page is missing, or leads to one that is"))
		default:
			damaged(fmt.Errorf("%v", p))
		}
	}
}

// checkPages checks the structure of a bolt file.
func checkPages(tx *bolt.Tx) (err error) {
	defer catchDamage(func(damage error) { err = damage })()
	// Read everything here first: Check does so in another goroutine, where a fault
	// would end the process.
	err = tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
		return b.ForEach(func(_, _ []byte) error { return nil })
	})
	if err != nil {
		return err
	}
	for problem := range tx.Check() { // to the end, as the goroutine sends all
		if err == nil {
			err = problem
		}
	}
	return err
}
