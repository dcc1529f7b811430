package remote_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/source/remote"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/plans"
)

// stand is a machine in memory whose agent speaks real HTTP with a hub that has faults.
type stand struct {
	t    *testing.T
	hub  *testhub.Hub
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	host *fake.Host
	stop func()
}

// onStand is a test with a stand of its own, in a bubble: pauses have the lengths that they have in the product, and take no time.
func onStand(test func(*testing.T, *stand)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(t, newStand(t)) })
	}
}

func newStand(t *testing.T) *stand {
	t.Helper()
	listener := testhub.NewListener()
	s := &stand{t: t, hub: testhub.NewOn(t, listener), dial: listener.Dial, host: fake.New()}
	s.hub.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.host.Program("ok", func(_ context.Context, c run.Command) (run.Result, error) {
		return run.Result{Stdout: []byte("said " + strings.Join(c.Args, " "))}, nil
	})
	return s
}

type noImages struct{}

func (noImages) Stage(context.Context, string, string, func(done, total int64)) error { return nil }

func (s *stand) start() {
	s.t.Helper()
	source, err := remote.New(remote.Options{
		ConnectionFile: s.hub.Connection(s.t, s.t.TempDir(), "token"), Strict: true, Log: slog.New(slog.DiscardHandler),
		Dial: s.dial, Fixed: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	agent := engine.New(engine.Options{
		Source: source, Host: s.host, Images: noImages{}, Log: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
		WorkDirectory: "/agent/work", StateDirectory: "/agent/state", InstructionTimeout: time.Minute, PeriodicTimeout: time.Minute,
	})
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { source.Run(ctx) })
	running.Go(func() { _ = agent.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		s.hub.CloseClientConnections()
		running.Wait()
	})
	s.t.Cleanup(s.stop)
}

// plan is a plan of one instruction of this name.
func plan(name string) string {
	return `{"instructions":[{"name":"` + name + `","command":"ok","args":["` + name + `"],"saveOutput":true}]}`
}

func (s *stand) status() plans.Status {
	status, _ := plans.DecodeStatus(s.hub.Now().Data)
	return status
}

// until waits for the hub's Secret to become so.
func (s *stand) until(what string, is func(plans.Status) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if is(s.status()) {
			return
		}
	}
	s.t.Fatalf("waited in vain for %s; the status is %+v, ran %v", what, s.status(), s.ran())
}

func (s *stand) succeeded(checksum string) {
	s.t.Helper()
	s.until("the success", func(status plans.Status) bool {
		return status.AppliedChecksum == checksum && status.State == plans.StateSucceeded
	})
}

func (s *stand) ran() []string {
	var ran []string
	for _, c := range s.host.Runs() {
		ran = append(ran, strings.Join(c.Args, " "))
	}
	return ran
}

// everyOther fails the first request for which is is true, and the third, and so on.
func (s *stand) everyOther(is func(*http.Request) bool, fail func(http.ResponseWriter, *http.Request)) *atomic.Int64 {
	var count atomic.Int64
	s.hub.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !is(r) || count.Add(1)%2 == 0 {
			return false
		}
		fail(w, r)
		return true
	})
	return &count
}

func isPut(r *http.Request) bool { return r.Method == http.MethodPut }

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/secrets") && !isWatch(r)
}

func isGet(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/plan")
}

// TestConflictStorm shows that B5 cannot happen: however often another writer is faster, the outcome arrives, nothing runs twice, and what
// the other wrote stays.
func TestConflictStorm(t *testing.T) {
	onStand(func(t *testing.T, s *stand) {
		writes := 0
		s.hub.BeforePut = func() {
			if writes++; writes <= 12 || writes > 13 && writes <= 25 { // more than one update tries, once for the start and once for the end
				s.hub.ChangeLocked(func(secret *corev1.Secret) { secret.Data[plans.KeyAppliedPlan] = []byte(strconv.Itoa(writes)) })
			}
		}
		checksum := s.hub.Deliver(plan("a"))
		s.start()
		s.succeeded(checksum)
		s.stop()
		if got := s.hub.Now().Data; string(got[plans.KeyAppliedPlan]) != "25" || string(got[plans.KeyPlanRevision]) != "1" {
			t.Errorf("got %q, revision %s", got[plans.KeyAppliedPlan], got[plans.KeyPlanRevision])
		}
		if diff := cmp.Diff([]string{"a"}, s.ran()); diff != "" {
			t.Error(diff)
		}
	})(t)
}

// TestRefusals lets the hub refuse each kind of request every other time; the plan is applied all the same, once, and the hub is not
// stormed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	answers := map[string]func(http.ResponseWriter, *http.Request){
		"410": func(w http.ResponseWriter, _ *http.Request) {
			testhub.WriteStatus(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		},
		"500": func(w http.ResponseWriter, _ *http.Request) {
			testhub.WriteStatus(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: leader changed")
		},
		"502 HTML": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>Bad Gateway</html>", http.StatusBadGateway)
		},
		"404 text": http.NotFound, // of a proxy without a route to the hub
		"cut":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	requests := map[string]func(*http.Request) bool{"list": isList, "watch": isWatch, "get": isGet, "put": isPut}
	for answer, fail := range answers {
		for request, is := range requests {
			t.Run(answer+" on "+request, onStand(func(t *testing.T, s *stand) {
				count := s.everyOther(is, fail)
				conflict := true
				s.hub.BeforePut = func() {
					if conflict { // after which the agent reads the Secret
						s.hub.ChangeLocked(func(*corev1.Secret) {})
					}
					conflict = false
				}
				s.start()
				s.succeeded(s.hub.Deliver(plan("a")))
				s.hub.EndWatches()
				s.succeeded(s.hub.Deliver(plan("b")))
				s.stop()
				if diff := cmp.Diff([]string{"a", "b"}, s.ran()); diff != "" {
					t.Error(diff)
				}
				if asked := s.hub.Requests(); len(asked) > 25 || count.Load() < 1 {
					t.Errorf("asked %v, of which %d were concerned", asked, count.Load())
				}
			}))
		}
	}
}

