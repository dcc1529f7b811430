package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/inflight"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

func TestWrongCredentialsWait(t *testing.T) {
	s := newTestServer(t, "")
	s.machines.failures = ratelimit.New(1, 3)
	reviews := 0
	s.opts.Client.(*fakeAPI).review = func(string) bool { reviews++; return false }
	var codes []int
	for i := range 5 {
		codes = append(codes, getAs(s, fmt.Sprint("wrong", i), "/version", "").Code)
	}
	if codes[0] != 401 || codes[2] != 401 || codes[4] != 429 || reviews != 3 {
		t.Errorf("answers %v after %d reviews", codes, reviews)
	}
	// The token of a neighbour behind the same address that the hub has issued is reviewed all the same, also for the first time.
	s.machines.recognized = func(_ *http.Request, token string) bool { return token == "of a machine" }
	if getAs(s, "of a machine", "/version", ""); reviews != 4 {
		t.Errorf("%d reviews, want the fourth to be that of the neighbour's token", reviews)
	}
}

// TestUnrecognizedMachines: machines of one address whose tokens have to be reviewed leave slots to those of others, and what is no token
// is not reviewed.
func TestUnrecognizedMachines(t *testing.T) {
	s := newTestServer(t, "")
	s.setupCallers()
	s.handler = s.newHandler()
	reviews := 0
	s.opts.Client.(*fakeAPI).review = func(string) bool { reviews++; return false }
	if w := getAs(s, "nothing", "/version", ""); w.Code != http.StatusUnauthorized || reviews > 0 {
		t.Errorf("what is no token: %d after %d reviews", w.Code, reviews)
	}
	const token = "header.payload.signature"
	var release func()
	for i := range maxReviews {
		address := fmt.Sprint("192.0.2.", 1+i/maxReviewsPerAddress)
		var code int
		if code, release = enter(t, s.machines, address, token); code != http.StatusOK {
			t.Fatalf("request %d: %d", i, code)
		}
		if i == maxReviewsPerAddress-1 {
			if code, _ := enter(t, s.machines, address, token); code != http.StatusServiceUnavailable {
				t.Errorf("an address that has its share of the slots: %d", code)
			}
		}
	}
	if code, _ := enter(t, s.machines, "192.0.2.9", token); code != http.StatusServiceUnavailable {
		t.Errorf("all slots are taken: %d", code)
	}
	release()
	if code, _ := enter(t, s.machines, "192.0.2.9", token); code != http.StatusOK {
		t.Errorf("after one was released: %d", code)
	}
}

// enter lets a request of an address in, and returns its status code.
func enter(t *testing.T, c *callers, address, credential string) (code int, release func()) {
	t.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = address + ":1"
	release, err := c.enter(httptest.NewRecorder(), r, credential, func() bool { return true })
	var refused *response.Error
	if !errors.As(err, &refused) {
		must(t, err)
		return http.StatusOK, release
	}
	if refused.RetryAfter <= 0 {
		t.Errorf("%v does not say when to retry", err)
	}
	return refused.Code, nil
}

// TestAgentLimits checks that unauthenticated clients and agents do not use up each other's limits.
func TestAgentLimits(t *testing.T) {
	const known, unknown = "known", "unknown"
	fixture := func() *callers {
		c := newTestServer(t, "").agents
		c.recognized = func(_ *http.Request, token string) bool {
			return token == known || token == "aaaaaaaaaa."+tokens.Hash("a")
		}
		c.check = nil
		return c
	}
	c := fixture()
	c.unknown.limiter = ratelimit.New(1, 2)
	for i, want := range []int{200, 200, 429} {
		if code, _ := enter(t, c, "192.0.2.1", unknown); code != want {
			t.Errorf("request %d of an address: %d", i, code)
		}
	}
	if code, _ := enter(t, c, "192.0.2.2", unknown); code != 200 {
		t.Errorf("another address: %d", code)
	}
	if code, _ := enter(t, c, "192.0.2.1", known); code != 200 {
		t.Errorf("a token that is recognized, from the address of unknown clients: %d", code)
	}

	c = fixture()
	c.known.limiter = ratelimit.New(1, 2)
	for i := range 10 {
		if code, _ := enter(t, c, "192.0.2.1", "aaaaaaaaaa."+tokens.Hash(fmt.Sprint("b", i))); code != 200 {
			t.Errorf("a client who knows the public part of a token: %d", code)
		}
	}
	for i, want := range []int{200, 200, 429} {
		if code, _ := enter(t, c, "192.0.2.1", "aaaaaaaaaa."+tokens.Hash("a")); code != want {
			t.Errorf("request %d with a token: %d", i, code)
		}
	}

	for _, tt := range [][2]string{{known, unknown}, {unknown, known}} {
		c = fixture()
		c.knownSlots, c.unknownSlots = inflight.New(1, 1), inflight.New(1, 1)
		_, release := enter(t, c, "192.0.2.1", tt[0])
		if code, _ := enter(t, c, "192.0.2.1", tt[0]); code != http.StatusServiceUnavailable {
			t.Errorf("too many at the same time: %d", code)
		}
		if code, _ := enter(t, c, "192.0.2.1", tt[1]); code != 200 {
			t.Errorf("known and unknown callers share slots: %d", code)
		}
		release()
		if code, _ := enter(t, c, "192.0.2.1", tt[0]); code != 200 {
			t.Errorf("after one was released: %d", code)
		}
	}
}

// TestRegistrationShare checks that the holder of one registration token cannot keep the machines of others waiting.
func TestRegistrationShare(t *testing.T) {
	c := newTestServer(t, "").registrants
	c.recognized = func(_ *http.Request, token string) bool { return token == "mine" || token == "other" }
	c.known.limiter = ratelimit.New(1, 2*maxRegistrations)
	for i := range maxPerToken {
		if code, _ := enter(t, c, "192.0.2.1", "mine"); code != 200 {
			t.Fatalf("registration %d with a token: %d", i, code)
		}
	}
	if code, _ := enter(t, c, "192.0.2.2", "mine"); code != http.StatusServiceUnavailable {
		t.Errorf("a token that has its share of the registrations: %d", code)
	}
	if code, _ := enter(t, c, "192.0.2.1", "other"); code != 200 {
		t.Errorf("another token: %d", code)
	}
}

// TestTokensInPathsAreNotLogged: the path of an import is as secret as the token in it.
func TestTokensInPathsAreNotLogged(t *testing.T) {
	for path, want := range map[string]string{
		"/v3/import/id.planted_c-m-a.yaml": "/v3/import/...",
		"/v3/connect/agent":                "/v3/connect/agent",
	} {
		if got := loggedPath(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("%s is logged as %s", path, got)
		}
	}
}
