package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/hub/server/embedded"
)

// backupOptions are the flags of "hub backup".
type backupOptions struct {
	dataDir, encryptionKeyDir, snapshot, keys string
}

func newBackup() *cobra.Command {
	return group(&cobra.Command{
		Use:   "backup",
		Short: "Back up and restore a standalone hub",
		Long: `Save and restore a hub with an embedded API server.

A backup has two files. The snapshot holds everything in the hub's API, with Secrets encrypted. The keys decrypt them and sign the hub's
credentials. Keep the two in different places: whoever has both can read every Secret.`,
	}, newBackupSave(), newBackupRestore())
}

func newBackupSave() *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:   "save",
		Short: "Save a snapshot and the keys",
		Long: `Save a snapshot of the hub's etcd to --snapshot, and its keys to --keys. The hub may be running. Files that exist are not replaced.

The keys change only when an encryption key is added: a regular backup needs --snapshot alone, and --keys may name a file that has the same
keys already.`,
		Example: `  hub backup save --snapshot /backup/hub-$(date +%F).db --keys /vault/hub-keys.tar`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.snapshot == "" && o.keys == "" {
				return errors.New("--snapshot, --keys: at least one is required: name the files to write")
			}
			if o.snapshot != "" && o.keys != "" && sameDirectory(o.snapshot, o.keys) {
				return fmt.Errorf("--keys %s is in the directory of --snapshot: choose another directory, "+
					"because both files together reveal every Secret", o.keys)
			}
			return o.save(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// sameDirectory reports whether two files to be written are in one directory, however its path is written.
func sameDirectory(a, b string) bool {
	a, b = filepath.Dir(filepath.Clean(a)), filepath.Dir(filepath.Clean(b))
	first, err := os.Stat(a)
	if err != nil {
		return a == b
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// save writes both files, also if one of them cannot be written.
func (o *backupOptions) save(ctx context.Context, out io.Writer) error {
	var failed, failedKeys error
	if o.snapshot != "" {
		var saved embedded.Snapshot
		if saved, failed = embedded.SaveSnapshot(ctx, o.server(), o.snapshot); failed == nil {
			fmt.Fprintf(out, "Saved a snapshot to %s: %d keys, %d bytes, revision %d\n", o.snapshot, saved.Keys, saved.Bytes, saved.Revision)
		}
	}
	if o.keys != "" {
		if failedKeys = embedded.SaveKeys(o.server(), o.keys); failedKeys == nil {
			fmt.Fprintf(out, "Saved the keys to %s\n", o.keys)
		}
	}
	return errors.Join(failed, failedKeys)
}

func newBackupRestore() *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore into a new data directory",
		Long: `Restore a hub into a new data directory from a snapshot and the keys that were saved with it. Nothing is changed if they do not fit
together, if the directory holds a hub already, or if a key or certificate authority exists there, or in --encryption-key-dir, that differs
from the saved one. Start the hub with "hub serve" afterwards; agents and users connect to it as before.

If the hub runs as another user, as that of the package does, run this command as root and change the owner of the files afterwards.`,
		Example: `  hub backup restore --data-dir /var/lib/drover/hub --snapshot /backup/hub-2026-11-22.db --keys /vault/hub-keys.tar
  chown -R drover: /var/lib/drover   # if the hub is that of the package`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.snapshot == "" || o.keys == "" {
				return errors.New("--snapshot and --keys are required: name the files that \"hub backup save\" wrote")
			}
			if err := embedded.Restore(o.server(), o.snapshot, o.keys); err != nil {
				return err
			}
			_, err := io.WriteString(cmd.OutOrStdout(), o.restored(os.Geteuid() == 0))
			return err
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// restored is what to do after a restore, which root has run or another user.
func (o *backupOptions) restored(root bool) string {
	text := fmt.Sprintf("Restored the hub into %[1]s; start it with: hub serve --data-dir %[1]s", o.dataDir)
	if o.encryptionKeyDir != "" {
		text += " --encryption-key-dir " + o.encryptionKeyDir
	}
	text += "\n"
	if !root {
		return text
	}
	directories := o.dataDir
	if filepath.Clean(o.dataDir) == rootDataDir {
		directories = filepath.Dir(rootDataDir) // the hub of the package owns it, too
	}
	if o.encryptionKeyDir != "" {
		directories += " " + o.encryptionKeyDir
	}
	return text + "The files belong to root. If the hub runs as user drover, as that of the package, first run: chown -R drover: " +
		directories + "\n"
}

func (o *backupOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.dataDir, "data-dir", defaultDataDir(), "data directory of the embedded API server")
	flags.StringVar(&o.encryptionKeyDir, "encryption-key-dir", "", "directory of its encryption keys (default <data-dir>/encryption)")
	flags.StringVar(&o.snapshot, "snapshot", "", "file of the snapshot")
	flags.StringVar(&o.keys, "keys", "", "file of the keys, a tar archive")
}

func (o *backupOptions) server() embedded.Options {
	return embedded.Options{DataDir: o.dataDir, EncryptionKeyDir: o.encryptionKeyDir}
}