// TestTooManyRequests shows that a hub which asks for patience gets it.
func TestTooManyRequests(t *testing.T) {
	onStand(func(t *testing.T, s *stand) {
		var mu sync.Mutex
		var first time.Time
		var early []string
		s.hub.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if !isPut(r) {
				return false
			}
			if first.IsZero() {
				first = time.Now()
				w.Header().Set("Retry-After", "2")
				testhub.WriteStatus(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "later")
				return true
			}
			if waited := time.Since(first); waited < 2*time.Second {
				early = append(early, waited.String())
			}
			return false
		})
		checksum := s.hub.Deliver(plan("a"))
		s.start()
		s.succeeded(checksum)
		mu.Lock()
		defer mu.Unlock()
		if len(early) > 0 {
			t.Errorf("asked again after %v", early)
		}
	})(t)
}

// TestWatchIsCutInAnEvent cuts the watch after half of an event.
func TestWatchIsCutInAnEvent(t *testing.T) {
	onStand(func(t *testing.T, s *stand) {
		listening := make(chan struct{}, 10)
		s.everyOther(isWatch, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"type":"MODIFIED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"pl`))
			w.(http.Flusher).Flush()
			listening <- struct{}{}
			panic(http.ErrAbortHandler)
		})
		s.start()
		<-listening
		s.succeeded(s.hub.Deliver(plan("a")))
	})(t)
}

// TestAnswerToAWriteIsLost cuts the connection after the hub has taken a write: the start's, and the outcome's. Nothing is counted or run
// twice.
func TestAnswerToAWriteIsLost(t *testing.T) {
	for nth := range 3 {
		t.Run(fmt.Sprintf("write %d", nth+1), onStand(func(t *testing.T, s *stand) {
			var puts atomic.Int64
			s.hub.SetFault(func(_ http.ResponseWriter, r *http.Request) bool {
				if !isPut(r) || puts.Add(1) != int64(nth+1) {
					return false
				}
				s.hub.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			})
			checksum := s.hub.Deliver(plan("a"))
			s.start()
			s.succeeded(checksum)
			next := s.hub.Deliver(plan("b"))
			s.succeeded(next)
			s.stop()
			if got := s.status(); got.Revision != 2 || got.SuccessCount != 2 || got.FailureCount != 0 {
				t.Errorf("got %+v", got)
			}
			if diff := cmp.Diff([]string{"a", "b"}, s.ran()); diff != "" {
				t.Error(diff)
			}
		}))
	}
}

// TestSecretIsMadeAnew shows that a Secret of another UID is another delivery, also when it holds the same plan and says that it is
// applied.
func TestSecretIsMadeAnew(t *testing.T) {
	onStand(func(t *testing.T, s *stand) {
		checksum := s.hub.Deliver(plan("a"))
		s.hub.Change(func(secret *corev1.Secret) { delete(secret.Data, plans.KeyPlanState) })
		s.start()
		s.until("the success", func(status plans.Status) bool { return status.AppliedChecksum == checksum })
		s.hub.Change(func(secret *corev1.Secret) { secret.UID = "uid-2" })
		s.until("another success", func(status plans.Status) bool { return status.SuccessCount == 2 })
		if diff := cmp.Diff([]string{"a", "a"}, s.ran()); diff != "" {
			t.Error(diff)
		}
	})(t)
}

// TestHubIsRestored shows that B6 cannot happen: after a restore the same Secret has an older version and an older plan, and the agent
// follows it at once, whatever it was about to do.
func TestHubIsRestored(t *testing.T) {
	for _, opaque := range []bool{false, true} {
		for _, state := range []plans.State{plans.StateSucceeded, plans.StateInProgress, plans.StatePending} {
			t.Run(fmt.Sprintf("%s, opaque=%t", state, opaque), onStand(func(t *testing.T, s *stand) {
				s.hub.Opaque = opaque
				old := s.hub.Deliver(plan("old"))
				s.start()
				s.succeeded(old)
				backup := s.hub.Now().DeepCopy()
				backup.Data[plans.KeyPlanState] = []byte(state)
				s.succeeded(s.hub.Deliver(plan("new")))
				time.Sleep(1100 * time.Millisecond) // the watch is old enough to end without a word
				s.hub.Restore(backup, 3)
				// The restored plan is what counts now ...
				s.succeeded(old)
				// ... and what comes next is seen although its version is one that the agent has seen before.
				started := time.Now()
				s.succeeded(s.hub.Deliver(plan("next")))
				if took := time.Since(started); took > time.Minute {
					t.Errorf("the next plan took %s", took)
				}
				ran := s.ran()
				if !slices.Equal(slices.Compact(slices.Clone(ran)), []string{"old", "new", "next"}) &&
					!slices.Equal(ran, []string{"old", "new", "old", "next"}) {
					t.Errorf("ran %v", ran)
				}
			}))
		}
	}
}

// TestVersionsAreWords shows that resource versions are never taken for numbers.
func TestVersionsAreWords(t *testing.T) {
	onStand(func(t *testing.T, s *stand) {
		s.hub.Opaque = true
		s.hub.Change(func(*corev1.Secret) {})
		s.start()
		for _, name := range []string{"a", "b", "c"} {
			s.succeeded(s.hub.Deliver(plan(name)))
		}
		if diff := cmp.Diff([]string{"a", "b", "c"}, s.ran()); diff != "" {
			t.Error(diff)
		}
	})(t)
}
