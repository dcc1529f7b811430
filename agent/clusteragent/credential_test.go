package clusteragent

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drover-dev/drover/agent/registration"
)

const (
	agentID           = "abcdefghijklmnop"
	registrationToken = "abcdefghij.registration-secret"
)

// fakeHub exchanges tokens. It remembers what it was shown.
type fakeHub struct {
	*hubClient
	web   *httptest.Server
	mu    sync.Mutex
	shown []string
	// refuse gives the code for a bearer token; 0 is a credential.
	refuse map[string]int
	// renewAfter of the credentials, if set; they expire an hour later. Otherwise they are to be renewed after 16 hours.
	renewAfter time.Time
}

func newFakeHub(t *testing.T) *fakeHub {
	t.Helper()
	h := &fakeHub{refuse: map[string]int{}}
	h.web = httptest.NewTLSServer(h)
	t.Cleanup(h.web.Close)
	folder := t.TempDir()
	for name, content := range map[string]string{"url": h.web.URL + "\n", "token": registrationToken + "\n", "ca.crt": h.authorities()} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.hubClient = &hubClient{directory: folder}
	return h
}

func (h *fakeHub) authorities() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.web.Certificate().Raw}))
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Agent string }
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if r.Method != http.MethodPost || r.URL.Path != "/v3/connect/credential" || json.NewDecoder(r.Body).Decode(&body) != nil ||
		!agentPattern.MatchString(body.Agent) {
		http.Error(w, "wrong", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown = append(h.shown, bearer)
	if code := h.refuse[bearer]; code != 0 {
		w.Header().Set("Retry-After", "7")
		http.Error(w, "no", code)
		return
	}
	response := credentialResponse{Cluster: "c-m-test", Agent: "agent-x", Credential: fmt.Sprintf("credential-%d", len(h.shown)),
		ExpiresAt: time.Now().Add(24 * time.Hour), RenewAfter: time.Now().Add(16 * time.Hour)}
	if !h.renewAfter.IsZero() {
		response.ExpiresAt, response.RenewAfter = h.renewAfter.Add(time.Hour), h.renewAfter
	}
	_ = json.NewEncoder(w).Encode(response)
}

// memory is a store.
type memory struct {
	secret   *corev1.Secret
	reads    int
	readErr  error
	writeErr error
}

func (m *memory) read(context.Context, string) (*corev1.Secret, error) {
	m.reads++
	if m.readErr != nil {
		return nil, m.readErr
	}
	return m.secret.DeepCopy(), nil
}

func (m *memory) write(ctx context.Context, current *corev1.Secret, next identity) error {
	if m.writeErr != nil {
		return m.writeErr
	}
	m.hold(next)
	return nil
}

func (m *memory) hold(i identity) {
	m.secret = &corev1.Secret{Data: map[string][]byte{agentKey: []byte(i.Agent)}}
	if i.Credential != "" {
		m.secret.Data[credentialKey] = []byte(i.Credential)
		m.secret.Data[expiresKey] = []byte(i.ExpiresAt.UTC().Format(time.RFC3339))
		m.secret.Data[renewKey] = []byte(i.RenewAfter.UTC().Format(time.RFC3339))
	}
}

func TestCredential(t *testing.T) {
	now := time.Now()
	fresh := identity{Agent: agentID, Credential: "stored", ExpiresAt: now.Add(10 * time.Hour), RenewAfter: now.Add(time.Hour)}
	due := identity{Agent: agentID, Credential: "stored", ExpiresAt: now.Add(time.Hour), RenewAfter: now.Add(-8 * time.Hour)}
	expired := identity{Agent: agentID, Credential: "stored", ExpiresAt: now.Add(-time.Hour), RenewAfter: now.Add(-9 * time.Hour)}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, identitySecret, errors.New("changed"))
	for _, test := range []struct {
		name   string
		stored identity
		refuse map[string]int
		// rejected is a credential that the tunnel was refused with.
		rejected          string
		noToken           bool
		readErr, writeErr error
		// shown are the tokens that the hub receives; want is the credential, err the error.
		shown, want, err string
		// kept is whether the new credential is stored.
		kept bool
	}{
		{name: "a new agent registers", stored: identity{Agent: agentID}, shown: registrationToken, want: "credential-1", kept: true},
		{name: "a stored credential is used", stored: fresh, want: "stored"},
		{name: "a credential is renewed when it is due", stored: due, shown: "stored", want: "credential-1", kept: true},
		{name: "one that has expired is renewed, if the hub allows that", stored: expired, shown: "stored", want: "credential-1", kept: true},
		{name: "one that cannot be renewed now is used on", stored: due, refuse: map[string]int{"stored": 503}, shown: "stored", want: "stored"},
		{name: "one that has expired is not", stored: expired, refuse: map[string]int{"stored": 503}, shown: "stored",
			err: "the hub returned HTTP 503: no"},
		{name: "a revoked credential is replaced", stored: due, refuse: map[string]int{"stored": 401}, shown: "stored " + registrationToken,
			want: "credential-2", kept: true},
		{name: "one that the tunnel was refused with is not shown again", stored: fresh, rejected: "stored", shown: registrationToken,
			want: "credential-1", kept: true},
		{name: "a revoked credential, without a registration token", stored: due, refuse: map[string]int{"stored": 401}, noToken: true,
			shown: "stored", err: "no registration token in "},
		{name: "an unknown registration token", stored: identity{Agent: agentID}, refuse: map[string]int{registrationToken: 401},
			shown: registrationToken,
			err: "the hub refuses the registration token: apply the cluster's manifest again, which contains the current one: the hub " +
				"returned HTTP 401: no"},
		{name: "a busy hub", stored: identity{Agent: agentID}, refuse: map[string]int{registrationToken: 429}, shown: registrationToken,
			err: "the hub returned HTTP 429: no"},
		{name: "a Secret that cannot be read", readErr: errors.New("forbidden"),
			err: "reading the agent's identity from Secret cattle-cluster-agent-identity: forbidden"},
		{name: "a Secret that cannot be written", stored: identity{Agent: agentID}, writeErr: errors.New("forbidden"), shown: registrationToken,
			want: "credential-1"},
		{name: "another pod was faster", stored: identity{Agent: agentID}, writeErr: conflict, shown: registrationToken, want: "credential-1"},
		{name: "a Secret that was damaged", stored: identity{Agent: "?", Credential: "x"}, shown: registrationToken, want: "credential-1",
			kept: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			hub := newFakeHub(t)
			hub.refuse = test.refuse
			if test.noToken {
				if err := os.Remove(filepath.Join(hub.directory, "token")); err != nil {
					t.Fatal(err)
				}
			}
			stored := &memory{readErr: test.readErr, writeErr: test.writeErr}
			stored.hold(test.stored)
			var log bytes.Buffer
			k := newCredentialManager(stored, hub.hubClient, "c-m-test", slog.New(slog.NewTextHandler(&log, nil)))
			if test.rejected != "" {
				k.setRefused(test.rejected)
			}
			got, err := k.credential(t.Context())
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("credential %q, %v; want %q, %q", got, err, test.want, test.err)
			}
			if shown := strings.Join(hub.shown, " "); shown != test.shown {
				t.Errorf("the hub was shown %q, want %q", shown, test.shown)
			}
			if kept := decodeIdentity(stored.secret); test.kept && (kept.Credential != test.want || !agentPattern.MatchString(kept.Agent)) {
				t.Errorf("kept is %+v", kept)
			}
			if again, _ := k.credential(t.Context()); again != got || test.want != "" && len(hub.shown) != len(strings.Fields(test.shown)) {
				t.Errorf("the second call returned %q, and the hub received %q", again, hub.shown)
			}
			for _, secret := range []string{"stored", "credential-1", "credential-2", "registration-secret"} {
				if strings.Contains(strings.ReplaceAll(log.String(), "Storing the agent's credential", ""), secret) {
					t.Errorf("the log holds %s:\n%s", secret, log.String())
				}
			}
		})
	}
}

