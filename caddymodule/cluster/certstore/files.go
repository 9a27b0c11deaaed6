package certstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	filesDir = "x/acme/files/"
	locksDir = "x/acme/locks/"
)

// record is the value of a file or a lock in the store.
type record struct {
	V        int       `json:"v"`
	Modified time.Time `json:"modified"`
	Data     []byte    `json:"data,omitempty"`
}

// recordVersion is the version of records that this program reads and writes.
const recordVersion = 1

func encode(data []byte) ([]byte, error) {
	return json.Marshal(record{V: recordVersion, Modified: time.Now().UTC(), Data: data})
}

func decode(item store.Item) (r record, err error) {
	if err := json.Unmarshal(item.Value, &r); err != nil || r.V != recordVersion {
		return r, store.Errorf(store.ErrSchema,
			"the item %s is not one that this program can read: it was written by a newer version, so upgrade this gateway",
			item.Key)
	}
	return r, nil
}

// errStop ends a search of the items of a span.
var errStop = errors.New("found")

func missing(key string) error { return fmt.Errorf("certificate storage: %s: %w", key, fs.ErrNotExist) }

// check returns an error for a key that could be a file outside of the folder of copies.
func check(key string) error {
	if key == "." || !fs.ValidPath(key) || !filepath.IsLocal(filepath.FromSlash(key)) {
		return store.Errorf(store.ErrInvalid, "the key %q is not a path of the certificate storage", key)
	}
	return nil
}

// read calls remote, or local if the store does not answer. A file without a copy is then an error.
func read[T any](ctx context.Context, s *Storage, key string, remote func(context.Context, store.KV) (T, error),
	local func() (T, error),
) (T, error) {
	limit, err := readTimeout, s.skip()
	locked := len(s.fence(key)) > 0
	if locked {
		limit, err = writeTimeout, nil
	}
	var v T
	if err == nil {
		err = s.call(ctx, limit, func(ctx context.Context, kv store.KV) (err error) {
			v, err = remote(ctx, kv)
			return err
		})
	}
	if locked || !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
		return v, err
	}
	s.copying.Lock()
	defer s.copying.Unlock()
	v, localErr := local()
	if errors.Is(localErr, fs.ErrNotExist) {
		return v, fmt.Errorf("reading %s, of which there is no local copy: %w", key, err)
	}
	return v, localErr
}

// Load returns the content of a file.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	if err := check(key); err != nil {
		return nil, err
	}
	return read(ctx, s, key,
		func(ctx context.Context, kv store.KV) ([]byte, error) {
			s.copying.Lock()
			changes := s.changes
			s.copying.Unlock()
			item, err := kv.Get(ctx, filesDir+key)
			if err != nil {
				return nil, err
			}
			r, err := record{}, missing(key)
			if item.Exists() {
				r, err = decode(item)
			}
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				s.copyRead(ctx, key, r.Data, item.Exists(), changes)
			}
			return r.Data, err
		},
		func() ([]byte, error) { return s.copies.Load(ctx, key) })
}

// copyRead makes the copy of a file like the file in the store, unless this gateway has
// changed a file since it began to read.
func (s *Storage) copyRead(ctx context.Context, key string, data []byte, exists bool, changes int) {
	s.copying.Lock()
	defer s.copying.Unlock()
	if s.changes != changes {
		return
	}
	if !exists {
		_ = os.Remove(s.copies.Filename(key)) // fails for a folder with files
		return
	}
	if old, err := s.copies.Load(ctx, key); err == nil && bytes.Equal(old, data) {
		return
	}
	s.reportCopy(key, s.copies.Store(ctx, key, data))
}

// reportCopy logs that a copy could not be changed. The store has the file nevertheless.
func (s *Storage) reportCopy(key string, err error) {
	if err != nil {
		s.logger.Warn("failed to change the local copy of a file for certificates", "file", key, "error", err)
	}
}

