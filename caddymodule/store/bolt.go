package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// BoltOptions configure OpenBolt. The zero value is suitable for a gateway.
type BoltOptions struct {
	// LockTimeout is how long to wait for a file that another process has open,
	// such as one that is exiting; 0 means 2 s.
	LockTimeout time.Duration
	// History is how many bytes of past transactions Watch can return; 0 means 2 MiB. A number
	// of transactions would not bound the memory, since those with usage are large.
	History int
	// Logger gets problems that do not prevent the store from opening; nil: none.
	Logger *slog.Logger
}

// boltKV is a KV in one bbolt file, for one process.
//
// The bucket "items" holds key -> item header and value. "meta" holds the schema version
// and the revision. Numbers are 8 bytes, big endian.
type boltKV struct {
	db      *bolt.DB
	path    string
	history *history

	mu     sync.Mutex // held by the only writer; guards the fields below
	closed bool
	// commitTx is (*bolt.Tx).Commit. Tests replace it to simulate disk failures.
	commitTx func(*bolt.Tx) error
}

var (
	bucketMeta   = []byte("meta")
	bucketItems  = []byte("items")
	buckets      = [][]byte{bucketMeta, bucketItems}
	metaSchema   = []byte("schema")
	metaRevision = []byte("revision")
)

// schemaVersion is the version of the buckets, not of the records in them. A file with
// another version is rejected.
const schemaVersion = 1

// OpenBolt opens the store in the file at path, or creates it with mode 0600. It fails
// with ErrLocked if another process, named in path+".owner", has the file open. It
// fails with ErrSchema, without changing the file, if another program or a newer version
// has written the file, or if checkBolt finds damage.
func OpenBolt(path string, o BoltOptions) (KV, error) {
	if o.LockTimeout <= 0 {
		o.LockTimeout = 2 * time.Second
	}
	if o.History <= 0 {
		o.History = 2 << 20
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	if err := checkBolt(path, o.LockTimeout, o.Logger); err != nil {
		return nil, err
	}
	db, err := openCurrent(path, o.LockTimeout)
	if err != nil {
		return nil, err
	}
	b := &boltKV{db: db, path: path, commitTx: (*bolt.Tx).Commit}
	if err := b.prepare(o.History); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := writeOwner(path, time.Now()); err != nil {
		o.Logger.Warn("failed to write the owner file of the store; others do not see who has it open", "error", err)
	}
	return b, nil
}

// openCurrent opens the bolt file at path. RestoreBolt may replace the file while this
// waits for the lock; the new one is then opened instead.
func openCurrent(path string, timeout time.Duration) (*bolt.DB, error) {
	const attempts = 3 // more than one restore at the same time is a mistake
	for range attempts {
		var locked *os.File
		db, err := bolt.Open(path, 0o600, &bolt.Options{
			Timeout: timeout, FreelistType: bolt.FreelistMapType,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				file, err := os.OpenFile(name, flag, mode)
				if locked == nil { // backups open it again
					locked = file
				}
				return file, err
			},
		})
		if err != nil {
			return nil, explainOpen(path, err)
		}
		opened, err := locked.Stat()
		if err == nil {
			var current fs.FileInfo
			if current, err = os.Stat(path); err == nil && os.SameFile(opened, current) {
				return db, nil
			}
		}
		if closed := db.Close(); closed != nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("opening the store: %w", errors.Join(err, closed))
		}
	}
	return nil, fmt.Errorf("opening the store %s: other programs replace it again and again", path)
}

// explainOpen adds a remedy to an error of bolt.Open.
func explainOpen(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return lockedError(path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch),
		errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrInvalidMapping):
		return Errorf(ErrSchema, "%s is not a Postern store, or it is damaged (%v): restore a backup, or choose another file",
			path, err)
	}
	// Errors of the operating system include the path, others do not.
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return fmt.Errorf("opening the store: %w", err)
	}
	return fmt.Errorf("opening the store %s: %w; if it is damaged, restore a backup", path, err)
}

// prepare checks the schema, or writes it to a new file. It loads the revision.
func (b *boltKV) prepare(history int) error {
	err := b.db.Update(func(tx *bolt.Tx) error {
		if err := ensureSchema(tx, b.path); err != nil {
			return err
		}
		b.history = newHistory(readRevision(tx), history)
		return nil
	})
	if err != nil {
		return err
	}
	// The file holds the private key of the gateway's tunnels, and may have been
	// created or copied with a wider mode.
	if err = os.Chmod(b.path, 0o600); err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	return nil
}

// ensureSchema writes the schema to a new file without buckets. It fails if another program
// or version has written the file.
func ensureSchema(tx *bolt.Tx, path string) error {
	if first, _ := tx.Cursor().First(); first == nil {
		return writeSchema(tx)
	}
	meta := tx.Bucket(bucketMeta)
	if meta == nil || len(meta.Get(metaSchema)) != 8 || len(meta.Get(metaRevision)) != 8 {
		return Errorf(ErrSchema, "%s is a database of another program, not a Postern store: choose another file", path)
	}
	if v := binary.BigEndian.Uint64(meta.Get(metaSchema)); v != schemaVersion {
		return Errorf(ErrSchema, "the store %s has schema version %d, but this program supports only %d: "+
			"it was written by a newer Postern, so run that version, or choose another file", path, v, schemaVersion)
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return Errorf(ErrSchema, "the store %s is damaged: the bucket %q is missing; restore a backup", path, name)
		}
	}
	return nil
}

