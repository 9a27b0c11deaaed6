package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
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
// with ErrLocked if another process has the file open. It fails with ErrSchema, without
// changing the file, if another program or a newer version has written the file, or if
// its first pages or its end are missing.
func OpenBolt(path string, o BoltOptions) (KV, error) {
	if o.LockTimeout <= 0 {
		o.LockTimeout = 2 * time.Second
	}
	if o.History <= 0 {
		o.History = 2 << 20
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	if err := checkBlank(path); err != nil {
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
	return b, nil
}

// openCurrent opens the bolt file at path. RestoreBolt may replace the file while this
// waits for the lock; the new one is then opened instead.
func openCurrent(path string, timeout time.Duration) (*bolt.DB, error) {
	const attempts = 3 // more than one restore at the same time is a mistake
	for range attempts {
		db, opened, err := openBolt(path, bolt.Options{Timeout: timeout, FreelistType: bolt.FreelistMapType})
		if err != nil {
			return nil, explainOpen(path, err)
		}
		current, err := os.Stat(path)
		if err == nil && os.SameFile(opened, current) {
			return db, nil
		}
		if closed := db.Close(); closed != nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("opening the store: %w", errors.Join(err, closed))
		}
	}
	return nil, fmt.Errorf("opening the store %s: other programs keep replacing it", path)
}

// explainOpen adds a remedy to an error of bolt.Open.
func explainOpen(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return Errorf(ErrLocked, "the store %s is already open, here or in another process: manage that running "+
			"gateway instead of starting a second one (with Caddy: caddy reload, caddy gateway …), stop it first, "+
			"or choose another file for this one", path)
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
func (b *boltKV) prepare(history int) (err error) {
	defer catchDamage(func(damage error) {
		err = Errorf(ErrSchema, "the store %s is damaged: %v; restore a backup", b.path, damage)
	})()
	err = b.db.Update(func(tx *bolt.Tx) error {
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
		return Errorf(ErrSchema, "%s is another program's database, not a Postern store: choose another file", path)
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
	if err := b.db.Close(); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
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
