package remote

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/testenv/trusttest"
	"github.com/drover-dev/drover/agent/trust"
)

// TestAuthoritiesDeliveredUnderTheOld takes a running source from one authority to another, without losing contact for longer than a
// restart of the hub takes.
func TestAuthoritiesDeliveredUnderTheOld(t *testing.T) {
	t.Parallel()
	old, next1 := trusttest.NewCA(t, "old"), trusttest.NewCA(t, "new")
	f := newTLSHub(t, old)
	info := f.info("token", old.PEM())
	info.PlanSigningKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	m := newMachine(t, info)
	s := m.start(t)
	f.Deliver("1")
	next(t, s, "1")
	both := append(append([]byte{}, old.PEM()...), next1.PEM()...)
	for i, phase := range []struct {
		serves *trusttest.CA
		hands  []byte
	}{{old, both}, {next1, both}, {next1, next1.PEM()}} {
		f.serve(phase.serves, phase.hands)
		f.restart()
		plan := strings.Repeat("2", i+1)
		f.Deliver(plan)
		next(t, s, plan)
		eventually(t, "the authorities", func() bool { _, got, _ := m.read(t); return bytes.Equal(got, phase.hands) })
	}
	got, _, token := m.read(t)
	if token != "token" || got.PlanSigningKey != info.PlanSigningKey || got.Namespace != info.Namespace {
		t.Errorf("the connection info is %+v", got)
	}
	eventually(t, "the count", func() bool { return s.Connections().AuthoritiesReplaced == 2 })
	if f.asked("/cacerts") != 2 {
		t.Errorf("asked %d times for authorities", f.asked("/cacerts"))
	}
	if reason, since := s.Unreachable(); reason != "" || !since.IsZero() {
		t.Errorf("unreachable since %s: %s", since, reason)
	}
}

// TestAuthoritiesSignedByTheOld has a hub change its authority without a word.
func TestAuthoritiesSignedByTheOld(t *testing.T) {
	old, next1 := trusttest.NewCA(t, "old"), trusttest.NewCA(t, "new")
	f := newTLSHub(t, old)
	m := newMachine(t, f.info("token", old.PEM()))
	s := m.start(t)
	f.Deliver("1")
	next(t, s, "1")
	bundle := trust.EncodeBundle([]*x509.Certificate{next1.Cert, old.CrossSign(t, next1)})
	f.serve(next1, bundle)
	f.restart()
	f.Deliver("2")
	next(t, s, "2")
	// What was taken then is replaced by what the hub hands out, now that it can be trusted.
	eventually(t, "the whole bundle", func() bool { _, got, _ := m.read(t); return bytes.Equal(got, bundle) })
}

// TestForeignAuthorityIsRefused shows that S3 cannot happen: a mismatch is never answered by trusting more, and no credential leaves the
// machine.
func TestForeignAuthorityIsRefused(t *testing.T) {
	t.Parallel()
	old, foreign := trusttest.NewCA(t, "old"), trusttest.NewCA(t, "old") // of the same name
	f := newTLSHub(t, old)
	m := newMachine(t, f.info("token", old.PEM()))
	s := m.start(t)
	f.Deliver("1")
	next(t, s, "1")
	f.serve(foreign, append(append([]byte{}, old.PEM()...), foreign.PEM()...))
	f.set(func() { f.foreignSince = time.Now() })
	f.restart()
	eventually(t, "a reason", func() bool { reason, _ := s.Unreachable(); return reason != "" })
	eventually(t, "the reason", func() bool {
		reason, since := s.Unreachable()
		return strings.Contains(reason, "not signed by the CA of the connection info") &&
			strings.Contains(reason, "run the install script again with its checksum") &&
			!since.IsZero()
	})
	f.Deliver("2")
	for range 2 { // what was asked before the first may not know the plan
		asked := f.asked("/cacerts")
		eventually(t, "another try", func() bool { return f.asked("/cacerts") > asked })
	}
	select {
	case got := <-s.Updates():
		t.Errorf("a plan of a foreign hub: %+v", got)
	default:
	}
	if _, got, _ := m.read(t); !bytes.Equal(got, old.PEM()) {
		t.Error("the foreign hub is trusted")
	}
	// The right hub comes back.
	f.set(func() { f.foreignSince = time.Time{} })
	f.serve(old, old.PEM())
	f.restart()
	next(t, s, "2")
}

// TestAuthoritiesThatDoNotFit are not taken: the machine would lock itself out. The hub is not asked for them again.
func TestAuthoritiesThatDoNotFit(t *testing.T) {
	t.Parallel()
	old, other := trusttest.NewCA(t, "old"), trusttest.NewCA(t, "other")
	for name, handed := range map[string][]byte{"another's": other.PEM(), "no certificates": []byte("<html>"), "none": nil,
		"many": bytes.Repeat(old.PEM(), 500)} {
		t.Run(name, func(t *testing.T) {
			f := newTLSHub(t, old)
			f.serve(old, handed)
			m := newMachine(t, f.info("token", old.PEM()))
			s := m.start(t)
			for _, plan := range []string{"1", "2", "3"} {
				f.EndWatches()
				f.Deliver(plan)
				next(t, s, plan)
			}
			if _, got, _ := m.read(t); !bytes.Equal(got, old.PEM()) || f.asked("/cacerts") != 1 {
				t.Errorf("asked %d times", f.asked("/cacerts"))
			}
		})
	}
}

// TestHubThatAnnouncesNothing is asked once, when the agent starts.
func TestHubThatAnnouncesNothing(t *testing.T) {
	t.Parallel()
	old, next1 := trusttest.NewCA(t, "old"), trusttest.NewCA(t, "new")
	f := newTLSHub(t, old)
	f.announce = false
	both := append(append([]byte{}, old.PEM()...), next1.PEM()...)
	f.serve(old, both)
	m := newMachine(t, f.info("token", old.PEM()))
	s := m.start(t)
	f.Deliver("1")
	next(t, s, "1")
	eventually(t, "the authorities", func() bool { _, got, _ := m.read(t); return bytes.Equal(got, both) })
	f.serve(next1, both)
	f.restart()
	f.Deliver("2")
	next(t, s, "2")
	if asked := f.asked("/cacerts"); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestClocksAreCompared(t *testing.T) {
	ca := trusttest.NewCAUntil(t, "old", time.Now().Add(10000*time.Hour))
	for name, test := range map[string]struct {
		from, to time.Duration
		date     time.Duration
		want     string
	}{
		"expired":       {-48 * time.Hour, -24 * time.Hour, 0, "renew the hub's certificate"},
		"machine ahead": {-48 * time.Hour, -24 * time.Hour, -26 * time.Hour, "this machine's clock is 26h0m"},
		"machine late":  {24 * time.Hour, 48 * time.Hour, 25 * time.Hour, "behind the hub's; correct it"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTLSHub(t, ca)
			f.set(func() {
				f.certificate = ca.ServeBetween(t, "127.0.0.1", time.Now().Add(test.from), time.Now().Add(test.to))
			})
			f.server.Config.Handler = dated(f, test.date)
			s := newMachine(t, f.info("token", ca.PEM())).start(t)
			eventually(t, "the reason", func() bool {
				reason, _ := s.Unreachable()
				return strings.Contains(reason, "is not valid at this machine's time") && strings.Contains(reason, test.want)
			})
		})
	}
}