// Store writes a file.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	if err := check(key); err != nil {
		return err
	}
	encoded, err := encode(value)
	if err != nil {
		return err
	}
	if err := s.write(ctx, key, func(context.Context, store.KV) ([]store.Op, error) {
		return []store.Op{store.Put(filesDir+key, encoded)}, nil
	}); err != nil {
		return fmt.Errorf("storing %s for all gateways: %w", key, err)
	}
	s.copying.Lock()
	defer s.copying.Unlock()
	s.changes++
	s.reportCopy(key, s.copies.Store(ctx, key, value))
	return nil
}

// Delete removes a file, or a folder and its contents.
func (s *Storage) Delete(ctx context.Context, key string) error {
	if err := check(key); err != nil {
		return err
	}
	if err := s.write(ctx, key, func(ctx context.Context, kv store.KV) ([]store.Op, error) {
		ops := []store.Op{store.Delete(filesDir + key)}
		_, err := kv.Each(ctx, store.Prefix(filesDir+key+"/"), func(item store.Item) error {
			ops = append(ops, store.Delete(item.Key))
			return nil
		})
		return ops, err
	}); err != nil {
		return fmt.Errorf("deleting %s for all gateways: %w", key, err)
	}
	s.copying.Lock()
	defer s.copying.Unlock()
	s.changes++
	s.reportCopy(key, s.copies.Delete(ctx, key))
	return nil
}

// write makes changes below key. It fails if this gateway has lost the lock for them.
func (s *Storage) write(ctx context.Context, key string,
	changes func(context.Context, store.KV) ([]store.Op, error),
) error {
	fence := s.fence(key)
	return s.call(ctx, writeTimeout, func(ctx context.Context, kv store.KV) error {
		ops, err := changes(ctx, kv)
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(ops, store.MaxTxnOps) {
			switch result, err := kv.Txn(ctx, store.Txn{If: fence, Then: chunk}); {
			case err != nil:
				return err
			case !result.Succeeded:
				return store.Errorf(store.ErrConflict,
					"this gateway has lost its lock, because it could not reach the store for %s; "+
						"another gateway may do the same work", leaseTime)
			}
		}
		return nil
	})
}

// Exists reports whether a file or a folder exists.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// Stat describes a file or a folder.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	if err := check(key); err != nil {
		return certmagic.KeyInfo{}, err
	}
	return read(ctx, s, key,
		func(ctx context.Context, kv store.KV) (certmagic.KeyInfo, error) {
			info := certmagic.KeyInfo{Key: key}
			item, err := kv.Get(ctx, filesDir+key)
			if err != nil {
				return info, err
			}
			if item.Exists() {
				r, err := decode(item)
				info.Modified, info.Size, info.IsTerminal = r.Modified, int64(len(r.Data)), true
				return info, err
			}
			_, err = kv.Each(ctx, store.Prefix(filesDir+key+"/"), func(store.Item) error { return errStop })
			switch {
			case err == nil:
				return info, missing(key)
			case errors.Is(err, errStop):
				return info, nil
			}
			return info, err
		},
		func() (certmagic.KeyInfo, error) { return s.copies.Stat(ctx, key) })
}

// List returns the files and folders in a folder. If recursive is set, it includes the contents of folders.
func (s *Storage) List(ctx context.Context, folder string, recursive bool) ([]string, error) {
	prefix := filesDir
	if folder != "" {
		if err := check(folder); err != nil {
			return nil, err
		}
		prefix += folder + "/"
	}
	return read(ctx, s, folder,
		func(ctx context.Context, kv store.KV) ([]string, error) {
			var keys []string
			found := map[string]bool{}
			_, err := kv.Each(ctx, store.Prefix(prefix), func(item store.Item) error {
				names := strings.Split(strings.TrimPrefix(item.Key, prefix), "/")
				if check(strings.TrimPrefix(item.Key, filesDir)) != nil {
					return nil
				}
				for i := range names {
					if key := path.Join(folder, path.Join(names[:i+1]...)); !found[key] && (recursive || i == 0) {
						keys, found[key] = append(keys, key), true
					}
				}
				return nil
			})
			if err == nil && len(keys) == 0 && folder != "" {
				err = missing(folder)
			}
			return keys, err
		},
		func() ([]string, error) { return s.copies.List(ctx, folder, recursive) })
}

// Interface guards.
var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)
