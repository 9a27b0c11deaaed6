package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/tty"
)

func backupCommand(host up.Host) command {
	return command{
		use: "backup FILE [--force] [--offline]", operation: "GET /backup",
		long: `Writes a backup of the database to a file, or to the standard output if it is "-".
The gateway continues to work meanwhile. The backup is checked before it gets its
name.

It holds users, hashes of keys, connectors, deployments, usage, and the identity of
the gateway's tunnels in plain text: keep it as secret as a password. It does not
hold the Caddyfile and Caddy's certificates.

With --offline, the command reads the store in etcd that --config names. All of its
gateways must be stopped. Use it to move the store, with "restore". A single gateway
that is stopped needs no backup, as its database is one file.`,
		example: `  caddy gateway backup postern-2026-05-02.db
  caddy gateway backup - | age -r age1… > postern.db.age
  caddy gateway backup moved.db --offline --config /etc/postern/Caddyfile`,
		flags: func(f *pflag.FlagSet) {
			f.Bool("force", false, "Replace an existing file")
			f.Bool("offline", false, "Read the store in etcd, whose gateways are stopped")
		},
		run: func(in *invocation) error {
			from := func(w io.Writer) error { return in.download(in.newRequest("GET /backup"), w, "the backup") }
			if in.is("offline") {
				from = func(w io.Writer) error { return in.readShared(host, w) }
			}
			if in.arg == "-" {
				return in.backupToOutput(from)
			}
			return in.backupToFile(in.arg, from)
		},
	}
}

// errFileExists is the error for a file that would be overwritten.
var errFileExists = errors.New("already exists; add --force to replace it")

// backupToFile writes a backup to path. It writes to another file first, so that path never names
// a part of a backup.
func (in *invocation) backupToFile(path string, from func(io.Writer) error) error {
	checkFree := func() error {
		if _, err := os.Lstat(path); in.is("force") || errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		return fmt.Errorf("%s %w", path, errFileExists)
	}
	if err := checkFree(); err != nil {
		return err
	}
	temporary, info, err := in.fetchBackup(filepath.Dir(path), from)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary) }() // after a failure
	if err := checkFree(); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("writing the backup: %w", err)
	}
	if err := store.SyncFolder(path); err != nil {
		return err
	}
	if in.is("json") {
		return printJSON(in.OutOrStdout(), info)
	}
	in.printf("The backup %s is complete (%d bytes). It holds secrets: keep it safe.\n", path, info.Bytes)
	return nil
}

// backupToOutput writes a backup to the standard output.
func (in *invocation) backupToOutput(from func(io.Writer) error) error {
	out := in.OutOrStdout()
	if tty.Is(out) {
		return up.Usagef("the standard output is a terminal; name a file, or redirect the output")
	}
	temporary, _, err := in.fetchBackup(os.TempDir(), from)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary) }()
	file, err := os.Open(temporary)
	if err != nil {
		return fmt.Errorf("reading the backup: %w", err)
	}
	defer file.Close()
	if _, err := io.Copy(out, file); err != nil {
		return fmt.Errorf("writing the backup: %w", err)
	}
	return nil
}

// fetchBackup writes a backup to a new file in a folder, and checks it. The file takes the backup
// at once: a slow reader of the output would delay the writers of the gateway.
func (in *invocation) fetchBackup(
	folder string, from func(io.Writer) error,
) (path string, info store.BackupInfo, err error) {
	file, err := os.CreateTemp(folder, ".backup-*.new") // mode 0600
	if err != nil {
		return "", info, fmt.Errorf("writing the backup: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err = from(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", info, err
	}
	info, err = store.CheckBackup(in.Context(), file.Name())
	return file.Name(), info, err
}

// readShared writes a backup of the store in etcd that --config names to w.
func (in *invocation) readShared(host up.Host, w io.Writer) (err error) {
	location, err := in.storeOfConfig(host)
	if err != nil {
		return err
	}
	if location.Shared == nil {
		return up.Usagef("the store of the configuration is the file %s, not in etcd: "+
			"copy the file, which is a backup while the gateway is stopped", location.Path)
	}
	kv, err := location.Shared(in.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kv.Close()) }()
	if err := store.CheckUnused(in.Context(), kv); err != nil {
		return err
	}
	return kv.Backup(in.Context(), w)
}

// storeOfConfig returns the location of the store that --config names.
func (in *invocation) storeOfConfig(host up.Host) (gateway.StoreConfig, error) {
	config, err := in.loadConfig()
	if err != nil {
		return gateway.StoreConfig{}, up.Usagef("reading the configuration: %w", err)
	}
	location, err := host.StoreConfig(config)
	if err != nil {
		return gateway.StoreConfig{}, up.Usagef("finding the store: %w", err)
	}
	return location, nil
}

func restoreCommand(host up.Host) command {
	return command{
		use: "restore FILE [--yes]", short: "Restores a backup, while the gateway is stopped",
		long: `Replaces the database with a backup. The gateway must not be running. The backup is
checked first, and the current database is kept under another name. The command asks
for confirmation; without a terminal, it needs --yes. A store in etcd must have no keys
below its prefix. The backup may be that of a single gateway, which then becomes the
first of several.

The database is that of the Caddyfile in this folder, or of --config. Without
either it is the default in Caddy's data directory, which depends on the user and
on XDG_DATA_HOME: run the command with the same user and environment as the gateway.

Connectors and keys work as at the time of the backup. A key that was revoked since
then is valid again. If the identity was rotated since then, all connectors must be
paired again.`,
		example: `  caddy gateway restore postern-2026-05-02.db
  caddy gateway restore postern-2026-05-02.db --config /etc/postern/Caddyfile`,
		local: true,
		flags: func(f *pflag.FlagSet) {
			f.StringP("config", "c", "", "Configuration file of the gateway")
			f.StringP("adapter", "a", "", "Name of the adapter for --config")
			confirmationFlag("Skip the confirmation")(f)
		},
		run: func(in *invocation) error { return restore(in, host) },
	}
}

func restore(in *invocation, host up.Host) error {
	location, err := in.storeOfConfig(host)
	if err != nil {
		return err
	}
	info, err := store.CheckBackup(in.Context(), in.arg)
	if err != nil {
		return err
	}
	in.warnf("The backup %s is intact (%d bytes, accounts: %d). The database is %s.\n", in.arg, info.Bytes, info.Accounts,
		location.Name)
	question := "Replace the database by the backup?"
	if location.Shared != nil {
		question = "Write the backup into etcd?"
	}
	if err := in.confirm(question); err != nil {
		return err
	}
	if location.Shared != nil {
		err = in.restoreShared(location)
	} else {
		err = in.restoreFile(location.Path)
	}
	if err != nil {
		return err
	}
	in.printf("The database is restored. Start the gateway.\n")
	return nil
}

func (in *invocation) restoreFile(path string) error {
	kept, _, err := store.RestoreBolt(in.Context(), in.arg, path, in.env.now())
	if kept != "" {
		in.printf("The previous database is kept as %s.\n", kept)
	}
	return err
}

func (in *invocation) restoreShared(location gateway.StoreConfig) (err error) {
	kv, err := location.Shared(in.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kv.Close()) }()
	_, err = store.RestoreKV(in.Context(), in.arg, kv)
	return err
}
