package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// checkBolt fails with ErrSchema if the store at path is too short, or if its pages are
// damaged: opening such a file to write would end the process. It reads the pages only if
// the last process has not closed the store, since that takes seconds for a large one.
func checkBolt(path string, timeout time.Duration, logger *slog.Logger) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("opening the store: %w", err)
	case info.Size() == 0: // bolt would fill it
		return checkBlank(path)
	}
	db, size, err := openToRead(path, timeout)
	if err != nil {
		return explainOpen(path, err)
	}
	defer db.Close()
	// Look for the owner file only now: the process that had the store open may have closed it
	// meanwhile.
	unclosed, began := exists(ownerPath(path)), time.Now()
	err = db.View(func(tx *bolt.Tx) error {
		if unclosed {
			return checkPages(tx, size)
		}
		return checkSize(tx, size)
	})
	if err != nil {
		return Errorf(ErrSchema, "the store %s is damaged: %v; restore a backup", path, err)
	}
	if unclosed {
		logger.Info("checked the store, which was not closed", "path", path, "bytes", size, "took", time.Since(began))
	}
	return nil
}

// checkBlank fails if an empty file was a store.
func checkBlank(path string) error {
	previous, err := filepath.Glob(path + previousSuffix + "*")
	if err != nil { // the path is not a valid pattern
		previous = nil
	}
	if !exists(ownerPath(path)) && len(previous) == 0 {
		return nil
	}
	return Errorf(ErrSchema, "the store %s has 0 bytes and has lost its records: restore a backup; "+
		"to begin with a new store, remove it and the files in its folder whose names begin with its name", path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openToRead opens a file that may be damaged, and returns its size. It reads the list of
// free pages, which (*bolt.Tx).Check would do in another goroutine.
func openToRead(path string, timeout time.Duration) (db *bolt.DB, size int64, err error) {
	var file *os.File
	defer catchDamage(func(damage error) {
		_ = file.Close() // also unlocks it
		err = fmt.Errorf("%w: %w", bolterrors.ErrInvalid, damage)
	})()
	db, err = bolt.Open(path, 0, &bolt.Options{
		ReadOnly: true, PreLoadFreelist: true, Timeout: timeout,
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	})
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, db.Close())
	}
	return db, info.Size(), nil
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

// checkSize fails if the file of a transaction has lost its end.
func checkSize(tx *bolt.Tx, size int64) error {
	if tx.Size() > size {
		return fmt.Errorf("it has %d bytes of %d", size, tx.Size())
	}
	return nil
}
