package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Backup writes all records, as of one moment, to w as a bolt file. Writers may
// continue meanwhile.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	if err := s.CatchUp(ctx); err != nil { // reading all has no time limit
		return err
	}
	if err := s.flush(ctx, 0); err != nil { // times of last use
		return err
	}
	if err := s.shared.Backup(ctx, w); err != nil {
		return fmt.Errorf("writing a backup of the store: %w", err)
	}
	return nil
}

func (b *boltKV) Backup(ctx context.Context, w io.Writer) error {
	return b.read(ctx, func(tx *bolt.Tx) error {
		_, err := tx.WriteTo(w)
		return err
	})
}

// BackupInfo describes a backup.
type BackupInfo struct {
	Bytes    int64 `json:"bytes"`
	Revision int64 `json:"revision"` // of the KV
	Accounts int   `json:"accounts"`
}

// CheckBackup checks that the file at path is a whole store that this program can read.
// It fails with ErrSchema otherwise, and does not change the file.
func CheckBackup(ctx context.Context, path string) (BackupInfo, error) {
	return checkBackup(ctx, path, path)
}

// checkBackup is CheckBackup with another name for the file in errors.
func checkBackup(ctx context.Context, path, shown string) (info BackupInfo, err error) {
	if stat, err := os.Stat(path); err != nil {
		return BackupInfo{}, fmt.Errorf("checking the backup: %w", err)
	} else if info.Bytes = stat.Size(); stat.IsDir() || info.Bytes == 0 { // bolt fills an empty file
		return BackupInfo{}, Errorf(ErrSchema, "%s is not a backup of a Postern store: it is a folder, or empty", shown)
	}
	db, _, err := openBolt(path, bolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: time.Second})
	if err != nil {
		return BackupInfo{}, explainOpen(shown, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		if err := checkPages(tx); err != nil {
			return Errorf(ErrSchema, "%s is damaged: %v; use another backup", shown, err)
		}
		if first, _ := tx.Cursor().First(); first == nil {
			return Errorf(ErrSchema, "%s is an empty database, not a backup of a Postern store", shown)
		}
		if err := ensureSchema(tx, shown); err != nil {
			return err
		}
		info.Revision = readRevision(tx)
		return nil
	})
	if err != nil {
		return BackupInfo{}, err
	}
	// Load it as a gateway does.
	loaded := newStore(&boltKV{db: db, path: path, history: newHistory(info.Revision, 0)}, Options{})
	watcher, err := loaded.load(ctx, true)
	if err != nil {
		return BackupInfo{}, fmt.Errorf("%s: %w", shown, err)
	}
	watcher.Close()
	info.Accounts = len(loaded.Accounts())
	return info, nil
}

// RestoreBolt replaces the store in the file at path by a backup, if no process has it
// open. It returns where it keeps the previous file, "" if there was none. A crash
// leaves either the previous store or the restored one at path.
func RestoreBolt(
	ctx context.Context, backup, path string, now time.Time,
) (previous string, info BackupInfo, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", info, fmt.Errorf("restoring the store: %w", err)
	}
	unlock, err := lockBolt(path)
	if err != nil {
		return "", info, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	temporary, err := copyBeside(path, backup)
	if err != nil {
		return "", info, fmt.Errorf("copying the backup: %w", err)
	}
	defer func() { _ = os.Remove(temporary) }() // after a failure
	if info, err = checkBackup(ctx, temporary, backup); err != nil {
		return "", info, err
	}
	if _, err := os.Stat(path); err == nil {
		previous = path + ".before-restore-" + now.UTC().Format("20060102T150405.000")
		copied, err := copyBeside(path, path)
		if err == nil {
			err = os.Rename(copied, previous)
		}
		if err != nil {
			return "", info, fmt.Errorf("keeping the previous store: %w", err)
		}
	}
	if err := os.Rename(temporary, path); err != nil {
		return previous, info, fmt.Errorf("restoring the store: %w", err)
	}
	return previous, info, SyncFolder(path)
}

// lockBolt locks the store at path, if it exists, as a gateway does.
// A damaged file cannot be locked, nor opened by anyone.
func lockBolt(path string) (unlock func() error, err error) {
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	switch {
	case err == nil:
		return db.Close, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, Errorf(ErrLocked, "the store %s is in use: stop that gateway first", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("opening the store: %w; run this as the gateway's user", err)
	}
	return func() error { return nil }, nil
}

// copyBeside copies a file to a new one in the folder of path, with the owner of the
// file at path, or of the folder. Its content is on the disk when it returns.
func copyBeside(path, from string) (name string, err error) {
	source, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer source.Close()
	out, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.new") // mode 0600
	if err != nil {
		return "", err
	}
	like, err := os.Stat(path)
	if err != nil {
		like, err = os.Stat(filepath.Dir(path))
	}
	if err == nil {
		err = keepOwner(out, like)
	}
	if err == nil {
		_, err = io.Copy(out, source)
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		_ = os.Remove(out.Name())
		return "", err
	}
	return out.Name(), nil
}

// SyncFolder makes a rename of a file at path survive a crash of the machine.
func SyncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("writing the folder to the disk: %w", err)
	}
	defer folder.Close()
	_ = folder.Sync() // Windows and some file systems cannot, and need not
	return nil
}