// TestRefusedCredentialIsShownAgain: an agent without a registration token that the hub accepts shows its credential again after a refusal.
func TestRefusedCredentialIsShownAgain(t *testing.T) {
	hub := newFakeHub(t)
	hub.refuse = map[string]int{registrationToken: 401}
	stored := &memory{}
	now := time.Now()
	stored.hold(identity{Agent: agentID, Credential: "stored", ExpiresAt: now.Add(10 * time.Hour), RenewAfter: now.Add(time.Hour)})
	k := newCredentialManager(stored, hub.hubClient, "", slog.New(slog.DiscardHandler))
	for range 2 {
		if got, err := k.credential(t.Context()); got != "stored" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		k.setRefused("stored") // by the tunnel
		if got, err := k.credential(t.Context()); got != "" || err == nil {
			t.Errorf("right after the refusal: %q, %v", got, err)
		}
	}
}

func TestWhatAnotherPodRenewedIsUsed(t *testing.T) {
	hub := newFakeHub(t)
	stored := &memory{}
	stored.hold(identity{Agent: agentID})
	pod := func() *credentialManager {
		return newCredentialManager(stored, hub.hubClient, "", slog.New(slog.DiscardHandler))
	}
	first, second := pod(), pod()
	for _, k := range []*credentialManager{first, second} {
		if got, err := k.credential(t.Context()); got != "credential-1" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	second.renewAt = time.Now() // it is time
	stored.hold(identity{Agent: agentID, Credential: "renewed", ExpiresAt: time.Now().Add(40 * time.Hour),
		RenewAfter: time.Now().Add(32 * time.Hour)})
	if got, err := second.credential(t.Context()); got != "renewed" || err != nil || len(hub.shown) != 1 {
		t.Errorf("%q, %v; the hub was shown %q", got, err, hub.shown)
	}
}

// TestOlderStoredCredentialIsNotUsed: an agent that cannot store its credential renews that one, and not the older one in the Secret.
func TestOlderStoredCredentialIsNotUsed(t *testing.T) {
	hub := newFakeHub(t)
	now := time.Now()
	stored := &memory{writeErr: errors.New("forbidden")}
	stored.hold(identity{Agent: agentID, Credential: "stored", ExpiresAt: now.Add(time.Hour), RenewAfter: now.Add(-8 * time.Hour)})
	k := newCredentialManager(stored, hub.hubClient, "", slog.New(slog.DiscardHandler))
	for _, want := range []string{"credential-1", "credential-2"} {
		if got, err := k.credential(t.Context()); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		k.renewAt = time.Now() // it is time
	}
	if shown := strings.Join(hub.shown, " "); shown != "stored credential-1" {
		t.Errorf("the hub was shown %q", shown)
	}
}

func TestRenewsByItself(t *testing.T) {
	hub := newFakeHub(t)
	stored := &memory{}
	now := time.Now()
	stored.hold(identity{Agent: agentID, Credential: "stored", ExpiresAt: now.Add(time.Hour), RenewAfter: now.Add(time.Minute)})
	k := newCredentialManager(stored, hub.hubClient, "", slog.New(slog.DiscardHandler))
	if got, err := k.credential(t.Context()); got != "stored" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if earliest, latest := now.Add(59*time.Second), now.Add(9*time.Minute); k.renewAt.Before(earliest) || k.renewAt.After(latest) {
		t.Errorf("it would be renewed at %s, want %s to %s", k.renewAt, earliest, latest)
	}
	stored.hold(identity{Agent: agentID, Credential: "stored", ExpiresAt: now.Add(time.Hour), RenewAfter: now.Add(-time.Hour)})
	k.renewAt = now
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(ctx)
	}()
	for deadline := time.Now().Add(time.Minute); k.valid(time.Now()) != "credential-1"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not renewed")
		}
	}
	cancel()
	<-done
}

