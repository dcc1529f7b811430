package local

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/host"
	hostfs "github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// folder is a folder of plans with a Directory on it. In place of engines it has functions that apply what they are given at once.
type folder struct {
	t      *testing.T
	path   string
	log    strings.Builder
	d      *Directory
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu   sync.Mutex
	news chan struct{}
	// given lists what the engines were given: "name content", and "name -" when one ended because its plan was removed.
	given []string
	// hold, when it is set, keeps engines from reporting that a plan is applied.
	hold chan struct{}
	// fail lets a plan of this name fail.
	fail string
	// spoil, when it is set, changes the Directory before it runs.
	spoil func(*Directory)
}

func newFolder(t *testing.T) *folder {
	f := &folder{t: t, path: filepath.Join(t.TempDir(), "plans"), news: make(chan struct{}, 1)}
	t.Cleanup(f.stop)
	return f
}

func (f *folder) options() Options {
	return Options{Path: f.path, StateDirectory: filepath.Join(filepath.Dir(f.path), "state/local"), Host: host.Local{},
		Log: slog.New(slog.NewTextHandler(f, nil))}
}

// Write implements io.Writer for the log.
func (f *folder) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	signal(f.news)
	return f.log.Write(line)
}

func (f *folder) start() {
	f.d = New(f.options())
	if f.spoil != nil {
		f.spoil(f.d)
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancelCause(f.t.Context())
	f.done = make(chan struct{})
	go func() {
		defer close(f.done)
		f.d.Run(ctx, f.engine)
	}()
}

func (f *folder) stop() {
	if f.cancel != nil {
		f.cancel(run.ErrDetach)
		<-f.done
	}
}

func (f *folder) engine(ctx context.Context, p *Plan) {
	if err := (host.Local{}).MkdirAll(p.StateDirectory(), hostfs.WithMode(0o700)); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	hold, fail := f.hold, f.fail
	f.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), source.ErrRemoved) {
				f.note(p.Name() + " -")
			}
			return
		case s := <-p.Updates():
			checksum := s.Delivery.Checksum()
			if s.Status.AppliedChecksum == checksum || s.Status.FailedChecksum == checksum {
				continue
			}
			f.note(p.Name() + " " + string(s.Delivery.Plan))
			if hold != nil {
				select {
				case <-hold:
				case <-ctx.Done():
					continue
				}
			}
			_, err := p.Update(ctx, s.UID, checksum, func(status *plans.Status) {
				if p.Name() == fail {
					status.FailedChecksum, status.FailureCount = checksum, status.FailureCount+1
					return
				}
				status.AppliedChecksum, status.SuccessCount = checksum, status.SuccessCount+1
			})
			if err != nil && !errors.Is(err, source.ErrSuperseded) {
				f.note(p.Name() + " cannot report: " + err.Error())
			}
			signal(f.news)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *folder) note(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.given = append(f.given, text)
	signal(f.news)
}

// expect waits until the engines were given this, in this order.
func (f *folder) expect(want ...string) {
	f.t.Helper()
	f.until("what is expected", func() bool { return slices.Equal(f.given, want) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.given = nil
}

// until waits for something that a note or a line of the log brings about.
func (f *folder) until(what string, is func() bool) {
	f.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		f.mu.Lock()
		yes := is()
		f.mu.Unlock()
		if yes {
			return
		}
		select {
		case <-f.news:
		case <-deadline:
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("waited in vain for %s; given %q, log:\n%s", what, f.given, f.log.String())
		}
	}
}

func (f *folder) logged(text string) {
	f.t.Helper()
	f.until(text, func() bool { return strings.Contains(f.log.String(), text) })
}

// write writes a file as editors do it: aside first, then under its name.
func (f *folder) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.path, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.t.Fatal(err)
	}
	temp := filepath.Join(filepath.Dir(path), ".swp")
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) remove(name string) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.path, name)); err != nil {
		f.t.Fatal(err)
	}
}

// applied waits until the position file tells that the plan is applied.
func (f *folder) applied(name, text string) {
	f.t.Helper()
	f.until("the position of "+name, func() bool { return f.position(name)["appliedChecksum"] == plans.Checksum([]byte(text)) })
}

