package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/host"
)

func newSupportBundle() *cobra.Command {
	var where place
	var file string
	var withLogs bool
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what helps to find a fault, without secrets",
		Long: `Collect what helps to find a fault into one archive of mode 0600: versions, configuration, status, history, the doctor's findings, the
plan, the journal, the unit and the agent's log.

Tokens, contents of files, scripts, arguments, values of environment variables and outputs of instructions are left out, or stand there
as a mark by which equal ones can be recognized within one bundle. Look into it before you hand it on: names of files, images and hosts
are in it. With --with-logs the outputs of instructions are in it too, whatever secrets they hold.`,
		Example: "  system-agent support-bundle\n  system-agent support-bundle -f /tmp/bundle.tar.gz && tar tzvf /tmp/bundle.tar.gz",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getuid() != 0 {
				return errors.New("must be run as root, since the agent's files are root's")
			}
			if file == "" {
				name, _ := os.Hostname()
				file = fmt.Sprintf("system-agent-%s-%s.tar.gz", name, time.Now().UTC().Format("20060102-150405"))
			}
			path, err := filepath.Abs(file)
			if err != nil {
				return err
			}
			b := newBundle()
			b.collect(cmd.Context(), &where, withLogs)
			raw, err := b.finish()
			if err != nil {
				return err
			}
			if err := (host.Machine{}).WriteStream(path, bytes.NewReader(raw), host.Private(0o600)); err != nil {
				return fmt.Errorf("writing %s: %w", path, err)
			}
			if withLogs {
				fmt.Fprintln(cmd.ErrOrStderr(), "Warning: the bundle holds outputs of instructions, which may hold secrets.")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s (%s, %d files)\n", path, bytesText(int64(len(raw))), len(b.names))
			return err
		},
	}
	where.flags(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "archive to write (default: system-agent-<host>-<time>.tar.gz in this folder)")
	cmd.Flags().BoolVar(&withLogs, "with-logs", false, "add the outputs of instructions, which may hold secrets")
	return cmd
}

// bundle is an archive in the making. What cannot be collected is written down in it and keeps nothing else out.
type bundle struct {
	raw    bytes.Buffer
	zip    *gzip.Writer
	tar    *tar.Writer
	now    time.Time
	names  []string
	faults []string
	err    error
	hide   redaction
}

func newBundle() *bundle {
	b := &bundle{now: time.Now().UTC(), hide: newRedaction()}
	b.zip = gzip.NewWriter(&b.raw)
	b.tar = tar.NewWriter(b.zip)
	return b
}

func (b *bundle) add(name string, content []byte) {
	if b.err != nil {
		return
	}
	b.names = append(b.names, name)
	header := &tar.Header{Name: "system-agent/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: b.now, Typeflag: tar.TypeReg}
	if b.err = b.tar.WriteHeader(header); b.err == nil {
		_, b.err = b.tar.Write(content)
	}
}

func (b *bundle) json(name string, value any) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		b.fault(name, err)
		return
	}
	b.add(name, buf.Bytes())
}

func (b *bundle) fault(name string, err error) {
	b.faults = append(b.faults, name+": "+err.Error())
}

func (b *bundle) finish() ([]byte, error) {
	if len(b.faults) > 0 {
		b.add("not-collected.txt", []byte(strings.Join(b.faults, "\n")+"\n"))
	}
	b.err = errors.Join(b.err, b.tar.Close(), b.zip.Close())
	return b.raw.Bytes(), b.err
}

func (b *bundle) collect(ctx context.Context, where *place, withLogs bool) {
	m := where.patient(ctx)
	b.versions()
	b.environment(m)
	b.configuration(m)
	b.examine(ctx, m)
	b.service(ctx)
	v, err := where.look(ctx)
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

// logs adds what instructions wrote; nothing else of their folders, where their environment may be.
func (b *bundle) logs(ctx context.Context, v *view) {
	attempts, err := v.allHistory(ctx, "")
	if err != nil {
		b.fault("logs", err)
		return
	}
	added := map[string]bool{}
	for _, attempt := range attempts {
		for _, one := range logFiles(attempt, logsQuery{}) {
			for _, path := range append(one.Stdout, one.Stderr...) {
				if !added[path] {
					added[path] = true
					b.log(path)
				}
			}
		}
	}
}

func (b *bundle) log(path string) {
	const most = 16 << 20
	file, err := os.Open(path)
	if err != nil {
		b.fault(path, err)
		return
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		b.fault(path, err)
		return
	}
	b.add(filepath.Join("logs", filepath.Base(filepath.Dir(path)), filepath.Base(path)), raw)
}