// TestRenewalWithClockAhead: an agent to whose clock every new credential is due already does not renew without a pause.
func TestRenewalWithClockAhead(t *testing.T) {
	hub := newFakeHub(t)
	synctest.Test(t, func(t *testing.T) {
		hub.mu.Lock()
		hub.renewAfter = time.Now().Add(-24 * time.Hour)
		hub.mu.Unlock()
		stored := &memory{}
		stored.hold(identity{Agent: agentID, Credential: "stored", ExpiresAt: time.Now(), RenewAfter: time.Now().Add(-8 * time.Hour)})
		k := newCredentialManager(stored, hub.hubClient, "", slog.New(slog.DiscardHandler))
		if got, err := k.credential(t.Context()); got != "credential-1" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.run(ctx)
		}()
		time.Sleep(2*maxRenewalDelay + time.Minute)
		cancel()
		<-done
		hub.mu.Lock()
		defer hub.mu.Unlock()
		if n := len(hub.shown); n < 3 || n > 5 {
			t.Errorf("%d requests in %s, want one every %s", n, 2*maxRenewalDelay, maxRenewalDelay)
		}
	})
}

// TestRenewalAfterTheClockWasSet: a clock that was days behind when the agent got its credential does not put off the renewal for days.
func TestRenewalAfterTheClockWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := &memory{readErr: errors.New("unreachable")}
		k := newCredentialManager(stored, nil, "", slog.New(slog.DiscardHandler))
		days := time.Now().Add(10 * 24 * time.Hour)
		k.current = identity{Agent: agentID, Credential: "c", ExpiresAt: days.Add(8 * time.Hour), RenewAfter: days}
		k.renewAt = days
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.run(ctx)
		}()
		synctest.Wait()
		k.mu.Lock()
		k.renewAt = time.Now() // as with the clock set
		k.mu.Unlock()
		time.Sleep(maxRenewalDelay + time.Second)
		synctest.Wait()
		if stored.reads == 0 {
			t.Error("it is not renewed")
		}
		cancel()
		<-done
	})
}

