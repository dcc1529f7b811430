package registration

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"time"

	"k8s.io/utils/ptr"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// tokenLength and tokenAlphabet make a token of 285 bits without characters that look alike or that a shell would touch.
const (
	tokenLength   = 60
	tokenAlphabet = "bcdfghjklmnpqrstvwxz2456789"
)

// The bounds of spec.ttl and spec.gracePeriod.
const (
	minTTL         = 30 * time.Minute
	minGracePeriod = 10 * time.Minute
	maxJitter      = 24 * time.Hour
)

// newToken makes a token out of the system's randomness.
func newToken() (string, error) {
	out := make([]byte, tokenLength)
	for i := range out {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(tokenAlphabet))))
		if err != nil {
			return "", fmt.Errorf("making a token: %w", err)
		}
		out[i] = tokenAlphabet[n.Int64()]
	}
	return string(out), nil
}

// tokens is the content of a token Secret. Zero times mean never.
type tokens struct {
	current, previous         string
	expiresAt, graceExpiresAt time.Time
}

func (t tokens) equal(other tokens) bool {
	return t.current == other.current && t.previous == other.previous &&
		t.expiresAt.Equal(other.expiresAt) && t.graceExpiresAt.Equal(other.graceExpiresAt)
}

// decodeTokens reads a token Secret; times that cannot be read count as passed, so that the tokens are made anew.
func decodeTokens(data map[string][]byte) tokens {
	return tokens{
		current:        string(data[managementv3.TokenKey]),
		previous:       string(data[managementv3.PreviousTokenKey]),
		expiresAt:      decodeTime(data[managementv3.ExpiresAtKey]),
		graceExpiresAt: decodeTime(data[managementv3.GracePeriodExpiresAtKey]),
	}
}

func decodeTime(raw []byte) time.Time {
	if len(raw) == 0 {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, string(raw))
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return t
}

// encode leaves out what is not set.
func (t tokens) encode() map[string][]byte {
	data := map[string][]byte{managementv3.TokenKey: []byte(t.current)}
	if t.previous != "" {
		data[managementv3.PreviousTokenKey] = []byte(t.previous)
	}
	if !t.expiresAt.IsZero() {
		data[managementv3.ExpiresAtKey] = []byte(t.expiresAt.UTC().Format(time.RFC3339))
	}
	if !t.graceExpiresAt.IsZero() {
		data[managementv3.GracePeriodExpiresAtKey] = []byte(t.graceExpiresAt.UTC().Format(time.RFC3339))
	}
	return data
}

// rotate returns the tokens that should be there now: a first one where there is none, a new one where the current one has expired, with
// the expired one still good for the grace period; and no previous one once that is over. jitter, of 0 to 1, spreads expiry times so that
// tokens made together do not all change together. make is asked for a token when one is needed.
func rotate(t tokens, spec managementv3.ClusterRegistrationTokenSpec, now time.Time, jitter float64, make func() (string, error)) (tokens, error) {
	ttl, grace := lifetimes(spec)
	switch {
	case t.current == "":
		token, err := make()
		if err != nil {
			return t, err
		}
		t = tokens{current: token, expiresAt: expiry(now, ttl, jitter)}
	case ttl == 0:
		t.expiresAt = time.Time{}
	case t.expiresAt.IsZero() || t.expiresAt.After(now.Add(ttl+jitterSpan(ttl))):
		// The time to live was set or shortened after the token was made.
		t.expiresAt = expiry(now, ttl, jitter)
	case !now.Before(t.expiresAt):
		token, err := make()
		if err != nil {
			return t, err
		}
		t = tokens{current: token, previous: t.current, expiresAt: expiry(now, ttl, jitter), graceExpiresAt: now.Add(grace)}
	}
	if t.previous != "" && !now.Before(t.graceExpiresAt) {
		t.previous, t.graceExpiresAt = "", time.Time{}
	}
	return t, nil
}

// next is when the tokens change again; zero means never.
func (t tokens) next() time.Time {
	next := t.expiresAt
	if t.previous != "" && (next.IsZero() || t.graceExpiresAt.Before(next)) {
		next = t.graceExpiresAt
	}
	return next
}

// lifetimes are spec.ttl and spec.gracePeriod within their bounds; a ttl of 0 means for ever.
func lifetimes(spec managementv3.ClusterRegistrationTokenSpec) (ttl, grace time.Duration) {
	ttl = time.Duration(ptr.Deref(spec.TTL, 0)) * time.Minute
	if ttl <= 0 {
		return 0, 0
	}
	ttl = max(ttl, minTTL)
	grace = time.Duration(ptr.Deref(spec.GracePeriod, 0)) * time.Minute
	if grace < minGracePeriod || grace >= ttl {
		grace = ttl * 8 / 10
	}
	return ttl, grace
}

func expiry(now time.Time, ttl time.Duration, jitter float64) time.Time {
	if ttl == 0 {
		return time.Time{}
	}
	return now.Add(ttl + time.Duration(jitter*float64(jitterSpan(ttl)))).UTC().Truncate(time.Second)
}

// jitterSpan is a tenth of the time to live, but no more than a day.
func jitterSpan(ttl time.Duration) time.Duration { return min(ttl/10, maxJitter) }
