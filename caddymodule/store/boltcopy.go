package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// copyBytes is the size of the transactions that copyItems writes.
const copyBytes = 8 << 20

// WriteBolt writes the items of another KV, as of one revision, to w, as a file that OpenBolt
// opens, with that revision. It omits the items about a cluster, and the leases.
func WriteBolt(ctx context.Context, kv KV, w io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "postern-backup-*") // mode 0700
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	path := filepath.Join(folder, "gateway.db")
	if err := copyToBolt(ctx, kv, path); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}

// copyToBolt creates the file at path for WriteBolt.
func copyToBolt(ctx context.Context, kv KV, path string) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return explainOpen(path, err)
	}
	if err = errors.Join(copyItems(ctx, kv, db), db.Close()); err != nil {
		return fmt.Errorf("copying the store: %w", err)
	}
	return nil
}

func copyItems(ctx context.Context, kv KV, db *bolt.DB) error {
	if err := db.Update(writeSchema); err != nil {
		return err
	}
	var items []Item
	size := 0
	flush := func() error {
		err := db.Update(func(tx *bolt.Tx) error {
			bucket := tx.Bucket(bucketItems)
			bucket.FillPercent = 1 // the keys come in order
			for _, item := range items {
				if err := bucket.Put([]byte(item.Key), encodeItem(item)); err != nil {
					return err
				}
			}
			return nil
		})
		items, size = items[:0], 0
		return err
	}
	revision, err := kv.Each(ctx, Span{}, func(item Item) error {
		if isClusterItem(item.Key) {
			return nil
		}
		items = append(items, item)
		if size += len(item.Key) + len(item.Value); size < copyBytes {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	return db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(metaRevision, number(revision)) })
}