// A failure with an expired credential is retried after a growing delay, and not before the hub wants it.
func TestRenewalBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := &memory{readErr: errors.New("unreachable")}
		k := newCredentialManager(stored, nil, "", slog.New(slog.DiscardHandler))
		k.current = identity{Agent: agentID, Credential: "expired", ExpiresAt: time.Now(), RenewAfter: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.run(ctx)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		early := stored.reads
		time.Sleep(time.Hour)
		synctest.Wait()
		if late := stored.reads - early; early < 3 || early > 6 || late < 9 || late > 20 {
			t.Errorf("%d attempts in the first minute, %d in an hour", early, late)
		}
		cancel()
		<-done
	})
	now := time.Now()
	for failures := range 20 {
		asked := &registration.StatusError{Code: http.StatusTooManyRequests, RetryAfter: 20 * time.Minute}
		if got := renewalDelay(failures, fmt.Errorf("renewing: %w", asked)); got < asked.RetryAfter || got > asked.RetryAfter*3/2 {
			t.Errorf("waits %s after Retry-After %s", got, asked.RetryAfter)
		}
		for left, want := range map[time.Duration]time.Duration{time.Hour: asked.RetryAfter, time.Minute: time.Minute} {
			k := newCredentialManager(&memory{}, nil, "", slog.New(slog.DiscardHandler))
			k.current = identity{Agent: agentID, Credential: "c", ExpiresAt: now.Add(left)}
			if k.unexpired(now, asked) != "c" || k.renewAt.Sub(now) < want || k.renewAt.Sub(now) > want*5/4+time.Second {
				t.Errorf("a credential that is valid for %s is renewed after %s", left, k.renewAt.Sub(now))
			}
		}
	}
}
