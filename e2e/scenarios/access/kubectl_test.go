//go:build e2e

package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// lineRE is a line that the toolbox logs every second.
var lineRE = regexp.MustCompile(`(?m)^line (\d+)$`)

// deploy runs the toolbox, and waits until it does. A cluster that is new may have no ServiceAccount for it yet.
func deploy(t *testing.T, u user) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "the toolbox is applied", 2*time.Minute, works(u, "apply", "-f", manifest(t, "toolbox.yaml"))))
	suite.Must(t, shared.WaitFor(t.Context(), "the toolbox runs", 3*time.Minute,
		works(u, "wait", "--for=condition=Ready", "pod/toolbox", "--timeout=50s")))
}

func manifest(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	suite.Must(t, err)
	return path
}

// useAll does everything that needs more than one request and its answer.
func useAll(t *testing.T, u user, megabytes int64) {
	suite.Step(t, "get -w shows what happens", func(t *testing.T) { watch(t, u) })
	suite.Step(t, "logs -f follows", func(t *testing.T) { follow(t, u) })
	suite.Step(t, "attach shows what is written", func(t *testing.T) {
		u.start(t, "attach", "toolbox").waitSaid(t, "two lines", lines(2))
	})
	suite.Step(t, "exec -it is at a terminal, which may be resized, and ends with the program's code", func(t *testing.T) { talk(t, u) })
	suite.Step(t, "port-forward carries requests, many at once", func(t *testing.T) { forward(t, u) })
	suite.Step(t, fmt.Sprintf("cp of %d MB there and back loses nothing", megabytes), func(t *testing.T) { copyThereAndBack(t, u, megabytes) })
}

func lines(n int) func(string) bool {
	return func(said string) bool { return len(lineRE.FindAllString(said, n)) >= n }
}

func saying(text string) func(string) bool {
	return func(said string) bool { return strings.Contains(said, text) }
}

func watch(t *testing.T, u user) {
	w := watchAlready(t, u)
	u.run(t, "delete", "configmap", "already")
	began := time.Now()
	u.run(t, "create", "configmap", "seen-at-once")
	w.waitSaid(t, "what was made", saying("configmap/seen-at-once"))
	t.Logf("seen at most %s after it was made", time.Since(began).Round(time.Millisecond))
	u.run(t, "delete", "configmap", "seen-at-once")
}

func follow(t *testing.T, u user) {
	f := u.start(t, "logs", "-f", "--tail=1", "toolbox")
	f.waitSaid(t, "three lines", lines(3))
}

// talk has a conversation with a program in the container.
func talk(t *testing.T, u user) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	mine, theirs, err := openTerminal(40, 120)
	suite.Must(t, err)
	defer mine.Close()
	cmd := u.command(ctx, u.kubectl, "exec", "-it", "toolbox", "--", "terminal")
	r := &running{cmd: cmd, done: make(chan struct{})}
	suite.Must(t, startAt(cmd, theirs))
	go func() { _, _ = io.Copy(r, mine) }()
	go func() {
		defer close(r.done)
		r.err = cmd.Wait()
	}()
	r.waitSaid(t, "the size", saying("40 rows and 120 columns"))
	suite.Must(t, resize(mine, 50, 132))
	r.waitSaid(t, "the new size", saying("50 rows and 132 columns"))
	_, err = mine.WriteString("hello there\r")
	suite.Must(t, err)
	r.waitSaid(t, "an answer", saying(`you said "hello there"`))
	_, err = mine.WriteString("exit 7\r")
	suite.Must(t, err)
	select {
	case <-r.done:
	case <-time.After(time.Minute):
		t.Fatalf("exec does not end; it says:\n%s", r.said())
	}
	if exit := (&exec.ExitError{}); !errors.As(r.err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exec ended with %v", r.err)
	}
}

var portRE = regexp.MustCompile(`127\.0\.0\.1:(\d+) ->`)

func forward(t *testing.T, u user) {
	f := u.start(t, "port-forward", "pod/toolbox", ":8080")
	f.waitSaid(t, "its port", portRE.MatchString)
	address := net.JoinHostPort("127.0.0.1", portRE.FindStringSubmatch(f.said())[1])
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DialContext: shared.Dial, MaxIdleConnsPerHost: 8}}
	body := make([]byte, 1<<20)
	_, _ = rand.Read(body)
	ended := make(chan error, 8)
	for range cap(ended) {
		go func() { ended <- post(t.Context(), client, "http://"+address, body) }()
	}
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Errorf("a request over the forwarded port: %v. kubectl says:\n%s", err, f.said())
		}
	}
}

// post sends something that must come back.
func post(ctx context.Context, client *http.Client, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Equal(got, body) {
		err = fmt.Errorf("of %d bytes %d came back, or others", len(body), len(got))
	}
	return err
}

func copyThereAndBack(t *testing.T, u user, megabytes int64) {
	there, back := filepath.Join(t.TempDir(), "there"), filepath.Join(t.TempDir(), "back")
	f, err := os.Create(there)
	suite.Must(t, err)
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(rand.Reader, megabytes*1_000_000))
	suite.Must(t, errors.Join(err, f.Close()))
	want := fmt.Sprintf("%x", sum.Sum(nil))

	began := time.Now()
	u.run(t, "cp", there, "default/toolbox:/data/file")
	up := time.Since(began)
	if got := u.run(t, "exec", "toolbox", "--", "sha256sum", "/data/file"); !strings.HasPrefix(got, want) {
		t.Errorf("another file arrived: %s, want %s", got, want)
	}
	began = time.Now()
	u.run(t, "cp", "default/toolbox:/data/file", back)
	t.Logf("%d MB took %.1f s there and %.1f s back", megabytes, up.Seconds(), time.Since(began).Seconds())
	raw, err := os.ReadFile(back)
	suite.Must(t, err)
	if got := fmt.Sprintf("%x", sha256.Sum256(raw)); got != want {
		t.Errorf("another file came back: %s, want %s", got, want)
	}
}
