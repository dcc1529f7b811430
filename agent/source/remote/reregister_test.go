package remote

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/registration"
	"github.com/drover-dev/drover/agent/testenv/trusttest"
)

// dated is a hub whose clock differs from the machine's.
func dated(next http.Handler, by time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
		next.ServeHTTP(w, r)
	})
}

const (
	firstKey  = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	secondKey = "ICECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// TestRegisterAfterRefusedToken has the hub forget the token of a running source.
func TestRegisterAfterRefusedToken(t *testing.T) {
	for name, code := range map[string]int{"unknown": http.StatusUnauthorized, "forbidden": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			ca := trusttest.NewCA(t, "ca")
			f := newTLSHub(t, ca)
			info := f.info("token", ca.PEM())
			info.PlanSigningKey = firstKey
			m := newMachine(t, info)
			f.connect = register(f, "second", map[string]any{"planSigningKey": secondKey})
			s := m.start(t)
			f.Deliver("1")
			next(t, s, "1")
			f.set(func() { f.token, f.refusal = "second", code })
			f.EndWatches()
			f.Deliver("2")
			next(t, s, "2")
			got, _, token := m.read(t)
			if token != "second" || got.PlanSigningKey != firstKey {
				t.Errorf("token %s, key %s", token, got.PlanSigningKey)
			}
			if c := s.Connections(); c.Registrations != 1 || c.RegistrationsFailed != 0 || f.asked("/v3/connect/agent") != 1 {
				t.Errorf("counted %+v, asked %d times", c, f.asked("/v3/connect/agent"))
			}
		})
	}
}

// A watch that was begun with the old token may go on for minutes; a read that is refused is enough.
func TestRegisterAfterRefusedRead(t *testing.T) {
	ca := trusttest.NewCA(t, "ca")
	f := newTLSHub(t, ca)
	m := newMachine(t, f.info("token", ca.PEM()))
	f.connect = register(f, "second", map[string]any{"planSigningKey": secondKey})
	s := m.start(t)
	f.Deliver("1")
	next(t, s, "1")
	f.set(func() { f.token = "second" })
	if _, err := s.Get(t.Context()); err == nil {
		t.Fatal("the old token is good")
	}
	eventually(t, "the new token", func() bool { _, _, token := m.read(t); return token == "second" })
	eventually(t, "a read", func() bool { _, err := s.Get(t.Context()); return err == nil })
	// Where no key was pinned, the first one that the hub tells is.
	if key, err := s.SigningKey(); err != nil || len(key) == 0 || key[0] != 0x20 {
		t.Errorf("key %v, %v", key, err)
	}
}

// TestRegistrationIsRefused: the hub's reason is told, and it is not asked again for long.
func TestRegistrationIsRefused(t *testing.T) {
	ca := trusttest.NewCA(t, "ca")
	for name, test := range map[string]struct {
		connect func(f *tlsHub, m machine) http.HandlerFunc
		remove  string
		want    string
		asked   int
	}{
		"deleted": {connect: func(*tlsHub, machine) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Drover-Stored-Identity", "accepted")
				http.Error(w, "the Machine fleet/one of this machine has been deleted", http.StatusGone)
			}
		}, want: "the Machine fleet/one of this machine has been deleted", asked: 1},
		"an old hub": {connect: func(*tlsHub, machine) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
		}, want: "run the install script again with a registration token", asked: 1},
		"no secret": {remove: "machine-secret", want: "was registered without a secret of its own; run the install script again", asked: 0},
		"the same token": {connect: func(f *tlsHub, m machine) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				raw, err := os.ReadFile(m.file)
				if err != nil {
					f.t.Error(err)
				}
				_, _ = w.Write(raw)
			}
		}, want: "the same token again", asked: 1},
		"without authority": {connect: func(f *tlsHub, _ machine) http.HandlerFunc {
			return register(f, "second", map[string]any{"kubeConfig": f.info("second", nil).KubeConfig})
		}, want: "has no CA certificate", asked: 1},
		"not verified": {connect: func(f *tlsHub, _ machine) http.HandlerFunc {
			return register(f, "second", map[string]any{"kubeConfig": strings.Replace(f.info("second", nil).KubeConfig, "cluster:\n",
				"cluster:\n    insecure-skip-tls-verify: true\n", 1)})
		}, want: "the hub's response to the registration is invalid", asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTLSHub(t, ca)
			m := newMachine(t, f.info("revoked", ca.PEM()))
			if test.remove != "" {
				if err := os.Remove(filepath.Join(m.dir, test.remove)); err != nil {
					t.Fatal(err)
				}
			}
			if test.connect != nil {
				f.connect = test.connect(f, m)
			}
			before, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			s := m.start(t)
			eventually(t, "the reason", func() bool { reason, _ := s.Unreachable(); return strings.Contains(reason, test.want) })
			// Each wake is a try to connect, but no try to register.
			tries := func() int { return f.asked("/api/v1/namespaces/fleet-default/secrets") }
			for range 4 {
				at := tries()
				signal(s.replaced)
				eventually(t, "another try", func() bool { return tries() > at })
			}
			eventually(t, "the time of the next", func() bool {
				reason, _ := s.Unreachable()
				return strings.Contains(reason, test.want) && strings.Contains(reason, "next try in")
			})
			if asked := f.asked("/v3/connect/agent"); asked != test.asked {
				t.Errorf("asked %d times", asked)
			}
			if after, err := os.ReadFile(m.file); err != nil || string(after) != string(before) {
				t.Errorf("the connection info was changed, %v", err)
			}
		})
	}
}

