package remote

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/plans"
)

// TestReadBesideTheWatch: a delivery that was read beside the watch, as after a conflict, before the watch delivers it, replaces an older
// one that the engine has not taken yet.
func TestReadBesideTheWatch(t *testing.T) {
	h := testhub.New(t)
	s := newSource(t, h)
	next(t, s, "")
	h.Deliver(`{"a":1}`)
	eventually(t, "a snapshot, which nobody takes", func() bool { return len(s.updates) > 0 })
	refuseWatches(h)
	h.Deliver(`{"b":2}`)
	if _, err := s.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Requests()
	h.SetFault(nil)
	eventually(t, "a watch", func() bool { return slices.Contains(h.Requests(), "WATCH") })
	next(t, s, `{"b":2}`)
}

// refuseWatches ends all watches, and refuses those that begin and lists.
func refuseWatches(h *testhub.Hub) {
	h.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.URL.Query().Has("fieldSelector")
		if refused {
			testhub.WriteStatus(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "later")
		}
		return refused
	})
	h.EndWatches()
}

func TestWatch(t *testing.T) {
	h := testhub.New(t)
	s := newSource(t, h)
	next(t, s, "")
	h.Deliver(`{"a":1}`)
	if got := next(t, s, `{"a":1}`); got.UID != "uid-1" || got.Status.State != plans.StatePending || got.Delivery.MaxFailures != 1 {
		t.Errorf("got %+v", got)
	}
	// Only the newest waits for a slow taker.
	for _, plan := range []string{"1", "2", "3"} {
		h.Deliver(plan)
	}
	next(t, s, "3")
	if asked := h.Requests(); !slices.Equal(asked, []string{"LIST", "WATCH"}) {
		t.Errorf("asked %v", asked)
	}
	h.EndWatches()
	h.Deliver("4")
	next(t, s, "4")
}

func TestFaultsOfTheHub(t *testing.T) {
	gone := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 410,
		Reason: metav1.StatusReasonExpired}
	faults := map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"500": func(w http.ResponseWriter, _ *http.Request) bool { http.Error(w, "down", 500); return true },
		"503 HTML": func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "<html>", http.StatusServiceUnavailable)
			return true
		},
		"401": func(w http.ResponseWriter, _ *http.Request) bool {
			testhub.WriteStatus(w, 401, metav1.StatusReasonUnauthorized, "who?")
			return true
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("hello")); return true },
		"cut":     func(w http.ResponseWriter, _ *http.Request) bool { panic(http.ErrAbortHandler) },
		"watch refused": func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Query().Get("watch") != "" && refuse(w)
		},
		"watch is gone": func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "" {
				return false
			}
			testhub.WriteJSON(w, http.StatusOK, map[string]any{"type": "ERROR", "object": gone})
			return true
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s := newSourceInMemory(t, fault)
				time.Sleep(2 * time.Minute)
				h.Deliver("1")
				h.SetFault(nil)
				next(t, s, "1")
				if asked := h.Requests(); len(asked) > 30 {
					t.Errorf("asked %d times", len(asked))
				}
			})
		})
	}
}

func refuse(w http.ResponseWriter) bool {
	http.Error(w, "no", http.StatusInternalServerError)
	return true
}

func TestUpdateKeepsEverythingElse(t *testing.T) {
	h := testhub.New(t)
	checksum := h.Deliver("{}")
	h.Change(func(s *corev1.Secret) { s.Data["unknown"] = []byte("kept") })
	s := newSource(t, h)
	next(t, s, "{}")
	before := h.Now()
	for range 2 { // the second changes nothing and so writes nothing
		got, err := s.Update(t.Context(), "uid-1", checksum, func(s *plans.Status) { s.State, s.Revision = plans.StateInProgress, 1 })
		if err != nil || got.Status.State != plans.StateInProgress {
			t.Fatal(got, err)
		}
	}
	after := h.Now().DeepCopy()
	if string(after.Data[plans.KeyPlanState]) != "in-progress" || string(after.Data[plans.KeyPlanRevision]) != "1" {
		t.Errorf("data is %v", after.Data)
	}
	delete(after.Data, plans.KeyPlanRevision)
	after.Data[plans.KeyPlanState] = []byte("pending")
	after.ResourceVersion = before.ResourceVersion
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	puts := 0
	for _, request := range h.Requests() {
		if request == "PUT" {
			puts++
		}
	}
	if puts != 1 {
		t.Errorf("wrote %d times", puts)
	}
}

