package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// A backup is taken while keys are created. Then the gateway is killed and all data are lost. With the backup,
// the connector reconnects with its token and the key works.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	backup := filepath.Join(r.Dir, "backup.db")
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan error, 1)
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, _, err := r.Gateway.Gateway.Key(ctx, fmt.Sprintf("busy-%d", i), "*"); err != nil && ctx.Err() == nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for _, args := range [][]string{{"backup", backup}, {"backup", backup, "--force"}} {
		if _, errs, code := r.Run(t, args...); code != 0 {
			t.Fatalf("%q: exit code %d, %s", args, code, errs)
		}
	}
	stop()
	if err := <-written; err != nil {
		t.Errorf("creating keys meanwhile: %v", err)
	}
	if _, errs, code := r.Run(t, "backup", backup); code != 1 || !strings.Contains(errs, "--force") {
		t.Errorf("over a file: exit code %d, %s", code, errs)
	}
	if stat, err := os.Stat(backup); err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v, %v", stat, err)
	}
	if out, errs, code := r.Run(t, "backup", "-"); code != 0 || len(out) < 10000 {
		t.Errorf("to the standard output: exit code %d, %d bytes, %s", code, len(out), errs)
	}
	_, later := r.Key(t, "later", "*")

	restore := func() (string, error) {
		out, err := r.Caddy("gateway", "restore", backup, "--config", r.Caddyfile, "--adapter", "caddyfile",
			"--yes").CombinedOutput()
		return string(out), err
	}
	if out, err := restore(); err == nil || !strings.Contains(out, "stop that gateway first") {
		t.Errorf("while the gateway runs: %v, %s", err, out)
	}
	r.Process.Signal(t, syscall.SIGKILL)
	r.Process.WaitExit(t, limit)
	database := filepath.Join(r.Dir, "gateway.db")
	must(t, os.Remove(database))
	if out, err := restore(); err != nil || !strings.Contains(out, "The database is restored.") {
		t.Fatalf("%v, %s", err, out)
	}
	r.Restart(t)
	r.con.WaitState(t, "online", limit)
	served(t, r.Post(t, harness.Chat("m", "")), "the key of the backup")
	if a := r.Gateway.Client(t, later).Post(t, harness.Chat("m", "")); a.Status != 401 {
		t.Errorf("a key that is not in the backup: %d %s", a.Status, a.Body)
	}
	r.Process.Signal(t, syscall.SIGTERM)
	r.Process.WaitExit(t, limit)
	out, err := restore()
	_, kept, _ := strings.Cut(out, "is kept as ")
	kept, _, _ = strings.Cut(kept, ".\n")
	if err != nil || !strings.HasPrefix(kept, database+".before-restore-") {
		t.Fatalf("%v, %s", err, out)
	}
	db, err := bolt.Open(kept, 0o600, &bolt.Options{ReadOnly: true})
	must(t, err)
	db.Close()
}
