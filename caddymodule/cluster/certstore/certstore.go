// Package certstore stores Caddy's certificates, as a storage of certmagic, in the etcd that the gateways of a
// cluster share. One gateway obtains a certificate, and the others read it.
//
// Caddy has to start and to reload while etcd is away. So each gateway keeps copies of the files that it has read or
// written in a folder. A file without a copy is an error while etcd is away, but not fs.ErrNotExist: Caddy would
// replace the key of its certificate authority. Only Load works without etcd.
//
// A gateway that cannot reach etcd loses its locks, and another one may write then. So a write of a certificate or an
// ACME account compares the lock of that name if this gateway has obtained it: files of two gateways are never mixed.
package certstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/postern-dev/postern/connector/wait"
)

const (
	filesDir    = "x/acme/files/"
	lockSeconds = 8                // life of a lock after its holder has died; a new leader of etcd starts it again
	loadTimeout = 3 * time.Second  // of Load, which can use a copy
	callTimeout = 10 * time.Second // of other calls; after one has failed, Load uses copies for this time
	attemptTime = 2 * time.Second  // the next attempt goes to another member
)

var errAway = errors.New("etcd does not answer")

// Storage is a certmagic.Storage. It is safe for concurrent use.
type Storage struct {
	Name   string                                          // in logs
	Open   func(context.Context) (*clientv3.Client, error) // called until it succeeds
	Copies certmagic.FileStorage
	Logger *slog.Logger

	opening sync.Mutex
	client  *clientv3.Client // nil: not opened
	away    atomic.Int64     // until this time, Load uses copies
	locks   sync.Map         // names to sessions, of the locks that this gateway has obtained
	copying sync.Mutex       // held from a call to etcd until the copy equals its result
}

func (s *Storage) String() string { return s.Name }

// Destruct closes the client. Locks end by themselves.
func (s *Storage) Destruct() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.Open = func(context.Context) (*clientv3.Client, error) { return nil, errors.New("the storage is closed") }
	if s.client != nil {
		_ = s.client.Close() // it reports that its context has ended
	}
	return nil
}

func (s *Storage) connect(ctx context.Context) (err error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.client == nil {
		s.client, err = s.Open(ctx)
	}
	return err
}

// call repeats f, which uses the client, until it succeeds, for at most limit.
func (s *Storage) call(ctx context.Context, limit time.Duration, f func(context.Context) error) (err error) {
	if limit == loadTimeout && time.Now().UnixNano() < s.away.Load() {
		return errAway
	}
	inner, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), limit)
	defer cancel()
	for {
		if err = s.connect(context.WithoutCancel(ctx)); err == nil {
			attempt, stop := context.WithTimeout(inner, attemptTime)
			err = f(attempt)
			stop()
		}
		if err == nil || wait.For(inner, attemptTime/10) != nil {
			break
		}
	}
	s.away.Store(0)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		s.away.Store(time.Now().Add(callTimeout).UnixNano())
		s.Logger.Warn("failed to reach the store of the certificates; using local copies, and none is renewed", "error", err)
	}
	return fmt.Errorf("%w: %w", errAway, err)
}

// txn executes ops on a file or folder if the compares hold.
func (s *Storage) txn(ctx context.Context, key string, limit time.Duration, compares []clientv3.Cmp, ops ...clientv3.Op,
) (resp *clientv3.TxnResponse, err error) {
	if !fs.ValidPath(key) || !filepath.IsLocal(key) { // else a copy could be written outside of its folder
		return nil, fmt.Errorf("the key %q is not a path of the certificate storage", key)
	}
	err = s.call(ctx, limit, func(ctx context.Context) error {
		resp, err = s.client.Txn(ctx).If(compares...).Then(ops...).Commit()
		return err
	})
	return resp, err
}

func lockKey(name string) string { return "x/acme/locks/" + name }

// Lock waits for a lock and obtains it. While it waits, etcd may be away.
func (s *Storage) Lock(ctx context.Context, name string) error {
	for waited := false; ; waited = true {
		if free, err := s.TryLock(ctx, name); free || err != nil && !waited {
			return err
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return fmt.Errorf("waiting for the lock %s: %w", name, err)
		}
	}
}

// TryLock obtains a lock if it is free, and reports whether it was.
func (s *Storage) TryLock(ctx context.Context, name string) (free bool, err error) {
	err = s.call(ctx, callTimeout, func(ctx context.Context) error {
		if held, err := s.client.Get(ctx, lockKey(name)); err != nil || held.Count > 0 {
			return err
		}
		lease, err := s.client.Grant(ctx, lockSeconds)
		if err != nil {
			return err
		}
		resp, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(lockKey(name)), "=", 0)).
			Then(clientv3.OpPut(lockKey(name), "", clientv3.WithLease(lease.ID))).Commit()
		if err != nil || !resp.Succeeded {
			return err
		}
		session, err := concurrency.NewSession(s.client, concurrency.WithLease(lease.ID), concurrency.WithTTL(lockSeconds))
		if free = err == nil; free {
			s.locks.Store(name, session)
		}
		return err
	})
	return free, err
}