// deliverEmpty returns a hub, a source that has received an empty plan from it, and the checksum of that.
func deliverEmpty(t *testing.T) (h *testhub.Hub, s *Source, checksum string) {
	t.Helper()
	h = testhub.New(t)
	checksum = h.Deliver("{}")
	s = newSource(t, h)
	next(t, s, "{}")
	return h, s, checksum
}

func TestUpdateAndOtherWriters(t *testing.T) {
	succeed := func(ctx context.Context, s *Source, checksum string) error {
		_, err := s.Update(ctx, "uid-1", checksum, func(s *plans.Status) { s.AppliedChecksum, s.State = checksum, plans.StateSucceeded })
		return err
	}
	t.Run("the hub writes its keys", func(t *testing.T) {
		h, s, checksum := deliverEmpty(t)
		writes := 0
		h.BeforePut = func() {
			if writes++; writes <= 3 {
				h.ChangeLocked(func(s *corev1.Secret) { s.Data[plans.KeyAppliedPlan] = []byte(strings.Repeat("x", writes)) })
			}
		}
		if err := succeed(t.Context(), s, checksum); err != nil {
			t.Fatal(err)
		}
		got := h.Now().Data
		if string(got[plans.KeyAppliedPlan]) != "xxx" || string(got[plans.KeyAppliedChecksum]) != checksum {
			t.Errorf("data is %v", got)
		}
	})
	t.Run("the hub delivers another plan", func(t *testing.T) {
		h, s, checksum := deliverEmpty(t)
		h.BeforePut = func() {
			h.ChangeLocked(func(s *corev1.Secret) { plans.Deliver(s.Data, []byte(`{"other":1}`), 1, 0) })
		}
		if err := succeed(t.Context(), s, checksum); !errors.Is(err, source.ErrSuperseded) {
			t.Errorf("got %v", err)
		}
		if got := h.Now().Data; string(got[plans.KeyPlanState]) != "pending" || got[plans.KeyAppliedChecksum] != nil {
			t.Errorf("data is %v", got)
		}
	})
	t.Run("the Secret is recreated", func(t *testing.T) {
		h, s, checksum := deliverEmpty(t)
		h.Change(func(s *corev1.Secret) { s.UID = "uid-2" })
		if err := succeed(t.Context(), s, checksum); !errors.Is(err, source.ErrSuperseded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the Secret is deleted", func(t *testing.T) {
		h, s, checksum := deliverEmpty(t)
		h.SetFault(func(w http.ResponseWriter, _ *http.Request) bool {
			testhub.WriteStatus(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
			return true
		})
		if err := succeed(t.Context(), s, checksum); !errors.Is(err, source.ErrSuperseded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("every write conflicts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, s := newSourceInMemory(t, nil)
			checksum := h.Deliver("{}")
			next(t, s, "{}")
			writes := 0
			h.BeforePut = func() { writes++; h.ChangeLocked(func(*corev1.Secret) {}) }
			if err := succeed(t.Context(), s, checksum); err == nil || writes != 1+maxConflicts {
				t.Errorf("got %v after %d writes", err, writes)
			}
		})
	})
	t.Run("the report is too large", func(t *testing.T) {
		h, s, checksum := deliverEmpty(t)
		for _, code := range []int{http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity} {
			h.SetFault(func(w http.ResponseWriter, _ *http.Request) bool {
				reason := metav1.StatusReasonRequestEntityTooLarge
				if code == http.StatusUnprocessableEntity {
					reason = metav1.StatusReasonInvalid
				}
				testhub.WriteStatus(w, code, reason, "Too long: must have at most 1048576 bytes")
				return true
			})
			if err := succeed(t.Context(), s, checksum); !errors.Is(err, source.ErrTooLarge) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestReportThatCannotBeReadIsReplaced(t *testing.T) {
	h := testhub.New(t)
	checksum := h.Deliver("{}")
	h.Change(func(s *corev1.Secret) {
		maps.Copy(s.Data, map[string][]byte{plans.KeyFailureCount: []byte("many"), plans.KeyAppliedOutput: []byte("no gzip"),
			plans.KeyPlanRevision: []byte("7")})
	})
	s := newSource(t, h)
	if got := next(t, s, "{}"); got.Status.Revision != 7 || got.Status.FailureCount != 0 || got.Status.State != plans.StatePending {
		t.Errorf("got %+v", got.Status)
	}
	if _, err := s.Update(t.Context(), "uid-1", checksum, func(s *plans.Status) { s.FailureCount = 1 }); err != nil {
		t.Fatal(err)
	}
	if status, err := plans.DecodeStatus(h.Now().Data); err != nil || status.FailureCount != 1 {
		t.Errorf("got %+v, %v", status, err)
	}
}

func TestNewRegistrationNeedsNoRestart(t *testing.T) {
	h := testhub.New(t)
	dir := t.TempDir()
	s, err := New(options(h.Connection(t, dir, "revoked")))
	if err != nil {
		t.Fatal(err)
	}
	start(t, s)
	eventually(t, "a list", func() bool { return slices.Contains(h.Requests(), "LIST") })
	h.Connection(t, dir, "token")
	h.Deliver("{}")
	next(t, s, "{}")
}

func TestNewRefuses(t *testing.T) {
	const base = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
	tests := map[string]struct {
		kubeconfig string
		strict     bool
		err        string
	}{
		"nonsense": {kubeconfig: "hello", err: "decoding kubeconfig"},
		"strict without CA": {kubeconfig: base + "clusters: [{name: a, cluster: {server: 'https://h'}}]\nusers: [{name: a, user: {token: t}}]\n",
			strict: true, err: "has no CA certificate"},
		"without CA": {kubeconfig: base + "clusters: [{name: a, cluster: {server: 'https://h'}}]\nusers: [{name: a, user: {token: t}}]\n"},
		"not verified": {
			kubeconfig: base + "clusters: [{name: a, cluster: {server: 'https://h', insecure-skip-tls-verify: true}}]\nusers: [{name: a, user: {" +
				"token: t}}]\n",
			err: "disables verification of the server's certificate",
		},
		"a program": {
			kubeconfig: base + "clusters: [{name: a, cluster: {server: 'https://h'}}]\nusers: [{name: a, user: {exec: {apiVersion: " +
				"client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}}}]\n",
			err: "gets credentials from a program",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := options(testhub.WriteConnection(t, t.TempDir(), test.kubeconfig))
			o.Strict = test.strict
			_, err := New(o)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}

func TestForeignCertificateIsExplained(t *testing.T) {
	h := testhub.New(t)
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n" +
		"clusters: [{name: a, cluster: {server: '" + h.URL + "'}}]\nusers: [{name: a, user: {token: t}}]\n"
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	o := options(testhub.WriteConnection(t, t.TempDir(), kubeconfig))
	o.Strict = false
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(t.Context())
	if err == nil || !strings.Contains(err.Error(), "not signed by the CA of the connection info; register the machine again") {
		t.Errorf("got %v", err)
	}
}

// TestResponseBehindTheWatch: the response to a write that comes after the watch has delivered a later version is not taken for the latest.
func TestResponseBehindTheWatch(t *testing.T) {
	version := func(uid, version string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "plan", UID: types.UID(uid), ResourceVersion: version}}
	}
	for name, tc := range map[string]struct {
		latest, written *corev1.Secret
		later           bool
	}{
		"nothing known":       {nil, version("a", "9"), false},
		"the next version":    {version("a", "9"), version("a", "10"), false},
		"an earlier version":  {version("a", "10"), version("a", "9"), true},
		"of another Secret":   {version("a", "10"), version("b", "9"), false},
		"versions of letters": {version("a", "y"), version("a", "x"), false},
	} {
		s := &Source{latest: tc.latest, upgrades: make(chan struct{}, 1)}
		s.noteBesideLocked(tc.written)
		want := tc.written
		if tc.later {
			want = tc.latest
		}
		if s.latest != want {
			t.Errorf("%s: the latest is %v", name, s.latest)
		}
	}
}
