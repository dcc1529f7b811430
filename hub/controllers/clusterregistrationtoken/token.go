package clusterregistrationtoken

import (
	"time"

	"k8s.io/utils/ptr"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

// Bounds of spec.ttl and spec.gracePeriod. foreverGrace is how long a token without expiry remains valid after it was replaced.
const (
	minTTL         = 30 * time.Minute
	minGracePeriod = 10 * time.Minute
	maxJitter      = 24 * time.Hour
	foreverGrace   = 24 * time.Hour
)

// issuer issues the tokens of this hub.
type issuer interface {
	// newID returns the id of a new token, hashOf the hash of the token of an id.
	newID() (string, error)
	hashOf(id string) string
}

// hubIssuer is the issuer of a running hub.
type hubIssuer struct{ *tokens.Issuer }

func (i hubIssuer) newID() (string, error) { return tokens.NewRegistrationID() }

func (i hubIssuer) hashOf(id string) string { return tokens.Hash(i.RegistrationToken(id)) }

// wanted returns what the token Secret of a ClusterRegistrationToken must contain. jitter, from 0 to 1, spreads the expiry of tokens that
// were created at the same time.
func wanted(have tokens.Registration, crt *managementv3.ClusterRegistrationToken, now time.Time, jitter float64,
	hub issuer) (tokens.Registration, error) {
	have.Whole = false
	if made := crt.Spec.Made; made != nil {
		// It is never replaced: the hub could not show the new token to its user.
		want := tokens.Registration{Current: tokens.Known{ID: made.ID, Hash: made.Hash}, UsedBy: have.UsedBy}
		if ttl, _ := lifetimes(crt.Spec); ttl > 0 {
			want.ExpiresAt = crt.CreationTimestamp.Add(ttl)
		}
		return want, nil
	}
	return rotate(have, crt.Spec, now, jitter, hub)
}

// rotate returns the tokens that must exist now: a first one if there is none; a new one if the current one has expired, with the expired
// one valid for the grace period; and no previous one after that. A token that this hub cannot derive is replaced too, since agents are
// deployed with the hub's own: a token of another hub remains valid until it would have expired.
func rotate(r tokens.Registration, spec managementv3.ClusterRegistrationTokenSpec, now time.Time, jitter float64,
	hub issuer) (tokens.Registration, error) {
	ttl, grace := lifetimes(spec)
	if r.Previous.Hash != "" && !r.GraceExpiresAt.IsZero() && !now.Before(r.GraceExpiresAt) {
		r.Previous, r.GraceExpiresAt = tokens.Known{}, time.Time{}
	}
	replace := func(graceExpiresAt time.Time) (tokens.Registration, error) {
		id, err := hub.newID()
		if err != nil {
			return r, err
		}
		r.Previous, r.GraceExpiresAt = r.Current, graceExpiresAt
		r.Current, r.ExpiresAt = tokens.Known{ID: id, Hash: hub.hashOf(id)}, expiry(now, ttl, jitter)
		return r, nil
	}
	switch {
	case r.Current.Hash == "":
		return replace(time.Time{})
	case !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt) && ttl > 0:
		return replace(now.Add(grace))
	case r.Current.ID == "" && r.Previous.Hash == "":
		end := r.ExpiresAt
		if !end.IsZero() {
			end = end.Add(grace)
		}
		return replace(end)
	case r.Current.ID != "" && r.Current.Hash != hub.hashOf(r.Current.ID):
		// The key of the hub has changed.
		return replace(now.Add(max(grace, foreverGrace)))
	case ttl == 0:
		r.ExpiresAt = time.Time{}
	case r.ExpiresAt.IsZero() || r.ExpiresAt.After(now.Add(ttl+jitterSpan(ttl))):
		// The time to live was set or shortened after the token was made.
		r.ExpiresAt = expiry(now, ttl, jitter)
	}
	return r, nil
}

// lifetimes returns spec.ttl and spec.gracePeriod within their bounds; a ttl of 0 means no expiry.
func lifetimes(spec managementv3.ClusterRegistrationTokenSpec) (ttl, grace time.Duration) {
	ttl = time.Duration(ptr.Deref(spec.TTL, 0)) * time.Minute
	if ttl <= 0 {
		return 0, 0
	}
	ttl = max(ttl, minTTL)
	grace = time.Duration(ptr.Deref(spec.GracePeriod, 0)) * time.Minute
	if grace < minGracePeriod || grace >= ttl {
		grace = ttl / 10 * 8 // in this order, a hundred years are not too many
	}
	return ttl, grace
}

func expiry(now time.Time, ttl time.Duration, jitter float64) time.Time {
	if ttl == 0 {
		return time.Time{}
	}
	return now.Add(ttl + time.Duration(jitter*float64(jitterSpan(ttl)))).UTC().Truncate(time.Second)
}

// jitterSpan is a tenth of the time to live, at most a day.
func jitterSpan(ttl time.Duration) time.Duration { return min(ttl/10, maxJitter) }