// TestRegistrationDelay: a refusal may be over in a moment, when the machine's cluster is moved to another hub; it is asked about ever more
// rarely.
func TestRegistrationDelay(t *testing.T) {
	refused := &registration.StatusError{Code: http.StatusUnauthorized, Message: "no machine with this id"}
	for name, test := range map[string]struct {
		err      error
		failures int
		want     time.Duration
	}{
		"cannot be reached":         {errors.New("refused"), 1, 5 * time.Second},
		"still cannot be reached":   {errors.New("refused"), 20, 5 * time.Minute},
		"refused":                   {refused, 1, 5 * time.Second},
		"refused again":             {fmt.Errorf("registering: %w", refused), 4, 40 * time.Second},
		"refused for long":          {refused, 20, time.Hour},
		"busy":                      {&registration.StatusError{Code: http.StatusServiceUnavailable, RetryAfter: time.Minute}, 1, time.Minute},
		"busy for long":             {&registration.StatusError{Code: http.StatusServiceUnavailable}, 20, 5 * time.Minute},
		"without a stored identity": {registration.ErrNoIdentity, 1, time.Hour},
		"an old hub":                {&registration.StatusError{Code: http.StatusUnauthorized, NoStoredIdentity: true}, 1, time.Hour},
	} {
		if got := registrationDelay(test.err, test.failures); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestDelay: where nothing listens, the agent asks more often than where a hub has to answer.
func TestDelay(t *testing.T) {
	refused := fmt.Errorf("listing: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
	for name, test := range map[string]struct {
		err      error
		failures int
		want     time.Duration
	}{
		"refused":          {refused, 1, time.Second},
		"refused for long": {refused, 20, 15 * time.Second},
		"busy":             {errors.New("503"), 3, 4 * time.Second},
		"busy for long":    {errors.New("503"), 20, time.Minute},
	} {
		got := (&Source{baseDelay: baseDelay}).delay(&client{transport: &transport{}}, test.failures, test.err)
		if got < test.want*3/4 || got > test.want*5/4 {
			t.Errorf("%s: %s, want about %s", name, got, test.want)
		}
	}
}

// A hub that gives tokens which it then refuses is not asked in a loop.
func TestRejectedTokens(t *testing.T) {
	ca := trusttest.NewCA(t, "ca")
	f := newTLSHub(t, ca)
	m := newMachine(t, f.info("revoked", ca.PEM()))
	f.connect = register(f, "rejected", nil)
	s := m.start(t)
	eventually(t, "the reason", func() bool {
		reason, _ := s.Unreachable()
		return strings.Contains(reason, "refuses the token that it gave this machine when it registered again; next try in")
	})
	// Somebody registers the machine again: it is noticed soon, whatever delay the agent waits for.
	m.write(t, f.info("token", ca.PEM()))
	f.Deliver("1")
	next(t, s, "1")
	if asked := f.asked("/v3/connect/agent"); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// TestReplacedWhileConnected needs no restart of the agent, and no end of a watch.
func TestReplacedWhileConnected(t *testing.T) {
	ca := trusttest.NewCA(t, "ca")
	f, other := newTLSHub(t, ca), newTLSHub(t, ca)
	m := newMachine(t, f.info("token", ca.PEM()))
	s := m.start(t)
	f.Deliver("1")
	next(t, s, "1")
	other.Deliver("2")
	m.write(t, other.info("token", ca.PEM()))
	next(t, s, "2")
}

// TestFailures: a hub that has not listened for long, and does not answer at once when all agents come back, is soon asked again.
func TestFailures(t *testing.T) {
	var f failures
	busy := errors.New("TLS handshake timeout")
	for i, step := range []struct {
		err  error
		want int
	}{
		{busy, 1}, {busy, 2}, {busy, 3}, {busy, 4}, {busy, 5}, {syscall.ECONNREFUSED, 6}, {syscall.ECONNREFUSED, 7}, {busy, 3}, {busy, 4},
		{syscall.ECONNREFUSED, 5}, {fmt.Errorf("reading: %w", syscall.ECONNREFUSED), 6}, {busy, 3},
	} {
		if f.add(step.err); f.count != step.want {
			t.Errorf("failure %d, %v: counted as %d, want %d", i, step.err, f.count, step.want)
		}
	}
	f = failures{}
	if f.add(syscall.ECONNREFUSED); f.count != 1 {
		t.Errorf("the first failure counts as %d", f.count)
	}
	if f.add(busy); f.count != 2 {
		t.Errorf("the second failure counts as %d", f.count)
	}
}

// TestClientIsKept: while the connection info is as it was, another attempt costs no new client.
func TestClientIsKept(t *testing.T) {
	ca := trusttest.NewCA(t, "ca")
	f := newTLSHub(t, ca)
	m := newMachine(t, f.info("one", ca.PEM()))
	s, err := New(Options{ConnectionFile: m.file, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	first := s.current()
	if s.reconnect(); s.current() != first {
		t.Error("the same connection info makes another client")
	}
	m.write(t, f.info("two", ca.PEM()))
	if s.reconnect(); s.current() == first {
		t.Error("other connection info makes no other client")
	}
}
