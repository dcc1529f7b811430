package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
)

// maxBundledLogBytes bounds an output file in a bundle.
const maxBundledLogBytes = 16 << 20

func newSupportBundle() *cobra.Command {
	var t target
	var file string
	var withLogs bool
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Create a support bundle without secrets",
		Long: `Create an archive of mode 0600 with versions, configuration, status, history, the results of doctor, the plan, the journal, the
systemd unit and the agent's log.

Tokens, contents of files, scripts, arguments, values of environment variables and outputs of instructions are left out, or replaced by
marks that are equal for equal values within one bundle. Names of files, images and hosts are included: review the bundle before you share
it. With --with-logs, outputs of instructions are included, whatever secrets they contain.`,
		Example: "  system-agent support-bundle\n  system-agent support-bundle -f /tmp/bundle.tar.gz && tar tzvf /tmp/bundle.tar.gz",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := requireRoot(readsAgentFiles); err != nil {
				return err
			}
			if file == "" {
				name, _ := os.Hostname()
				file = fmt.Sprintf("system-agent-%s-%s.tar.gz", name, time.Now().UTC().Format("20060102-150405"))
			}
			path, err := bundlePath(file)
			if err != nil {
				return err
			}
			b := newBundle()
			b.collect(cmd.Context(), &t, withLogs)
			raw, err := b.finish()
			if err != nil {
				return err
			}
			if err := (host.Local{}).WriteStream(path, bytes.NewReader(raw), fs.WithMode(0o600)); err != nil {
				return fmt.Errorf("writing %s: %w", path, err)
			}
			if withLogs {
				fmt.Fprintln(cmd.ErrOrStderr(), "Warning: the bundle contains outputs of instructions, which may contain secrets.")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s (%s, %d files)\n", path, humanize.IBytes(uint64(len(raw))), b.files)
			return err
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "archive to write (default: system-agent-<host>-<time>.tar.gz in the working directory)")
	cmd.Flags().BoolVar(&withLogs, "with-logs", false, "include outputs of instructions, which may contain secrets")
	return cmd
}

// bundlePath is the path of a file that a bundle can be written to. The write replaces what is there, and the command is run as root: it
// would replace /dev/null and /dev/stdout.
func bundlePath(file string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("--file %s: it is not a regular file", file)
	}
	return path, nil
}

// bundle is an archive that is being written, in memory. What cannot be collected is listed in it and does not stop the rest.
type bundle struct {
	raw    bytes.Buffer
	gzip   *gzip.Writer
	tar    *tar.Writer
	now    time.Time
	files  int
	faults []string
	// err is the first error of the archive itself.
	err    error
	redact redactor
}

func newBundle() *bundle {
	b := &bundle{now: time.Now().UTC(), redact: newRedactor()}
	b.gzip = gzip.NewWriter(&b.raw)
	b.tar = tar.NewWriter(b.gzip)
	return b
}

func (b *bundle) add(name string, content []byte) {
	if b.err != nil {
		return
	}
	b.files++
	header := &tar.Header{Name: "system-agent/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: b.now, Typeflag: tar.TypeReg}
	if b.err = b.tar.WriteHeader(header); b.err == nil {
		_, b.err = b.tar.Write(content)
	}
}

// addJSON adds a value, or the error with which it was read.
func (b *bundle) addJSON(name string, value any, err error) {
	var raw bytes.Buffer
	if err == nil {
		err = writeJSON(&raw, value)
	}
	if err != nil {
		b.fault(name, err)
		return
	}
	b.add(name, raw.Bytes())
}

func (b *bundle) fault(name string, err error) {
	b.faults = append(b.faults, name+": "+err.Error())
}

// finish returns the archive.
func (b *bundle) finish() ([]byte, error) {
	if len(b.faults) > 0 {
		b.add("not-collected.txt", []byte(strings.Join(b.faults, "\n")+"\n"))
	}
	b.err = errors.Join(b.err, b.tar.Close(), b.gzip.Close())
	return b.raw.Bytes(), b.err
}

func (b *bundle) collect(ctx context.Context, t *target, withLogs bool) {
	m := t.doctorMachine(ctx)
	b.versions()
	b.environment(m)
	b.configuration(m)
	b.doctor(ctx, m)
	b.service(ctx)
	v, err := t.inspect(ctx)
	if err != nil {
		b.fault("status", err)
		return
	}
	b.states(ctx, v)
	b.journals(v)
	if withLogs {
		b.logs(ctx, v)
	}
}

// logs adds the outputs of instructions. The other files of a run directory contain the environment and stay out.
func (b *bundle) logs(ctx context.Context, v *view) {
	attempts, err := v.allHistory(ctx, "")
	if err != nil {
		b.fault("logs", err)
		return
	}
	added := map[string]bool{}
	for _, attempt := range attempts {
		for _, files := range (logOptions{}).files(attempt) {
			for _, path := range append(files.Stdout, files.Stderr...) {
				if !added[path] {
					added[path] = true
					b.log(path)
				}
			}
		}
	}
}

func (b *bundle) log(path string) {
	file, err := os.Open(path)
	if err != nil {
		b.fault(path, err)
		return
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxBundledLogBytes))
	if err != nil {
		b.fault(path, err)
		return
	}
	b.add(filepath.Join("logs", filepath.Base(filepath.Dir(path)), filepath.Base(path)), raw)
}
