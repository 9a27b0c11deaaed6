package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// keyCheckInterval is the shortest time between two checks of a key file.
const keyCheckInterval = time.Second

// maxKeyBytes is far above any API key.
const maxKeyBytes = 8 << 10

// keyFile is an upstream's API key. It is reloaded when the file changes. It is safe for
// concurrent use.
type keyFile struct {
	path   string
	now    func() time.Time
	logger *slog.Logger

	header  atomic.Pointer[string] // "Bearer …", never logged
	checked atomic.Int64           // Unix nanoseconds of the last check

	mu      sync.Mutex // locked during a check
	failing bool       // the last check failed and was logged
}

// openKeyFile reads the key, or fails. After later failures, the last valid key stays.
func openKeyFile(path string, now func() time.Time, logger *slog.Logger) (*keyFile, error) {
	k := &keyFile{path: path, now: now, logger: logger}
	k.checked.Store(now().UnixNano())
	if _, err := k.read(); err != nil {
		return nil, err
	}
	return k, nil
}

// authorization returns the value of the Authorization header.
func (k *keyFile) authorization() string {
	if now := k.now().UnixNano(); now-k.checked.Load() >= int64(keyCheckInterval) && k.mu.TryLock() {
		k.checked.Store(now)
		k.refresh()
		k.mu.Unlock()
	}
	return *k.header.Load()
}

func (k *keyFile) refresh() {
	changed, err := k.read()
	switch {
	case changed:
		k.logger.Info("upstream key changed", "file", k.path)
	case err != nil && !k.failing:
		k.logger.Warn("failed to read the upstream key; the old one stays", "file", k.path, "error", err)
	}
	k.failing = err != nil
}

// read reads the key from the file, and reports whether it has changed. The caller holds
// mu, or has the only reference.
func (k *keyFile) read() (changed bool, err error) {
	file, err := os.Open(k.path)
	if err != nil {
		return false, err // names the file
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxKeyBytes+1))
	if err != nil {
		return false, err
	}
	if len(data) > maxKeyBytes {
		return false, fmt.Errorf("%s has more than the %d bytes allowed for a key", k.path, maxKeyBytes)
	}
	key := bytes.TrimSpace(data)
	if err := checkKey(key); err != nil {
		return false, fmt.Errorf("%s %w", k.path, err)
	}
	header := "Bearer " + string(key)
	old := k.header.Swap(&header)
	return old == nil || *old != header, nil
}

func checkKey(key []byte) error {
	if len(key) == 0 {
		return errors.New("is empty; write the upstream's API key into it")
	}
	for _, b := range key {
		if b <= ' ' || b >= 0x7f {
			return errors.New("must contain only the key, on one line")
		}
	}
	return nil
}