// RenewLockLease waits for a lock again if this gateway has lost it.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	if session, ok := s.locks.Load(name); ok && session.(*concurrency.Session).Ctx().Err() == nil {
		return nil
	}
	return s.Lock(ctx, name)
}

// Unlock releases a lock, unless it was lost.
func (s *Storage) Unlock(_ context.Context, name string) error {
	if session, ok := s.locks.LoadAndDelete(name); ok && session.(*concurrency.Session).Ctx().Err() == nil {
		return session.(*concurrency.Session).Close()
	}
	return nil
}

// record is a file in etcd, of version 1.
type record struct {
	V        int       `json:"v"`
	Modified time.Time `json:"modified"`
	Data     []byte    `json:"data,omitempty"`
}

// Store writes a file.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	encoded, _ := json.Marshal(record{1, time.Now().UTC(), value}) // it cannot fail
	return s.write(ctx, key, func() error { return s.Copies.Store(ctx, key, value) },
		clientv3.OpPut(filesDir+key, string(encoded)))
}

// Delete removes a file, or a folder and its contents.
func (s *Storage) Delete(ctx context.Context, key string) error {
	return s.write(ctx, key, func() error { return s.Copies.Delete(ctx, key) },
		clientv3.OpDelete(filesDir+key), clientv3.OpDelete(filesDir+key+"/", clientv3.WithPrefix()))
}

// write executes ops, then updates the copy. It fails if this gateway has lost the lock for key. certmagic names a lock
// by an operation and a name, such as "issue_cert_example.com". The name is a folder in key.
func (s *Storage) write(ctx context.Context, key string, updateCopy func() error, ops ...clientv3.Op) error {
	var fence []clientv3.Cmp
	for name, session := range s.locks.Range {
		for folder := range strings.SplitSeq(key, "/") {
			if strings.HasSuffix(certmagic.StorageKeys.Safe(name.(string)), "_"+folder) {
				lease := session.(*concurrency.Session).Lease()
				fence = append(fence, clientv3.Compare(clientv3.LeaseValue(lockKey(name.(string))), "=", lease))
			}
		}
	}
	s.copying.Lock()
	defer s.copying.Unlock()
	resp, err := s.txn(ctx, key, callTimeout, fence, ops...)
	if err == nil && !resp.Succeeded {
		err = errors.New("this gateway has lost its lock, because it could not reach etcd; another one may do the same work")
	}
	if err != nil {
		return fmt.Errorf("changing %s for all gateways: %w", key, err)
	}
	s.logCopy(key, updateCopy())
	return nil
}

// Load returns the content of a file.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	s.copying.Lock()
	defer s.copying.Unlock()
	r, err := s.get(ctx, key, loadTimeout)
	switch old, copyErr := s.Copies.Load(ctx, key); {
	case errors.Is(err, errAway) && !errors.Is(copyErr, fs.ErrNotExist):
		return old, copyErr
	case errors.Is(err, fs.ErrNotExist):
		_ = os.Remove(s.Copies.Filename(key)) // fails for a folder with files
	case err == nil && (copyErr != nil || !bytes.Equal(old, r.Data)):
		s.logCopy(key, s.Copies.Store(ctx, key, r.Data))
	}
	return r.Data, err
}

// logCopy logs err, the result of a change to a copy, unless it is nil.
func (s *Storage) logCopy(key string, err error) {
	if err != nil {
		s.Logger.Warn("failed to change the local copy of a file for certificates", "file", key, "error", err)
	}
}

// get reads a file from etcd.
func (s *Storage) get(ctx context.Context, key string, limit time.Duration) (r record, err error) {
	resp, err := s.txn(ctx, key, limit, nil, clientv3.OpGet(filesDir+key))
	if err != nil {
		return r, fmt.Errorf("reading %s: %w", key, err)
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return r, fmt.Errorf("reading %s: %w", key, fs.ErrNotExist)
	}
	if json.Unmarshal(kvs[0].Value, &r) != nil || r.V != 1 {
		return r, fmt.Errorf("the file %s was written by a newer version: upgrade this gateway", key)
	}
	return r, nil
}

// Stat describes a file or a folder.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	r, err := s.get(ctx, key, callTimeout)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = s.List(ctx, key, false)
	}
	return certmagic.KeyInfo{Key: key, Modified: r.Modified, Size: int64(len(r.Data)), IsTerminal: r.V > 0}, err
}

// Exists reports whether a file or a folder exists.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// List returns the files and folders in a folder. If recursive is set, it includes the contents of folders.
func (s *Storage) List(ctx context.Context, folder string, recursive bool) (keys []string, err error) {
	prefix := strings.TrimPrefix(folder+"/", "/")
	resp, err := s.txn(ctx, path.Clean(folder), callTimeout, nil,
		clientv3.OpGet(filesDir+prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", folder, err)
	}
	for _, item := range resp.Responses[0].GetResponseRange().Kvs {
		name := strings.TrimPrefix(string(item.Key), filesDir)
		for i, c := range name + "/" {
			if c == '/' && i > len(prefix) && (recursive || !strings.Contains(name[len(prefix):i], "/")) {
				keys = append(keys, name[:i])
			}
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("listing %s: %w", folder, fs.ErrNotExist)
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}