func (f *folder) position(name string) map[string]any {
	f.t.Helper()
	raw, err := os.ReadFile(filepath.Join(f.path, name+".pos"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var values map[string]any
	if err := errors.Join(err, json.Unmarshal(raw, &values)); err != nil {
		f.t.Fatal(err)
	}
	return values
}

func (f *folder) states() []string {
	names, err := (host.Local{}).ReadDir(f.options().StateDirectory)
	if err != nil {
		f.t.Fatal(err)
	}
	return names
}

// plan is a plan whose text differs with n.
func plan(n string) string { return `{"instructions":[{"name":"` + n + `"}]}` }

// TestFolderIsMade shows that B22's promise is kept: a folder that validate-config finds missing is there after the start.
func TestFolderIsMade(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.start()
	f.logged("Created the directory")
	if info, err := os.Stat(f.path); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("got %v, %v", info, err)
	}
	f.write("a.plan", plan("1"))
	f.expect("a " + plan("1"))
	f.applied("a", plan("1"))
	// Also one that is taken away while the agent runs.
	f.remove("")
	f.expect("a -")
	f.write("b.plan", plan("2"))
	f.expect("b " + plan("2"))
}

func TestChangesAreSeen(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write("b.plan", plan("1"))
	f.write("sub/deep/a.plan", plan("2"))
	f.write("a.plan", plan("3"))
	f.write(".hidden.plan", plan("4"))
	f.write(".git/c.plan", plan("5"))
	f.write("notes.txt", "hello")
	f.start()
	// In the order of names, one after the other.
	f.expect("a "+plan("3"), "b "+plan("1"), "sub/deep/a "+plan("2"))
	f.write("b.plan", plan("new"))
	f.expect("b " + plan("new"))
	f.write("later/x/c.plan", plan("6"))
	f.expect("later/x/c " + plan("6"))
	f.applied("later/x/c", plan("6"))
	if err := os.Rename(filepath.Join(f.path, "later"), filepath.Join(f.path, "moved")); err != nil {
		t.Fatal(err)
	}
	// The position moved with it, so it is not applied again.
	f.expect("later/x/c -")
	f.write("moved/x/c.plan", plan("7"))
	f.expect("moved/x/c " + plan("7"))
	if diff := cmp.Diff([]string{"a", "b", "moved%2Fx%2Fc", "sub%2Fdeep%2Fa"}, f.states()); diff != "" {
		t.Error(diff)
	}
	// What is gone while nobody looks is noticed at the start.
	f.stop()
	f.remove("b.plan")
	f.start()
	f.write("a.plan", plan("8"))
	f.expect("a " + plan("8"))
	if diff := cmp.Diff([]string{"a", "moved%2Fx%2Fc", "sub%2Fdeep%2Fa"}, f.states()); diff != "" {
		t.Error(diff)
	}
}

// TestTurns shows that plans are applied in the order of their names, and that one which has failed once holds up no other.
func TestTurns(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.hold, f.fail = make(chan struct{}), "b"
	for _, name := range []string{"c", "b", "a"} {
		f.write(name+".plan", plan(name))
	}
	f.start()
	f.until("the first", func() bool { return len(f.given) == 1 })
	f.expect("a " + plan("a"))
	f.hold <- struct{}{}
	f.expect("b " + plan("b"))
	f.hold <- struct{}{}
	f.expect("c " + plan("c"))
	close(f.hold)
	f.applied("c", plan("c"))
	if got := f.position("b"); got["failedChecksum"] != plans.Checksum([]byte(plan("b"))) || got["failureCount"] != 1.0 ||
		got["appliedChecksum"] != nil {
		t.Errorf("got %v", got)
	}
}

// TestUnfinishedFile shows that a file which is no plan, or not yet, changes nothing, and is told of once.
func TestUnfinishedFile(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write("a.plan", plan("1"))
	f.start()
	f.expect("a " + plan("1"))
	f.write("a.plan", plan("2")[:20])
	f.logged("invalid plan")
	f.write("b.plan", plan("b"))
	f.expect("b " + plan("b"))
	p := f.d.plans["a"]
	if _, err := p.Get(t.Context()); err == nil {
		t.Error("half a plan may be begun")
	}
	if reason, since := p.Unreachable(); reason == "" || since.IsZero() {
		t.Errorf("got %q, %v", reason, since)
	}
	if got := strings.Count(f.log.String(), "invalid plan"); got != 1 {
		t.Errorf("told %d times:\n%s", got, f.log.String())
	}
	f.write("a.plan", `{"files":[{"path":"relative"}]}`)
	f.logged("files[0].path")
	f.write("a.plan", plan("2"))
	f.expect("a " + plan("2"))
	if reason, _ := p.Unreachable(); reason != "" {
		t.Errorf("got %q", reason)
	}
	if strings.Contains(f.log.String(), "instructions") {
		t.Errorf("the log holds content:\n%s", f.log.String())
	}
}

// TestWithoutWatches shows that a machine whose inotify watches are used up still applies plans, and says why it is slow.
func TestWithoutWatches(t *testing.T) {
	f := newFolder(t)
	f.spoil = func(d *Directory) {
		d.newWatcher = func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
		d.pollInterval = 100 * time.Millisecond
	}
	f.write("a.plan", plan("1"))
	f.start()
	f.expect("a " + plan("1"))
	f.write("sub/b.plan", plan("2"))
	f.expect("sub/b " + plan("2"))
	f.stop()
	if got := strings.Count(f.log.String(), "fs.inotify.max_user_instances"); got != 1 {
		t.Errorf("logged %d times:\n%s", got, f.log.String())
	}
}
