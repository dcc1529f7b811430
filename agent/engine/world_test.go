package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/probe"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

// images stages some files that hold the name of the image.
type images struct{ host *fake.Host }

var imageFiles = []string{".image", "bin/tool", "run.sh", "share/a", "share/b"}

func (i images) Stage(ctx context.Context, image, dir string, _ func(done, total int64)) error {
	if strings.Contains(image, "missing") {
		return errors.New("no such image")
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, name := range imageFiles {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(image))}); err != nil {
			return err
		}
		if _, err := io.WriteString(w, image); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), i.host.Unpack(ctx, dir, &layer))
}

// whole reports whether an image is unpacked as a whole where a program runs.
func (i images) whole(dir, image string) bool {
	for _, name := range imageFiles {
		if raw, err := i.host.ReadFile(dir + "/" + name); err != nil || string(raw) != image {
			return false
		}
	}
	return true
}

// world is an engine on a machine in memory.
type world struct {
	t       *testing.T
	host    *fake.Host
	secret  *secret
	options Options
	check   func(context.Context, plans.Probe) (probe.Certificates, error)
	engine  *Engine // the one that was started last

	stop func()
	// remove stops the engine as when its source is deleted.
	remove func()
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, host: fake.New(), secret: newSecret(t)}
	w.options = Options{
		Source: w.secret, Host: w.host, Images: images{w.host}, Log: slog.New(slog.DiscardHandler),
		Environment:   []string{"PATH=/bin", "NOTIFY_SOCKET=/run/notify", "AGENT=yes"},
		WorkDirectory: "/agent/work", StateDirectory: "/agent/state", InstructionTimeout: time.Hour, PeriodicTimeout: time.Hour,
	}
	w.secret.gone = w.host.Stopped
	w.program("ok", 0)
	w.program("bad", 3)
	t.Cleanup(w.host.PowerOff) // what was left running ends with the test
	return w
}

// program adds one that writes its name and attempt and ends with a code.
func (w *world) program(name string, exit int) {
	w.host.Program(name, func(_ context.Context, c run.Command) (run.Result, error) {
		return run.Result{ExitCode: exit, Stdout: []byte(name + " " + env(c, envAttempt)), Stderr: []byte("from " + name)}, nil
	})
}

// start starts an engine; the world's stop ends it and waits.
func (w *world) start() {
	w.startAlone()
	w.secret.hub(func(plans.SecretData) {})
}

// startAlone starts an engine whose source says nothing.
func (w *world) startAlone() {
	select {
	case <-w.secret.updates:
	default:
	}
	ctx, cancel := context.WithCancelCause(w.t.Context())
	e := New(w.options)
	w.engine = e
	if w.check != nil {
		e.check = w.check
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Run(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, fake.ErrStopped) {
			w.t.Errorf("engine ended with %v", err)
		}
	}()
	end := func(cause error) func() {
		return func() {
			cancel(cause)
			<-done
		}
	}
	w.stop, w.remove = end(nil), end(source.ErrRemoved)
}

// waitAMinute lets everything happen that happens within a minute.
func (w *world) waitAMinute() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

func env(c run.Command, name string) string {
	value := ""
	for _, pair := range c.Env {
		if v, found := strings.CutPrefix(pair, name+"="); found {
			value = v
		}
	}
	return value
}

// ran lists programs with their attempts.
func (w *world) ran() []string {
	var ran []string
	for _, c := range w.host.Runs() {
		ran = append(ran, strings.Join(append([]string{c.Path[strings.LastIndex(c.Path, "/")+1:]}, c.Args...), " ")+"@"+env(c, envAttempt))
	}
	return ran
}

// checkRan checks the programs that ran with their attempts.
func (w *world) checkRan(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.ran()); diff != "" {
		w.t.Errorf("programs that ran (-want +got):\n%s", diff)
	}
}

// checkState checks the state that was reported last.
func (w *world) checkState(want plans.State) {
	w.t.Helper()
	if got := w.secret.status(); got.State != want {
		w.t.Errorf("the state is %s, want %s: %+v", got.State, want, got)
	}
}

func once(name, command string, save bool) plans.Instruction {
	return plans.Instruction{CommonInstruction: plans.CommonInstruction{Name: name, Command: command, Args: []string{name}}, SaveOutput: save}
}

func file(path, content string) plans.File {
	return plans.File{Path: path, Content: base64.StdEncoding.EncodeToString([]byte(content)), Permissions: "0640", UID: 1}
}