func writeSchema(tx *bolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	return errors.Join(
		meta.Put(metaSchema, number(schemaVersion)),
		meta.Put(metaRevision, number(1)), // as in etcd, the revision is never 0
	)
}

func (b *boltKV) Get(ctx context.Context, key string) (item Item, err error) {
	if err := CheckKey(key); err != nil {
		return Item{}, err
	}
	err = b.read(ctx, func(tx *bolt.Tx) error {
		item, err = decodeItem(key, tx.Bucket(bucketItems).Get([]byte(key)))
		return err
	})
	return item, err
}

func (b *boltKV) Each(ctx context.Context, span Span, f func(Item) error) (revision int64, err error) {
	err = b.read(ctx, func(tx *bolt.Tx) error {
		revision = readRevision(tx)
		return eachItem(tx, span, f)
	})
	return revision, err
}

// eachItem calls f with the items within span, in order.
func eachItem(tx *bolt.Tx, span Span, f func(Item) error) error {
	c := tx.Bucket(bucketItems).Cursor()
	for k, v := c.Seek([]byte(span.Start)); k != nil; k, v = c.Next() {
		key := string(k)
		if !span.Contains(key) {
			break
		}
		item, err := decodeItem(key, v)
		if err == nil {
			err = f(item)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *boltKV) read(ctx context.Context, f func(*bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := b.db.View(f)
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

func (b *boltKV) Watch(ctx context.Context, span Span, from int64) (Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return b.history.watch(span, from)
}

// Close ends the watchers and unlocks the file.
func (b *boltKV) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrClosed
	}
	b.closed = true
	b.mu.Unlock()
	b.history.close()
	// Remove the owner file while the store is locked: later it may be that of the next owner.
	err := removeOwner(b.path)
	if dbErr := b.db.Close(); dbErr != nil {
		err = errors.Join(err, fmt.Errorf("closing the store: %w", dbErr))
	}
	return err
}

func readRevision(tx *bolt.Tx) int64 {
	return int64(binary.BigEndian.Uint64(tx.Bucket(bucketMeta).Get(metaRevision)))
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// itemHeader is the size of the header before the value: the revisions of the creation and
// of the last change, and 8 unused bytes.
const itemHeader = 24

func encodeItem(i Item) []byte {
	out := make([]byte, 0, itemHeader+len(i.Value))
	out = binary.BigEndian.AppendUint64(out, uint64(i.CreateRevision))
	out = binary.BigEndian.AppendUint64(out, uint64(i.ModRevision))
	out = binary.BigEndian.AppendUint64(out, 0)
	return append(out, i.Value...)
}

// decodeItem copies raw, which is valid only until its transaction ends. If raw is nil,
// the key does not exist.
func decodeItem(key string, raw []byte) (Item, error) {
	if raw == nil {
		return Item{Key: key}, nil
	}
	if len(raw) < itemHeader {
		return Item{}, Errorf(ErrSchema, "the store's item %q is damaged: restore a backup", key)
	}
	return Item{
		Key:            key,
		CreateRevision: int64(binary.BigEndian.Uint64(raw)),
		ModRevision:    int64(binary.BigEndian.Uint64(raw[8:])),
		Value:          append([]byte{}, raw[itemHeader:]...),
	}, nil
}

// owner is the content of the owner file, which describes the process that has the
// store open. It is informational only: the lock is on the store itself.
type owner struct {
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Host    string    `json:"host"` // a pid is meaningless in another container
	Started time.Time `json:"started"`
}

func ownerPath(path string) string { return path + ".owner" }

// writeOwner is called with the store locked. It renames a complete file into place,
// so that readers never see a partial one. A file left by a killed process is replaced.
func writeOwner(path string, now time.Time) error {
	o := owner{PID: os.Getpid(), Program: "unknown program", Started: now.UTC().Truncate(time.Second)}
	if exe, err := os.Executable(); err == nil {
		o.Program = filepath.Base(exe)
	}
	if host, err := os.Hostname(); err == nil {
		o.Host = host
	}
	content, err := json.Marshal(o)
	if err != nil {
		return err
	}
	temp := ownerPath(path) + ".new"
	if err := os.WriteFile(temp, append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, ownerPath(path))
}

func removeOwner(path string) error {
	if err := os.Remove(ownerPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// lockedError is called after a timeout waiting for the lock. By then the owner has
// had time to replace the file of a killed process.
func lockedError(path string) error {
	return Errorf(ErrLocked, "the store %s is already open in %s: manage that running gateway "+
		"instead of starting a second one (with Caddy: caddy reload, caddy gateway …), stop it first, "+
		"or choose another file for this one", path, describeOwner(path))
}

func describeOwner(path string) string {
	content, err := os.ReadFile(ownerPath(path))
	if err != nil {
		return fmt.Sprintf("another, unknown process (%v)", err)
	}
	var o owner
	if err := json.Unmarshal(content, &o); err != nil || o.PID <= 0 {
		return fmt.Sprintf("another, unknown process (%s is not readable)", ownerPath(path))
	}
	if o.PID == os.Getpid() {
		return fmt.Sprintf("this same process (pid %d)", o.PID)
	}
	return fmt.Sprintf("%q (pid %d on %s, since %s)", o.Program, o.PID, o.Host, o.Started.Format(time.RFC3339))
}
