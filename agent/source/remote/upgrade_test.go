package remote

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/plans"
)

// signaled waits for a signal of UpgradeChanged.
func signaled(t *testing.T, s *Source) {
	t.Helper()
	select {
	case <-s.UpgradeChanged():
	case <-time.After(90 * time.Second):
		t.Fatal("UpgradeChanged is not signaled")
	}
}

func TestUpgradeIsSignaled(t *testing.T) {
	h := testhub.New(t)
	s := newSource(t, h)
	signaled(t, s)
	if raw, machine, ok := s.Upgrade(); len(raw) != 0 || machine != "fleet-default/plan" || !ok {
		t.Errorf("got %q, %q, %t", raw, machine, ok)
	}
	h.Deliver(`{"a":1}`)
	next(t, s, `{"a":1}`)
	select {
	case <-s.UpgradeChanged():
		t.Error("a plan is taken for an upgrade")
	default:
	}
	h.Change(func(secret *corev1.Secret) { secret.Data[plans.KeyAgentUpgrade] = []byte(`{"generation":1}`) })
	signaled(t, s)
	if raw, _, _ := s.Upgrade(); string(raw) != `{"generation":1}` {
		t.Errorf("got %q", raw)
	}
}

// TestUpgradeReadBesideTheWatch has a request read by Get, as after a conflict, before the watch delivers it.
func TestUpgradeReadBesideTheWatch(t *testing.T) {
	h := testhub.New(t)
	s := newSource(t, h)
	signaled(t, s)
	refuseWatches(h)
	h.Change(func(secret *corev1.Secret) { secret.Data[plans.KeyAgentUpgrade] = []byte(`{"generation":1}`) })
	if _, err := s.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	signaled(t, s)
}

// TestReportAgent reports the status of the agent while other plans are delivered: everything else stays, and the same again is no write.
func TestReportAgent(t *testing.T) {
	h := testhub.New(t)
	s := newSource(t, h)
	signaled(t, s)
	deliveries := 0
	h.BeforePut = func() {
		if deliveries++; deliveries == 1 {
			h.ChangeLocked(func(secret *corev1.Secret) { plans.Deliver(secret.Data, []byte(`{"b":1}`), 1, 0) })
		}
	}
	want := plans.AgentStatus{Version: "v1.2.3", Generation: 1, Phase: plans.UpgradeDone}
	for range 2 {
		if err := s.ReportAgent(t.Context(), want); err != nil {
			t.Fatal(err)
		}
	}
	status, err := plans.DecodeStatus(h.Now().Data)
	if err != nil || cmp.Diff(&want, status.Agent) != "" || status.State != plans.StatePending ||
		string(h.Now().Data[plans.KeyPlan]) != `{"b":1}` {
		t.Errorf("got %+v, %v", status, err)
	}
	puts := 0
	for _, request := range h.Requests() {
		if request == "PUT" {
			puts++
		}
	}
	if puts != 2 { // one conflict
		t.Errorf("%d writes", puts)
	}
}

func TestDownloadAgent(t *testing.T) {
	h := testhub.New(t)
	s := newSource(t, h)
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the agent") }
	h.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/assets/") {
			return false
		}
		if r.URL.Path != "/assets/system-agent-arm64" || r.Header.Get("Authorization") != "" {
			t.Errorf("request of %s with the credentials %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		answer(w, r)
		return true
	})
	body, err := s.DownloadAgent(t.Context(), "arm64")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(body)
	if err != nil || string(raw) != "the agent" || body.Close() != nil {
		t.Errorf("got %q, %v", raw, err)
	}
	answer = func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the hub has no agent", http.StatusNotFound)
	}
	if _, err := s.DownloadAgent(t.Context(), "arm64"); err == nil || !strings.Contains(err.Error(), "HTTP 404") ||
		!strings.Contains(err.Error(), "the hub has no agent") {
		t.Errorf("got %v", err)
	}
	answer = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://example.com/", http.StatusFound)
	}
	if _, err := s.DownloadAgent(t.Context(), "arm64"); err == nil || !strings.Contains(err.Error(), "HTTP 302") {
		t.Errorf("got %v", err)
	}
}

// TestDownloadIsResumed has connections that are cut off, and a hub that hands out another agent meanwhile.
func TestDownloadIsResumed(t *testing.T) {
	binary := strings.Repeat("the agent", 10_000)
	for name, test := range map[string]struct {
		tag    string // of the answers after the first one
		cut    bool   // no answer after the first one is complete
		ranges []string
		fails  string
	}{
		"resumed":       {tag: `"one"`, ranges: []string{"", "bytes=1000-"}},
		"another agent": {tag: `"two"`, ranges: []string{"", "bytes=1000-"}, fails: "another file than before"},
		"twice":         {tag: `"one"`, cut: true, ranges: []string{"", "bytes=1000-", "bytes=46000-"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := testhub.New(t)
			s := newSource(t, h)
			var ranges []string
			h.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasPrefix(r.URL.Path, "/assets/") {
					return false
				}
				ranges = append(ranges, r.Header.Get("Range"))
				length := 1000
				switch {
				case len(ranges) == 1:
					w.Header().Set("ETag", `"one"`)
				case test.cut && len(ranges) == 2:
					length = 45_000
					w.Header().Set("ETag", test.tag)
				default:
					w.Header().Set("ETag", test.tag)
					http.ServeContent(w, r, "", time.Time{}, strings.NewReader(binary))
					return true
				}
				http.ServeContent(&cutWriter{ResponseWriter: w, left: length}, r, "", time.Time{}, strings.NewReader(binary))
				return true
			})
			body, err := s.DownloadAgent(t.Context(), "arm64")
			if err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(body)
			if failed := err != nil && test.fails != "" && strings.Contains(err.Error(), test.fails); !failed &&
				(err != nil || test.fails != "" || string(raw) != binary) {
				t.Errorf("got %d bytes, %v", len(raw), err)
			}
			if err := body.Close(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(test.ranges, ranges); diff != "" {
				t.Errorf("ranges (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDownloadThatIsComplete: how the connection ends after the last byte does not matter. Nothing could be resumed, and the whole agent
// would be downloaded again.
func TestDownloadThatIsComplete(t *testing.T) {
	body := io.MultiReader(strings.NewReader("the agent"), iotest.ErrReader(io.ErrUnexpectedEOF))
	d := &download{body: io.NopCloser(body), size: int64(len("the agent"))}
	if raw, err := io.ReadAll(d); err != nil || string(raw) != "the agent" {
		t.Errorf("got %q, %v", raw, err)
	}
	d = &download{body: io.NopCloser(io.MultiReader(strings.NewReader("the"), iotest.ErrReader(io.ErrUnexpectedEOF))), size: 9}
	if raw, err := io.ReadAll(d); !errors.Is(err, io.ErrUnexpectedEOF) || string(raw) != "the" {
		t.Errorf("a download that is cut off: got %q, %v", raw, err)
	}
}

// cutWriter writes the beginning of a body, and fails then.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) <= w.left {
		w.left -= len(p)
		return w.ResponseWriter.Write(p)
	}
	n, err := w.ResponseWriter.Write(p[:w.left])
	w.left = 0
	return n, errors.Join(io.ErrShortWrite, err)
}
